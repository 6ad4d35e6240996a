"""Door to what feeds a cache.

protocols.py   what a source must and may have
arrow.py       ArrowSource, the columnar way in
batches.py     Arrow data of any library, batch by batch
"""

from dataset_rt.sources.arrow import ArrowSource
from dataset_rt.sources.protocols import (
    CacheSource,
    HasFingerprint,
    HasIterFrom,
    HasLength,
    HasProvenance,
    HasSchema,
    HasTransform,
)

__all__ = [
    "ArrowSource",
    "CacheSource",
    "HasFingerprint",
    "HasIterFrom",
    "HasLength",
    "HasProvenance",
    "HasSchema",
    "HasTransform",
]

"""DatasetRT with payloads compressed by lz4."""

from functools import partial

from benchmarks.engines import ours
from benchmarks.engines.ours import Reader

__all__ = ["Reader", "write"]

write = partial(ours.write, compression="lz4")

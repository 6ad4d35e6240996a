"""Door to what feeds a cache.

protocols.py    what a source must and may have
arrow.py        ArrowSource, the columnar way in
batches.py      Arrow data of any library, batch by batch
image_folder.py ImageFolderSource, labels from directories
parquet.py      ParquetSource, row group by row group
csv_files.py    CsvSource, block by block
webdataset.py   WebDatasetSource, tar shards
huggingface.py  HuggingFaceSource, datasets of that library
map_dataset.py  MapDatasetSource, items by number and a function
array_record.py ArrayRecordSource, records by number
inputs/         what these importers share
"""

import importlib
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from dataset_rt.sources.array_record import ArrayRecordSource
    from dataset_rt.sources.csv_files import CsvSource
    from dataset_rt.sources.huggingface import HuggingFaceSource
    from dataset_rt.sources.image_folder import ImageFolderSource
    from dataset_rt.sources.map_dataset import MapDatasetSource
    from dataset_rt.sources.parquet import ParquetSource
    from dataset_rt.sources.webdataset import WebDatasetSource

# Importers cost time to import, and most programs need none of them.
_AT_FIRST_USE = {
    "ArrayRecordSource": "array_record",
    "CsvSource": "csv_files",
    "HuggingFaceSource": "huggingface",
    "ImageFolderSource": "image_folder",
    "MapDatasetSource": "map_dataset",
    "ParquetSource": "parquet",
    "WebDatasetSource": "webdataset",
}


def __getattr__(name: str) -> Any:
    module = _AT_FIRST_USE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = importlib.import_module(f"{__name__}.{module}")
    value = globals()[name] = getattr(found, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "ArrayRecordSource",
    "ArrowSource",
    "CacheSource",
    "CsvSource",
    "HasFingerprint",
    "HasIterFrom",
    "HasLength",
    "HasProvenance",
    "HasSchema",
    "HasTransform",
    "HuggingFaceSource",
    "ImageFolderSource",
    "MapDatasetSource",
    "ParquetSource",
    "WebDatasetSource",
]

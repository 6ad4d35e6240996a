"""Arrow-native dataset cache: write samples once, read them in a reproducible order.

    source -> DatasetRuntime.write_cache -> cache on disk -> CachedDataset -> training loop
                                                                 |   ^
                                                    get_metadata v   | update_metadata
                                                              Polars table

A short tour:

    >>> class Letters:                                # anything with a name that yields samples
    ...     name = "letters"
    ...     fingerprint = "v1"                        # version of the preprocessing
    ...
    ...     def __iter__(self):
    ...         for letter in "abc":
    ...             yield CacheInput(letter.encode(), {"vowel": letter in "aeiou"})
    >>> runtime = DatasetRuntime()
    >>> made = runtime.from_cache_sources(            # written once, reused from then on
    ...     Letters(), "caches", reader_config=ReaderConfig(seed=7)
    ... )
    >>> dataset = made.dataset
    >>> table = dataset.get_metadata()                # Polars: filter, join, weigh, repeat
    >>> dataset.update_metadata(table.filter("vowel"))
    >>> [sample.data for sample in dataset]           # deterministic, resumable: state_dict()
    [b'a']

To go on: `DatasetRuntime`, `CachedDataset` and `ReaderConfig` have most of it. `open_dataset` is
one line for notebooks, `open_cache` a look without a runtime, `verify_cache` a check. What a source
may have: `CacheSource`, `HasFingerprint`, `HasTransform` and their like; `sources` imports files of
other libraries, `exporters` goes the other way. What fails on the way is a `DatasetRTError` whose
class says what to do; wrong types of arguments are a TypeError as everywhere, wrong fields of a
config pydantic's ValidationError (a ValueError), missing libraries an ImportError. Further examples
have a small cache at hand, whose directory they call cache.

Where to find it:

sources/         what feeds a cache, importers of other libraries' files among it
exporters/       what comes out of a cache as something else
runtime.py       DatasetRuntime: writes caches, opens datasets
writing.py       what becomes of the sources of one call
processes/       preprocessing by several processes
config/          settings of writing and reading
dataset.py       CachedDataset: order, table, samples
saving.py        its methods that keep it in a directory
torch_faces/     loaders and streams for PyTorch
launcher.py      which rank this process is
arrays.py        payload_array: payloads as NumPy arrays and tensors
cache.py         open_cache: a look into one cache
inspection/      what commands and reports ask of a cache, damaged ones too
report/          write_report: one HTML file that tells what a cache is
unfinished.py    unfinished_writes: what interrupted writes left
verification.py  verify_cache: does a cache obey its format
repair.py        repair_cache, salvage_cache: what is left of a damaged cache
plotting/        dataset.plot: charts
cards/           what a notebook shows of these objects
html/            tables, bars and histograms for notebooks and reports
text.py          values as safe text and as JSON, for terminals and HTML
field_docs.py    docstrings for the fields of named tuples
errors.py        what is raised, and what to do about it
"""

import atexit
import importlib
import os
from typing import TYPE_CHECKING, Any

from dataset_rt import _native
from dataset_rt._native import VERSION
from dataset_rt.errors import (
    ConflictError,
    CorruptError,
    DatasetRTError,
    ExhaustedError,
    FailedResultError,
    FileConflictError,
    FileExhaustedError,
    FileUnavailableError,
    FileUnsupportedError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    SampleNotFoundError,
    SourceError,
    UnavailableError,
    UnsupportedError,
)
from dataset_rt.results import (
    CacheSourcesDatasetError,
    CacheSourcesDatasetResult,
    CacheSourcesDatasetSuccess,
    CacheWriteError,
    CacheWriteResult,
    CacheWriteSuccess,
)
from dataset_rt.samples import BytesLike, CachedSample, CacheInput, Metadata, MetadataValue
from dataset_rt.unfinished import (
    UnfinishedWrite,
    remove_unfinished_write,
    unfinished_writes,
)
from dataset_rt.verification import Finding, VerificationReport, verify_cache

if TYPE_CHECKING:
    from dataset_rt.arrays import payload_array, payload_arrays, payload_tensor, payload_tensors
    from dataset_rt.cache import Cache, Shard, open_cache
    from dataset_rt.config import (
        CompressionAlgo,
        ReaderConfig,
        ShardCompression,
        WriterConfig,
        WriterProfilerConfig,
    )
    from dataset_rt.dataset import CachedDataset
    from dataset_rt.repair import (
        DamagedFile,
        KeptSamples,
        LostSamples,
        RepairReport,
        SalvageReport,
        repair_cache,
        salvage_cache,
    )
    from dataset_rt.report import WrittenReport, write_report
    from dataset_rt.runtime import DatasetRuntime, open_dataset
    from dataset_rt.sources import (
        ArrowSource,
        CacheSource,
        HasFingerprint,
        HasIterFrom,
        HasLength,
        HasProvenance,
        HasSchema,
        HasTransform,
    )

__version__ = VERSION

# Polars, pyarrow, NumPy and pydantic take longer to import than all else together: that is left to
# the first use of what needs them. The command line answers before they are there.
_AT_FIRST_USE = {
    "dataset_rt.arrays": (
        "payload_array",
        "payload_arrays",
        "payload_tensor",
        "payload_tensors",
    ),
    "dataset_rt.cache": ("Cache", "Shard", "open_cache"),
    "dataset_rt.config": (
        "CompressionAlgo",
        "ReaderConfig",
        "ShardCompression",
        "WriterConfig",
        "WriterProfilerConfig",
    ),
    "dataset_rt.dataset": ("CachedDataset",),
    "dataset_rt.repair": (
        "DamagedFile",
        "KeptSamples",
        "LostSamples",
        "RepairReport",
        "SalvageReport",
        "repair_cache",
        "salvage_cache",
    ),
    "dataset_rt.report": ("WrittenReport", "write_report"),
    "dataset_rt.runtime": ("DatasetRuntime", "open_dataset"),
    "dataset_rt.sources": (
        "ArrowSource",
        "CacheSource",
        "HasFingerprint",
        "HasIterFrom",
        "HasLength",
        "HasProvenance",
        "HasSchema",
        "HasTransform",
    ),
}
_MODULE_OF = {name: module for module, names in _AT_FIRST_USE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in {"exporters", "sources"}:
        return importlib.import_module(f"dataset_rt.{name}")
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# Daemon threads that are still reading must not come back into an interpreter that ends.
atexit.register(_native.begin_exit)

# No fork finds native work in flight or a lock of ours taken: see docs/decisions/0004.
os.register_at_fork(
    before=_native.before_fork,
    after_in_parent=_native.after_fork_in_parent,
    after_in_child=_native.after_fork_in_child,
)

__all__ = [
    "ArrowSource",
    "BytesLike",
    "Cache",
    "CacheInput",
    "CacheSource",
    "CacheSourcesDatasetError",
    "CacheSourcesDatasetResult",
    "CacheSourcesDatasetSuccess",
    "CacheWriteError",
    "CacheWriteResult",
    "CacheWriteSuccess",
    "CachedDataset",
    "CachedSample",
    "CompressionAlgo",
    "ConflictError",
    "CorruptError",
    "DamagedFile",
    "DatasetRTError",
    "DatasetRuntime",
    "ExhaustedError",
    "FailedResultError",
    "FileConflictError",
    "FileExhaustedError",
    "FileUnavailableError",
    "FileUnsupportedError",
    "Finding",
    "HasFingerprint",
    "HasIterFrom",
    "HasLength",
    "HasProvenance",
    "HasSchema",
    "HasTransform",
    "InternalError",
    "InvalidInputError",
    "KeptSamples",
    "LostSamples",
    "Metadata",
    "MetadataValue",
    "NotFoundError",
    "ReaderConfig",
    "RepairReport",
    "SalvageReport",
    "SampleNotFoundError",
    "Shard",
    "ShardCompression",
    "SourceError",
    "UnavailableError",
    "UnfinishedWrite",
    "UnsupportedError",
    "VerificationReport",
    "WriterConfig",
    "WriterProfilerConfig",
    "WrittenReport",
    "__version__",
    "open_cache",
    "open_dataset",
    "payload_array",
    "payload_arrays",
    "payload_tensor",
    "payload_tensors",
    "remove_unfinished_write",
    "repair_cache",
    "salvage_cache",
    "unfinished_writes",
    "verify_cache",
    "write_report",
]

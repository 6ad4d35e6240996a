"""Arrow data of any library as record batches, none taken ahead; knows nothing of payloads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl
import pyarrow as pa

from dataset_rt.frames import AnyArrowTable, refuse_unsendable, to_stream_exporter

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset, Scanner

AnyArrowData: TypeAlias = "AnyArrowTable | Dataset | Scanner | pl.LazyFrame"
"""Any table, and what is read piece by piece."""

# Rows asked for at once from producers that let us choose. They count rows, whatever those hold,
# so it is few: a vector of DuckDB, the least that it makes.
_ROWS_ASKED = 2_048


def record_batches(data: Any) -> Iterator[pa.RecordBatch]:
    """Return the batches of `data` in order, each made when it is asked for.

    Batches of pyarrow keep their schemas, and their buffers the lengths. Neither would survive the
    C interface: behind it, two columns that changed places in a later batch pass for each other.

    Args:
        data: A table, batch, reader, scanner, dataset, frame or relation.

    Raises:
        TypeError: `data` is a single column, or has no Arrow interface.
        InvalidInputError: A column of a Polars frame has a type that Arrow cannot carry.
        Exception: Whatever the producer raises.
    """
    if isinstance(data, pa.RecordBatch):
        return iter([data])
    return _collected(data) if _is_lazy(data) else _until_closed(_reader(data))


def is_read_in_pieces(data: object) -> bool:
    """Whether `data` is no table, but something that makes one piece by piece."""
    return _is_lazy(data) or isinstance(data, pa.RecordBatchReader) or _is_dataset(data)


def _is_lazy(data: object) -> bool:
    return isinstance(data, pl.LazyFrame) and hasattr(data, "collect_batches")


def _is_dataset(data: object) -> bool:
    return any(_is_of(data, "pyarrow.dataset", name) for name in ("Dataset", "Scanner"))


def _reader(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        return data.to_reader()
    if _is_of(data, "pyarrow.dataset", "Dataset"):
        # Threads would decode 64 batches of 131,072 rows ahead.
        data = data.scanner(batch_size=_ROWS_ASKED, batch_readahead=1, fragment_readahead=1)
    if _is_of(data, "pyarrow.dataset", "Scanner"):
        return data.to_reader()
    if _is_of(data, "duckdb", "DuckDBPyRelation") and hasattr(data, "to_arrow_reader"):
        # Its own stream makes batches of 131,072 rows.
        return data.to_arrow_reader(_ROWS_ASKED)
    refuse_unsendable(data)
    return pa.RecordBatchReader.from_stream(to_stream_exporter(data, "data"))


def _until_closed(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    # A connection of DuckDB is of no other use while a result is open.
    with reader:
        yield from reader


def _collected(data: Any) -> Iterator[pa.RecordBatch]:
    for frame in data.collect_batches(chunk_size=_ROWS_ASKED, maintain_order=True, lazy=True):
        yield from record_batches(frame)


def _is_of(data: object, module: str, name: str) -> bool:
    """Whether `data` is of that class; a module that nobody imported made no object."""
    found = getattr(sys.modules.get(module), name, None)
    return isinstance(found, type) and isinstance(data, found)

"""Accepts tables of any library as Arrow streams; knows nothing of what they mean."""

from __future__ import annotations

from os import PathLike
from typing import Any, Protocol, TypeAlias, runtime_checkable

import polars as pl
import pyarrow as pa

from dataset_rt.errors import InvalidInputError


@runtime_checkable
class ArrowStreamExporter(Protocol):
    """Any object that exports rows through the Arrow PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a fresh `arrow_array_stream` capsule."""
        ...


@runtime_checkable
class ArrowArrayExporter(Protocol):
    """Any object that exports one batch through the Arrow PyCapsule interface."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return fresh `arrow_schema` and `arrow_array` capsules."""
        ...


AnyArrowTable: TypeAlias = ArrowStreamExporter | ArrowArrayExporter
"""Polars and pandas frames, pyarrow tables and readers, DuckDB relations, and their like."""


def to_stream_exporter(table: object, argument: str) -> ArrowStreamExporter:
    """Return an object with `__arrow_c_stream__` over the same rows, copying nothing.

    Args:
        table: What the caller passed. A reader of pyarrow is read to its end.
        argument: Name of the caller's argument, for the message.

    Raises:
        TypeError: `table` is lazy, a single column, or has no Arrow interface.
        InvalidInputError: A column name of a Polars frame has a NUL, or a reader fails.
    """
    if isinstance(table, pa.RecordBatchReader):
        return _read(table)
    if isinstance(table, pl.LazyFrame):
        raise TypeError(f"{argument} is a polars.LazyFrame; pass {argument}.collect()")
    if isinstance(table, pl.DataFrame):
        _refuse_nul_names(table)
        return _column_by_column(table) if max(table.n_chunks("all"), default=0) > 1 else table
    if isinstance(table, (str, PathLike)):
        raise TypeError(
            f"{argument} is a path; open it first, for example polars.scan_parquet(path) or "
            "pyarrow.dataset.dataset(path)"
        )
    if isinstance(table, (pl.Series, pa.Array, pa.ChunkedArray)):
        raise TypeError(
            f"{argument} is a single column ({_type_name(table)}); pass a table, for example "
            "a polars.DataFrame"
        )
    if isinstance(table, ArrowStreamExporter) and not isinstance(table, type):
        return _without_index(table)
    if isinstance(table, ArrowArrayExporter) and not isinstance(table, type):
        return _single_batch(table)
    raise TypeError(
        f"{argument} is {_type_name(table)}; pass a polars.DataFrame, a pyarrow.Table or another "
        "table with __arrow_c_stream__ or __arrow_c_array__"
    )


def refuse_unsendable(table: object) -> None:
    """Refuse Polars columns that Arrow cannot carry: objects would cross as addresses.

    Args:
        table: What the caller passed.

    Raises:
        InvalidInputError: A column holds Python objects or 128-bit integers.
    """
    if not isinstance(table, pl.DataFrame):
        return
    for name, dtype in table.schema.items():
        if dtype in (pl.Object, pl.Int128):
            raise InvalidInputError(
                f'column "{name}" has type {dtype}, which Arrow cannot carry; cast or drop it'
            )


def _refuse_nul_names(table: pl.DataFrame) -> None:
    # Polars aborts the process when it exports such a name.
    for name in table.columns:
        if "\0" in name:
            raise InvalidInputError(
                f"column {name!r} has a NUL in its name, which Arrow cannot carry; rename it"
            )


def _column_by_column(table: pl.DataFrame) -> ArrowStreamExporter:
    # As a whole, Polars copies a frame of several chunks into one.
    columns = [pa.chunked_array(column) for column in table]
    return _StreamOnly(pa.Table.from_arrays(columns, names=table.columns))


class _StreamOnly:
    """A table of pyarrow over memory of others, of which it knows no more than we do.

    As its own it would be validated twice: by pyarrow, which knows the ends of its own buffers
    only, and by us.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def _read(reader: pa.RecordBatchReader) -> ArrowStreamExporter:
    # Behind the C interface batches have neither names nor buffer lengths: one with its columns in
    # another order would pass for one in the first.
    try:
        exporter: ArrowStreamExporter = reader.read_all()
    except Exception as error:
        raise InvalidInputError(
            f"cannot take the Arrow table: {error}; fix the reader that gives it"
        ) from error
    return exporter


def _single_batch(table: ArrowArrayExporter) -> ArrowStreamExporter:
    try:
        exporter: ArrowStreamExporter = pa.Table.from_batches([pa.record_batch(table)])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"cannot take the Arrow table: {error}; fix the object that exports it"
        ) from error
    return exporter


def _without_index(table: Any) -> ArrowStreamExporter:
    """Drop the nameless row labels of a pandas frame.

    A filtered pandas frame exports them as a column `__index_level_0__`, which nobody meant.
    Named ones are data, and pandas exports them under their name.
    """
    is_pandas = type(table).__module__.partition(".")[0] == "pandas"
    if is_pandas and hasattr(table, "reset_index") and list(table.index.names) == [None]:
        table = table.reset_index(drop=True)
    exporter: ArrowStreamExporter = table
    return exporter


def _type_name(value: object) -> str:
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )

"""The active table as a lazy Polars source: decides what has to be read for a query.

Knows nothing of files: rows and columns come from the native face.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

if TYPE_CHECKING:
    from dataset_rt._native import NativeFace

_PAYLOAD = "payload"


def scan_face(face: NativeFace) -> pl.LazyFrame:
    """Return a lazy frame over a face.

    Args:
        face: The table as it was when `scan()` was called.

    Returns:
        A frame that reads payloads only for the rows and columns that a query leaves over.
    """
    schema = pl.DataFrame(pa.schema(face).empty_table()).schema

    def read(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        wanted = list(schema) if with_columns is None else with_columns
        query = _Query(face, [name for name in schema if name != _PAYLOAD], predicate, n_rows)
        frames = query.payloads(wanted) if _PAYLOAD in wanted else query.metadata(wanted)
        for frame in frames:
            yield from frame.iter_slices(batch_size) if batch_size else [frame]

    return register_io_source(read, schema=schema)


class _Query:
    """One reading: the first `n_rows` rows of the table, those of them that `predicate` keeps."""

    def __init__(
        self, face: NativeFace, metadata: list[str], predicate: pl.Expr | None, n_rows: int | None
    ) -> None:
        self._face = face
        self._names = metadata
        self._predicate = predicate
        self._n_rows = n_rows
        self._asked = set() if predicate is None else set(predicate.meta.root_names())

    def metadata(self, wanted: list[str]) -> Iterator[pl.DataFrame]:
        """Yield columns other than the payload."""
        if _PAYLOAD in self._asked:
            # Payloads are read to decide about rows, and dropped again batch by batch.
            yield from (_only(frame, wanted) for frame in self.payloads([*wanted, _PAYLOAD]))
            return
        table = self._table(wanted)
        if self._predicate is not None:
            table = _filtered(table, self._predicate)
        yield _only(table, wanted)

    def payloads(self, wanted: list[str]) -> Iterator[pl.DataFrame]:
        """Yield columns and payload, batch by batch, of rows that the metadata left over."""
        names = [*self._names, _PAYLOAD]
        needed = [name for name in names if name in wanted or name in self._asked]
        face = self._face.select(needed, self._rows())
        for batch in face.batches():
            frame = pl.DataFrame(batch)
            if self._predicate is not None and _PAYLOAD in self._asked:
                frame = _filtered(frame, self._predicate)
            yield _only(frame, wanted)

    def _table(self, wanted: list[str]) -> pl.DataFrame:
        """Return what the predicate needs and `wanted`, without copying, never empty of columns."""
        needed = [name for name in self._names if name in wanted or name in self._asked]
        table = pl.DataFrame(self._face.select(needed or self._names[:1]))
        return table if self._n_rows is None else table.head(self._n_rows)

    def _rows(self) -> pl.Series | None:
        """Return the numbers of the rows to read; all of them when it is None."""
        # Only payloads can tell whether a predicate about them holds.
        predicate = None if _PAYLOAD in self._asked else self._predicate
        if predicate is None and self._n_rows is None:
            return None
        table = self._table([])
        row = "row"
        while row in table.columns:
            row += "_"
        table = table.with_row_index(row)
        return (table if predicate is None else _filtered(table, predicate)).get_column(row)


def _filtered(frame: pl.DataFrame, predicate: pl.Expr) -> pl.DataFrame:
    # The eager filter of Polars 2.1 refuses a literal null from 65,536 rows on.
    return frame.lazy().filter(predicate).collect()


def _only(frame: pl.DataFrame, wanted: list[str]) -> pl.DataFrame:
    """Return these columns; where a query counts rows there are none, and rows all the same."""
    if not wanted:
        return frame.drop(frame.columns, strict=False)
    # By name: select would take some names for patterns.
    return pl.DataFrame([frame.get_column(name) for name in wanted])

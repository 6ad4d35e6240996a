"""Arrow data as a source, handed on batch by batch; knows nothing of writing."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pyarrow as pa

from dataset_rt.errors import InvalidInputError
from dataset_rt.frames import to_stream_exporter
from dataset_rt.sources.batches import AnyArrowData, is_read_in_pieces, record_batches

PAYLOAD = "payload"


class ArrowSource:
    """A table, reader or frame as a source: one row is one sample.

    Nothing is copied here, and nothing read ahead: the next batch is asked for once the one before
    it was taken.

    Args:
        name: Name of the source and of its cache directory.
        data: `pa.Table`, `pa.RecordBatch`, `pa.RecordBatchReader`, a dataset or scanner of
            `pyarrow.dataset`, a Polars frame or lazy frame (Polars then streams its answer), a
            pandas frame, a DuckDB relation, or any object with `__arrow_c_stream__` or
            `__arrow_c_array__`. Readers can be iterated once, everything else again.
        payload: The binary column that becomes the payload; the others become metadata.
        fingerprint: Version of the preprocessing, see `HasFingerprint`.

    Raises:
        TypeError: `data` has no Arrow interface, or is lazy.
        InvalidInputError: there is no column `payload`, or another one has that name already.

    Example:
        >>> table = pa.table({"image": pa.array([b"a", b"b"]), "label": [0, 1]})
        >>> source = ArrowSource("letters", table, payload="image")
        >>> [batch.schema.names for batch in source]
        [['payload', 'label']]
    """

    def __init__(
        self,
        name: str,
        data: AnyArrowData,
        payload: str = PAYLOAD,
        fingerprint: str | None = None,
    ) -> None:
        """See the class."""
        self._name = name
        self._payload = payload
        self._fingerprint = fingerprint
        if not is_read_in_pieces(data):
            to_stream_exporter(data, "data")
        self._data = data
        # Iterators go on where they are: a second pass would begin in the middle, or find nothing.
        self._reads_once = hasattr(data, "__next__")
        self._is_read = False
        # Whatever tells its columns without being read is checked here, not hours later.
        names = _names_known(data)
        if names is not None:
            self._check_names(names)

    @property
    def name(self) -> str:
        """Name of the source and of its cache directory."""
        return self._name

    @property
    def fingerprint(self) -> str | None:
        """Version of the preprocessing, `None` when it has none."""
        return self._fingerprint

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the data in their order, the payload column renamed."""
        if self._reads_once and self._is_read:
            kind = type(self._data)
            raise InvalidInputError(
                f"source {self._name!r}: its {kind.__module__}.{kind.__qualname__} was read before "
                "and cannot be read again; make a new one, or pass a table"
            )
        self._is_read = True
        for batch in record_batches(self._data):
            names = batch.schema.names
            self._check_names(names)
            yield batch.rename_columns([PAYLOAD if n == self._payload else n for n in names])

    def __length_hint__(self) -> int:
        """Return the number of rows, or `NotImplemented` for data that does not tell."""
        rows = _rows_known(self._data)
        return NotImplemented if rows is None else rows

    def __repr__(self) -> str:
        """Name and payload column."""
        return f"ArrowSource(name={self._name!r}, payload={self._payload!r})"

    def _check_names(self, names: list[str]) -> None:
        found = names.count(self._payload)
        if found != 1:
            raise InvalidInputError(
                f"source {self._name!r}: expected one column named {self._payload!r} for the "
                f"payload, found {found} among {names}; say which with payload=..."
            )
        if self._payload != PAYLOAD and PAYLOAD in names:
            raise InvalidInputError(
                f"source {self._name!r}: column {self._payload!r} becomes the payload, but the "
                f"data has a column named {PAYLOAD!r} too; drop or rename that one"
            )


def _names_known(data: object) -> list[str] | None:
    """Return the column names of data that tells them without being read."""
    if isinstance(data, pl.DataFrame):
        return data.columns
    if isinstance(data, pl.LazyFrame):
        return None
    schema = getattr(data, "schema", None)
    return list(schema.names) if isinstance(schema, pa.Schema) else None


def _rows_known(data: object) -> int | None:
    """Return the row count of data that holds its rows, without asking for any of them."""
    for member in ("num_rows", "height"):
        rows = getattr(data, member, None)
        if isinstance(rows, int):
            return rows
    return None

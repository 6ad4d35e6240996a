"""Arrow data as a source, handed on in bounded slices; knows nothing of writing."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pyarrow as pa

from dataset_rt.errors import InvalidInputError
from dataset_rt.frames import AnyArrowTable, to_stream_exporter

PAYLOAD = "payload"

# The writer closes its batches near these limits; a larger slice would only wait in memory.
_SLICE_ROWS_MAX = 65_536
_SLICE_BYTES = 32 * 1024 * 1024


class ArrowSource:
    """A table, reader or frame as a source: one row is one sample.

    Nothing is copied here: the slices share the buffers of the data.

    Args:
        name: Name of the source and of its cache directory.
        data: `pa.Table`, `pa.RecordBatch`, `pa.RecordBatchReader`, a Polars or pandas frame, a
            DuckDB relation, or any object with `__arrow_c_stream__` or `__arrow_c_array__`. A
            reader can be iterated once, everything else again.
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
        data: AnyArrowTable,
        payload: str = PAYLOAD,
        fingerprint: str | None = None,
    ) -> None:
        """See the class."""
        self._name = name
        self._payload = payload
        self._fingerprint = fingerprint
        self._rows = _rows_known(data)
        self._data = to_stream_exporter(data, "data")
        self._reads_once = isinstance(data, pa.RecordBatchReader)
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
        """Yield slices of at most 65,536 rows and about 32 MiB, in the order of the data."""
        if self._reads_once and self._is_read:
            raise InvalidInputError(
                f"source {self._name!r}: its pyarrow.RecordBatchReader was read before and is "
                "empty now; make a new reader, or pass a table"
            )
        self._is_read = True
        if isinstance(self._data, (pa.Table, pa.RecordBatch)):
            # Behind the C interface nobody knows how long the buffers are.
            self._data.validate(full=True)
        with pa.RecordBatchReader.from_stream(self._data) as reader:
            schema = self._renamed(reader.schema)
            for batch in reader:
                renamed = pa.RecordBatch.from_arrays(batch.columns, schema=schema)
                yield from _slices(renamed)

    def __length_hint__(self) -> int:
        """Return the number of rows, or `NotImplemented` for data that does not tell."""
        return NotImplemented if self._rows is None else self._rows

    def __repr__(self) -> str:
        """Name and payload column."""
        return f"ArrowSource(name={self._name!r}, payload={self._payload!r})"

    def _renamed(self, schema: pa.Schema) -> pa.Schema:
        self._check_names(schema.names)
        place = schema.get_field_index(self._payload)
        return schema.set(place, schema.field(place).with_name(PAYLOAD)).remove_metadata()

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
    schema = getattr(data, "schema", None)
    return list(schema.names) if isinstance(schema, pa.Schema) else None


def _rows_known(data: object) -> int | None:
    """Return the row count of data that holds its rows, without asking for any of them."""
    for member in ("num_rows", "height"):
        rows = getattr(data, member, None)
        if isinstance(rows, int):
            return rows
    return None


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into views by its mean row size; a single huge row stays whole."""
    rows_total = batch.num_rows
    if rows_total == 0:
        return
    # Sizes and slices of arrays that are not valid would read outside of them.
    batch.validate(full=True)
    rows_by_size = _SLICE_BYTES * rows_total // max(batch.nbytes, 1)
    step = max(1, min(_SLICE_ROWS_MAX, rows_by_size))
    for start in range(0, rows_total, step):
        yield batch.slice(start, step)

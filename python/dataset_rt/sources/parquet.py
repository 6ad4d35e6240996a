"""Parquet files as a source, row group by row group; knows nothing of writing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Unpack

import pyarrow as pa

from dataset_rt.arguments import AnyPath, to_path
from dataset_rt.errors import InvalidInputError
from dataset_rt.sources.arrow import PAYLOAD
from dataset_rt.sources.inputs.column_rules import ColumnChoice
from dataset_rt.sources.inputs.columnar import ColumnarImporter, Rows, check_same_columns
from dataset_rt.sources.inputs.files import InputFile, list_files, to_patterns
from dataset_rt.sources.inputs.importer import ImporterOptions

# Of one batch, uncompressed. Beyond it the allocator keeps several times as much for itself.
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_ROWS_MAX = 4_096
# Of a column's compressed bytes in memory, rather than its whole share of a row group.
_READ_BUFFER_BYTES = 1024 * 1024


class ParquetSource(ColumnarImporter):
    """The rows of Parquet files, in the order of the files and their rows.

    Args:
        name: Name of the source and of its cache directory.
        paths: Files, directories (their `*.parquet` at any depth) and glob patterns. The files of
            one directory or pattern come sorted by the bytes of their paths.
        payload: Column of bytes or text that becomes the payload, or a `{bytes, path}` struct as
            Hugging Face writes images; text becomes UTF-8. `None` gives every sample an empty
            payload.
        columns: Metadata columns in order; all others by default. Types that cannot be stored
            (docs/reference/types.md) must be left out, or be made others by a `transform`.
        payload_files: Column that names files whose bytes are the payload, instead of `payload`;
            it is a metadata column too.
        root: Where these files lie, and all of them must; the directory of the naming file by
            default.
        **options: See `ImporterOptions`.

    Raises:
        NotFoundError: No file is there.
        InvalidInputError: A file is no Parquet, columns are missing or cannot be stored.

    Example:
        >>> from dataset_rt.sources import ParquetSource
        >>> pl.DataFrame({"image": [b"a", b"b"], "label": [0, 1]}).write_parquet(tmp_path / "a.pq")
        >>> source = ParquetSource("letters", tmp_path / "a.pq", payload="image")
        >>> len(source), source.schema.names
        (2, ['label'])
    """

    kind = "parquet"

    def __init__(
        self,
        name: str,
        paths: AnyPath | Iterable[AnyPath],
        *,
        payload: str | None = PAYLOAD,
        columns: Iterable[str] | None = None,
        payload_files: str | None = None,
        root: AnyPath | None = None,
        **options: Unpack[ImporterOptions],
    ) -> None:
        """See the class."""
        choice = ColumnChoice.of(name, payload, payload_files, columns)
        super().__init__(name, choice, None if root is None else to_path(root, "root"), **options)
        self._files = list_files(to_patterns(paths), (".parquet", ".pq"))
        # A wrong name is told here, not hours later.
        _ = self._metadata

    def __len__(self) -> int:
        """Return the number of rows, from the footers of the files."""
        return sum(self._row_counts)

    @cached_property
    def _row_counts(self) -> list[int]:
        counts = []
        for file in self._files:
            with _opened(file) as opened:
                counts.append(opened.metadata.num_rows)
        return counts

    def _read_schema(self) -> tuple[pa.Schema, str]:
        with _opened(self._files[0]) as opened:
            return opened.schema_arrow, self._files[0].path

    def _rows_from(self, start: int, names: list[str]) -> Iterator[Rows]:
        expected = self._read_schema()[0]
        expected = pa.schema([expected.field(name) for name in names])
        for file in self._files:
            with _opened(file) as opened:
                rows_total = opened.metadata.num_rows
                if start < rows_total:
                    first = self._files[0].path
                    check_same_columns(expected, opened.schema_arrow, file.path, first)
                    yield from _rows_of(opened, file, start, names)
                start = max(0, start - rows_total)

    def _computed_fingerprint(self, options: dict[str, object]) -> str:
        return self._fingerprint_of(options, self._files)

    def _origin(self) -> Mapping[str, str]:
        return {"files": "\n".join(os.path.abspath(file.path) for file in self._files[:100])}


def _rows_of(opened: Any, file: InputFile, start: int, names: list[str]) -> Iterator[Rows]:
    """Yield the rows of one file from number `start` on."""
    group_first = 0
    for number in range(opened.num_row_groups):
        group = opened.metadata.row_group(number)
        row = group_first
        group_first += group.num_rows
        if group_first <= start:
            continue
        size = max(1, min(_BATCH_ROWS_MAX, _BATCH_BYTES * group.num_rows // _bytes_of(group)))
        try:
            for batch in opened.iter_batches(size, row_groups=[number], columns=names):
                file.check_unchanged()
                skipped = min(max(0, start - row), batch.num_rows)
                if skipped < batch.num_rows:
                    yield Rows(batch.slice(skipped).select(names), file.path, row + skipped)
                row += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            file.check_unchanged()
            raise InvalidInputError(
                f"{file.path}: row group {number} cannot be read at row {row} or behind it: "
                f"{error}; take another copy of the file"
            ) from error


def _bytes_of(group: Any) -> int:
    return max(1, int(group.total_byte_size))


def _opened(file: InputFile) -> Any:
    """Open a file, a context manager."""
    # Here, for those who import the package for something else.
    import pyarrow.parquet as pq  # noqa: PLC0415

    file.check_unchanged()
    try:
        return pq.ParquetFile(
            file.path,
            buffer_size=_READ_BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
        )
    except (pa.ArrowException, OSError) as error:
        raise InvalidInputError(
            f"{file.path}: expected a Parquet file, found something else: {error}"
        ) from error

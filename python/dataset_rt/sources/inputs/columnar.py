"""Batches of rows to samples: metadata columns and a payload; knows no file format."""

from __future__ import annotations

import os
from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from dataset_rt.errors import InvalidInputError
from dataset_rt.samples import CacheInput, MetadataValue
from dataset_rt.sources.arrow import PAYLOAD
from dataset_rt.sources.inputs.column_rules import ColumnChoice, is_text, payload_values
from dataset_rt.sources.inputs.files import FingerprintMaker, InputFile, file_at
from dataset_rt.sources.inputs.importer import Importer, LoadThenTransform, Placed

# Of the files that are read for one batch: enough to amortise it, little beside everything else.
_FILE_BYTES_PER_BATCH = 8 * 1024 * 1024


class Rows(NamedTuple):
    """Neighbouring rows of one file."""

    batch: pa.RecordBatch
    file: str
    """For messages."""
    first_row: int
    """Number of the first one in its file, from 0."""

    def place(self, index: int) -> str:
        """Say where a row stands, for messages."""
        return f"{self.file}, row {self.first_row + index}"


class RowOfFile(NamedTuple):
    """A row whose payload is in a file that is not read yet."""

    file: InputFile
    place: str
    metadata: dict[str, MetadataValue]


class ColumnarImporter(Importer):
    """An importer of what comes in rows and columns.

    Args:
        name: Name of the source.
        choice: Which columns are what.
        root: Where files that a column names are looked for.
        **options: See `ImporterOptions`.
    """

    def __init__(
        self, name: str, choice: ColumnChoice, root: str | None = None, **options: Any
    ) -> None:
        """See the class."""
        if options.get("schema") is not None and options.get("transform") is None:
            raise InvalidInputError(
                f"source {name!r}: schema= declares what transform returns, and there is none; "
                "the columns of files have types already"
            )
        super().__init__(name, **options)
        self._choice = choice
        self._root = root
        # Of the named files as the fingerprint counts them, 16 bytes a row; empty without it.
        self._sizes, self._mtimes_ns = array("q"), array("q")

    @abstractmethod
    def _read_schema(self) -> tuple[pa.Schema, str]:
        """Return all columns, and where they are."""

    @abstractmethod
    def _rows_from(self, start: int, names: list[str]) -> Iterator[Rows]:
        """Yield the rows from number `start` on, with the columns asked for, in bounded batches."""

    @cached_property
    def _metadata(self) -> pa.Schema:
        has_transform = self._transform is not None
        return self._choice.metadata_schema(*self._read_schema(), is_transformed=has_transform)

    @cached_property
    def text_payload(self) -> str | None:
        """The column that becomes the payload if it is text, `None` otherwise."""
        column = self._choice.payload
        is_text_column = column is not None and is_text(self._read_schema()[0].field(column).type)
        return column if is_text_column else None

    @property
    def _known_schema(self) -> pa.Schema:
        return self._metadata

    @property
    def transform(self) -> Callable[[Any], CacheInput] | None:
        """Makes the sample of one row, `None` when nothing is transformed."""
        if self._transform is None or self._choice.payload_files is None:
            return super().transform
        return LoadThenTransform(_load_row, self._transform)

    def iter_from(self, start: int) -> Iterator[Any]:
        """Yield batches from row `start` on; with a `transform` its items, one per row."""
        number = start
        for rows in self._rows_from(start, self._choice.read_names(self._metadata)):
            if self._choice.payload_files is not None:
                yield from self._with_files(rows, number)
                number += rows.batch.num_rows
            elif self._transform is None:
                yield self._with_payload(rows)
            else:
                yield from self._one_by_one(rows)

    def _with_payload(self, rows: Rows) -> pa.RecordBatch:
        metadata = rows.batch.select(self._metadata.names)
        return _joined(metadata, self._payloads(rows))

    def _one_by_one(self, rows: Rows) -> Iterator[Placed]:
        payloads = self._payloads(rows)
        metadata = rows.batch.select(self._metadata.names).to_pylist()
        for index in range(rows.batch.num_rows):
            # Bytes, not a view: it may have to go to another process.
            sample = CacheInput(payloads[index].as_py(), metadata[index])
            yield Placed(rows.place(index), sample)

    def _payloads(self, rows: Rows) -> pa.Array:
        column = self._choice.payload
        if column is None:
            return pa.array([b""] * rows.batch.num_rows, pa.binary())
        payloads = payload_values(rows.batch.column(column))
        if payloads.null_count:
            index = payloads.is_null().index(True).as_py()
            raise InvalidInputError(
                f"{rows.place(index)}: expected bytes in column {column!r}, found null; drop the "
                "row, or put bytes there"
            )
        return payloads

    def _with_files(self, rows: Rows, number: int) -> Iterator[Any]:
        """Yield batches or items of rows; `number` is that of the first one in the source."""
        files = list(self._files_of(rows, number))
        metadata = rows.batch.select(self._metadata.names)
        if self._transform is not None:
            for (file, place), row in zip(files, metadata.to_pylist(), strict=True):
                yield RowOfFile(file, place, row)
            return
        payloads: list[bytes] = []
        size, first = 0, 0
        for index, (file, place) in enumerate(files):
            payloads.append(_read(file, place))
            size += len(payloads[-1])
            if size >= _FILE_BYTES_PER_BATCH or index + 1 == len(files):
                part = metadata.slice(first, len(payloads))
                yield _joined(part, pa.array(payloads, pa.large_binary()))
                payloads, size, first = [], 0, index + 1

    def _files_of(self, rows: Rows, number: int) -> Iterator[tuple[InputFile, str]]:
        """Yield the file of every row, as it was when it was counted into the fingerprint."""
        for row, (path, place) in enumerate(self._paths(rows), number):
            if row < len(self._sizes):
                yield InputFile(path, path, self._sizes[row], self._mtimes_ns[row]), place
            else:
                # The fingerprint is not ours: it is the file as it is now.
                with _placed(place):
                    file = file_at(path)
                yield file, place

    def _paths(self, rows: Rows) -> Iterator[tuple[str, str]]:
        """Yield the path and the place of every row's file; none leads out of the root."""
        column = self._choice.payload_files
        root = os.path.abspath(os.path.dirname(rows.file) if self._root is None else self._root)
        for index, name in enumerate(rows.batch.column(column).to_pylist()):
            place = f"{rows.place(index)}, column {column!r}"
            if not name:
                raise InvalidInputError(f"{place}: expected the name of a file, found {name!r}")
            path = os.path.normpath(os.path.join(root, name))
            if os.path.commonpath([root, path]) != root:
                raise InvalidInputError(
                    f"{place}: expected a file below {root}, found {name!r}; say where files may "
                    'be with root= (root="/" takes any absolute path)'
                )
            yield path, place

    def _fingerprint_of(
        self, options: dict[str, object], files: list[InputFile], dataset: str | None = None
    ) -> str:
        """Return the fingerprint of table files, and of the files that their rows name.

        Args:
            options: Those of the importer.
            files: The table files.
            dataset: What stands for them where there are none.
        """
        choice = self._choice
        maker = FingerprintMaker(
            self.kind,
            options
            | {"payload": choice.payload, "payload_files": choice.payload_files}
            | {"columns": choice.columns},
        )
        for file in files:
            maker.add_file(file.name, file.size_bytes, file.mtime_ns)
        if dataset is not None:
            maker.add_dataset(dataset)
        if choice.payload_files is not None:
            sizes, mtimes_ns = array("q"), array("q")
            for rows in self._rows_from(0, [choice.payload_files]):
                names = rows.batch.column(choice.payload_files).to_pylist()
                for name, (path, place) in zip(names, self._paths(rows), strict=True):
                    with _placed(place):
                        found = file_at(path)
                    maker.add_file(name, found.size_bytes, found.mtime_ns)
                    sizes.append(found.size_bytes)
                    mtimes_ns.append(found.mtime_ns)
            self._sizes, self._mtimes_ns = sizes, mtimes_ns
        return maker.text()


def check_same_columns(expected: pa.Schema, found: pa.Schema, place: str, first: str) -> None:
    """Refuse a file whose columns differ from those of the first one.

    Args:
        expected: Columns that are read of the first file.
        found: All columns of this file, in any order.
        place: This file, for the message.
        first: The first file.

    Raises:
        InvalidInputError: One is missing, or has another type.
    """
    for field in expected:
        if field.name not in found.names:
            raise InvalidInputError(
                f"{place}: expected a column {field.name!r} as in {first}, found {found.names}; "
                "import files of other columns as another source, or leave it out with columns="
            )
        kind = found.field(field.name).type
        if kind != field.type:
            raise InvalidInputError(
                f"{place}: column {field.name!r}: expected {field.type} as in {first}, found "
                f"{kind}; make the files agree"
            )


def _joined(metadata: pa.RecordBatch, payloads: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [*metadata.columns, payloads], names=[*metadata.schema.names, PAYLOAD]
    )


def _load_row(row: RowOfFile) -> Placed:
    sample = CacheInput(_read(row.file, row.place), row.metadata)
    return Placed(f"{row.place}: {row.file.path}", sample)


def _read(file: InputFile, place: str) -> bytes:
    with _placed(place):
        return file.read()


@contextmanager
def _placed(place: str) -> Iterator[None]:
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{place}: {error}") from error

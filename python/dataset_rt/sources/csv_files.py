"""CSV files as a source, block by block; knows nothing of writing."""

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
from dataset_rt.sources.inputs.csv_digits import first_lost, is_guessed_number
from dataset_rt.sources.inputs.files import InputFile, list_files, to_patterns
from dataset_rt.sources.inputs.importer import ImporterOptions

# Types are inferred from one block, and no line may be longer.
_BLOCK_BYTES = 4 * 1024 * 1024


class CsvSource(ColumnarImporter):
    r"""The rows of CSV files, in the order of the files and their lines.

    Types are those that the first 4 MiB of the first file suggest, for all files; a later value
    that does not fit is an error with its row. A column is text if numbers would lose digits:
    leading zeros (`00123`), integers beyond int64. Empty cells are null in columns of numbers and
    dates, and empty text in columns of text. Empty lines are left out where there are several
    columns, and cells where there is one. A quote that is never closed is an error.

    Args:
        name: Name of the source and of its cache directory.
        paths: Files (also `.csv.gz`), directories (their `*.csv` at any depth) and glob patterns,
            each with a header line.
        payload: Column that becomes the payload, as the bytes in the file. `None` gives every
            sample an empty payload.
        columns: Metadata columns in order; all others by default.
        payload_files: Column that names files whose bytes are the payload, instead of `payload`;
            it is a metadata column too.
        root: Where these files lie, and all of them must; the directory of the CSV by default.
        delimiter: Between cells; one ASCII character.
        encoding: Of the files, as Python names it.
        column_types: Types of some columns, where the inferred ones are wrong.
        **options: See `ImporterOptions`.

    Raises:
        NotFoundError: No file is there.
        InvalidInputError: Columns are missing or cannot be stored, or `delimiter` or `encoding` is
            none.

    Example:
        >>> from dataset_rt.sources import CsvSource
        >>> _ = (tmp_path / "a.csv").write_text("review,stars\nfine,5\nbad,1\n")
        >>> source = CsvSource("reviews", tmp_path / "a.csv", payload="review")
        >>> [batch.to_pydict() for batch in source]
        [{'stars': [5, 1], 'payload': [b'fine', b'bad']}]
    """

    kind = "csv"

    def __init__(
        self,
        name: str,
        paths: AnyPath | Iterable[AnyPath],
        *,
        payload: str | None = PAYLOAD,
        columns: Iterable[str] | None = None,
        payload_files: str | None = None,
        root: AnyPath | None = None,
        delimiter: str = ",",
        encoding: str = "utf8",
        column_types: Mapping[str, pa.DataType] | None = None,
        **options: Unpack[ImporterOptions],
    ) -> None:
        """See the class."""
        choice = ColumnChoice.of(name, payload, payload_files, columns)
        _check_text(delimiter, encoding)
        super().__init__(name, choice, None if root is None else to_path(root, "root"), **options)
        self._files = list_files(to_patterns(paths), (".csv", ".csv.gz", ".tsv", ".tsv.gz"))
        self._delimiter = delimiter
        self._encoding = encoding
        self._column_types = dict(column_types or {})
        _ = self._metadata

    @cached_property
    def _first_schema(self) -> pa.Schema:
        types = dict(self._column_types)
        # Payloads are the bytes of the file, whatever they look like; names of files are text.
        if self._choice.payload is not None:
            types[self._choice.payload] = pa.large_binary()
        if self._choice.payload_files is not None:
            types[self._choice.payload_files] = pa.large_string()
        with self._opened(self._files[0], types) as reader:
            found = reader.schema
            guessed = [
                field.name
                for field in found
                if field.name not in types
                and is_guessed_number(field.type)
                and found.names.count(field.name) == 1
            ]
            if not guessed:
                return found
            with self._texts(self._files[0], reader, guessed) as texts:
                block = next(_batches(texts, self._files[0], 0), None)
        if block is not None:
            for name in guessed:
                if first_lost(block.column(name), found.field(name).type) is not None:
                    types[name] = pa.string()
        fields = [pa.field(f.name, types.get(f.name, f.type), f.nullable) for f in found]
        return pa.schema(fields)

    def _read_schema(self) -> tuple[pa.Schema, str]:
        return self._first_schema, self._files[0].path

    def _rows_from(self, start: int, names: list[str]) -> Iterator[Rows]:
        expected = pa.schema([self._first_schema.field(name) for name in names])
        types = dict(zip(expected.names, expected.types, strict=True))
        for file in self._files:
            row = 0
            with self._opened(file, types) as reader:
                check_same_columns(expected, reader.schema, file.path, self._files[0].path)
                for batch in self._without_loss(file, reader, expected):
                    # Nothing tells where a row begins but the rows before it.
                    skipped = min(start, batch.num_rows)
                    start -= skipped
                    if skipped < batch.num_rows:
                        yield Rows(batch.slice(skipped).select(names), file.path, row + skipped)
                    row += batch.num_rows

    def _without_loss(
        self, file: InputFile, reader: Any, expected: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a file; guessed numbers are held against their texts."""
        guessed = [
            name
            for name, kind in zip(expected.names, expected.types, strict=True)
            if name not in self._column_types and is_guessed_number(kind)
        ]
        if not guessed:
            yield from _batches(reader, file, 0)
            return
        row = 0
        with self._texts(file, reader, guessed) as parser:
            # The same blocks make the same rows.
            pairs = zip(_batches(reader, file, 0), _batches(parser, file, 0), strict=True)
            for batch, texts in pairs:
                for name in guessed:
                    index = first_lost(texts.column(name), expected.field(name).type)
                    if index is not None:
                        text = texts.column(name)[index].as_py()
                        raise InvalidInputError(
                            f"{file.path}, row {row + index}, column {name!r}: {text!r} would lose "
                            f"digits as {expected.field(name).type}, which the first lines "
                            f"suggest; say the type of the column with column_types={{{name!r}: "
                            "pyarrow.string()}"
                        )
                yield batch
                row += batch.num_rows

    def _texts(self, file: InputFile, reader: Any, names: list[str]) -> Any:
        """Open a file that `reader` reads once more, for some columns as they are written."""
        types = dict.fromkeys(names, pa.string())
        return self._reader(file, types, len(reader.schema) > 1, names)

    def _opened(self, file: InputFile, types: dict[str, pa.DataType]) -> Any:
        """Open a file, a context manager."""
        reader = self._reader(file, types, True)
        if len(reader.schema) > 1:
            return reader
        # Where there is one column, an empty line is an empty cell.
        reader.close()
        return self._reader(file, types, False)

    def _reader(
        self,
        file: InputFile,
        types: dict[str, pa.DataType],
        ignore_empty_lines: bool,
        names: list[str] | None = None,
    ) -> Any:
        # Here, for those who import the package for something else.
        from pyarrow import csv  # noqa: PLC0415

        file.check_unchanged()
        try:
            return csv.open_csv(
                file.path,
                read_options=csv.ReadOptions(
                    use_threads=False, block_size=_BLOCK_BYTES, encoding=self._encoding
                ),
                parse_options=csv.ParseOptions(
                    delimiter=self._delimiter,
                    newlines_in_values=True,
                    ignore_empty_lines=ignore_empty_lines,
                ),
                convert_options=csv.ConvertOptions(column_types=types, include_columns=names),
            )
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise _unreadable(file.path, 0, error) from error

    def _computed_fingerprint(self, options: dict[str, object]) -> str:
        types = {name: str(kind) for name, kind in self._column_types.items()}
        options |= {"delimiter": self._delimiter, "encoding": self._encoding, "types": types}
        return self._fingerprint_of(options, self._files)

    def _origin(self) -> Mapping[str, str]:
        return {"files": "\n".join(os.path.abspath(file.path) for file in self._files[:100])}


def _check_text(delimiter: str, encoding: str) -> None:
    """Refuse what separates no cells, and what is the name of no encoding."""
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise InvalidInputError(
            "delimiter must be one ASCII character, such as a comma, a semicolon or a tab, and "
            f"neither a quote nor the end of a line, found {delimiter!r}"
        )
    try:
        "".encode(encoding)
    except (LookupError, ValueError):
        raise InvalidInputError(
            f"encoding must be the name of an encoding of text, such as utf8, latin-1 or cp1252, "
            f"found {encoding!r}"
        ) from None


def _batches(reader: Any, file: InputFile, row: int) -> Iterator[pa.RecordBatch]:
    last = None
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            file.check_unchanged()
            if last is not None:
                _check_quotes(file, last, row)
            return
        except (pa.ArrowException, OSError, UnicodeError) as error:
            file.check_unchanged()
            raise _unreadable(file.path, row, error) from error
        file.check_unchanged()
        row += batch.num_rows
        last = batch if batch.num_rows else last
        yield batch


def _check_quotes(file: InputFile, last: pa.RecordBatch, rows: int) -> None:
    """Refuse a last cell that swallowed lines because its quote is never closed."""
    name = last.schema.names[-1]
    cell = last.column(last.num_columns - 1)[-1].as_py()
    text = cell.encode() if isinstance(cell, str) else cell
    if not isinstance(text, bytes) or not (b"\n" in text or b"\r" in text):
        return
    end = b""
    with pa.input_stream(file.path) as stream:
        while block := stream.read(_BLOCK_BYTES):
            # Zeros are parts of letters in UTF-16.
            end = block.rstrip(b"\r\n\0")[-1:] or end
    if end != b'"':
        raise InvalidInputError(
            f"{file.path}, row {rows - 1}, column {name!r}: a quote is opened and never closed; "
            "close it, or write a quote that is part of the text as two within quotes"
        )


def _unreadable(path: str, row: int, error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"{path}: cannot be read at row {row} or behind it: {error}; mend the file, or say the "
        "type of the column with column_types={...}"
    )

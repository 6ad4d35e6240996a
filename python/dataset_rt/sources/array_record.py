"""ArrayRecord files as a source, record by record; knows nothing of what records hold."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Unpack

import pyarrow as pa

from dataset_rt.arguments import AnyPath
from dataset_rt.errors import InvalidInputError
from dataset_rt.samples import CacheInput
from dataset_rt.sources.inputs.files import (
    FingerprintMaker,
    InputFile,
    list_files,
    optional_module,
    to_patterns,
)
from dataset_rt.sources.inputs.importer import Importer, ImporterOptions, Placed

# Records asked for at once, beyond what fits: they lie in chunks, and each call decodes its own.
_RECORDS_PER_READ = 64
_READ_BYTES = 8 * 1024 * 1024


class ArrayRecordSource(Importer):
    """The records of ArrayRecord files, in the order of the files; a record is a payload.

    There is no metadata: a `transform` makes it, for example from a serialised record. Needs the
    library `array_record`.

    Args:
        name: Name of the source and of its cache directory.
        paths: Files, directories (their `*.array_record` and `*.arrayrecord`) and glob patterns.
        **options: See `ImporterOptions`.

    Raises:
        ModuleNotFoundError: `array_record` is not installed.
        NotFoundError: No file is there.
        InvalidInputError: On first use, when a file is empty, damaged or something else.
    """

    kind = "array_record"

    def __init__(
        self, name: str, paths: AnyPath | Iterable[AnyPath], **options: Unpack[ImporterOptions]
    ) -> None:
        """See the class."""
        super().__init__(name, **options)
        _library()
        self._files = list_files(to_patterns(paths), (".array_record", ".arrayrecord"))

    def __len__(self) -> int:
        """Return the number of records, from the footers of the files."""
        return sum(self._counts)

    @property
    def _known_schema(self) -> pa.Schema:
        return pa.schema([])

    @cached_property
    def _counts(self) -> list[int]:
        counts = []
        for file in self._files:
            with _opened(file) as reader:
                counts.append(int(reader.num_records()))
            # The library says so of files whose end is damaged, and they would be left out.
            if counts[-1] == 0:
                raise InvalidInputError(
                    f"{file.path}: expected records, found none: it is empty or damaged; leave it "
                    "out, or take another copy"
                )
        return counts

    def iter_from(self, start: int) -> Iterator[CacheInput | Placed]:
        """Yield samples, or the items of `transform`, from record `start` on."""
        for file, count in zip(self._files, self._counts, strict=True):
            if start < count:
                for placed in _records(file, start, count):
                    yield placed.sample if self._transform is None else placed
            start = max(0, start - count)

    def _computed_fingerprint(self, options: dict[str, object]) -> str:
        maker = FingerprintMaker(self.kind, options)
        for file in self._files:
            maker.add_file(file.name, file.size_bytes, file.mtime_ns)
        return maker.text()

    def _origin(self) -> Mapping[str, str]:
        return {"files": "\n".join(os.path.abspath(file.path) for file in self._files[:100])}


def _records(file: InputFile, start: int, count: int) -> Iterator[Placed]:
    # Compressed sizes are all that is known before; half of it leaves room for what grows.
    size = max(1, min(_RECORDS_PER_READ, _READ_BYTES * count // (2 * file.size_bytes + 1)))
    with _opened(file) as reader:
        for first in range(start, count, size):
            last = min(first + size, count)
            records = reader.read(first, last)
            file.check_unchanged()
            if len(records) != last - first:
                raise InvalidInputError(
                    f"{file.path}: expected {last - first} records from {first} on, found "
                    f"{len(records)}; take another copy of the file"
                )
            for number, record in enumerate(records, first):
                yield Placed(f"{file.path}, record {number}", CacheInput(record, {}))


@contextmanager
def _opened(file: InputFile) -> Iterator[Any]:
    """Open a file; what its library raises names it."""
    file.check_unchanged()
    library = _library()
    try:
        reader = library.ArrayRecordReader(file.path)
        try:
            yield reader
        finally:
            # It may only say now that it could not open the file.
            reader.close()
    except InvalidInputError:
        raise
    except Exception as error:  # its errors have no class of their own
        raise InvalidInputError(
            f"{file.path}: expected an ArrayRecord file, found a damaged one or something else: "
            f"{error}; take another copy of the file"
        ) from error


def _library() -> Any:
    return optional_module(
        "array_record.python.array_record_module", "array_record", "ArrayRecordSource"
    )

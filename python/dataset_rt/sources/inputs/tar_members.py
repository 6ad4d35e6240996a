"""Files in tar archives, one after another; damage is an error, never an early end."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple, cast

from dataset_rt.errors import InvalidInputError
from dataset_rt.sources.inputs.files import PAYLOAD_BYTES_MAX, InputFile

_BLOCK_BYTES = tarfile.BLOCKSIZE
_END_READ_BYTES = 256 * 1024
# What Python's reader raises for headers of any contents: lengths beyond all memory, and chains of
# headers beyond its stack, too.
_DAMAGE = (
    *(tarfile.TarError, OSError, EOFError, zlib.error, ValueError),
    *(MemoryError, RecursionError, OverflowError),
)


class Member(NamedTuple):
    """One file in an archive; `read` works until the next one is asked for."""

    name: str
    size_bytes: int
    read: Callable[[], bytes]


def members_of(file: InputFile) -> Iterator[Member]:
    """Yield the files of one archive in order, none kept; directories are passed over.

    Args:
        file: A tar archive, plain or compressed with gzip.

    Raises:
        InvalidInputError: The archive is damaged, cut short or holds links or devices; the
            message names archive and member. Or it changed; no member was read since.
    """
    file.check_unchanged()
    with open(file.path, "rb") as plain:
        is_gzip = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        # A file object of gzip's seeks forward by reading, which is all that is asked of it.
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=plain)) if is_gzip else plain
        with stream:
            yield from _members(stream, file, plain)
    file.check_unchanged()


def _members(stream: IO[bytes], file: InputFile, plain: IO[bytes]) -> Iterator[Member]:
    path = file.path
    last = "its beginning"
    try:
        archive = tarfile.open(fileobj=stream, mode="r:")  # noqa: SIM115 - the stream is closed
    except _DAMAGE as error:
        raise _damaged(path, last, error) from error
    while True:
        try:
            entry = archive.next()
        except _DAMAGE as error:
            file.check_unchanged(plain)
            raise _damaged(path, last, error) from error
        if entry is None:
            break
        # It would remember every member it ever met.
        archive.members.clear()  # type: ignore[attr-defined]
        last = f"member {entry.name!r}"
        if entry.size < 0:
            raise _damaged(path, last, tarfile.ReadError(f"a length of {entry.size} bytes"))
        if entry.isdir():
            continue
        if not entry.isreg():
            raise InvalidInputError(
                f"{path}: {last}: expected a file, found a link or a device; write the archive "
                "without links (tar --dereference --hard-dereference)"
            )
        yield Member(entry.name, entry.size, _Reading(archive, entry, file, plain))
    file.check_unchanged(plain)
    try:
        _check_end(stream, archive, path, last)
    except _DAMAGE as error:
        if isinstance(error, InvalidInputError):
            raise
        raise _damaged(path, last, error) from error


class _Reading:
    """Reads one member, or says which one is damaged."""

    def __init__(
        self, archive: tarfile.TarFile, entry: tarfile.TarInfo, file: InputFile, plain: IO[bytes]
    ) -> None:
        self._archive = archive
        self._entry = entry
        self._file = file
        self._plain = plain

    def __call__(self) -> bytes:
        entry = self._entry
        if entry.size > PAYLOAD_BYTES_MAX:
            raise InvalidInputError(
                f"{self._file.path}: member {entry.name!r}: expected at most {PAYLOAD_BYTES_MAX} "
                f"bytes, found {entry.size}: a payload is no longer; cut it in pieces, or take "
                "another copy of the archive if it is damaged"
            )
        try:
            found: Any = self._archive.extractfile(entry)
            data: bytes = found.read()
        except _DAMAGE as error:
            self._file.check_unchanged(self._plain)
            raise _damaged(self._file.path, f"member {entry.name!r}", error) from error
        self._file.check_unchanged(self._plain)
        if len(data) != entry.size:
            raise InvalidInputError(
                f"{self._file.path}: member {entry.name!r}: expected {entry.size} bytes, found "
                f"{len(data)}; take another copy of the archive"
            )
        return data


def _check_end(stream: IO[bytes], archive: tarfile.TarFile, path: str, last: str) -> None:
    """Refuse an end that is none: Python's reader takes a damaged header in the middle for one."""
    stream.seek(archive.offset)
    mark = stream.read(_BLOCK_BYTES)
    if len(mark) == _BLOCK_BYTES and not mark.strip(b"\0"):
        # Padding of any length is nothing but zeros. Only its very end has the checksum of gzip.
        offset = archive.offset + _BLOCK_BYTES
        while padding := stream.read(_END_READ_BYTES):
            rest = padding.lstrip(b"\0")
            if rest:
                offset += len(padding) - len(rest)
                raise InvalidInputError(
                    f"{path}: expected nothing but zeros behind the end of the archive ({last}), "
                    f"found more at byte {offset} of the tar; archives that were joined with cat "
                    "must be split again, of a damaged one take another copy"
                )
            offset += len(padding)
        return
    found = "the end of the file" if not mark else "bytes that are no header"
    raise InvalidInputError(
        f"{path}: expected another member or the end mark of the archive behind {last}, found "
        f"{found}; it is cut short or damaged: take another copy"
    )


def _damaged(path: str, place: str, error: Exception) -> InvalidInputError:
    if isinstance(error, (MemoryError, OverflowError)):
        found = "a header with a length that no memory holds"
    elif isinstance(error, RecursionError):
        found = "too many headers for one member"
    elif type(error) is ValueError:
        # Python's words for what it took for a number.
        found = "a header with something else where a number belongs"
    else:
        found = str(error) or type(error).__name__
    return InvalidInputError(
        f"{path}: damaged in or behind {place}: {found}; take another copy of the archive"
    )

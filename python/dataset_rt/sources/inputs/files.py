"""Input files: which ones, in which order, and whether they are still the same.

Knows nothing of what is in them.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import IO, Any, Literal, NamedTuple, cast

from dataset_rt.arguments import path_list, to_path
from dataset_rt.errors import InvalidInputError, NotFoundError

# Of the rules by which fingerprints are made: a change of what importers store changes it.
_RULES = 3

_DIGEST_LETTERS = 32
_FINGERPRINT = re.compile(r"(?P<kind>[a-z_]+)-(?P<options>[0-9a-f]{32})-(?P<inputs>[0-9a-f]{32})")

# As in the format: no payload is longer.
PAYLOAD_BYTES_MAX = 2**31 - 1


class InputFile(NamedTuple):
    """One file as it was when it was listed."""

    path: str
    name: str
    """Relative to the directory that holds all files of a source, with `/`."""
    size_bytes: int
    mtime_ns: int

    def check_unchanged(self, opened: IO[bytes] | None = None) -> None:
        """Refuse a file that was replaced or written since it was listed.

        Writing sets the time before it changes contents: what was read before this check, is what
        was listed.

        Args:
            opened: What was opened at the path, to be asked instead of it.

        Raises:
            InvalidInputError: Size or time differ, or it is gone.
        """
        found = stat_of(self.path) if opened is None else os.fstat(opened.fileno())
        if (found.st_size, found.st_mtime_ns) != (self.size_bytes, self.mtime_ns):
            raise InvalidInputError(
                f"{self.path}: changed since it was listed; expected {self.size_bytes} bytes of "
                f"time {self.mtime_ns}, found {found.st_size} of {found.st_mtime_ns}: make a new "
                "source once nobody writes the file"
            )

    def read(self) -> bytes:
        """Return the contents.

        Raises:
            InvalidInputError: It cannot be read, is longer than a payload may be, or changed
                since it was listed.
        """
        self.check_unchanged()
        if self.size_bytes > PAYLOAD_BYTES_MAX:
            raise InvalidInputError(
                f"{self.path}: expected at most {PAYLOAD_BYTES_MAX} bytes, found "
                f"{self.size_bytes}: a payload is no longer; cut the file in pieces"
            )
        try:
            with open(self.path, "rb") as file:
                data = file.read(self.size_bytes)
                self.check_unchanged(file)
        except OSError as error:
            raise InvalidInputError(
                f"{self.path}: cannot be read: {error.strerror}; mend or remove the file"
            ) from error
        return data


def file_at(path: str) -> InputFile:
    """Return a file that becomes one payload as it is now; its name is its path.

    Raises:
        InvalidInputError: It is missing, or no regular file.
    """
    found = stat_of(path)
    return InputFile(path, path, found.st_size, found.st_mtime_ns)


def stat_of(path: str) -> os.stat_result:
    """Return size and times of a regular file, links followed.

    Raises:
        InvalidInputError: It is missing, a dangling link, or no regular file.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError(
            f"{path!r}: expected a file, found none: {reason}; mend or remove what names it"
        ) from error
    if not stat.S_ISREG(found.st_mode):
        raise InvalidInputError(
            f"{path}: expected a file, found another kind of entry; remove what names it"
        )
    return found


def to_patterns(paths: object, argument: str = "paths") -> list[str]:
    """Return one path or pattern, or a list of them, as a list.

    Raises:
        TypeError: Something is no path.
        InvalidInputError: The list is empty.
    """
    return path_list(paths, argument, to_path, "file")


def list_files(patterns: Iterable[str], suffixes: tuple[str, ...]) -> list[InputFile]:
    """Return the files of paths, directories and glob patterns.

    Args:
        patterns: Taken in order. A directory stands for the files with one of `suffixes` at any
            depth below it, names that begin with `.` or `_` left out; a pattern for what it
            matches. The files of either come sorted by the bytes of their paths.
        suffixes: In lower case; compared without case.

    Raises:
        NotFoundError: One of the patterns stands for no file.
        InvalidInputError: Something is no regular file, or a file was found twice.
    """
    paths = [path for pattern in patterns for path in _expanded(pattern, suffixes)]
    parents = {os.path.dirname(os.path.abspath(path)) for path in paths}
    shared = os.path.commonpath(parents)
    files = []
    seen = set()
    for path in paths:
        if not _is_text(path):
            raise InvalidInputError(f"the name {os.fsencode(path)!r} is not UTF-8; rename the file")
        found = stat_of(path)
        # Two names of one file would be its samples twice; whoever wants that says so by a copy.
        if (found.st_dev, found.st_ino) in seen:
            raise InvalidInputError(f"{path}: found twice among the files; name each file once")
        seen.add((found.st_dev, found.st_ino))
        name = os.path.relpath(os.path.abspath(path), shared).replace(os.sep, "/")
        files.append(InputFile(path, name, found.st_size, found.st_mtime_ns))
    return files


def _is_text(path: str) -> bool:
    # Bytes that are no UTF-8 come as lone surrogates.
    return not any("\ud800" <= letter <= "\udfff" for letter in path)


def _expanded(pattern: str, suffixes: tuple[str, ...]) -> list[str]:
    if os.path.isdir(pattern):
        found = sorted(_below(pattern, suffixes), key=os.fsencode)
        expected = f"files that end in {' or '.join(suffixes)}"
    elif os.path.lexists(pattern):
        return [pattern]
    else:
        found = sorted(glob.glob(pattern, recursive=True), key=os.fsencode)
        found = [path for path in found if not os.path.isdir(path)]
        expected = "a file, a directory or a pattern that matches files"
    if not found:
        raise NotFoundError(f"{pattern}: expected {expected}, found none; correct the path")
    return found


def _below(directory: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    for folder, folders, names in os.walk(directory, onerror=_raise, followlinks=False):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in names:
            if name.lower().endswith(suffixes) and not name.startswith((".", "_")):
                yield os.path.join(folder, name)


def _raise(error: OSError) -> None:
    raise InvalidInputError(
        f"{error.filename}: cannot be listed: {error.strerror}; mend its permissions"
    ) from error


class FingerprintMaker:
    """`<kind>-<options>-<inputs>`: digests of an importer's options, and of its files.

    Of the files count names, sizes and times; no contents are read. Their place has no part in it:
    moved, or copied with their times, they keep it. There are two digests, SHA-256 cut to 128
    bits, so that a stale cache can tell what changed.
    """

    def __init__(self, kind: str, options: Mapping[str, object]) -> None:
        self._kind = kind
        self._options = hashlib.sha256(_line([_RULES, kind, dict(sorted(options.items()))]))
        self._inputs = hashlib.sha256()

    def add_file(self, name: str, size_bytes: int, mtime_ns: int) -> None:
        """Count one file in; order matters."""
        self._inputs.update(_line([name, size_bytes, mtime_ns]))

    def add_dataset(self, fingerprint: str) -> None:
        """Count in what has a fingerprint of its own."""
        self._inputs.update(_line([fingerprint]))

    def text(self) -> str:
        """Return the fingerprint."""
        parts = (digest.hexdigest()[:_DIGEST_LETTERS] for digest in (self._options, self._inputs))
        return "-".join((self._kind, *parts))


def changed_part(fingerprint: str | None, other: str | None) -> Literal["options", "inputs"] | None:
    """Return in what two fingerprints differ, `None` when it is both, or they are not of importers.

    Args:
        fingerprint: Of a source or a cache.
        other: Of another one.
    """
    first, second = (_FINGERPRINT.fullmatch(text or "") for text in (fingerprint, other))
    if first is None or second is None or first["kind"] != second["kind"]:
        return None
    changed = [part for part in ("options", "inputs") if first[part] != second[part]]
    return cast("Literal['options', 'inputs']", changed[0]) if len(changed) == 1 else None


def _line(entry: list[object]) -> bytes:
    # A line of JSON ends where it ends: no two lists of entries make the same bytes.
    return json.dumps(entry).encode() + b"\n"


def optional_module(module: str, package: str, user: str) -> Any:
    """Import a library that only one importer needs.

    Raises:
        ModuleNotFoundError: It is not installed; the message says what to install.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise ModuleNotFoundError(
            f"{user} needs {package}: pip install {package}", name=error.name
        ) from error

"""Files and directories that are there whole or not at all; knows nothing of what is in them."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeGuard

from dataset_rt.arguments import refuse_within_cache
from dataset_rt.errors import (
    ConflictError,
    DatasetRTError,
    FileExhaustedError,
    FileUnavailableError,
)

_ASIDE_LETTERS = 50
_REPLACE = "replace it with overwrite=True"


def refuse_old_file(path: Path) -> None:
    """Refuse what `published_file` will, before the work that leads to the file.

    Raises:
        InvalidInputError: It lies in a cache.
        ConflictError: Something is there already.
    """
    # A link is replaced, wherever it leads.
    refuse_within_cache(str(path.parent), shown=str(path))
    _refuse_existing(path, "remove it", overwrite=False)


@contextmanager
def published_file(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Give a path to write to; what stands there becomes `path` when the block ends well.

    Args:
        path: Where the file will be.
        overwrite: Whether it may replace another.

    Raises:
        InvalidInputError: It lies in a cache.
        ConflictError: Something is there already, also when it came meanwhile; only regular files
            and links are replaced.
        FileExhaustedError: There is no room.
        FileUnavailableError: Nothing can be written there.
    """
    path = Path(os.path.abspath(path))
    refuse_within_cache(str(path.parent), shown=str(path))
    with _made_parents(path):
        _refuse_existing(path, _REPLACE, overwrite=overwrite)
        aside = _aside(path)
        try:
            # There from the start: a place that cannot be written is told before the work, and the
            # directory is not empty when another writer tidies up behind a failure.
            aside.touch(exist_ok=False)
            yield aside
            _sync(aside)
            if overwrite:
                os.replace(aside, path)
            else:
                _move_new(aside, path)
            _sync(path.parent)
        finally:
            with suppress(OSError):
                os.unlink(aside)


@contextmanager
def published_directory(path: Path) -> Iterator[Path]:
    """Give a directory to fill; it becomes `path` when the block ends well.

    Args:
        path: Where it will be; an empty directory may be there.

    Raises:
        InvalidInputError: It lies in a cache.
        ConflictError: Something else is there already, also when it came meanwhile.
        FileExhaustedError: There is no room.
        FileUnavailableError: Nothing can be written there.
    """
    path = Path(os.path.abspath(path))
    refuse_within_cache(str(path))
    with _made_parents(path):
        is_empty = path.is_dir() and not any(path.iterdir())
        if os.path.lexists(path) and not is_empty:
            raise _exists(path, "remove it")
        aside = _aside(path)
        os.mkdir(aside)
        try:
            yield aside
            for file in aside.iterdir():
                _sync(file)
            _sync(aside)
            try:
                os.rename(aside, path)
            except OSError as error:
                if path.exists():
                    raise _exists(path, "remove it") from error
                raise
            _sync(path.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _made_parents(path: Path) -> Iterator[None]:
    """Make the directories above `path`; a failure leaves none of them, and names `path`."""
    # Unlike `Path.exists`, this raises nothing where nobody may look.
    missing = [parent for parent in path.parents if not os.path.exists(parent)]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException as error:
        for parent in missing:
            with suppress(OSError):
                parent.rmdir()
        if _is_refusal(error, path):
            raise _unwritable(path, error) from error
        raise


def _is_refusal(error: BaseException, path: Path) -> TypeGuard[OSError]:
    """Whether the system refused the file or a directory above it, not one that was read."""
    if not isinstance(error, OSError) or isinstance(error, DatasetRTError):
        return False
    if not isinstance(error.filename, (str, bytes)):
        # Libraries that write do not always say where.
        return True
    refused = Path(os.fsdecode(error.filename))
    return refused in path.parents or refused.is_relative_to(path.parent)


def _unwritable(path: Path, error: OSError) -> DatasetRTError:
    is_full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    kind = FileExhaustedError if is_full else FileUnavailableError
    advice = "make room" if is_full else "check the directory and who may write there"
    refused = kind(
        f"cannot write {path}: {error.strerror or error}; nothing was written: {advice}, or choose "
        "another place"
    )
    refused.errno = error.errno
    return refused


def _refuse_existing(path: Path, way: str, *, overwrite: bool) -> None:
    if not os.path.lexists(path):
        return
    # What a name of a device, a pipe or a directory stands for is no old file.
    if not overwrite or not (path.is_symlink() or path.is_file()):
        raise _exists(path, way)


def _move_new(aside: Path, path: Path) -> None:
    """Rename without replacing, where the file system has links; elsewhere a moment is left."""
    try:
        os.link(aside, path)
    except FileExistsError:
        raise _exists(path, _REPLACE) from None
    except OSError:
        if os.path.lexists(path):
            raise _exists(path, _REPLACE) from None
        os.rename(aside, path)


def _exists(path: Path, way: str) -> ConflictError:
    if path.is_symlink() or path.is_file():
        found = "file"
    elif path.is_dir():
        found, way = "directory", "remove it"
    else:
        found, way = "device, pipe or socket", "write to a file"
    return ConflictError(
        f"{path}: expected nothing there, found a {found}; nothing was written: choose another "
        f"place, or {way}"
    )


def _aside(path: Path) -> Path:
    # No longer than a name may be, whatever its letters.
    return path.with_name(f".{path.name[:_ASIDE_LETTERS]}.{secrets.token_hex(4)}.partial")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

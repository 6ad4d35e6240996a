"""Files and directories that are there whole or not at all; knows nothing of what is in them."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dataset_rt.errors import ConflictError

_OR_OVERWRITE = "; overwrite=True replaces it"


@contextmanager
def published_file(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Give a path to write to; what stands there becomes `path` when the block ends well.

    Args:
        path: Where the file will be.
        overwrite: Whether it may replace another.

    Raises:
        ConflictError: Something is there already, also when it came meanwhile.
    """
    _refuse_existing(path, overwrite=overwrite, advice=_OR_OVERWRITE)
    aside = _aside(path)
    try:
        yield aside
        _sync(aside)
        if overwrite:
            os.replace(aside, path)
        else:
            _move_new(aside, path)
        _sync(path.parent)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(aside)


@contextmanager
def published_directory(path: Path) -> Iterator[Path]:
    """Give a directory to fill; it becomes `path` when the block ends well.

    Args:
        path: Where it will be; an empty directory may be there.

    Raises:
        ConflictError: Something else is there already, also when it came meanwhile.
    """
    _refuse_existing(path, overwrite=False)
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
                raise _exists(path) from error
            raise
        _sync(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _refuse_existing(path: Path, *, overwrite: bool, advice: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(path):
        return
    is_empty_directory = path.is_dir() and not any(path.iterdir())
    if path.is_dir() != is_empty_directory or not (overwrite or is_empty_directory):
        raise _exists(path, "" if path.is_dir() else advice)


def _move_new(aside: Path, path: Path) -> None:
    """Rename without replacing, where the file system has links; elsewhere a moment is left."""
    try:
        os.link(aside, path)
    except FileExistsError:
        raise _exists(path, _OR_OVERWRITE) from None
    except OSError:
        if os.path.lexists(path):
            raise _exists(path, _OR_OVERWRITE) from None
        os.rename(aside, path)


def _exists(path: Path, advice: str = "") -> ConflictError:
    return ConflictError(
        f"{path}: expected nothing there, found a {'directory' if path.is_dir() else 'file'}; "
        f"nothing was written: choose another place, or remove it{advice}"
    )


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

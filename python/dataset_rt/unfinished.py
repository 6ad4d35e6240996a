"""What interrupted writes left on disk: to list and to remove; knows none of their files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dataset_rt import _native
from dataset_rt.arguments import AnyPath, to_path
from dataset_rt.field_docs import with_field_docs


@with_field_docs
class UnfinishedWrite(NamedTuple):
    """The unpublished directory of one source name; there is at most one a name.

    Attributes:
        source_name: Name of the source.
        path: The directory, `.<name>.partial` beside the caches.
        samples: Samples in finished shards, which the next write of the name may reuse.
        size_bytes: Bytes of all files in it.
        is_running: Whether a writer is at work in it now.
    """

    source_name: str
    path: Path
    samples: int
    size_bytes: int
    is_running: bool


def unfinished_writes(path: AnyPath) -> list[UnfinishedWrite]:
    """List what interrupted and running writes have below the directory of the caches.

    Args:
        path: The directory given to `write_cache` or `from_cache_sources`.

    Returns:
        One entry per source name, sorted by name; empty when every write ended well.

    Raises:
        NotFoundError: There is no such directory.

    Example:
        >>> with DatasetRuntime() as runtime:
        ...     results = runtime.write_cache(Words(), tmp_path)
        >>> unfinished_writes(tmp_path)
        []
    """
    return [
        UnfinishedWrite(name, Path(place), samples, size_bytes, is_running)
        for name, place, samples, size_bytes, is_running in _native.unfinished_writes(
            to_path(path, "path")
        )
    ]


def remove_unfinished_write(path: AnyPath, source_name: str) -> None:
    """Remove what an interrupted write left; published caches are not touched.

    Args:
        path: The directory of the caches.
        source_name: Name of the source.

    Raises:
        NotFoundError: There is no unfinished write of this name.
        ConflictError: A writer is at work in it.
        InvalidInputError: `source_name` is no source name.
    """
    _native.remove_unfinished_write(to_path(path, "path"), source_name)

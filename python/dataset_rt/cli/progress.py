"""What long commands show on stderr while they run; nothing where nobody looks.

The bars themselves are in `bars`, which costs an import.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def reading(label: str, size_bytes: int) -> Iterator[None]:
    """Show how many of `size_bytes` this process has read since; elapsed time if unknown."""
    if not _is_watched():
        yield
        return
    from dataset_rt.cli.bars import reading_bar  # noqa: PLC0415 - slow to import

    with reading_bar(label, size_bytes):
        yield


@contextmanager
def counting(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give a callback that is told how many of `total` are done."""
    if not _is_watched():
        yield lambda _: None
        return
    from dataset_rt.cli.bars import counting_bar  # noqa: PLC0415 - slow to import

    with counting_bar(label, total) as on_progress:
        yield on_progress


def _is_watched() -> bool:
    try:
        return sys.stderr.isatty()
    except ValueError:
        # A closed stream raises here.
        return False

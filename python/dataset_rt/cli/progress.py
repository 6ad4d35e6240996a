"""What long commands show on stderr while they run; nothing where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from dataset_rt.cli.console import console_of
from dataset_rt.cli.text import cut, safe

_IO_COUNTS = Path("/proc/self/io")


class _Polled(Progress):
    """A bar that asks how far the work is whenever it is drawn; a native call tells nothing."""

    task: TaskID
    ask: Callable[[], int]

    def get_renderables(self) -> Iterable[RenderableType]:
        if self.tasks:
            # Caches replaced meanwhile, or files of others, may make it more than all.
            total = self.tasks[0].total or 0
            self.update(self.tasks[0].id, completed=min(self.ask(), total))
        yield from super().get_renderables()


@contextmanager
def reading(label: str, size_bytes: int) -> Iterator[None]:
    """Show how many of `size_bytes` this process has read since; elapsed time if unknown."""
    before = _bytes_read()
    columns: list[ProgressColumn] = [SpinnerColumn(), _label_column()]
    if before is not None:
        columns += [BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
    else:
        columns.append(TimeElapsedColumn())
    console = console_of(sys.stderr)
    bar = _Polled(*columns, console=console, transient=True, disable=not console.is_terminal)
    bar.ask = lambda: (_bytes_read() or 0) - (before or 0)
    with bar:
        bar.add_task(cut(safe(label), 32), total=size_bytes)
        yield


@contextmanager
def counting(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give a callback that is told the samples done so far."""
    columns = [SpinnerColumn(), _label_column(), BarColumn(), MofNCompleteColumn()]
    console = console_of(sys.stderr)
    is_hidden = not console.is_terminal
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=is_hidden
    ) as bar:
        task = bar.add_task(cut(safe(label), 32), total=total)
        yield lambda done: bar.update(task, completed=done)


def _label_column() -> TextColumn:
    return TextColumn("{task.description}", markup=False)


def _bytes_read() -> int | None:
    """Return the bytes that this process took through `read`, from disk or memory, if known."""
    try:
        first = _IO_COUNTS.read_text().splitlines()[0]
        return int(first.removeprefix("rchar: "))
    except (OSError, ValueError, IndexError):
        return None

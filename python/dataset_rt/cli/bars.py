"""Progress bars on a terminal; knows neither what is read nor who looks."""

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
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from dataset_rt.cli.console import console_of
from dataset_rt.text import cut, safe

_IO_COUNTS = Path("/proc/self/io")
_LABEL_CELLS_MAX = 32
_BAR_CELLS = 20


class _Polled(Progress):
    """A bar that asks how far the work is whenever it is drawn: a native call tells nothing."""

    ask: Callable[[], int]

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            # What other threads read counts as well; a bar never says more than all.
            self.update(task.id, completed=min(self.ask(), task.total or 0))
        yield from super().get_renderables()


@contextmanager
def reading_bar(label: str, size_bytes: int) -> Iterator[None]:
    """Show the bytes that this process has read, of `size_bytes`; elapsed time if unknown."""
    before = _bytes_read()
    columns: list[ProgressColumn]
    if before is None or not size_bytes:
        columns = [SpinnerColumn(), _label(), TimeElapsedColumn()]
    else:
        columns = [_label(), BarColumn(_BAR_CELLS), DownloadColumn(), TransferSpeedColumn()]
        columns.append(TimeRemainingColumn())
    bar = _Polled(*columns, console=console_of(sys.stderr), transient=True)
    bar.ask = lambda: (_bytes_read() or 0) - (before or 0)
    with bar:
        bar.add_task(cut(safe(label), _LABEL_CELLS_MAX), total=size_bytes)
        yield


@contextmanager
def counting_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give a callback that moves a bar."""
    columns = [_label(), BarColumn(_BAR_CELLS), MofNCompleteColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=console_of(sys.stderr), transient=True) as bar:
        task = bar.add_task(cut(safe(label), _LABEL_CELLS_MAX), total=total)
        yield lambda done: bar.update(task, completed=done)


def _label() -> TextColumn:
    return TextColumn("{task.description}", markup=False)


def _bytes_read() -> int | None:
    """Return the bytes that this process took through `read`, from disk or memory, if known."""
    try:
        first = _IO_COUNTS.read_text().splitlines()[0]
        return int(first.removeprefix("rchar: "))
    except (OSError, ValueError, IndexError):
        return None

"""Shows how a write goes on, where someone looks; knows nothing of writing.

A terminal gets one line, redrawn in place; a notebook one display, updated in place; everything
else (a file, a pipe, CI) gets nothing. No signal handlers, no threads.
"""

from __future__ import annotations

import operator
import os
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO, TypeAlias

OnProgress: TypeAlias = Callable[[int, int, bool], None]
"""Called with samples and payload bytes so far, and whether that was the last call."""

_WIDTH_FALLBACK = 80
_NAME_CELLS_MAX = 32


class Canvas(Protocol):
    """A place that shows one text which is replaced again and again."""

    def width(self) -> int:
        """Return the cells there are for the text."""
        ...

    def show(self, text: str) -> None:
        """Replace what is shown."""
        ...

    def leave(self) -> None:
        """Let what is shown stand; later output begins below."""
        ...


@contextmanager
def progress_line(name: str, source: object, enabled: bool) -> Iterator[OnProgress | None]:
    """Give a callback that draws the progress of one source, or `None` where nobody looks.

    Args:
        name: Name of the source.
        source: Asked for its length, which gives percentage and remaining time.
        enabled: `False` draws nothing anywhere, and so does `DATASET_RT_PROGRESS=0`.
    """
    canvas = _find_canvas(sys.stderr) if enabled and is_progress_wanted() else None
    if canvas is None:
        yield None
        return
    progress = Progress(name, length_of(source), canvas, time.monotonic)
    try:
        yield progress
    finally:
        progress.close()


def is_progress_wanted() -> bool:
    """Whether the environment leaves progress lines on: `DATASET_RT_PROGRESS=0` turns all off."""
    return os.environ.get("DATASET_RT_PROGRESS", "").strip() != "0"


class Progress:
    """Feeds a canvas from the numbers of one write; nothing is drawn before the first call.

    Args:
        name: Name of the source.
        total: Samples expected, `None` when unknown.
        canvas: Where to draw.
        clock: Seconds, never going back.
    """

    def __init__(
        self, name: str, total: int | None, canvas: Canvas, clock: Callable[[], float]
    ) -> None:
        """See the class."""
        self._name = name
        self._total = total
        self._canvas = canvas
        self._clock = clock
        self._started = clock()
        self._is_open = False

    def __call__(self, samples: int, size_bytes: int, finished: bool) -> None:
        """Draw; a canvas that broke (closed terminal) never stops the write."""
        seconds = self._clock() - self._started
        try:
            text = render(
                self._name,
                samples,
                size_bytes,
                seconds,
                total=self._total,
                finished=finished,
                width=self._canvas.width(),
            )
            self._canvas.show(text)
            self._is_open = True
        except (OSError, ValueError):
            return
        if finished:
            self.close()

    def close(self) -> None:
        """Let the last state stand, so that what is printed next has a line of its own."""
        if self._is_open:
            self._is_open = False
            try:
                self._canvas.leave()
            except (OSError, ValueError):
                return


def render(
    name: str,
    samples: int,
    size_bytes: int,
    seconds: float,
    *,
    total: int | None,
    finished: bool,
    width: int,
) -> str:
    """Return the line, at most `width` cells: parts are left out from the right when it is narrow.

    Args:
        name: Name of the source.
        samples: Samples so far.
        size_bytes: Payload bytes so far.
        seconds: Time since the start.
        total: Samples expected, `None` when unknown.
        finished: Whether this is the last state; it shows the time taken instead of the rest.
        width: Cells of the terminal.
    """
    # A length that was too small says nothing about the end any more.
    expected = total if total is not None and total >= samples > 0 else None
    count = f"{samples:,}"
    if expected is not None and not finished:
        count += f"/{expected:,} ({samples / expected:.0%})"
    parts = [f"{count} samples"]
    if finished:
        parts.append(f"done in {_duration(seconds)}")
    elif expected is not None and seconds > 0:
        parts.append(f"ETA {_duration((expected - samples) * seconds / samples)}")
    if seconds > 0:
        parts.append(f"{samples / seconds:,.0f} samples/s")
        parts.append(f"{size_bytes / seconds / 1e6:,.1f} MB/s")
    parts.append(f"{size_bytes / 1e6:,.1f} MB")
    line = _shorten(name, min(_NAME_CELLS_MAX, max(width // 3, 1)))
    separator = ": "
    for part in parts:
        longer = f"{line}{separator}{part}"
        if cells(longer) > width:
            break
        line, separator = longer, ", "
    return _shorten(line, width)


def cells(text: str) -> int:
    """Return the terminal cells of a text: wide characters take two, combining ones none."""
    return sum(_cells_of(character) for character in text)


def _cells_of(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _shorten(text: str, cells_max: int) -> str:
    if cells(text) <= cells_max:
        return text
    kept, used = "", 0
    for character in text:
        used += _cells_of(character)
        # One cell stays free for the mark that says something is missing.
        if used > cells_max - 1:
            break
        kept += character
    return kept + "~" if cells_max > 0 else ""


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f}s" if seconds < 10 else f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def length_of(source: object) -> int | None:
    """Return what `len()` or a length hint says; it is shown, so a broken one is no failure."""
    try:
        length = operator.length_hint(source, -1)
    except Exception:  # noqa: BLE001 - the source's own code may raise anything
        return None
    return length if length >= 0 else None


def _find_canvas(stream: TextIO | None) -> Canvas | None:
    notebook = _NotebookCanvas.find()
    if notebook is not None:
        return notebook
    try:
        if stream is not None and stream.isatty():
            return _TerminalCanvas(stream)
    except ValueError:
        # A closed stream raises here; then nobody looks.
        return None
    return None


class _TerminalCanvas:
    """One line of a terminal, by carriage return and blanks alone: every terminal knows these."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._cells_shown = 0

    def width(self) -> int:
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        # The last column stays free: writing there wraps on some terminals.
        return (columns or _WIDTH_FALLBACK) - 1

    def show(self, text: str) -> None:
        encoding = self._stream.encoding or "ascii"
        plain = text.encode(encoding, "replace").decode(encoding)
        blanks = " " * (min(self._cells_shown, self.width()) - cells(plain))
        self._stream.write(f"\r{plain}{blanks}")
        self._stream.flush()
        self._cells_shown = cells(plain)

    def leave(self) -> None:
        self._stream.write("\n")
        self._stream.flush()
        self._cells_shown = 0


class _NotebookCanvas:
    """One display of a Jupyter kernel, updated in place; IPython is used only if it runs us."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._handle: Any = None

    @classmethod
    def find(cls) -> _NotebookCanvas | None:
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython is not None else None
        if shell is None or not any(
            kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__
        ):
            return None
        from IPython.display import display  # noqa: PLC0415 - not a dependency

        return cls(display)

    def width(self) -> int:
        return 100

    def show(self, text: str) -> None:
        content = {"text/plain": text}
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def leave(self) -> None:
        self._handle = None

"""Shows how a write goes on, where someone looks; knows nothing of writing.

A terminal gets one line, redrawn in place; a notebook a bar, updated in place; everything else
(a file, a pipe, CI) gets nothing. No signal handlers, no threads.
"""

from __future__ import annotations

import operator
import os
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Protocol, TextIO, TypeAlias

OnProgress: TypeAlias = Callable[[int, int, bool], None]
"""Called with samples and payload bytes so far, and whether that was the last call."""

_WIDTH_FALLBACK = 80
_NAME_CELLS_MAX = 32
_LINE_CELLS = 100


class State(NamedTuple):
    """How far the write of one source is.

    Attributes:
        name: Name of the source.
        samples: Samples so far.
        size_bytes: Payload bytes so far.
        seconds: Time since the start.
        total: Samples expected, `None` when unknown.
        stage: `"stopped"` where the write ended before the source did.
    """

    name: str
    samples: int
    size_bytes: int
    seconds: float
    total: int | None
    stage: Literal["running", "done", "stopped"]

    @property
    def expected(self) -> int | None:
        """Samples expected; a length that was too small says nothing about the end any more."""
        is_told = self.total is not None and self.total >= self.samples > 0
        return self.total if is_told else None


class Canvas(Protocol):
    """A place that shows one state which is replaced again and again."""

    def show(self, state: State) -> None:
        """Replace what is shown."""
        ...

    def leave(self, state: State) -> None:
        """Let the last state stand; later output begins below."""
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
        self._shown: State | None = None

    def __call__(self, samples: int, size_bytes: int, finished: bool) -> None:
        """Draw; a canvas that broke (closed terminal) never stops the write."""
        seconds = self._clock() - self._started
        stage: Literal["running", "done"] = "done" if finished else "running"
        state = State(self._name, samples, size_bytes, seconds, self._total, stage)
        try:
            self._canvas.show(state)
            self._shown = state
        except (OSError, ValueError):
            return
        if finished:
            self.close()

    def close(self) -> None:
        """Let the last state stand, so that what is printed next has a line of its own."""
        if self._shown is not None:
            last, self._shown = self._shown, None
            try:
                self._canvas.leave(last if last.stage == "done" else last._replace(stage="stopped"))
            except (OSError, ValueError):
                return


def line_of(state: State, width: int) -> str:
    """Return the line, at most `width` cells: parts are left out from the right when it is narrow.

    The last state shows the time taken instead of the rest.
    """
    line = _shorten(state.name, min(_NAME_CELLS_MAX, max(width // 3, 1)))
    separator = ": "
    for part in parts_of(state):
        longer = f"{line}{separator}{part}"
        if cells(longer) > width:
            break
        line, separator = longer, ", "
    return _shorten(line, width)


def parts_of(state: State) -> list[str]:
    """Return what there is to say of a state besides its name, the most important first."""
    _, samples, size_bytes, seconds, _, stage = state
    expected = state.expected
    count = f"{samples:,}"
    if expected is not None and stage != "done":
        count += f"/{expected:,} ({samples / expected:.0%})"
    parts = [f"{count} samples"]
    if stage == "done":
        parts.append(f"done in {_duration(seconds)}")
    elif stage == "stopped":
        parts.append(f"stopped after {_duration(seconds)}")
    elif expected is not None and seconds > 0:
        parts.append(f"ETA {_duration((expected - samples) * seconds / samples)}")
    if seconds > 0:
        parts.append(f"{samples / seconds:,.0f} samples/s")
        parts.append(f"{size_bytes / seconds / 1e6:,.1f} MB/s")
    parts.append(f"{size_bytes / 1e6:,.1f} MB")
    return parts


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

    def _width(self) -> int:
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        # The last column stays free: writing there wraps on some terminals.
        return (columns or _WIDTH_FALLBACK) - 1

    def show(self, state: State) -> None:
        width = self._width()
        encoding = self._stream.encoding or "ascii"
        plain = line_of(state, width).encode(encoding, "replace").decode(encoding)
        blanks = " " * (min(self._cells_shown, width) - cells(plain))
        self._stream.write(f"\r{plain}{blanks}")
        self._stream.flush()
        self._cells_shown = cells(plain)

    def leave(self, state: State) -> None:  # noqa: ARG002 - the line stands as it is
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

    def show(self, state: State) -> None:
        from dataset_rt.cards.progress import progress_card  # noqa: PLC0415 - notebooks only

        # A front end without HTML, such as a console, shows the line.
        content = {"text/plain": line_of(state, _LINE_CELLS), "text/html": progress_card(state)}
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def leave(self, state: State) -> None:
        if state.stage == "stopped":
            self.show(state)
        self._handle = None

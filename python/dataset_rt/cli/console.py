"""How things are drawn: on a terminal in its width and with colours, elsewhere plain and uncut.

Every text goes through `text.safe` before it comes here, or through the helpers of this file.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dataset_rt.text import json_value, safe, safe_lines

_EIGHTHS = ("", "\u258f", "\u258e", "\u258d", "\u258c", "\u258b", "\u258a", "\u2589")

_WIDTH_UNCUT = 10_000
"""Cells of a line where no terminal ends it."""


def console_of(stream: TextIO) -> Console:
    """Return the console of a stream: markup, emoji codes and guessed colours are off."""
    is_cut = stream.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(
        file=stream,
        markup=False,
        highlight=False,
        emoji=False,
        width=None if is_cut else _WIDTH_UNCUT,
    )


def width() -> int:
    """Return the cells of a line of stdout."""
    return console_of(sys.stdout).width


def show(*parts: RenderableType) -> None:
    """Print on stdout; outside a terminal without the blanks that fill up lines."""
    console = console_of(sys.stdout)
    if console.is_terminal:
        console.print(*parts, sep="\n")
        return
    with console.capture() as captured:
        console.print(*parts, sep="\n")
    _write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def show_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document on stdout, in ASCII: it survives every locale and terminal."""
    _write(json.dumps(json_value(document), indent=2, allow_nan=False) + "\n")


def write_bytes(content: bytes | memoryview) -> None:
    """Write all of it to stdout, at once: what fails is an error of the command, not of its end.

    Where Python does not buffer (`PYTHONUNBUFFERED`), one write may take a part only.
    """
    sys.stdout.flush()
    left = memoryview(content)
    while left:
        left = left[sys.stdout.buffer.write(left) :]
    sys.stdout.buffer.flush()


def _write(text: str) -> None:
    write_bytes(text.encode(sys.stdout.encoding or "ascii", "backslashreplace"))


def tell(message: str) -> None:
    """Print one message on stderr, as `dataset-rt: ...`."""
    sys.stderr.write(f"dataset-rt: {safe_lines(message)}\n")


def styled(text: str, style: str = "") -> Text:
    """Return a text that is shown as it is, made safe."""
    return Text(safe(text), style=style)


def line(*parts: str | tuple[str, str]) -> Text:
    """Return one line of texts, plain or `(text, style)`."""
    text = Text()
    for part in parts:
        words, style = (part, "") if isinstance(part, str) else part
        text.append(safe(words), style or None)
    return text


def paragraph(text: str, style: str = "") -> RenderableType:
    """Return a text that may take several lines, indented."""
    return Padding(styled(text, style), (0, 0, 0, 2), expand=False)


def heading(title: str, note: str = "", style: str = "dim") -> RenderableType:
    """Return the heading of a part and what is said beside it, which may take several lines."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(styled(title), styled(note, style))
    return grid


def facts(rows: Iterable[tuple[str, str | Text]]) -> RenderableType:
    """Return names and values side by side, indented."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(styled(name), value if isinstance(value, Text) else styled(value))
    return Padding(grid, (0, 0, 0, 2), expand=False)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    flexible: Sequence[str] = (),
    folding: Sequence[str] = (),
) -> RenderableType:
    """Return a table without lines, indented.

    Args:
        columns: Headings; one that begins with `>` has its column set to the right. A column
            without heading is left out when it is empty.
        rows: Cells.
        flexible: Headings of columns that are cut where the terminal is narrow, before others.
        folding: Headings of columns that go on in the next line there.
    """
    cells_of = [[cell if isinstance(cell, Text) else styled(cell) for cell in row] for row in rows]
    used = [i for i, name in enumerate(columns) if name or any(row[i].plain for row in cells_of)]
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in (columns[i] for i in used):
        name = heading.removeprefix(">")
        grid.add_column(
            safe(name),
            justify="right" if heading.startswith(">") else "left",
            # Rich narrows columns that may wrap before it cuts others.
            no_wrap=name not in flexible and name not in folding,
            overflow="fold" if name in folding else "ellipsis",
        )
    for row in cells_of:
        for heading, cell in zip(columns, row, strict=True):
            if heading.removeprefix(">") in flexible:
                # A cell that says that it may wrap is not cut.
                cell.no_wrap = cell.no_wrap is not False
        grid.add_row(*(row[i] for i in used))
    return Padding(grid, (0, 0, 0, 2), expand=False)


def bar(part: float, width: int) -> str:
    """Return a bar of `part` of `width` cells, in characters that stdout can write."""
    full = round(max(0.0, min(1.0, part)) * width * 8)
    if part > 0 and full == 0:
        full = 1
    if not (sys.stdout.encoding or "ascii").lower().startswith("utf"):
        return "#" * max(round(full / 8), 1 if full else 0)
    return "\u2588" * (full // 8) + _EIGHTHS[full % 8]

"""Words and numbers in their places: titles, badges, tiles, facts, tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal, TypeAlias

from dataset_rt.html.markup import AnyContent, Markup, content, element, joined
from dataset_rt.text import count

BadgeKind: TypeAlias = Literal["ok", "bad", "warn", "plain"]
"""Green, red, orange, grey."""

TITLE_CELLS_MAX = 160


def title(text: AnyContent, *beside: AnyContent) -> Markup:
    """Return the heading of a fragment, and what stands beside it: badges, or what kind it is."""
    name = element("span", {"class": "drt-name"}, content(text, TITLE_CELLS_MAX))
    others = (
        one if isinstance(one, Markup) else element("span", {"class": "drt-key"}, one)
        for one in beside
    )
    return element("div", {"class": "drt-title"}, name, *others)


def badge(kind: BadgeKind, text: AnyContent) -> Markup:
    """Return a status in one word or two; its text says it, the colour only repeats it."""
    return element("span", {"class": f"drt-badge drt-{kind}"}, text)


def note(*parts: AnyContent) -> Markup:
    """Return a remark in a paler colour; every part begins a line, and texts keep theirs."""
    shown = (content(line, 2000) for part in parts for line in _lines(part))
    return element("div", {"class": "drt-note"}, *(element("div", {}, line) for line in shown))


def _lines(part: AnyContent) -> list[AnyContent]:
    return part.splitlines() if type(part) is str else [part]


def tiles(items: Iterable[tuple[AnyContent, AnyContent, AnyContent]]) -> Markup:
    """Return the few numbers that matter most, side by side, in as many lines as it takes.

    Args:
        items: Name, value, and a remark, which may be empty.
    """
    return element("div", {"class": "drt-tiles"}, *(_tile(*item) for item in items))


def _tile(name: AnyContent, value: AnyContent, remark: AnyContent) -> Markup:
    parts = [
        element("div", {"class": "drt-key"}, name),
        element("div", {"class": "drt-value"}, value),
    ]
    if remark:
        parts.append(element("div", {"class": "drt-key"}, remark))
    return element("div", {}, *parts)


def facts(rows: Iterable[tuple[AnyContent, AnyContent]]) -> Markup:
    """Return names and values, a line each."""
    lines = (
        element(
            "tr",
            {},
            element("th", {"scope": "row"}, name),
            element("td", {}, content(value, TITLE_CELLS_MAX)),
        )
        for name, value in rows
    )
    return _scrolling(element("table", {"class": "drt-facts"}, element("tbody", {}, *lines)))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[AnyContent]], *, rows_max: int = 200
) -> Markup:
    """Return a table with headings; it scrolls in itself where it is too wide.

    Args:
        columns: Headings; one that begins with `>` has its column set to the right, for numbers.
        rows: Cells, as many as there are headings.
        rows_max: Rows shown; a last line says how many more there are, or that there are some.
    """
    sides = [{"class": "drt-right"} if name.startswith(">") else {} for name in columns]
    headings = (
        element("th", side, name.removeprefix(">"))
        for name, side in zip(columns, sides, strict=True)
    )
    left = iter(rows)
    lines = [
        element(
            "tr", {}, *(element("td", side, cell) for side, cell in zip(sides, row, strict=True))
        )
        for row in islice(left, rows_max)
    ]
    more = _number_of_more(rows, len(lines), left)
    if more:
        inner = element("td", {"colspan": str(len(columns)), "class": "drt-key"}, f"and {more}")
        lines.append(element("tr", {}, inner))
    head = element("thead", {}, element("tr", {}, *headings))
    body = element("tbody", {}, *lines)
    return _scrolling(element("table", {"class": "drt-table"}, head, body))


def _number_of_more(rows: object, shown: int, left: Iterable[object]) -> str:
    if isinstance(rows, Sequence):
        return f"{count(len(rows) - shown)} more" if len(rows) > shown else ""
    return "more" if any(True for _ in islice(left, 1)) else ""


def details(summary: AnyContent, *parts: AnyContent) -> Markup:
    """Return what is unfolded by a click on its summary; no script is needed."""
    return element("details", {}, element("summary", {}, summary), joined(*parts))


def _scrolling(inner: Markup) -> Markup:
    return element("div", {"class": "drt-scroll"}, inner)

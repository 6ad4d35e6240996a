"""Horizontal bars: shares of values, pairs of shares, how far something is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from dataset_rt.html.markup import AnyContent, Markup, content, element
from dataset_rt.text import count, share

ROWS_MAX = 24
_LABEL_CELLS_MAX = 40

Form = Callable[[float], str]


def bars(
    rows: Sequence[tuple[AnyContent, float]],
    *,
    form: Form = lambda number: count(round(number)),
    rows_max: int = ROWS_MAX,
    is_share_shown: bool = True,
) -> Markup:
    """Return one bar per value, the longest across the whole place.

    Args:
        rows: Name of the value, and its number; drawn in this order. A number below 0 or none
            (NaN) has no bar.
        form: Writes a number.
        rows_max: Lines; of more values only the largest have bars, and the last line has the sum
            of the others: no bar, which would be longer than that of any value.
        is_share_shown: Whether the share of the whole stands beside the number.
    """
    shown = _largest([(name, (number,)) for name, number in rows], rows_max)
    longest = _longest(numbers for _, numbers, is_rest in shown if not is_rest)
    whole = math.fsum(_length(number) for _, number in rows)
    lines = []
    for name, (number,), is_rest in shown:
        drawn = [] if is_rest else [_bar(number, longest, "drt-first")]
        cells = [_label(name, is_rest), _bar_cell(*drawn)]
        cells.append(element("td", {"class": "drt-right"}, _written(number, form)))
        if is_share_shown:
            part = _written(_length(number) / whole if whole else 0.0, share)
            cells.append(element("td", {"class": "drt-right drt-key"}, part))
        lines.append(element("tr", {}, *cells))
    return _bar_table(lines)


def paired_bars(
    rows: Sequence[tuple[AnyContent, float, float]],
    names: tuple[str, str],
    *,
    form: Form = share,
    rows_max: int = ROWS_MAX,
) -> Markup:
    """Return two bars per value, on one scale, to be compared: what should be, and what is.

    Args:
        rows: Name of the value, and its two numbers; drawn in this order.
        names: What the first and the second number are.
        form: Writes a number.
        rows_max: As in `bars`; the largest by their first number.
    """
    shown = _largest([(name, (first, second)) for name, first, second in rows], rows_max)
    longest = _longest(numbers for _, numbers, is_rest in shown if not is_rest)
    head = [
        element("th"),
        element("th"),
        *(
            element("th", {"class": "drt-right"}, _key(side), name)
            for side, name in zip(_SIDES, names, strict=True)
        ),
    ]
    lines = [element("tr", {}, *head)]
    for name, numbers, is_rest in shown:
        drawn = [_bar(number, longest, side) for number, side in zip(numbers, _SIDES, strict=True)]
        written = (
            element("td", {"class": "drt-right"}, _written(number, form)) for number in numbers
        )
        lines.append(element("tr", {}, _label(name, is_rest), _bar_cell(*drawn), *written))
    return _bar_table(lines)


def progress_bar(part: float | None) -> Markup:
    """Return a bar filled to a part of its place, `None` where the whole is not known.

    Args:
        part: From 0 to 1; what lies outside is drawn as the nearer end.
    """
    if part is None or not math.isfinite(part):
        return element("div", {"class": "drt-track drt-unknown"})
    return element("div", {"class": "drt-track"}, _bar(max(0.0, min(1.0, part)), 1.0, "drt-first"))


_SIDES = ("drt-first", "drt-second")


def _largest(
    rows: Sequence[tuple[AnyContent, tuple[float, ...]]], rows_max: int
) -> list[tuple[AnyContent, tuple[float, ...], bool]]:
    """Return name, numbers, and whether it is the rest: at most `rows_max` of them."""
    if len(rows) <= rows_max:
        return [(name, numbers, False) for name, numbers in rows]
    by_size = sorted(range(len(rows)), key=lambda row: -_length(rows[row][1][0]))
    kept = sorted(by_size[: max(rows_max - 1, 0)])
    rest = [rows[row][1] for row in by_size[len(kept) :]]
    sums = tuple(math.fsum(map(_length, column)) for column in zip(*rest, strict=True))
    return [(*rows[row], False) for row in kept] + [(f"other ({count(len(rest))})", sums, True)]


def _length(number: float) -> float:
    return float(number) if math.isfinite(number) and number > 0 else 0.0


def _longest(rows: Iterable[Sequence[float]]) -> float:
    return max((_length(number) for numbers in rows for number in numbers), default=0.0)


def _written(number: float, form: Form) -> str:
    return form(number) if math.isfinite(number) else f"{number}".replace("nan", "NaN")


def _bar(number: float, longest: float, side: str) -> Markup:
    length = _length(number)
    if not length:
        return element("div", {"class": "drt-bar"})
    # Whatever is there is seen: the style sheet gives no bar less than two pixels.
    percent = f"{100 * length / longest:.4g}"
    return element("div", {"class": f"drt-bar {side}", "style": f"width:{percent}%"})


def _key(side: str) -> Markup:
    return element("span", {"class": f"drt-dot {side}"})


def _label(name: AnyContent, is_rest: bool) -> Markup:
    classes = {"scope": "row"} | ({"class": "drt-key"} if is_rest else {})
    return element("th", classes, content(name, _LABEL_CELLS_MAX))


def _bar_cell(*drawn: Markup) -> Markup:
    return element("td", {"class": "drt-bars-cell"}, *drawn)


def _bar_table(lines: Sequence[Markup]) -> Markup:
    inner = element("table", {"class": "drt-bars"}, element("tbody", {}, *lines))
    return element("div", {"class": "drt-scroll"}, inner)

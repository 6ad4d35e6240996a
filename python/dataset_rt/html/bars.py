"""Horizontal bars: shares of values, and how far something is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

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
    shown = _largest(rows, rows_max)
    longest = max((_length(number) for _, number, is_rest in shown if not is_rest), default=0.0)
    whole = math.fsum(_length(number) for _, number in rows)
    lines = []
    for name, number, is_rest in shown:
        drawn = element("div") if is_rest else _bar(number, longest)
        cells = [_label(name, is_rest), element("td", {"class": "drt-bars-cell"}, drawn)]
        cells.append(element("td", {"class": "drt-right"}, _written(number, form)))
        if is_share_shown:
            part = _written(_length(number) / whole if whole else 0.0, share)
            cells.append(element("td", {"class": "drt-right drt-key"}, part))
        lines.append(element("tr", {}, *cells))
    inner = element("table", {"class": "drt-bars"}, element("tbody", {}, *lines))
    return element("div", {"class": "drt-scroll"}, inner)


def progress_bar(part: float | None, *, is_done: bool = False) -> Markup:
    """Return a bar filled to a part of its place, `None` where the whole is not known.

    Args:
        part: From 0 to 1; what lies outside is drawn as the nearer end.
        is_done: Nothing follows: the bar is full and green, wherever its end is.
    """
    if is_done:
        full = element("div", {"class": "drt-bar drt-done", "style": "width:100%"})
        return element("div", {"class": "drt-track"}, full)
    if part is None or not math.isfinite(part):
        return element("div", {"class": "drt-track drt-unknown"})
    return element("div", {"class": "drt-track"}, _bar(max(0.0, min(1.0, part)), 1.0))


def _largest(
    rows: Sequence[tuple[AnyContent, float]], rows_max: int
) -> list[tuple[AnyContent, float, bool]]:
    """Return name, number, and whether it is the rest: at most `rows_max` of them."""
    if len(rows) <= rows_max:
        return [(name, number, False) for name, number in rows]
    by_size = sorted(range(len(rows)), key=lambda row: -_length(rows[row][1]))
    kept = sorted(by_size[: max(rows_max - 1, 0)])
    rest = [_length(rows[row][1]) for row in by_size[len(kept) :]]
    others = (f"other ({count(len(rest))})", math.fsum(rest), True)
    return [*((*rows[row], False) for row in kept), others]


def _length(number: float) -> float:
    return float(number) if math.isfinite(number) and number > 0 else 0.0


def _written(number: float, form: Form) -> str:
    return form(number) if math.isfinite(number) else f"{number}".replace("nan", "NaN")


def _bar(number: float, longest: float) -> Markup:
    length = _length(number)
    if not length:
        return element("div", {"class": "drt-bar"})
    # Whatever is there is seen: the style sheet gives no bar less than two pixels.
    percent = f"{100 * length / longest:.4g}"
    return element("div", {"class": "drt-bar drt-first", "style": f"width:{percent}%"})


def _label(name: AnyContent, is_rest: bool) -> Markup:
    classes = {"scope": "row"} | ({"class": "drt-key"} if is_rest else {})
    return element("th", classes, content(name, _LABEL_CELLS_MAX))

"""Histograms of columns: counts are exact, whatever the number of rows; memory is bounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import polars as pl

from dataset_rt.inspection.positions import spread
from dataset_rt.report.facts import Histogram

BINS = 40

_SAMPLED_MAX = 50_000
"""Values from which outliers are told apart: evenly spread ones, where there are more."""

_OUTLIERS = 0.005
"""Share of values at each end that may be outliers."""

_STRETCH = 10
"""How much wider than the others the outliers must make a histogram to be left out of it."""

Pieces = Callable[[], Iterable[pl.DataFrame]]
"""Gives a column as often as it is asked, in frames of `value`, physical, and `count`."""


def histogram_of(pieces: Pieces, distinct: int, form: Callable[[Any], str]) -> Histogram | None:
    """Return the histogram of numbers, or of dates or times, or `None` if none is finite.

    Few values far off would leave all others in one bin: they are counted beside it.

    Args:
        pieces: The column, read twice.
        distinct: Rows of all pieces, about.
        form: Writes an edge.
    """
    low, high, sample = _bounds(pieces, max(1, math.ceil(distinct / _SAMPLED_MAX)))
    if low is None:
        return None
    inner_low, inner_high = _quantiles(sample)
    if inner_high > inner_low and high - low > _STRETCH * (inner_high - inner_low):
        low, high = inner_low, inner_high
    edges, last_width = _edges(low, high)
    counts, below, above = [0] * (len(edges) - 1), 0, 0
    for piece in map(_finite, pieces()):
        value = piece["value"]
        below += int(piece.filter(value < edges[0])["count"].sum())
        above += int(piece.filter(value > high)["count"].sum())
        inside = piece.filter((value >= edges[0]) & (value <= high))
        # The outer edges hold everything, so that only the inner ones need a look.
        inner = pl.Series(edges[1:-1], dtype=value.dtype)
        bins = inner.search_sorted(inside["value"], side="right") if len(inner) else None
        if bins is None:
            counts[0] += int(inside["count"].sum())
            continue
        summed = pl.DataFrame({"bin": bins, "count": inside["count"]}).group_by("bin").sum()
        for number, count in summed.iter_rows():
            counts[number] += count
    return Histogram([form(edge) for edge in edges], counts, below, above, last_width)


def _finite(piece: pl.DataFrame) -> pl.DataFrame:
    return piece.filter(piece["value"].is_finite()) if piece["value"].dtype.is_float() else piece


def _bounds(pieces: Pieces, step: int) -> tuple[Any, Any, pl.DataFrame]:
    low, high = None, None
    sampled: list[pl.DataFrame] = []
    for piece in map(_finite, pieces()):
        if piece.is_empty():
            continue
        first, last = piece["value"].min(), piece["value"].max()
        low = first if low is None else min(low, first)  # type: ignore[type-var]
        high = last if high is None else max(high, last)  # type: ignore[type-var]
        sampled.append(piece[spread(len(piece), -(-len(piece) // step))] if step > 1 else piece)
    return low, high, pl.concat(sampled) if sampled else pl.DataFrame()


def _quantiles(sample: pl.DataFrame) -> tuple[Any, Any]:
    """Return the values between which all but the outermost of a weighted sample lie."""
    ordered = sample.sort("value")
    reached = ordered["count"].cum_sum()
    total = reached[-1]
    first = reached.search_sorted(total * _OUTLIERS, side="right")
    last = reached.search_sorted(total * (1 - _OUTLIERS), side="left")
    return ordered["value"][min(first, len(ordered) - 1)], ordered["value"][last]


def _edges(low: Any, high: Any) -> tuple[list[Any], float]:
    """Return edges of bins of equal width, the last of them `high`, and how wide the last bin is.

    Bins of integers hold equally many of them, but for the last, which may hold fewer.
    """
    if isinstance(low, int):
        number = high - low + 1
        least = -(-number // BINS)
        # Fewer and wider bins, where the last then is nearly as wide as the others.
        width = max(range(least, least + min(least, BINS)), key=lambda one: _rest(number, one))
        return [*range(low, high + 1, width), high], _rest(number, width)
    if low == high:
        return [low, high], 1.0
    # Weighted, as the difference of the two may be infinite.
    edges = [low * (1 - i / BINS) + high * (i / BINS) for i in range(BINS)]
    return [*edges, high], 1.0


def _rest(number: int, width: int) -> float:
    """Return what part of the last bin integers fill, where each has room for `width`."""
    return ((number - 1) % width + 1) / width

"""Histograms as inline SVG, stretched to their place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dataset_rt.html.markup import Markup, element
from dataset_rt.text import counted, value_text

_BINS_MAX = 120
_HEIGHT = 100
# Of the height: a bin that holds anything is seen.
_LEAST = 1.5
_TIP_CELLS_MAX = 78


class Bin(NamedTuple):
    """How many values lie in `[begin, end)`."""

    begin: float
    end: float
    samples: int


def histogram(
    bins: Sequence[Bin],
    *,
    form: Callable[[float], str],
    noun: str = "sample",
    axis: str = "",
    last_width: float = 1.0,
) -> Markup:
    """Return a histogram; the pointer over a bin says what it is.

    Args:
        bins: One beside the other, each drawn equally wide, also where they hold ever more (powers
            of two). Of more than 120, neighbours are drawn together.
        form: Writes a bound.
        noun: What is counted, in the singular.
        axis: What the bounds are.
        last_width: Width of the last bin, where all others have 1.
    """
    if not bins:
        return element("div", {"class": "drt-note"}, f"no {noun}s")
    together = math.ceil(len(bins) / _BINS_MAX)
    drawn = [_merged(bins[at : at + together]) for at in range(0, len(bins), together)]
    most = max(one.samples for one in drawn)
    widths = [1.0] * (len(drawn) - 1) + [last_width]
    rects = (
        _rect(place, one, width, most, form, noun)
        for place, (one, width) in enumerate(zip(drawn, widths, strict=True))
    )
    total = sum(one.samples for one in drawn)
    says = f"{counted(total, noun)} from {form(drawn[0].begin)} to {form(drawn[-1].end)}"
    picture = element(
        "svg",
        {
            "viewBox": f"0 0 {sum(widths):.4g} {_HEIGHT}",
            "preserveAspectRatio": "none",
            "role": "img",
            "aria-label": value_text(f"histogram of {says}", _TIP_CELLS_MAX),
            "class": "drt-histogram",
        },
        *rects,
    )
    ends = element(
        "div",
        {"class": "drt-axis"},
        element("span", {}, form(drawn[0].begin)),
        element("span", {}, axis),
        element("span", {}, form(drawn[-1].end)),
    )
    return element("div", {"class": "drt-figure"}, picture, ends)


def _merged(bins: Sequence[Bin]) -> Bin:
    return Bin(bins[0].begin, bins[-1].end, sum(one.samples for one in bins))


def _rect(  # noqa: PLR0917 - of one call
    place: int, one: Bin, width: float, most: int, form: Callable[[float], str], noun: str
) -> Markup:
    height = max(_LEAST, _HEIGHT * one.samples / most) if one.samples > 0 else 0.0
    says = f"{form(one.begin)} to {form(one.end)}: {counted(one.samples, noun)}"
    return element(
        "rect",
        {
            # A little air between bins.
            "x": f"{place + 0.04 * width:.4g}",
            "width": f"{0.92 * width:.4g}",
            "y": f"{_HEIGHT - height:.4g}",
            "height": f"{height:.4g}",
            "class": "drt-fill",
        },
        element("title", {}, value_text(says, _TIP_CELLS_MAX)),
    )

"""Numbers as Altair charts that read on light and dark pages; the only place that knows Altair."""

from __future__ import annotations

import math
import sys
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from dataset_rt.text import count, counted, cut, safe, size

if TYPE_CHECKING:
    from dataset_rt.dataset import CachedDataset
    from dataset_rt.plotting.figures import Draw, Histogram, Shares

# With all that stands beside the bars: a telephone shows it whole.
_WIDTH = 360
_HEIGHT = 180
_BAR_STEP = 18
_PAIR_STEP = 26
_MANY = 30
_MANY_STEP = 15
# Read on white and on black: a chart cannot know the page that it is put on. No colour has more
# contrast to both than this one, so letters are larger than Vega's.
_TEXT = "#797f88"
_LINE = "rgba(127,127,127,0.25)"
# One colour for each meaning, in reports too.
_ROWS = "#8b929c"
_DUE = "#dd8a35"
_DRAWN = "#4c7fe0"
# `format` of an expression gives each number its own unit, `format` of an axis one to all.
_SIZE = "replace(format(datum.value, '~s'), regexp('([a-zA-Z]?)$'), ' $1B')"
# Holds what figures.py leaves of a name, capitals too.
_LABEL_PIXELS = 150
_NUMBER = (
    "datum.value == 0 || (datum.value >= 1e-4 && datum.value < 1e7) "
    "? format(datum.value, ',.4~r') : format(datum.value, '.3~e')"
)
_NAME_CELLS_MAX = 40
_TICKS = 5
_POWER_MAX = 308
"""Of ten, that a float can hold."""
# What is wider than a chart is cut off.
_TITLE_LETTERS, _SUBTITLE_LETTERS = 44, 56
_ALIKE = 1e-9
"""Shares are sums of floats: those that differ by less are the same."""


def weight_chart(found: Histogram, unused: str) -> alt.Chart:
    """Return the histogram of weights; the tip of a bar says the share of all weight in it.

    Args:
        found: How many rows have which weights.
        unused: Why these do nothing, or nothing.
    """
    frame = found.ranges.with_columns(share=pl.col("sum") / pl.col("sum").sum())
    tips = [
        alt.Tooltip("begin:Q", title="weight from", format=".4~g"),
        alt.Tooltip("end:Q", title="to", format=".4~g"),
        alt.Tooltip("rows:Q", title="rows", format=","),
        alt.Tooltip("share:Q", title="share of all weight", format=".1%"),
    ]
    title = f"Weights of {counted(found.rows, 'row')}"
    subtitles = [f"all equal: {found.largest:.6g}" if frame.height == 1 else unused]
    return _histogram(
        frame, found, title=title, subtitles=subtitles, x="weight", tips=tips, labels=_NUMBER
    )


def size_chart(found: Histogram) -> alt.Chart:
    """Return the histogram of payload sizes."""
    total = float(found.ranges["sum"].sum())
    note = f", {count(found.empty)} of them empty and not shown" if found.empty else ""
    title = f"Payload sizes of {counted(found.rows, 'row')}"
    subtitle = f"{size(total)} together, {size(total / found.rows)} on average{note}"
    tips = [
        alt.Tooltip("begin:Q", title="bytes from", format=",.0f"),
        alt.Tooltip("end:Q", title="to", format=",.0f"),
        alt.Tooltip("rows:Q", title="rows", format=","),
    ]
    axis = "payload size before compression"
    return _histogram(
        found.ranges,
        found,
        title=title,
        subtitles=[subtitle],
        x=axis,
        tips=tips,
        labels=_SIZE,
        is_whole=True,
    )


def _histogram(
    frame: pl.DataFrame,
    found: Histogram,
    *,
    title: str,
    x: str,
    tips: list[alt.Tooltip],
    labels: str,
    subtitles: list[str],
    is_whole: bool = False,
) -> alt.Chart:
    begin, end = float(frame["begin"][0]), float(frame["end"][-1])
    if frame.height == 1:
        # One value alone: its bar would fill the place.
        begin, end = 0.0, min(begin + end or 1.0, sys.float_info.max)
    ticks = max(1, min(_TICKS, int(end - begin))) if is_whole else _TICKS
    # Nothing can be drawn from 0 on a logarithmic axis, so it begins where the ranges do.
    scale = alt.Scale(type="log" if found.is_growing else "linear", zero=False, nice=False)
    axis = alt.Axis(
        title=f"{x} (logarithmic)" if found.is_growing else x,
        labelExpr=labels,
        tickCount=ticks,
        grid=False,
    )
    if found.is_growing:
        axis = alt.Axis(**axis.to_dict(), values=_decades(begin, end))
    if frame.height == 1:
        scale = alt.Scale(domain=[begin, end])
    # As many ticks as there are whole numbers, where these are few.
    tallest = max(1, min(_TICKS, int(frame["rows"].max())))  # type: ignore[arg-type]
    chart = (
        alt.Chart(_data(frame))
        .mark_bar(color=_ROWS, binSpacing=1)
        .encode(
            x=alt.X("begin:Q", scale=scale, axis=axis, bin="binned"),
            x2=alt.X2("end:Q"),
            y=alt.Y("rows:Q", axis=alt.Axis(title="rows", format=",d", tickCount=tallest)),
            tooltip=tips,
        )
    )
    return _finished(chart, title, subtitles, height=_HEIGHT)


def _decades(least: float, largest: float) -> list[float]:
    """Return the powers of ten between, and 2 and 5 times these where they are few."""
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(largest))
    # Six labels are as many as can be read.
    step = max(1, (last - first) // 6)
    parts = (1, 2, 5) if last - first <= 2 else (1,)
    # No float is as large as the power above the largest ones.
    powers = range(first, min(last, _POWER_MAX) + 1, step)
    ticks = [part * 10.0**power for power in powers for part in parts]
    return [tick for tick in ticks if least <= tick <= largest]


def balance_chart(found: Shares, column: str, unused: str) -> alt.Chart:
    """Return bars of shares of the rows, and beside them of the weight where these differ.

    Args:
        found: The shares.
        column: Name of the column.
        unused: Why weights do nothing, or nothing.
    """
    name = cut(safe(column), _NAME_CELLS_MAX)
    values = found.values
    rows = int(values["rows"].sum()) + int(found.others["rows"])
    difference = float((values["row_share"] - values["weight_share"]).abs().max())  # type: ignore[arg-type]
    is_alike = difference < _ALIKE
    kinds = [
        ("row_share", "share of the rows", _ROWS),
        ("weight_share", "share of the weight", _DUE),
    ]
    return _bars(
        found,
        kinds[:1] if is_alike else kinds,
        title=f"Balance of {name} over {counted(rows, 'row')}",
        name=name,
        axis="share of the rows" if is_alike else "share",
        subtitles=["by weight the shares are the same" if is_alike else unused],
    )


def draws_chart(found: Draw, column: str, dataset: CachedDataset) -> alt.Chart:
    """Return pairs of bars: what is due to each value, and what was drawn."""
    name = cut(safe(column), _NAME_CELLS_MAX)
    config = dataset.reader_config
    mode = f"seed {config.seed}, {config.sampling}" if config.shuffle else "table order"
    end = found.begin + found.drawn
    subtitles = [f"{mode.replace('_', ' ')}, stream from {count(found.begin)} to {count(end)}"]
    kinds = [("drawn", "drawn", _DRAWN)]
    if found.due is None:
        subtitles.append("no share is due here: heavy rows come earlier in a cycle")
    else:
        colour = _DUE if found.due == "weight" else _ROWS
        kinds = [("expected", f"due by {found.due}", colour), *kinds]
    return _bars(
        found.shares,
        kinds,
        title=f"Draws of {name}: {counted(found.drawn, 'sample')}",
        name=name,
        axis="share of the samples",
        subtitles=subtitles,
    )


def _bars(
    found: Shares,
    kinds: list[tuple[str, str, str]],
    *,
    title: str,
    name: str,
    axis: str,
    subtitles: list[str],
) -> alt.Chart:
    shares = found.values
    subtitles = [*subtitles, *([found.order] if found.order else [])]
    if found.others_count:
        # In words: a bar for all of them would be longer than every other.
        parts = ", ".join(
            f"{found.others[column]:.1%} {kind.removeprefix('share ')}" for column, kind, _ in kinds
        )
        subtitles = [*subtitles, f"other ({count(found.others_count)} values): {parts}"]
    counts = [column for column in ("rows", "samples") if column in shares.columns]
    frame = pl.concat(
        shares.select("value", *counts, pl.col(column).alias("share"), pl.lit(kind).alias("kind"))
        for column, kind, _ in kinds
    )
    names = [kind for _, kind, _ in kinds]
    tips = [
        alt.Tooltip("value:N", title=name),
        alt.Tooltip("kind:N", title="share"),
        alt.Tooltip("share:Q", title="is", format=".2%"),
        *(alt.Tooltip(f"{column}:Q", format=",") for column in counts),
    ]
    order = shares["value"].to_list()
    y = alt.Y(
        "value:N", sort=order, axis=alt.Axis(title=name, labelLimit=_LABEL_PIXELS, grid=False)
    )
    legend = alt.Legend(title=None, orient="top", columns=1) if len(names) > 1 else None
    scale = alt.Scale(domain=names, range=[colour for _, _, colour in kinds])
    encoding: dict[str, Any] = {
        "x": alt.X("share:Q", axis=alt.Axis(title=axis, format="~%", tickCount=5)),
        "y": y,
        "color": alt.Color("kind:N", scale=scale, legend=legend),
        "tooltip": tips,
    }
    if len(names) > 1:
        encoding["yOffset"] = alt.YOffset("kind:N", sort=names)
    width = _PAIR_STEP if len(names) > 1 else _BAR_STEP
    step = alt.Step(_MANY_STEP if shares.height > _MANY else width, **{"for": "position"})
    chart = alt.Chart(_data(frame)).mark_bar().encode(**encoding)
    return _finished(chart, title, subtitles, height=step)


def _data(frame: pl.DataFrame) -> alt.InlineData:
    # Handed over as they are: no setting of Altair's data transformers changes what is drawn.
    return alt.InlineData(values=frame.to_dicts())


def _finished(chart: alt.Chart, title: str, subtitles: list[str], *, height: Any) -> alt.Chart:
    words: dict[str, Any] = {
        "text": wrap(title, _TITLE_LETTERS),
        "anchor": "start",
        "color": _TEXT,
        "fontSize": 14,
    }
    if lines := [line for text in subtitles for line in wrap(text, _SUBTITLE_LETTERS)]:
        words |= {"subtitle": lines, "subtitleColor": _TEXT, "subtitleFontSize": 12}
    told = alt.TitleParams(**words, offset=10)
    coloured: alt.Chart = (
        chart.properties(
            title=told,
            width=_WIDTH,
            height=height,
            background="transparent",
            autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        )
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=_TEXT,
            titleColor=_TEXT,
            domainColor=_LINE,
            tickColor=_LINE,
            gridColor=_LINE,
            titleFontWeight="normal",
            labelFontSize=11,
            titleFontSize=12,
        )
        .configure_legend(labelColor=_TEXT, titleColor=_TEXT, labelFontSize=11)
    )
    return coloured

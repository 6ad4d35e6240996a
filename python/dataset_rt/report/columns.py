"""Collects what a report says of columns: a few at a time, so that memory is bounded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from dataset_rt.errors import CorruptError
from dataset_rt.inspection.column_stats import FEW_VALUES, ColumnStats
from dataset_rt.inspection.survivors import Readable
from dataset_rt.inspection.values import edge_text, number_text, text_of
from dataset_rt.report.facts import ColumnFacts, ColumnsFacts, Histogram
from dataset_rt.report.histograms import histogram_of

COLUMNS_MAX = 120
"""Columns of a report unless some are named: more make a page that nobody looks through."""

_TOP = 8
_COLUMNS_AT_ONCE = 4
"""Each keeps its distinct values while it is read: 64 MiB."""


@dataclass(slots=True)
class _Reading:
    """One column while it is read.

    Attributes:
        stats: Of the values.
        infinite: Infinite values.
    """

    stats: ColumnStats
    infinite: int = 0

    def add(self, array: Any) -> None:
        column = pl.Series(array)
        if column.dtype.is_float():
            self.infinite += int(column.is_infinite().sum())
        self.stats.add(column)


def columns_of(side: Readable, names: list[str] | None) -> ColumnsFacts:
    """Return the facts of some columns, of the rows that can be read.

    Args:
        side: The cache. Where damage is met, it learns which samples are lost.
        names: Columns; by default the first `COLUMNS_MAX`.

    Raises:
        CorruptError: Nothing can be read.
    """
    known = [*side.types()]
    wanted = known[:COLUMNS_MAX] if names is None else names
    left_out = len(known) - len(wanted) if names is None else 0
    try:
        found = _facts_of(side, wanted)
    except CorruptError:
        side.look_for_losses()
        if side.is_whole:
            raise
        # All anew: every column then tells of the same rows.
        found = _facts_of(side, wanted)
    lost = sum(stop - start for start, stop in side.lost or [])
    return ColumnsFacts(found, left_out, lost if wanted else 0)


def _facts_of(side: Readable, names: list[str]) -> list[ColumnFacts]:
    types = side.types()
    found: list[ColumnFacts] = []
    for begin in range(0, len(names), _COLUMNS_AT_ONCE):
        group = names[begin : begin + _COLUMNS_AT_ONCE]
        readings = [_Reading(ColumnStats(name, types[name])) for name in group]
        for _, batch in side.runs(group):
            for reading, array in zip(readings, batch.columns, strict=True):
                reading.add(array)
        for reading in readings:
            reading.stats.finish()
            found.append(_facts(side, reading))
    return found


def _facts(side: Readable, reading: _Reading) -> ColumnFacts:
    stats = reading.stats
    dtype = stats.dtype
    is_number = dtype.is_numeric()
    is_few = stats.distinct is not None and stats.distinct <= FEW_VALUES
    is_spread = (is_number or dtype.is_temporal()) and not is_few
    top: list[tuple[Any, int]] = []
    if stats.is_classes or (is_few and stats.distinct == 1):
        top = stats.top(FEW_VALUES if is_few else _TOP)
    if not dtype.is_nested() and is_few and dtype != pl.String:
        top.sort()
    return ColumnFacts(
        name=stats.name,
        type=stats.type,
        rows=stats.rows,
        nulls=stats.nulls,
        nans=stats.nans,
        infinite=reading.infinite,
        distinct=stats.distinct,
        min=None if stats.min is None else text_of(stats.min, dtype),
        max=None if stats.max is None else text_of(stats.max, dtype),
        mean=_mean(reading) if is_number else None,
        top=[(text_of(value, dtype), number) for value, number in top],
        histogram=_histogram(side, reading) if is_spread else None,
    )


def _mean(reading: _Reading) -> str | None:
    mean = reading.stats.mean
    # Of infinite values it says nothing, nor where the sum is beyond the largest float.
    return None if mean is None or not math.isfinite(mean) else number_text(mean)


def _histogram(side: Readable, reading: _Reading) -> Histogram | None:
    counts, name = reading.stats.counts, reading.stats.name

    def form(edge: Any) -> str:
        return edge_text(edge, reading.stats.dtype, reading.stats.max - reading.stats.min)

    if counts is not None:
        return histogram_of(lambda: [counts], counts.height, form)
    return histogram_of(lambda: _pieces(side, name), reading.stats.values, form)


def _pieces(side: Readable, name: str) -> Iterator[pl.DataFrame]:
    for _, batch in side.runs([name]):
        values = pl.Series(batch.column(0)).to_physical().drop_nulls()
        if values.dtype.is_float():
            values = values.drop_nans()
        yield pl.DataFrame({"value": values}).with_columns(count=pl.lit(1, pl.Int64))


def label_column(columns: Iterable[ColumnFacts]) -> tuple[str | None, str]:
    """Return the column that looks like a label, and why; or `None`, and why there is none."""
    fitting = [column for column in columns if _may_be_label(column)]
    for column in fitting:
        if _is_named_like_a_label(column.name):
            return column.name, "its name is that of a label"
    for kind, words in (("utf8", "texts"), ("bool", "values"), ("int", "numbers")):
        for column in fitting:
            if kind in column.type:
                return column.name, f"the first with a few {words} that come again and again"
    return None, "no column looks like a label: texts or integers, a few that come again and again"


_LABEL_WORDS = frozenset({"label", "labels", "class", "cls", "category", "target", "y"})
_LABELS_MAX = 100


def _may_be_label(column: ColumnFacts) -> bool:
    """Whether its values are few, and each comes four times in the mean."""
    return (
        column.distinct is not None
        and 2 <= column.distinct <= _LABELS_MAX
        and column.values >= 4 * column.distinct
        and ("int" in column.type or "utf8" in column.type or column.type == "bool")
    )


def _is_named_like_a_label(name: str) -> bool:
    words = "".join(letter if letter.isalpha() else " " for letter in name.lower()).split()
    return not _LABEL_WORDS.isdisjoint(words)

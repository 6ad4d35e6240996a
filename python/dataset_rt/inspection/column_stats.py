"""Statistics of columns, taken batch by batch: memory is bounded, whatever the number of rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

DISTINCT_MAX = 500_000
"""Distinct values of a column that are told apart; beyond, they are only said to be more."""

DISTINCT_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of the distinct texts of a column that are kept."""

FEW_VALUES = 12
"""Distinct values up to which all are shown."""

REPEATED = 4
"""How often more values must come in the mean to be classes rather than ids."""


@dataclass(slots=True)
class ColumnStats:
    """Statistics of one column.

    Attributes:
        name: Name of the column.
        type: Its Arrow type.
        rows: Rows seen.
        nulls: Nulls among them.
        nans: Floats among them that are no number; they count for nothing below.
        min: Smallest value, of dates and times as an integer: see `dtype`.
        max: Largest value, likewise.
        sum: Sum of numbers, of trues for booleans.
        dtype: Polars type of the values, once a batch was seen.
        counts: `value`, `count` of each distinct value, `None` beyond the bounds of this module.
    """

    name: str
    type: str
    rows: int = 0
    nulls: int = 0
    nans: int = 0
    min: Any = None
    max: Any = None
    sum: float | int | None = None
    dtype: pl.DataType = field(default_factory=pl.Null)
    counts: pl.DataFrame | None = None
    _pending: list[pl.DataFrame] = field(default_factory=list)
    _is_counted: bool = True

    @property
    def values(self) -> int:
        """Values that are neither null nor NaN."""
        return self.rows - self.nulls - self.nans

    @property
    def distinct(self) -> int | None:
        """Distinct values, or `None` when there are more than are told apart."""
        return None if self.counts is None else self.counts.height

    @property
    def mean(self) -> float | None:
        """Mean of numbers, share of trues for booleans."""
        return None if self.sum is None or not self.values else self.sum / self.values

    def top(self, shown_max: int) -> list[tuple[Any, int]]:
        """Return the most frequent values with their counts, equal ones in order."""
        if self.counts is None:
            return []
        ordered = self.counts.sort(["count", "value"], descending=[True, False])
        return list(ordered.head(shown_max).iter_rows())

    def quartiles(self) -> list[Any] | None:
        """Return the values at 25%, 50% and 75% of numbers, dates and times that were counted."""
        counts = self.counts
        if (
            counts is None
            or counts.is_empty()
            or not (self.dtype.is_numeric() or self.dtype.is_temporal())
        ):
            return None
        ordered = counts.sort("value")
        reached = ordered["count"].cum_sum()
        places = (reached.search_sorted(self.values * part / 4, side="left") for part in (1, 2, 3))
        return [ordered["value"][place] for place in places]

    @property
    def is_classes(self) -> bool:
        """Whether the values come again and again: a list of the most frequent says something."""
        if self.distinct is None or self.distinct < 2:
            return False
        if self.distinct <= FEW_VALUES:
            return self.distinct < self.values
        is_ordered = self.dtype.is_numeric() or self.dtype.is_temporal()
        return not is_ordered and self.distinct * REPEATED <= self.values

    def add(self, column: pl.Series) -> None:
        """Take in the rows of one batch."""
        self.dtype = column.dtype
        # Polars panics over dates and times that Python does not have.
        column = column.to_physical()
        self.rows += column.len()
        self.nulls += column.null_count()
        values = column.drop_nulls()
        if values.dtype.is_float():
            numbers = values.drop_nans()
            self.nans += values.len() - numbers.len()
            values = numbers
        if not values.len():
            return
        self._bound(values)
        if self.dtype.is_numeric() or self.dtype == pl.Boolean:
            # Whole numbers to the last digit: floats of both signs could cancel out wrongly.
            wide = pl.Int128 if values.dtype.is_integer() else pl.Float64
            total: float | int = values.cast(wide).sum()  # type: ignore[assignment]
            self.sum = (self.sum or 0) + total
        if self._is_counted:
            self._count(values)

    def finish(self) -> None:
        """Bring the counts together, behind the last batch."""
        self._merge()
        if self._is_counted and self.counts is None:
            self.counts = pl.DataFrame({"value": [], "count": []})

    def _bound(self, values: pl.Series) -> None:
        low, high = values.min(), values.max()
        self.min = low if self.min is None else min(self.min, low)
        self.max = high if self.max is None else max(self.max, high)

    def _count(self, values: pl.Series) -> None:
        self._pending.append(
            pl.DataFrame({"value": values}).group_by("value").agg(count=pl.len().cast(pl.Int64))
        )
        # Merged when as much is new as is known: each value is moved a few times in all.
        if sum(part.height for part in self._pending) > (
            0 if self.counts is None else self.counts.height
        ):
            self._merge()

    def _merge(self) -> None:
        parts = [*([] if self.counts is None else [self.counts]), *self._pending]
        self._pending = []
        if not parts:
            return
        merged = pl.concat(parts).group_by("value").agg(pl.col("count").sum())
        if merged.height > DISTINCT_MAX or merged.estimated_size() > DISTINCT_BYTES_MAX:
            self._is_counted, self.counts = False, None
        else:
            self.counts = merged

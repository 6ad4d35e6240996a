"""Ranges of a histogram, equally wide or growing, and how many values lie in each."""

from __future__ import annotations

import math
import sys

import polars as pl

from dataset_rt.inspection.weights import relative

BINS = 40
_GROWING_FROM = 50.0
"""Largest by least value, from which ranges grow: else nearly all would lie in the first."""


class Bins:
    """Counts values, piece by piece, into ranges between the least and the largest of them.

    Args:
        least: Least value.
        largest: Largest value.
        is_integer: Values are whole numbers: ranges that do not grow hold equally many of them.
        number: Ranges at most.
        has_relative_sums: Sums are of values relative to the largest, for those whose sum no float
            holds.

    Attributes:
        is_growing: Whether each range is a constant times as wide as the one before; then values
            of 0 or below are left out, and counted in `left_out`.
    """

    def __init__(
        self,
        least: float,
        largest: float,
        *,
        is_integer: bool = False,
        number: int = BINS,
        has_relative_sums: bool = False,
    ) -> None:
        """See the class."""
        self._least, self._largest = float(least), float(largest)
        self.is_growing = self._least > 0 and self._largest / self._least >= _GROWING_FROM
        self._number = number if self._least < self._largest else 1
        self._has_relative_sums = has_relative_sums
        if is_integer and self._number > 1 and not self.is_growing:
            wholes = int(largest) - int(least) + 1
            width = -(-wholes // number)
            self._number = -(-wholes // width)
            self._largest = self._least + width * self._number
        self._sums = pl.DataFrame(schema={"place": pl.Int64, "rows": pl.UInt64, "sum": pl.Float64})

    def add(self, values: pl.Series) -> None:
        """Count the values of one piece."""
        floats = values.cast(pl.Float64)
        place = self.places(floats)
        summed = relative(floats, self._largest) if self._has_relative_sums else floats
        found = pl.DataFrame([place.alias("place"), summed.alias("value")])
        counted = found.group_by("place").agg(
            rows=pl.len().cast(pl.UInt64), sum=pl.col("value").sum()
        )
        self._sums = pl.concat([self._sums, counted]).group_by("place").agg(pl.all().sum())

    def places(self, values: pl.Series) -> pl.Series:
        """Return the numbers of the ranges that values (Float64) lie in, from 0."""
        if self._number == 1:
            return pl.repeat(0, len(values), dtype=pl.Int64, eager=True)
        if self.is_growing:
            whole = math.log(self._largest) - math.log(self._least)
            place = (values.log() - math.log(self._least)) / whole * self._number
        else:
            # Divided by the width: whole numbers at a bound come out exactly there.
            # Scaled, so that neither the distance of the largest floats is infinite, nor the width
            # of ranges between the least ones 0.
            most = max(abs(self._least), abs(self._largest))
            least, largest = relative(pl.Series([self._least, self._largest]), most)
            place = (relative(values, most) - least) / ((largest - least) / self._number)
        return place.floor().cast(pl.Int64).clip(0, self._number - 1)

    def ranges(self) -> pl.DataFrame:
        """Return `begin`, `end`, `rows` and `sum` (of the values), one row per range, 0 also."""
        edges = [self._edge(place) for place in range(self._number + 1)]
        ranges = pl.DataFrame(
            {"place": range(self._number), "begin": edges[:-1], "end": edges[1:]},
            schema_overrides={"place": pl.Int64},
        )
        filled = ranges.join(self._sums, on="place", how="left").with_columns(
            pl.col("rows").fill_null(0), pl.col("sum").fill_null(0.0)
        )
        return filled.sort("place").drop("place")

    def _edge(self, place: int) -> float:
        part = place / self._number
        if self._largest <= self._least:
            # One value alone: something wide enough to be seen, around it.
            edge = self._least + (place - 0.5) * (abs(self._least) * 0.1 or 1.0)
            return min(max(edge, -sys.float_info.max), sys.float_info.max)
        if self.is_growing:
            start, end = math.log(self._least), math.log(self._largest)
            # The ends are as they were given, not as logarithms round them.
            inner = math.exp(start + (end - start) * part)
            return {0: self._least, self._number: self._largest}.get(place, inner)
        return self._least * (1 - part) + self._largest * part

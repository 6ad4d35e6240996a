"""Ranges of histograms: every value lies in one, and they are as wide as they say."""

import polars as pl
import pytest

from dataset_rt.plotting.bins import BINS, Bins


@pytest.mark.parametrize(
    ("least", "largest"),
    [
        (0, 0),
        (3, 3),
        (1, 2),
        (5e-324, 1e300),
        (1e-3, 1e3),
        (0, 9),
        (-1.7e308, 1.7e308),
        (1.7e308, 1.7e308),
        (5e-324, 1.7e308),
    ],
)
def test_every_value_lies_in_a_range(least, largest):
    bins = Bins(least, largest)
    values = pl.Series([least, largest, least / 2 + largest / 2], dtype=pl.Float64)
    bins.add(values)
    bins.add(values)
    ranges = bins.ranges()
    assert ranges["rows"].sum() == 6
    assert (ranges["begin"].is_finite() & ranges["end"].is_finite()).all()
    assert (ranges["end"] > ranges["begin"]).all()


@pytest.mark.parametrize(("least", "largest"), [(105, 134), (0, 39), (0, 40), (7, 8), (0, 1000)])
def test_ranges_of_whole_numbers_hold_equally_many(least, largest):
    bins = Bins(least, largest, is_integer=True)
    bins.add(pl.Series(range(least, largest + 1)))
    ranges = bins.ranges()
    assert ranges.height <= BINS
    assert ranges["rows"].sum() == largest + 1 - least
    width = (ranges["end"] - ranges["begin"]).round(9).unique().to_list()
    assert width == [ranges["rows"].max()]
    assert ranges["rows"][:-1].n_unique() <= 1

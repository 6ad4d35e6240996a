"""Rows and weights of the active table in a few words; reads no other column."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from dataset_rt.errors import DatasetRTError
from dataset_rt.inspection.weights import why_unused
from dataset_rt.text import count

if TYPE_CHECKING:
    from dataset_rt.dataset import CachedDataset

ROWS_MAX = 10_000_000
"""Of larger tables no weights are looked at: 90 ns a row where they were not asked for before."""


class Weights(NamedTuple):
    """Number of rows, what there is to say of their weights, and why they cannot be had."""

    rows: str
    weights: str
    trouble: str = ""


def weights_of(dataset: CachedDataset, rows_likely: int) -> Weights:
    """Return the rows and weights of a table, also where they cannot be had.

    Args:
        dataset: Its table.
        rows_likely: About how many rows it has: nothing is built for a table that is too large.
    """
    if rows_likely > ROWS_MAX:
        return _too_many()
    rows, least, largest = 0, float("inf"), 0.0
    try:
        for batch in dataset.to_arrow(["weight"]):
            weights = pl.Series(batch.column(0))
            rows += len(weights)
            least = min(least, float(weights.min()))  # type: ignore[arg-type]
            largest = max(largest, float(weights.max()))  # type: ignore[arg-type]
            if rows > ROWS_MAX:
                return _too_many()
    except DatasetRTError as error:
        return Weights("?", "", str(error))
    return Weights(count(rows), _words(least, largest, why_unused(dataset.reader_config)))


def _words(least: float, largest: float, unused: str) -> str:
    if least == largest:
        return f"all equal ({least:.6g})"
    times = largest / least
    # No float holds how many times 1e300 is 1e-300.
    how = f", the largest {times:,.4g} times the least" if math.isfinite(times) else ""
    said = f"{least:.6g} to {largest:.6g}{how}"
    return f"{said}; {unused}" if unused else said


def _too_many() -> Weights:
    return Weights(f"> {count(ROWS_MAX)}", f"not looked at: more than {count(ROWS_MAX)} rows")

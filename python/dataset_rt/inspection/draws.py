"""How often a stream of given weights draws which samples, and what that makes of classes.

Really draws: no formula of the sampler is repeated here. No payload is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from dataset_rt.dataset import CachedDataset
from dataset_rt.errors import InvalidInputError

_BATCH_ROWS = 16_384
_IDENTITY = ["cache_id", "sample_id"]
_COUNTS_MAX = 64
"""Batches whose counts are kept before they are summed up."""


def weigh(dataset: CachedDataset, balance: str | None, weight_by: str | None) -> None:
    """Give the rows their weights; without any column they keep theirs.

    Args:
        dataset: Whose table is replaced.
        balance: Column each value of which gets the same total weight.
        weight_by: Column of numbers that become the weights.

    Raises:
        InvalidInputError: There is no such column, or a weight is not a positive number.
    """
    name = balance or weight_by
    if name is None:
        return
    table = dataset.get_metadata()
    if name not in table.columns:
        raise InvalidInputError(f"expected a column of the cache, found {name!r}")
    column = table.get_column(name)
    if balance:
        sizes = table.select(size=pl.len().over(pl.lit(column))).get_column("size")
        weight = 1.0 / sizes
    else:
        if not column.dtype.is_numeric():
            raise InvalidInputError(f"weights from {name!r}: it holds {column.dtype}, not numbers")
        weight = column.cast(pl.Float64)
    dataset.update_metadata(table.with_columns(weight.alias("weight")))


def draw(dataset: CachedDataset, on_progress: Callable[[int], object]) -> pl.DataFrame:
    """Return how often each row of the next epoch is drawn: `cache_id`, `sample_id`, `count`."""
    counts: list[pl.DataFrame] = []
    done = 0
    for batch in dataset.iter_batches(_BATCH_ROWS, columns=_IDENTITY):
        counts.append(pl.DataFrame(batch).group_by(_IDENTITY).agg(count=pl.len()))
        done += batch.num_rows
        on_progress(done)
        if len(counts) > _COUNTS_MAX:
            counts = [_summed(counts)]
    return _summed(counts)


def _summed(counts: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(counts).group_by(_IDENTITY).agg(pl.col("count").sum())


def shares_of(table: pl.DataFrame, drawn: pl.DataFrame, column: str) -> list[dict[str, Any]]:
    """Return what each value of a column has of the rows, of the weight and of the draws.

    Args:
        table: The active table.
        drawn: What `draw` returned.
        column: Name of the column.

    Returns:
        By value, null last: `value`, the numbers `stored`, `drawn` and `rows_drawn`, and the
        fractions `share_stored`, `share_expected` (of the weights) and `share_drawn`.
    """
    rows = pl.DataFrame(
        [*table.select(*_IDENTITY, "weight"), table.get_column(column).alias("value")]
    )
    shares = (
        rows.join(drawn, on=_IDENTITY, how="left")
        .group_by("value")
        .agg(
            stored=pl.len(),
            weight=pl.col("weight").sum(),
            drawn=pl.col("count").fill_null(0).sum(),
            rows_drawn=pl.col("count").is_not_null().sum(),
        )
        .sort("value", nulls_last=True)
    )
    total = shares.select(pl.col("stored", "weight", "drawn").sum()).row(0)
    return [
        {
            "value": row["value"],
            "stored": row["stored"],
            "drawn": row["drawn"],
            "rows_drawn": row["rows_drawn"],
            "share_stored": row["stored"] / total[0],
            "share_expected": row["weight"] / total[1],
            "share_drawn": row["drawn"] / total[2],
        }
        for row in shares.iter_rows(named=True)
    ]

"""How often a stream of given weights draws which samples, and what that makes of classes.

Really draws: no formula of the sampler is repeated here. No payload is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from dataset_rt.dataset import CachedDataset
from dataset_rt.errors import InvalidInputError

_BATCH_ROWS = 16_384
_IDENTITY = ["cache_id", "sample_id"]


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


def draw(
    dataset: CachedDataset, table: pl.DataFrame, on_progress: Callable[[int], object]
) -> pl.Series:
    """Return how often the next epoch draws each row of a table: 4 bytes a row, in its order.

    Args:
        dataset: Whose rows are those of whole caches, in their order.
        table: Its active table.
        on_progress: Is told how many samples were drawn.
    """
    first = table.select("cache_id", row=pl.int_range(pl.len())).group_by("cache_id").min()
    starts = first.rows()
    counts, done = np.zeros(table.height, np.uint32), 0
    for batch in dataset.iter_batches(_BATCH_ROWS, columns=_IDENTITY):
        caches, samples = (batch.column(i).to_numpy() for i in range(2))
        for cache_id, start in starts:
            of_cache = samples if len(starts) == 1 else samples[caches == cache_id]
            np.add.at(counts, of_cache.astype(np.int64) + start, 1)
        done += batch.num_rows
        on_progress(done)
    return pl.Series("count", counts)


def shares_of(table: pl.DataFrame, drawn: pl.Series, column: str) -> list[dict[str, Any]]:
    """Return what each value of a column has of the rows, of the weight and of the draws.

    Args:
        table: The active table.
        drawn: What `draw` returned.
        column: Name of the column.

    Returns:
        By value, null last: `value`, the numbers `stored`, `drawn` and `rows_drawn`, and the
        fractions `share_stored`, `share_expected` (of the weights) and `share_drawn`. Dates and
        times are integers, as `to_physical` of Polars leaves them.
    """
    value = table.get_column(column).to_physical().alias("value")
    rows = pl.DataFrame([value, table.get_column("weight").alias("weight"), drawn])
    shares = (
        rows.group_by("value")
        .agg(
            stored=pl.len(),
            weight=pl.col("weight").sum(),
            drawn=pl.col("count").sum().cast(pl.Int64),
            rows_drawn=(pl.col("count") > 0).sum(),
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

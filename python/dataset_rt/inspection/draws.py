"""How often a stream of given weights draws which samples, and what that makes of classes.

Really draws: no formula of the sampler is repeated here. No payload is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import polars as pl

from dataset_rt.config import ReaderConfig
from dataset_rt.dataset import CachedDataset
from dataset_rt.errors import InvalidInputError
from dataset_rt.inspection.weights import relative
from dataset_rt.text import count

_BATCH_ROWS = 16_384
_IDENTITY = ["cache_id", "sample_id"]

Due: TypeAlias = Literal["weight", "rows"] | None
"""What share of the draws is due to a class: that of the weight or of the rows; `None` if none."""


def due_by(
    config: ReaderConfig, rows: int, drawn: int, *, begin: int = 0, is_equal: bool = False
) -> Due:
    """Return by what a class is due its share of a part of the stream.

    Args:
        config: How positions become rows.
        rows: Rows of the table.
        drawn: Samples of the part.
        begin: First position of it.
        is_equal: Whether all rows weigh the same.
    """
    if not config.shuffle or config.sampling == "permutation":
        return "rows"
    if config.sampling == "multinomial":
        return "weight"
    # In whole cycles each row comes as often as every other, whatever it weighs.
    is_whole = begin % rows == 0 and drawn % rows == 0
    return "rows" if is_whole or is_equal else None


def due_words(sampling: str, due: Due) -> str:
    """Return what unequal weights do to the shares, where it is not what they ask for."""
    if sampling == "permutation":
        return "weights change nothing: a permutation takes every row once an epoch"
    if due == "rows":
        return (
            "weights change no share of a whole epoch, which has every row once: heavy ones earlier"
        )
    if due is None:
        return "of a part of an epoch without replacement no share is due: heavy rows come earlier"
    return ""


def rows_words(rows: int, rows_drawn: int, drawn: int, most_often: int) -> str:
    """Return how many rows were drawn, and how often."""
    if drawn == rows * most_often:
        return (
            f"all {count(rows)} rows, each {'once' if most_often == 1 else f'{most_often} times'}"
        )
    if rows_drawn == rows:
        return f"all {count(rows)} rows, one up to {most_often} times"
    often = "each once" if most_often == 1 else f"one up to {most_often} times"
    return f"{count(rows_drawn)} of {count(rows)} rows, {often}, {count(rows - rows_drawn)} never"


def weigh(dataset: CachedDataset, balance: str | None, weight_by: str | None) -> None:
    """Give the rows their weights; without any column they keep theirs.

    Args:
        dataset: Whose table is replaced.
        balance: Column each value of which gets the same total weight.
        weight_by: Column of numbers that become the weights.

    Raises:
        InvalidInputError: There is no such column, or a weight is not a positive number.
    """
    name = weight_by if balance is None else balance
    if name is None:
        return
    table = dataset.get_metadata()
    if name not in table.columns:
        raise InvalidInputError(f"expected a column of the cache, found {name!r}")
    column = table.get_column(name)
    if balance is not None:
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
    first = table.select("cache_id", row=pl.int_range(pl.len(), dtype=pl.UInt64))
    starts = dict(first.group_by("cache_id").min().iter_rows())
    counts, done = pl.zeros(table.height, pl.UInt32, eager=True), 0
    for batch in dataset.iter_batches(_BATCH_ROWS, columns=_IDENTITY):
        identity = pl.DataFrame(batch)
        begin = identity["cache_id"].replace_strict(starts, return_dtype=pl.UInt64)
        rows = (begin + identity["sample_id"]).value_counts(name="times")
        row, times = rows.get_columns()
        counts.scatter(row, counts.gather(row) + times)
        done += batch.num_rows
        on_progress(done)
    return counts.alias("count")


def shares_of(table: pl.DataFrame, drawn: pl.Series, column: str, due: Due) -> list[dict[str, Any]]:
    """Return what each value of a column has of the rows, what is due to it, and of the draws.

    Args:
        table: The active table.
        drawn: What `draw` returned.
        column: Name of the column.
        due: What `due_by` returned.

    Returns:
        By value, null last: `value`, the numbers `stored`, `drawn` and `rows_drawn`, and the
        fractions `share_stored`, `share_expected` (`None` where none is due) and `share_drawn`.
        Dates and times are integers, as `to_physical` of Polars leaves them.
    """
    value = table.get_column(column).to_physical().alias("value")
    weight = table.get_column("weight")
    largest = float(weight.max())  # type: ignore[arg-type]
    rows = pl.DataFrame([value, relative(weight, largest).alias("weight"), drawn])
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
    expected = {
        "weight": shares["weight"] / total[1],
        "rows": shares["stored"] / total[0],
        None: [None] * shares.height,
    }[due]
    return [
        {
            "value": row["value"],
            "stored": row["stored"],
            "drawn": row["drawn"],
            "rows_drawn": row["rows_drawn"],
            "share_stored": row["stored"] / total[0],
            "share_expected": share,
            "share_drawn": row["drawn"] / total[2],
        }
        for row, share in zip(shares.iter_rows(named=True), expected, strict=True)
    ]

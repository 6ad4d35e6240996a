"""The few numbers that a chart shows, counted batch by batch; knows nothing of charts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import polars as pl
import pyarrow as pa

from dataset_rt.errors import InvalidInputError
from dataset_rt.inspection.active_sizes import ActiveSizes
from dataset_rt.inspection.draws import Due, due_by
from dataset_rt.inspection.values import text_of
from dataset_rt.inspection.weights import relative
from dataset_rt.plotting.bins import Bins
from dataset_rt.text import count, cut_inside, value_text

if TYPE_CHECKING:
    from dataset_rt.dataset import CachedDataset

VALUES_MAX = 30
"""Values of a column that have bars of their own; the others are summed up."""

ORDERED_MAX = 60
"""As many integers or dates have bars of their own, in the order of their values."""

RANGES_MAX = 20
"""Ranges that stand for more than 30 floats, or for more than 60 dates or times."""

DISTINCT_MAX = 1_000_000
"""Different values of a column that are counted at all."""

_BATCH_ROWS = 65_536
_LABEL_CELLS_MAX = 20
_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
# Letters of ISO 8601 that tell ranges of so many seconds apart.
_LETTERS = (
    (3 * 86_400, len("2000-01-01")),
    (60, len("2000-01-01 00:00")),
    (1, len("2000-01-01 00:00:00")),
)
_FRAMES_MAX = 64
"""Batches whose counts are kept before they are summed up."""


class Histogram(NamedTuple):
    """Ranges of values, as `Bins.ranges` gives them.

    Attributes:
        ranges: `begin`, `end`, `rows`, `sum` (of weights: relative).
        rows: Rows in all ranges.
        largest: Largest value.
        is_growing: Whether ranges grow by a constant factor.
        empty: Rows whose value is 0 that have no place among growing ranges.
    """

    ranges: pl.DataFrame
    rows: int
    largest: float
    is_growing: bool
    empty: int = 0


class Shares(NamedTuple):
    """What each value of a column has of something.

    Attributes:
        values: `value` (as text), numbers and shares; 60 rows at most.
        others: The numbers and shares of all other values together.
        others_count: How many other values there are.
        order: What is to be said of the choice and the order of values.
    """

    values: pl.DataFrame
    others: dict[str, float]
    others_count: int
    order: str = ""


class Draw(NamedTuple):
    """What each value should have of the samples, and what it has.

    Attributes:
        shares: `rows`, `samples` (drawn), and the shares `expected` and `drawn`.
        begin: First position of the stream that was drawn.
        drawn: Samples drawn.
        due: By what `expected` is due; without anything, it is that of the rows and says nothing.
    """

    shares: Shares
    begin: int
    drawn: int
    due: Due


def weight_histogram(dataset: CachedDataset) -> Histogram:
    """Return how many rows have which weights; reads the weights twice, and no other column."""
    least, largest, rows = float("inf"), 0.0, 0
    for weights in _weights(dataset):
        least = min(least, float(weights.min()))  # type: ignore[arg-type]
        largest = max(largest, float(weights.max()))  # type: ignore[arg-type]
        rows += len(weights)
    bins = Bins(least, largest, has_relative_sums=True)
    for weights in _weights(dataset):
        bins.add(weights)
    return Histogram(bins.ranges(), rows, largest, bins.is_growing)


def _weights(dataset: CachedDataset) -> Iterator[pl.Series]:
    for batch in dataset.to_arrow(["weight"]):
        yield pl.Series(batch.column(0))


def size_histogram(dataset: CachedDataset) -> Histogram:
    """Return how many rows of the active table have payloads of which size.

    Costs what `ActiveSizes` does.
    """
    active = ActiveSizes(dataset)
    least, largest, rows, empty = 2**63, 0, 0, 0
    for sizes in active:
        some = sizes.filter(sizes > 0)
        least = min(least, int(some.min() or least))  # type: ignore[arg-type]
        largest = max(largest, int(sizes.max()))  # type: ignore[arg-type]
        rows += len(sizes)
        empty += len(sizes) - len(some)
    bins = Bins(min(least, largest), largest, is_integer=True)
    if not bins.is_growing and empty:
        bins = Bins(0, largest, is_integer=True)
    for sizes in active:
        bins.add(sizes.filter(sizes > 0) if bins.is_growing else sizes)
    left_out = empty if bins.is_growing else 0
    return Histogram(bins.ranges(), rows, largest, bins.is_growing, left_out)


def class_shares(dataset: CachedDataset, column: str) -> Shares:
    """Return the `rows` of each value of a column, `row_share` and `weight_share`."""
    found = _of_values(dataset, column)
    rows, weight = found["rows"].sum(), found["weight"].sum()
    shares = found.with_columns(
        row_share=pl.col("rows") / rows, weight_share=pl.col("weight") / weight
    )
    return _labelled(shares.drop("weight"), "rows")


def draw_shares(dataset: CachedDataset, column: str, n: int) -> Draw:
    """Return what each value of a column should have of the samples, and has among `n` drawn.

    Draws from a copy: the stream of `dataset` stays where it is.
    """
    expected = _of_values(dataset, column)
    begin = dataset._native.next_window()[1]
    drawn = _counted(_drawn(dataset, column, n), column, _summed)
    by = _due_by(dataset, int(expected["rows"].sum()), begin, n)
    due = pl.col(by or "rows")
    shares = (
        expected.join(drawn.rename({"rows": "samples"}), on="value", how="left", nulls_equal=True)
        .with_columns(pl.col("samples").fill_null(0))
        .with_columns(expected=due / due.sum(), drawn=pl.col("samples") / n)
        .drop("weight")
    )
    return Draw(_labelled(shares, "expected" if by else "rows"), begin, n, by)


def _due_by(dataset: CachedDataset, rows: int, begin: int, n: int) -> Due:
    _, world_size, _, _ = dataset._native.rank
    # The share of a rank is a part of each cycle.
    due = due_by(dataset.reader_config, rows, n if world_size == 1 else 1, begin=begin)
    if due is None and len({x for one in _weights(dataset) for x in (one.min(), one.max())}) == 1:
        return "rows"
    return due


def _drawn(dataset: CachedDataset, column: str, n: int) -> Iterator[pl.DataFrame]:
    """The next `n` samples of the stream, of this rank if it is a share."""
    kept: list[pa.RecordBatch] = []
    rows = 0
    for batch in _drawn_batches(dataset, column, n):
        kept.append(batch)
        rows += batch.num_rows
        if rows >= _BATCH_ROWS:
            yield pl.DataFrame(pa.Table.from_batches(kept))
            kept, rows = [], 0
    if kept:
        yield pl.DataFrame(pa.Table.from_batches(kept))


def _drawn_batches(dataset: CachedDataset, column: str, n: int) -> Iterator[pa.RecordBatch]:
    copied = copy.copy(dataset)
    _, world_size, global_batch, _ = copied._native.rank
    # A share with a global batch reads its own part of it at a time, and nothing else.
    batch_rows = _BATCH_ROWS if global_batch is None else -(-global_batch // world_size)
    if world_size == 1 and global_batch is None:
        # One window in place of many short ones: what stands at a position does not change.
        copied.set_epoch_len(n)
    left = n
    while left:
        before = left
        for batch in copied.iter_batches(batch_rows, columns=[column]):
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)
            if not left:
                return
        if left == before:
            raise InvalidInputError("the epochs of this share have no samples to draw")


def _of_values(dataset: CachedDataset, column: str) -> pl.DataFrame:
    """Return `value`, `rows`, `weight` of each value of a column in the active table.

    Weights are relative to the largest.
    """
    names = [column] if column == "weight" else [column, "weight"]
    largest = max(float(weights.max()) for weights in _weights(dataset))  # type: ignore[arg-type]
    batches = (
        pl.DataFrame(batch).with_columns(relative(pl.col("weight"), largest).alias("_weight"))
        for batch in dataset.to_arrow(names)
    )
    return _counted(batches, column, _summed_with_weight)


_Summing = Callable[[pl.LazyFrame], pl.DataFrame]


def _summed(frame: pl.LazyFrame) -> pl.DataFrame:
    return frame.group_by("value").agg(pl.col("rows").sum()).collect()


def _summed_with_weight(frame: pl.LazyFrame) -> pl.DataFrame:
    return frame.group_by("value").agg(pl.col("rows", "weight").sum()).collect()


def _counted(batches: Iterable[pl.DataFrame], column: str, summed: _Summing) -> pl.DataFrame:
    kept: list[pl.DataFrame] = []
    for batch in batches:
        one = batch.lazy().select(
            pl.col(column).alias("value"),
            pl.lit(1, pl.UInt64).alias("rows"),
            *([pl.col("_weight").alias("weight")] if "_weight" in batch.columns else []),
        )
        kept.append(summed(one))
        if len(kept) > _FRAMES_MAX:
            kept = [_bounded(summed(pl.concat(kept).lazy()), column)]
    return _bounded(summed(pl.concat(kept).lazy()), column)


def _bounded(found: pl.DataFrame, column: str) -> pl.DataFrame:
    if found.height > DISTINCT_MAX:
        raise InvalidInputError(
            f"column {column!r} has more than {count(DISTINCT_MAX)} different values: choose one "
            "with classes, or put its ranges into a new column"
        )
    return found


def _labelled(found: pl.DataFrame, by: str) -> Shares:
    """Return the values as texts: all where they are few, else ranges or the largest by `by`.

    Integers and times keep their own order where all are shown; words are ordered by their rows.
    """
    dtype = found["value"].dtype
    is_ordered = dtype.is_numeric() or dtype.is_temporal()
    is_dated = isinstance(dtype, (pl.Date, pl.Datetime))
    if (dtype.is_float() and found.height > VALUES_MAX) or (
        is_dated and found.height > ORDERED_MAX
    ):
        return _ranged(found)
    by_size = found.sort([by, "value"], descending=[True, False], nulls_last=True)
    shown_max = ORDERED_MAX if is_ordered and found.height <= ORDERED_MAX else VALUES_MAX
    shown, others = by_size.head(shown_max), by_size.slice(shown_max)
    order = ""
    if not others.is_empty():
        most = "most frequent" if by == "rows" else "largest due shares"
        order = f"the {shown.height} {most} of {count(found.height)} values"
    elif is_ordered:
        shown = shown.sort("value", nulls_last=True)
    else:
        shown = shown.sort(["rows", "value"], descending=[True, False], nulls_last=True)
    labels = pl.Series("value", _distinct(_texts(shown["value"])), dtype=pl.String)
    none = others.drop("value").sum().row(0, named=True)
    return Shares(shown.with_columns(labels), none, others.height, order)


def _ranged(found: pl.DataFrame) -> Shares:
    """Return ranges of floats or dates in place of values, behind them what lies in none."""
    dtype = found["value"].dtype
    is_inside = pl.col("value").is_not_null()
    if dtype.is_float():
        is_inside = pl.col("value").is_finite().fill_null(value=False)
    inside, outside = found.filter(is_inside), found.filter(~is_inside)
    frames = []
    if not inside.is_empty():
        values = inside["value"].to_physical().cast(pl.Float64)
        if dtype.is_float():
            bins = Bins(values.min(), values.max(), number=RANGES_MAX)  # type: ignore[arg-type]
            ends = bins.ranges().select("begin", "end").rows()
            # Adding 0 takes the sign from -0.
            names = [f"{begin + 0.0:.4g} to {end + 0.0:.4g}" for begin, end in ends]
        else:
            # Counted from the first, so that ranges do not grow: 1970 is no beginning.
            first = int(inside["value"].to_physical().min())  # type: ignore[arg-type]
            last = int(inside["value"].to_physical().max())  # type: ignore[arg-type]
            values -= float(first)
            bins = Bins(0, values.max(), is_integer=True, number=RANGES_MAX)  # type: ignore[arg-type]
            names = _dated(bins, first, last, dtype)
        places = pl.DataFrame({"place": range(len(names)), "value": _distinct(names)})
        summed = inside.with_columns(bins.places(values).alias("place")).drop("value")
        summed = summed.group_by("place").agg(pl.all().sum())
        both = places.join(summed, on="place", how="left").sort("place").drop("place")
        frames.append(both.fill_null(0))
    if not outside.is_empty():
        labels = pl.Series("value", _texts(outside["value"]), dtype=pl.String)
        frames.append(outside.with_columns(labels).select(found.columns))
    shown = pl.concat(frame.select(found.columns) for frame in frames)
    nothing = found.clear().drop("value").sum().row(0, named=True)
    values_total = found["value"].count()
    return Shares(shown, nothing, 0, f"{count(values_total)} values, in ranges")


def _dated(bins: Bins, first: int, last: int, dtype: pl.DataType) -> list[str]:
    """Return names of ranges of dates, their last day inside, or of times, by their beginning."""
    ends = [(int(begin), int(end)) for begin, end in bins.ranges().select("begin", "end").rows()]
    if isinstance(dtype, pl.Datetime):
        per_second = _PER_SECOND[dtype.time_unit]
        width = (ends[0][1] - ends[0][0]) / per_second
        letters = next((letters for least, letters in _LETTERS if width >= least), None)
        return [f"from {_shortened(first + begin, dtype, letters)}" for begin, _ in ends]
    days = [(first + begin, min(first + end - 1, last)) for begin, end in ends]
    return [
        text_of(begin, dtype) + (f" to {text_of(end, dtype)}" if begin < end else "")
        for begin, end in days
    ]


def _shortened(moment: int, dtype: pl.DataType, letters: int | None) -> str:
    text = text_of(moment, dtype)
    # What no calendar has is a number of seconds and the like: each digit of it counts.
    return text if text.startswith("1970-01-01 +") or "-01 - " in text else text[:letters]


def _texts(values: pl.Series) -> list[str]:
    """Values as texts; Polars panics over times that Python has no objects for."""
    dtype = values.dtype
    if isinstance(dtype, (pl.Date, pl.Datetime)):
        return [text_of(value, dtype, _LABEL_CELLS_MAX) for value in values.to_physical()]
    if dtype.is_nested():
        values = values.to_physical()
    return [_text(value) for value in values.to_list()]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return cut_inside(value, _LABEL_CELLS_MAX)
    # Adding 0 takes the sign from -0.
    return value_text(value + 0.0 if isinstance(value, float) else value, _LABEL_CELLS_MAX)


def _distinct(labels: list[str]) -> list[str]:
    """Texts that were cut to the same get numbers: a chart would draw them as one."""
    seen: dict[str, int] = {}
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
    number: dict[str, int] = {}
    told = []
    for label in labels:
        number[label] = number.get(label, 0) + 1
        told.append(label if seen[label] == 1 else f"{label} [{number[label]}]")
    return told

"""Two caches side by side, batch by batch: which rows and values differ. Draws nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from dataset_rt.inspection.values import plain_rows

if TYPE_CHECKING:
    from dataset_rt.inspection.survivors import Runs

PAYLOAD = "payload"


@dataclass(slots=True)
class Comparison:
    """What differs in the samples that both give.

    Attributes:
        compared: Samples compared.
        differing: Samples with any difference.
        by_column: Differing samples of each column compared, the payload last.
        first: The first of them: sample, names that differ, and both rows.
        bags: Of each side, a digest of 128 bits of its samples in any order; `None` when a column
            has values of several parts.
    """

    compared: int = 0
    differing: int = 0
    by_column: dict[str, int] = field(default_factory=dict)
    first: tuple[int, list[str], dict[str, Any], dict[str, Any]] | None = None
    bags: list[tuple[int, int] | None] = field(default_factory=lambda: [(0, 0), (0, 0)])


def compare(a: Runs, b: Runs, names: list[str], on_progress: Callable[[int], None]) -> Comparison:
    """Compare the columns `names` and the payloads of samples with the same id.

    Args:
        a: Samples of one cache, with these columns.
        b: Samples of another one.
        names: Stored columns that have one type in both.
        on_progress: Called with the samples compared so far.
    """
    found = Comparison(by_column=dict.fromkeys([*names, PAYLOAD], 0))
    for start, left, right in _aligned(a, b):
        differs_anywhere = None
        masks: dict[str, pl.Series] = {}
        for name in found.by_column:
            mask = _differs(left[name], right[name])
            masks[name] = mask
            found.by_column[name] += int(mask.sum())
            differs_anywhere = mask if differs_anywhere is None else differs_anywhere | mask
        if differs_anywhere is not None and differs_anywhere.any():
            found.differing += int(differs_anywhere.sum())
            if found.first is None:
                row = int(differs_anywhere.arg_true()[0])
                found.first = (
                    start + row,
                    [name for name, mask in masks.items() if mask[row]],
                    _row(left, row),
                    _row(right, row),
                )
        found.bags = [
            _added(bag, batch) for bag, batch in zip(found.bags, (left, right), strict=True)
        ]
        found.compared += left.num_rows
        on_progress(found.compared)
    return found


def _aligned(a: Runs, b: Runs) -> Iterator[tuple[int, pa.RecordBatch, pa.RecordBatch]]:
    """Return batches of equal length of the samples that both have, and the id of their first."""
    left, right = next(a, None), next(b, None)
    while left is not None and right is not None:
        start = max(left[0], right[0])
        ours, theirs = (
            batch.slice(min(start - begin, len(batch))) for begin, batch in (left, right)
        )
        rows = min(ours.num_rows, theirs.num_rows)
        if rows:
            yield start, ours.slice(0, rows), theirs.slice(0, rows)
        left = (start + rows, ours.slice(rows)) if rows < ours.num_rows else next(a, None)
        right = (start + rows, theirs.slice(rows)) if rows < theirs.num_rows else next(b, None)


def _added(bag: tuple[int, int] | None, batch: pa.RecordBatch) -> tuple[int, int] | None:
    """Return a bag with the samples of one more batch in it: two sums of 64-bit hashes of rows."""
    if bag is None or any(pa.types.is_nested(column.type) for column in batch.columns):
        return None
    # Floats by their bits, in which zeros differ, too.
    frame = pl.DataFrame(
        {
            name: column.view(pa.int64() if column.type == pa.float64() else pa.int32())
            if pa.types.is_floating(column.type)
            else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
            if not pa.types.is_null(column.type)
        }
    )
    one, two = (_sum(frame.hash_rows(seed=seed)) for seed in (1, 2))
    return (bag[0] + one) % 2**64, (bag[1] + two) % 2**64


def _sum(hashes: pl.Series) -> int:
    # Halves, because Polars does not say what becomes of a sum beyond 64 bits.
    return int((hashes & 0xFFFF_FFFF).sum()) + (int((hashes // 2**32).sum()) << 32)


def _differs(left: pa.Array, right: pa.Array) -> pl.Series:
    if pa.types.is_null(left.type):
        return pl.repeat(False, len(left), eager=True)
    ours, theirs = pl.Series(left), pl.Series(right)
    mask = ours.ne_missing(theirs)
    if ours.dtype.is_float():
        # Zeros have a sign, which counts, although they compare equal.
        zeros = (ours == 0.0).fill_null(False) & ~mask
        if zeros.any():
            mask |= zeros & ((1 / ours < 0) != (1 / theirs < 0))
    return mask


def _row(batch: pa.RecordBatch, row: int) -> dict[str, Any]:
    return plain_rows(pl.DataFrame(batch.slice(row, 1)))[0]

"""Two caches side by side, batch by batch: which rows and values differ. Draws nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

if TYPE_CHECKING:
    from dataset_rt.cache import Cache

PAYLOAD = "payload"


@dataclass(slots=True)
class Comparison:
    """What differs in the samples that both have.

    Attributes:
        compared: Samples compared.
        differing: Samples with any difference.
        by_column: Differing samples of each column compared, the payload last.
        first: The first of them: sample, names that differ, and both rows.
    """

    compared: int = 0
    differing: int = 0
    by_column: dict[str, int] = field(default_factory=dict)
    first: tuple[int, list[str], dict[str, Any], dict[str, Any]] | None = None


def compare(a: Cache, b: Cache, names: list[str], on_progress: Callable[[int], None]) -> Comparison:
    """Compare the columns `names` and the payloads, sample by sample in order of the cache.

    Args:
        a: One cache.
        b: Another one.
        names: Stored columns that have one type in both.
        on_progress: Called with the samples compared so far.
    """
    found = Comparison(by_column=dict.fromkeys([*names, PAYLOAD], 0))
    for left, right in _aligned(a, b, [*names, PAYLOAD]):
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
                    found.compared + row,
                    [name for name, mask in masks.items() if mask[row]],
                    _row(left, row),
                    _row(right, row),
                )
        found.compared += left.num_rows
        on_progress(found.compared)
    return found


def _aligned(
    a: Cache, b: Cache, names: list[str]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Return batches of equal length of the rows that both have."""
    lefts, rights = iter(a.to_arrow(names)), iter(b.to_arrow(names))
    left, right = next(lefts, None), next(rights, None)
    while left is not None and right is not None:
        rows = min(left.num_rows, right.num_rows)
        yield left.slice(0, rows), right.slice(0, rows)
        left = left.slice(rows) if rows < left.num_rows else next(lefts, None)
        right = right.slice(rows) if rows < right.num_rows else next(rights, None)


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
    values: dict[str, Any] = batch.slice(row, 1).to_pylist()[0]
    return values

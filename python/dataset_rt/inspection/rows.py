"""Rows of a cache's columns, read no further than asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from dataset_rt.cache import Cache


def batches_of(cache: Cache, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Return the columns of all samples in order, some of which may be `payload`.

    As `cache.to_arrow(names)`, but errors keep their class: pyarrow wraps them into its own.
    """
    return cache._native.face().select(names).batches()


def rows_of(cache: Cache, names: list[str], start: int, stop: int) -> list[dict[str, Any]]:
    """Return the samples `[start, stop)` as Python values; the names without the payload."""
    if not names:
        return [{} for _ in range(start, stop)]
    import polars as pl  # noqa: PLC0415 - slow to import

    from dataset_rt.inspection.values import plain_rows  # noqa: PLC0415 - Polars

    rows: list[dict[str, Any]] = []
    begin = 0
    for batch in batches_of(cache, names):
        end = begin + batch.num_rows
        if end > start:
            first = max(start, begin)
            rows += plain_rows(pl.DataFrame(batch.slice(first - begin, min(stop, end) - first)))
        begin = end
        if begin >= stop:
            break
    return rows

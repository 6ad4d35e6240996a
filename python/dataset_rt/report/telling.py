"""Chooses the samples of a report: evenly spread, and each class among them where there is room."""

from __future__ import annotations

import polars as pl

from dataset_rt.inspection.positions import spread
from dataset_rt.inspection.survivors import Readable

_CLASSES_MAX = 1000
"""Values of the column of classes, beyond which it holds none."""


def telling_samples(side: Readable, by: str | None, wanted: int, seed: int) -> list[int]:
    """Return ascending samples: evenly spread ones, of which some make room for missing classes.

    The rarest class comes first, and only samples leave whose class is there more than once.

    Args:
        side: The cache.
        by: Column of classes, if there is one.
        wanted: How many samples; all, if there are no more.
        seed: Of the choice.
    """
    ids = spread(side.num_samples, wanted, seed)
    if by is None or not ids:
        return ids
    of_chosen, rows, drawn = _classes(side, by, ids, seed)
    shown: dict[object, list[int]] = {}
    for sample, value in of_chosen.items():
        shown.setdefault(value, []).append(sample)
    missing = sorted(
        (value for value in rows if value not in shown), key=lambda v: (rows[v], drawn[v][1])
    )
    for value in missing:
        most = max(shown.values(), key=len, default=[])
        if len(most) < 2:
            break
        # From the middle: the ends say how far the cache reaches.
        ids.remove(most.pop(len(most) // 2))
        ids.append(drawn[value][1])
        shown[value] = [drawn[value][1]]
    return sorted(ids)


def _classes(
    side: Readable, by: str, ids: list[int], seed: int
) -> tuple[dict[int, object], dict[object, int], dict[object, tuple[int, int]]]:
    """Return the class of each chosen sample, the rows of each class, and one row drawn of each."""
    of_chosen: dict[int, object] = {}
    rows: dict[object, int] = {}
    drawn: dict[object, tuple[int, int]] = {}
    for start, batch in side.runs([by]):
        column = pl.Series("value", batch.column(0)).to_physical()
        for sample in ids:
            if start <= sample < start + len(column):
                of_chosen[sample] = column[sample - start]
        at = pl.int_range(start, start + len(column), dtype=pl.UInt64, eager=True)
        found = (
            pl.DataFrame({"value": column, "ticket": _tickets(at, seed), "at": at})
            .sort("ticket")
            .group_by("value")
            .agg(pl.len(), pl.col("ticket", "at").first())
        )
        for value, number, ticket, place in found.iter_rows():
            rows[value] = rows.get(value, 0) + number
            drawn[value] = min(drawn.get(value, (ticket, place)), (ticket, place))
        if len(rows) > _CLASSES_MAX:
            return {}, {}, {}
    return of_chosen, rows, drawn


def _tickets(at: pl.Series, seed: int) -> pl.Series:
    """Return a number for each row, the smallest of which is drawn: the mixer of SplitMix64.

    Polars multiplies and adds modulo 2**64.
    """
    mixed = at + _u64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    mixed = (mixed ^ (mixed // _u64(2**30))) * _u64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed // _u64(2**27))) * _u64(0x94D049BB133111EB)
    return mixed ^ (mixed // _u64(2**31))


def _u64(number: int) -> pl.Series:
    return pl.Series([number], dtype=pl.UInt64)

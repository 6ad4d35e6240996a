"""Collects what a training stream would see: shares of classes as stored, due and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from dataset_rt.errors import InvalidInputError
from dataset_rt.inspection.draws import Due, draw, due_by, shares_of, weigh
from dataset_rt.inspection.values import text_of
from dataset_rt.report.facts import ClassShare, DrawFacts
from dataset_rt.runtime import open_dataset

DRAWS_MAX = 200_000
"""Samples drawn unless a number is given: of a class of a tenth, its share is right to 0.1%."""

_CLASSES_SHOWN = 24


def draws_of(
    path: Path,
    by: tuple[str | None, str],
    *,
    balance: str | None,
    weight_by: str | None,
    sampling: Any,
    seed: int,
    draws: int | None,
    lost: list[tuple[int, int]] | None,
) -> DrawFacts:
    """Draw from a cache as a `CachedDataset` with these settings does, and count.

    Args:
        path: The cache directory.
        by: Column whose values are the classes, if any, and why this one.
        balance: As in `inspection.draws.weigh`.
        weight_by: Likewise.
        sampling: As in `ReaderConfig`.
        seed: Likewise.
        draws: Samples to draw; by default one epoch, but at most `DRAWS_MAX`.
        lost: Samples that damage has cost, as ranges; `None` if nobody knows.

    Raises:
        InvalidInputError: A weight is not a positive number.
        DatasetRTError: The cache cannot be opened.
    """
    dataset = open_dataset(path, seed=seed, shuffle=True, sampling=sampling)
    try:
        weigh(dataset, balance, weight_by)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"weights from {balance if weight_by is None else weight_by}: {error}"
        ) from error
    table = dataset.get_metadata()
    dataset.set_epoch_len(draws or min(table.height, DRAWS_MAX))
    drawn = draw(dataset, table, lambda _: None)
    due = due_by(
        dataset.reader_config,
        table.height,
        len(dataset),
        is_equal=table["weight"].min() == table["weight"].max(),
    )
    column, why = by
    shares: list[ClassShare] = []
    others = 0
    if column is not None:
        shares, others = _shares(table, drawn, column, due)
    weights = "all equal"
    if balance is not None:
        weights = f"balanced by {balance}"
    elif weight_by is not None:
        weights = f"from {weight_by}"
    return DrawFacts(
        by=column,
        why=why,
        weights=weights,
        due=due,
        sampling=sampling,
        seed=seed,
        rows=table.height,
        drawn=len(dataset),
        rows_drawn=int((drawn > 0).sum()),
        most_often=int(drawn.max() or 0),  # type: ignore[arg-type]
        of_lost=None if lost is None else sum(int(drawn[a:b].sum()) for a, b in lost),
        shares=shares,
        others=others,
    )


def _shares(
    table: pl.DataFrame, drawn: pl.Series, column: str, due: Due
) -> tuple[list[ClassShare], int]:
    """Return the largest classes, in the order of their values, and how many are summed up."""
    dtype = table.schema[column]
    rows = shares_of(table, drawn, column, due)
    largest = sorted(range(len(rows)), key=lambda row: -rows[row]["stored"])
    kept = sorted(largest[:_CLASSES_SHOWN])
    rest = [rows[row] for row in sorted(largest[_CLASSES_SHOWN:])]
    shares = [_share(rows[row], text_of(rows[row]["value"], dtype)) for row in kept]
    if rest:
        numbers = [
            name for name, number in rest[0].items() if name != "value" and number is not None
        ]
        summed = {name: sum(row[name] for row in rest) for name in numbers}
        shares.append(_share(summed, f"{len(rest):,} others"))
    return shares, len(rest)


def _share(row: dict[str, Any], value: str) -> ClassShare:
    return ClassShare(
        value,
        row["stored"],
        row["drawn"],
        row["share_stored"],
        row.get("share_expected"),
        row["share_drawn"],
    )

"""Collects all facts of one cache; what damage hides is said to be missing, and why."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import polars as pl

from dataset_rt.cache import Cache, open_cache
from dataset_rt.config.reader import Sampling
from dataset_rt.errors import DatasetRTError, InvalidInputError
from dataset_rt.inspection.caches import anatomy_of
from dataset_rt.inspection.integrity import Watch, integrity_of
from dataset_rt.inspection.kinds import Kinds, kinds_of_readable, kinds_of_some
from dataset_rt.inspection.lengths import Lengths, length_pieces, lengths_of
from dataset_rt.inspection.survivors import Readable
from dataset_rt.inspection.words import in_words
from dataset_rt.report.columns import columns_of, label_column
from dataset_rt.report.draws import draws_of
from dataset_rt.report.facts import (
    CacheFacts,
    ColumnsFacts,
    DrawFacts,
    Histogram,
    Missing,
    SampleFacts,
)
from dataset_rt.report.histograms import histogram_of
from dataset_rt.report.images import MIME
from dataset_rt.report.samples import samples_of
from dataset_rt.report.telling import telling_samples
from dataset_rt.text import size
from dataset_rt.verification import VerificationLevel

_T = TypeVar("_T")


SAMPLES = 12
"""Samples unless a number is given, if there are pictures; of others half as many say as much."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What a report is asked for; `write_report` says what each means."""

    level: VerificationLevel = "full"
    columns: list[str] | None = None
    balance: str | None = None
    weight_by: str | None = None
    by: str | None = None
    sampling: Sampling = "multinomial"
    seed: int = 0
    draws: int | None = None
    samples: int | None = None


def facts_of(path: Path, options: ReportOptions, watch: Watch) -> CacheFacts:
    """Return what a report says of the cache at `path`.

    Raises:
        NotFoundError: There is no cache.
        InvalidInputError: An option names a column that there is none of, or a weight is not a
            positive number.
    """
    integrity = integrity_of(path, options.level, watch)
    anatomy = anatomy_of(path)
    if "columns" in anatomy.manifest:
        _require_columns(options, [column["name"] for column in anatomy.manifest["columns"]])
    side = _tried(lambda: Readable.open(path))
    if isinstance(side, Missing):
        return CacheFacts(anatomy, integrity, side, side, None, side, side, side)
    cache = _tried(lambda: open_cache(path))
    with watch(f"reading {path.name}", 0):
        columns = _tried(lambda: columns_of(side, options.columns))
        lengths = _tried(lambda: lengths_of(path, side.manifest))
        by = _classes(options, columns)
        kinds = _kinds(side, cache, lengths, options.level)
        return CacheFacts(
            anatomy,
            integrity,
            columns,
            lengths,
            None if isinstance(lengths, Missing) else _sizes(path, side),
            kinds,
            _draws(path, options, by, integrity.lost()),
            _samples(side, cache, options, by[0], kinds),
        )


def _tried(collect: Callable[[], _T]) -> _T | Missing:
    """Return what is collected, or why damage or the system keeps it from being so."""
    try:
        return collect()
    except InvalidInputError:
        # Of an option: the caller can mend it.
        raise
    except DatasetRTError as error:
        return Missing(in_words(error))
    except OSError as error:
        name = Path(os.fsdecode(error.filename)).name if error.filename else "a file"
        return Missing(f"{name} cannot be read: {error.strerror or error}")


def _require_columns(options: ReportOptions, known: list[str]) -> None:
    named = [options.balance, options.weight_by, options.by, *(options.columns or [])]
    for name in named:
        if name is not None and name not in known:
            raise InvalidInputError(
                f"expected a column of the cache, found {name!r}; there are: "
                f"{', '.join(known[:20]) or 'none'}"
            )


def _sizes(path: Path, side: Readable) -> Histogram | None:
    def pieces() -> Iterator[pl.DataFrame]:
        for raw, _ in length_pieces(path, side.manifest):
            yield pl.DataFrame({"value": raw}).with_columns(count=pl.lit(1, pl.Int64))

    return histogram_of(pieces, side.num_samples, form=size)


def _kinds(
    side: Readable, cache: Cache | Missing, lengths: Lengths | Missing, level: VerificationLevel
) -> Kinds | Missing:
    """Look at all payloads where every byte is read anyway, else at some."""
    if level != "quick" or not side.is_whole:
        # On its own: metadata of samples whose payload is lost can still be read.
        return _tried(lambda: kinds_of_readable(replace(side)))
    if isinstance(cache, Missing):
        return cache
    if isinstance(lengths, Missing):
        return lengths
    return _tried(lambda: kinds_of_some(cache, lengths.raw_bytes / cache.num_samples))


def _classes(options: ReportOptions, columns: ColumnsFacts | Missing) -> tuple[str | None, str]:
    """Return the column whose values are the classes, if any, and why this one."""
    named = options.balance if options.by is None else options.by
    if named is not None:
        return named, ""
    if isinstance(columns, Missing):
        return None, "the columns cannot be read"
    return label_column(columns.columns)


def _draws(
    path: Path,
    options: ReportOptions,
    by: tuple[str | None, str],
    lost: list[tuple[int, int]] | None,
) -> DrawFacts | Missing:
    return _tried(
        lambda: draws_of(
            path,
            by,
            balance=options.balance,
            weight_by=options.weight_by,
            sampling=options.sampling,
            seed=options.seed,
            draws=options.draws,
            lost=lost,
        )
    )


def _samples(
    side: Readable,
    cache: Cache | Missing,
    options: ReportOptions,
    by: str | None,
    kinds: Kinds | Missing,
) -> list[SampleFacts] | Missing:
    wanted = options.samples
    if wanted is None:
        is_pictured = isinstance(kinds, Missing) or not MIME.keys().isdisjoint(kinds.counts)
        wanted = SAMPLES if is_pictured else SAMPLES // 2
    names = [*side.types()] if options.columns is None else options.columns
    opened = None if isinstance(cache, Missing) else cache

    def found() -> list[SampleFacts]:
        ids = telling_samples(side, by, wanted, options.seed)
        return samples_of(side, opened, ids, names)

    return _tried(found)

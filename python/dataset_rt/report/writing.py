"""Makes a report into a file, whole or not at all."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from dataset_rt.arguments import AnyPath, to_cache_path, to_count, to_flag, to_names, to_path
from dataset_rt.config.reader import Sampling
from dataset_rt.errors import InvalidInputError
from dataset_rt.exporters.publishing import published_file
from dataset_rt.inspection.caches import anatomy_of
from dataset_rt.inspection.integrity import Watch
from dataset_rt.report.collect import ReportOptions, facts_of
from dataset_rt.report.page import page_of
from dataset_rt.verification import VerificationLevel, VerificationReport

SAMPLES_MAX = 60
"""Samples of one report: pages of them belong into a notebook."""


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """A report that was made; true in a condition when nothing is wrong with the cache.

    Attributes:
        path: The file.
        size_bytes: Its size.
        verification: What the verification found.
        troubles: Everything that is wrong with the cache, which samples are lost, and what kept a
            part of it from being read, one sentence each.
    """

    path: Path
    size_bytes: int
    verification: VerificationReport
    troubles: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with the cache."""
        return not self.troubles

    def __bool__(self) -> bool:
        """Return `ok`."""
        return self.ok

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from dataset_rt.cards.reports import written_report_card  # noqa: PLC0415 - notebooks only

        return written_report_card(self)


def write_report(
    cache: AnyPath,
    output: AnyPath,
    *,
    level: VerificationLevel = "full",
    columns: Iterable[str] | None = None,
    balance: str | None = None,
    weight_by: str | None = None,
    by: str | None = None,
    sampling: Sampling = "multinomial",
    seed: int = 0,
    draws: int | None = None,
    samples: int | None = None,
    overwrite: bool = False,
) -> WrittenReport:
    """Write one HTML file that tells what a cache is and what training on it sees.

    The file needs nothing beside it, and runs nothing: schema, distributions, shares of classes as
    stored, due and really drawn, some samples with thumbnails, integrity. It has at most about
    2 MB. The same cache, arguments and versions of libraries make the same bytes.

    A damaged cache gets a report, too, as far as it can be read: see `troubles` of the result.

    Columns are read batch by batch, at most 256 MiB of their distinct values are kept; the draw
    costs what a `CachedDataset` of the cache does.

    Args:
        cache: The cache directory.
        output: The file. It appears once it is whole; its directory is made when missing.
        level: Of the verification, as in `verify_cache`; `"full"` reads every byte.
        columns: Columns to show; by default the first 120.
        balance: Column each value of which gets the same total weight.
        weight_by: Column of numbers that become the weights; without it and `balance` all are
            equal.
        by: Column whose values are the classes of the draw; by default `balance`, else one that
            looks like a label.
        sampling: As in `ReaderConfig`.
        seed: Of the order, as in `ReaderConfig`, and of the choice of samples.
        draws: Samples to draw; by default one epoch, but at most 200,000.
        samples: Samples to show, from 0 to 60; by default 12 with pictures, 6 of others.
        overwrite: Whether an existing file is replaced.

    Returns:
        Where the report is, and what is wrong with the cache.

    Raises:
        TypeError: An argument has the wrong type.
        InvalidInputError: A column is unknown, a number out of range, a weight not positive, a
            choice unknown, or `output` lies in a cache.
        NotFoundError: There is no cache.
        ConflictError: There is a file already, or what is no file.
        FileExhaustedError: There is no room for the file.
        FileUnavailableError: No file can be written there.

    Example:
        >>> write_report(cache, tmp_path / "words.html").ok
        True
    """
    path, target = Path(to_cache_path(cache, "cache")), Path(to_path(output, "output"))
    overwrite = to_flag(overwrite, "overwrite")
    options = report_options(
        level=level,
        columns=columns,
        balance=balance,
        weight_by=weight_by,
        by=by,
        sampling=sampling,
        seed=seed,
        draws=draws,
        samples=samples,
    )
    return written_report(path, target, options, lambda *_: nullcontext(), overwrite=overwrite)


def written_report(
    cache: Path, output: Path, options: ReportOptions, watch: Watch, *, overwrite: bool
) -> WrittenReport:
    """Write a report into a file; `watch` is told what is read.

    Raises:
        InvalidInputError: An option is wrong, or `output` lies in a cache.
        NotFoundError: There is no cache.
        ConflictError: There is a file already.
    """
    # Before a directory is made for it.
    anatomy_of(cache)
    with published_file(output, overwrite=overwrite) as aside:
        page, verification, troubles = made_report(cache, options, watch)
        aside.write_bytes(page)
    return WrittenReport(output, len(page), verification, troubles)


def report_options(*, columns: Iterable[str] | None, **options: Any) -> ReportOptions:
    """Return options that were checked as far as they can be without the cache.

    Raises:
        TypeError: One has the wrong type.
        InvalidInputError: One is out of range.
    """
    if options["level"] not in get_args(VerificationLevel):
        raise InvalidInputError(
            f"level must be 'quick', 'full' or 'deep', found {options['level']!r}"
        )
    if options["sampling"] not in get_args(Sampling):
        raise InvalidInputError(
            "sampling must be 'multinomial', 'permutation' or 'weighted_without_replacement', "
            f"found {options['sampling']!r}"
        )
    if options["balance"] is not None and options["weight_by"] is not None:
        raise InvalidInputError("expected balance or weight_by, found both")
    to_count(options["seed"], "seed", minimum=0)
    if options["draws"] is not None:
        to_count(options["draws"], "draws", minimum=1)
    samples = options["samples"]
    if samples is not None and to_count(samples, "samples", minimum=0) > SAMPLES_MAX:
        raise InvalidInputError(f"samples must be at most {SAMPLES_MAX}, found {samples}")
    names = None if columns is None else list(to_names(columns, "columns"))
    return ReportOptions(columns=names, **options)


def made_report(
    cache: Path, options: ReportOptions, watch: Watch
) -> tuple[bytes, VerificationReport, tuple[str, ...]]:
    """Return the bytes of a report, what the verification found, and all troubles.

    Args:
        cache: The cache directory.
        options: What is asked for.
        watch: Is told what is read.
    """
    found = facts_of(cache, options, watch)
    page = page_of(found, _command(cache, options)).encode("utf-8", "backslashreplace")
    return page, found.integrity.report, tuple(found.troubles())


def _command(cache: Path, options: ReportOptions) -> str:
    """Return the command line that makes the same report."""
    words = ["dataset-rt", "report", str(cache), "-o", "FILE"]
    for field in fields(options):
        value = getattr(options, field.name)
        if value != field.default:
            text = ",".join(value) if isinstance(value, list) else str(value)
            words += [f"--{field.name.replace('_', '-')}", text]
    return shlex.join(words)

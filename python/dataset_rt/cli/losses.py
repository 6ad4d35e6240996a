"""How a report of a repair is drawn: files, lost samples, what they were, what to do next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl
from rich.console import RenderableType
from rich.text import Text

import dataset_rt
from dataset_rt.cli.console import facts, heading, line, paragraph, styled, table, width
from dataset_rt.cli.diff import ORIGINAL_IDS
from dataset_rt.cli.fitting import fitting
from dataset_rt.inspection.values import plain_rows, plain_values
from dataset_rt.repair import DamagedFile, RepairReport, SalvageReport
from dataset_rt.text import count, counted, cut, joined, path_text, ranges_text, value_text

Report: TypeAlias = RepairReport | SalvageReport

_LOST_SHOWN = 10
_REASONS_SHOWN = 20
_DISTINCT_MAX = 100
"""Values of a column that is summed up; more of them name samples rather than groups."""

_VALUES_SHOWN = 24
_SUMMED_UP_MAX = 6
_STATE_STYLE = {"lost": "bold red", "restored": "green", "restorable": "yellow"}


def drawn(report: Report, lost: pl.DataFrame | None) -> list[RenderableType]:
    """Return what a report says.

    Args:
        report: Of a repair or a salvage.
        lost: What is known of the lost samples, if any are.
    """
    parts: list[RenderableType] = [*_verdict(report)]
    if report.files:
        rows = [
            (styled(file.state, _STATE_STYLE[file.state]), styled(file.file), styled(_what(file)))
            for file in report.files
        ]
        parts += [Text(), table(("state", "file", "what"), rows, folding=("file", "what"))]
    if report.lost:
        parts += [Text(), *_reasons(report)]
    if lost is not None and lost.width > 1:
        parts += _known(lost)
    following = list(_next(report))
    if following:
        names = ["next", *[""] * (len(following) - 1)]
        parts += [Text(), facts(zip(names, following, strict=True))]
    return parts


def repair_command(cache: Path, *options: str) -> str:
    """Return the command line that repairs a cache; behind `--into` it says where to.

    That is below the working directory, which is the person's own: a damaged cache may be
    somebody else's, or on media that nobody can write to.
    """
    words = ["dataset-rt", "repair", shlex.quote(str(cache))]
    for option in options:
        words += [option, shlex.quote(_target(cache))] if option == "--into" else [option]
    return " ".join(words)


def _target(cache: Path) -> str:
    damaged = cache.resolve()
    if Path.cwd().is_relative_to(damaged):
        return os.path.relpath(damaged.parent / "salvaged")
    return "salvaged"


def _verdict(report: Report) -> list[RenderableType]:
    total, kept = _samples(report)
    words, style, note = "DAMAGED", "bold red", f"{count(kept)} of {count(total)} samples survive"
    if isinstance(report, SalvageReport) and report.new_path is not None:
        words, style = "salvaged", "bold green"
        note = f"{count(kept)} of {counted(total, 'sample')} into {path_text(report.new_path)}"
        if not report.is_proven:
            note += "; none of them is proven, the manifest is lost"
    elif not report.files and not report.lost:
        words, style, note = "ok", "bold green", "every file is what the manifest says"
    elif kept == 0:
        note = "every sample is lost"
    elif all(file.state == "restored" for file in report.files):
        words, style, note = "restored", "bold green", "every file is what the manifest says"
    elif not report.lost:
        note = "no sample is lost"
    if isinstance(report, SalvageReport) and report.new_path is None:
        note += "; no cache was written"
    return [line((path_text(report.path), "bold"), "  ", (words, style)), paragraph(note)]


def _samples(report: Report) -> tuple[int, int]:
    """Return how many samples there were, and how many of them survive."""
    if isinstance(report, SalvageReport):
        return report.samples_kept + report.samples_lost, report.samples_kept
    return report.samples_total, report.samples_total - report.samples_lost


def _what(file: DamagedFile) -> str:
    obstacle = f"; it cannot be restored: {file.obstacle}" if file.obstacle else ""
    before = "before: " if file.state == "restored" else ""
    return f"{before}{file.reason}{obstacle}"


def _reasons(report: Report) -> list[RenderableType]:
    """The lost samples: all as ranges, and by what took them."""
    ranges = joined((part.start, part.stop) for part in report.lost)
    whole = f"{counted(report.samples_lost, 'sample')}: {ranges_text(ranges)}"
    rows = [
        (styled(ranges_text([(part.start, part.stop)])), styled(f"{part.file}: {part.reason}"))
        for part in report.lost[:_REASONS_SHOWN]
    ]
    rest = len(report.lost) - len(rows)
    if rest > 0:
        more = styled(f"and {counted(rest, 'more range')}: --json has all", "dim")
        rows.append((styled(""), more))
    return [
        facts([("lost", styled(whole, "bold red"))]),
        Text(),
        table(("samples", "why"), rows, folding=("why",)),
    ]


def _known(lost: pl.DataFrame) -> list[RenderableType]:
    """What is known of the lost samples, so that a person can name them."""
    parts: list[RenderableType] = []
    sums = list(_summed_up(lost))
    if sums:
        parts += [Text(), heading("Lost by column"), facts(sums)]
    rows = plain_rows(lost.head(_LOST_SHOWN))
    columns, shown = fitting(rows, width() - 2)
    note = f"all {len(rows)}"
    if lost.height > len(rows) or len(shown) < lost.width:
        note = f"the first {len(rows)}; --lost FILE writes all, with every column"
    flexible = [heading.removeprefix(">") for heading in columns.headings]
    return [
        *parts,
        Text(),
        heading("Lost samples", note),
        table(columns.headings, columns.rows, flexible=flexible),
    ]


def _summed_up(lost: pl.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield columns with few values, and how many lost samples have each of them."""
    found = 0
    for name in lost.columns[1:]:
        column = lost.get_column(name).drop_nulls()
        kind = column.dtype
        if kind.is_nested() or kind.is_float() or kind == pl.Binary or found == _SUMMED_UP_MAX:
            continue
        distinct = column.n_unique()
        if not 0 < distinct <= min(_DISTINCT_MAX, 0.9 * lost.height):
            continue
        found += 1
        counts = pl.DataFrame({"value": column}).group_by("value").agg(count=pl.len())
        ordered = counts.sort(["count", "value"], descending=[True, False])
        values = zip(plain_values(ordered["value"]), ordered["count"], strict=True)
        yield cut(name, 24), _values(list(values), lost.height - len(column))


def has_original_ids(cache: Path) -> bool:
    """Whether the samples of a salvaged cache tell which ones they were."""
    return ORIGINAL_IDS in dataset_rt.open_cache(cache).schema.names


def is_marked_read_only(directory: Path) -> bool:
    """Whether no mode bit lets anybody write into the directory."""
    try:
        return not directory.stat().st_mode & 0o222
    except OSError:
        return False


def _values(counts: list[tuple[Any, int]], unknown: int) -> str:
    texts = [f"{value_text(value, 24)} ({count(number)})" for value, number in counts]
    shown = texts[:_VALUES_SHOWN]
    if len(texts) > len(shown):
        shown.append(f"{len(texts) - len(shown)} more values")
    if unknown:
        shown.append(f"null or unknown ({count(unknown)})")
    return ", ".join(shown)


def _next(report: Report) -> Iterator[str]:
    """Yield what to type next, the best first."""
    path, is_salvage = report.path, isinstance(report, SalvageReport)
    if isinstance(report, SalvageReport) and report.new_path is not None:
        new = shlex.quote(str(report.new_path))
        yield f"dataset-rt verify {new}"
        # Without a manifest there is nothing to compare with.
        if report.is_proven and has_original_ids(report.new_path):
            yield f"dataset-rt diff {shlex.quote(str(path))} {new} --original-ids proves it"
        return
    if not report.files and not report.lost:
        if is_salvage:
            yield f"{repair_command(path, '--into', '--always')} copies it all the same"
        return
    restorable = [file.file for file in report.files if file.state == "restorable"]
    is_lost = any(file.state == "lost" for file in report.files)
    if restorable and not is_marked_read_only(path):
        yield f"{repair_command(path)} restores {' and '.join(restorable)}"
    if is_lost and not is_salvage:
        what = "all others" if report.lost else "all samples"
        yield f"{repair_command(path, '--into', '--original-ids')} saves {what}"
    elif restorable:
        always = repair_command(path, "--into", "--always")
        yield f"{always} makes a whole copy, where this one must stay as it is"

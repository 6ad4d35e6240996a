"""Which samples a damaged cache has lost; the reader itself says so, where it can be asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataset_rt.errors import CorruptError, DatasetRTError
from dataset_rt.verification import Finding

Range = tuple[int, int]
"""Samples `[begin, end)`."""

_REBUILDABLE = ("metadata.arrow", "index.bin", "digests.bin")
_SHARD = re.compile(r"shards/\d+\.arrow")
_BATCH_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Loss:
    """What findings mean for the samples.

    Attributes:
        lost: Samples that cannot be read: each was tried, or its file is gone.
        in_doubt: Samples of damaged shards, of which nobody can say which are lost.
        rebuildable: Damaged files that hold nothing the shards do not hold too.
        unread: Shards whose payloads the check did not read.
    """

    lost: list[Range]
    in_doubt: list[Range]
    rebuildable: list[str]


def loss_of(
    path: Path,
    manifest: dict[str, Any],
    findings: Iterable[Finding],
    on_progress: Callable[[int], None] = lambda _: None,
) -> Loss:
    """Return what the findings mean for samples; reads the damaged shards, block by block.

    Args:
        path: The cache directory.
        manifest: Its manifest.
        findings: What a check found.
        on_progress: Called with the samples tried so far.
    """
    ranges = _shard_ranges(manifest)
    gone: set[str] = set()
    cut: set[str] = set()
    damaged: set[str] = set()
    rebuildable: set[str] = set()
    for finding in findings:
        # F04 names the file whose block digests are wrong in its place.
        if finding.file in _REBUILDABLE:
            rebuildable.add(finding.file)
        elif finding.file == "shards":
            gone |= ranges.keys()
        elif _SHARD.fullmatch(finding.file):
            group = {"F01": gone, "F02": cut}.get(finding.rule, damaged)
            group.add(finding.file)
    damaged -= gone | cut
    lost = [ranges[name] for name in sorted(gone) if name in ranges]
    in_doubt = [ranges[name] for name in sorted(cut) if name in ranges]
    tried = [ranges[name] for name in sorted(damaged) if name in ranges]
    if tried:
        # A cache with a file missing does not open, so nothing in it can be tried.
        found = None if gone or cut or rebuildable else _unreadable(path, tried, on_progress)
        if found is None:
            in_doubt += tried
        else:
            lost += found
    return Loss(_joined(lost), _joined(in_doubt), sorted(rebuildable))


def samples_in(ranges: Iterable[Range]) -> int:
    """Return how many samples the ranges have together."""
    return sum(end - begin for begin, end in ranges)


def _shard_ranges(manifest: dict[str, Any]) -> dict[str, Range]:
    ranges: dict[str, Range] = {}
    begin = 0
    for shard in manifest.get("shards", []):
        ranges[shard["path"]] = (begin, begin + shard["rows"])
        begin += shard["rows"]
    return ranges


def _unreadable(
    path: Path, tried: list[Range], on_progress: Callable[[int], None]
) -> list[Range] | None:
    """Return the samples among `tried` that the reader does not give, `None` if it gives none."""
    import polars as pl  # noqa: PLC0415 - slow to import

    from dataset_rt.runtime import open_dataset  # noqa: PLC0415 - slow to import

    lost: list[Range] = []
    done = 0
    try:
        dataset = open_dataset(path)
        table = dataset.get_metadata()
        for begin, end in tried:
            dataset.update_metadata(table.slice(begin, end - begin))
            expected = begin
            batches = dataset.iter_batches(_BATCH_ROWS, columns=["sample_id", "payload"])
            while True:
                try:
                    batch = next(batches)
                except StopIteration:
                    break
                except CorruptError:
                    # One damaged sample: the samples behind it follow.
                    continue
                for first, last in _runs(pl.Series(batch["sample_id"]), pl):
                    if first > expected:
                        lost.append((expected, first))
                    expected = last + 1
                on_progress(done + expected - begin)
            if expected < end:
                lost.append((expected, end))
            done += end - begin
    except DatasetRTError:
        return None
    return lost


def _runs(ids: Any, pl: Any) -> Iterable[Range]:
    """Return the first and last of each run of consecutive numbers."""
    if ids.len() and ids[-1] - ids[0] + 1 == ids.len():
        return [(ids[0], ids[-1])]
    frame = pl.DataFrame(
        {"id": ids, "run": ids.cast(pl.Int64) - pl.int_range(ids.len(), eager=True)}
    )
    runs = frame.group_by("run", maintain_order=True).agg(
        first=pl.col("id").min(), last=pl.col("id").max()
    )
    return [(row["first"], row["last"]) for row in runs.iter_rows(named=True)]


def _joined(ranges: list[Range]) -> list[Range]:
    joined: list[Range] = []
    for begin, end in sorted(ranges):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined

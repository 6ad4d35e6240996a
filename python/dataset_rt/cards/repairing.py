"""The cards of what was found in damaged caches, and what was done about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dataset_rt.cards.guarded import card_of
from dataset_rt.cards.names import name_of
from dataset_rt.html import AnyContent, BadgeKind, Markup, badge, facts, note, table, tiles, title
from dataset_rt.inspection.checks import shortened
from dataset_rt.text import count, joined, ranges_text

if TYPE_CHECKING:
    from dataset_rt.repair import DamagedFile, LostSamples, RepairReport, SalvageReport

_FILES_SHOWN = 50
_STATES: dict[str, BadgeKind] = {"restored": "ok", "restorable": "warn", "lost": "bad"}


def repair_card(report: RepairReport) -> str:
    """Return the card of a repair: files, lost samples, and what to do next."""
    return card_of("RepairReport", lambda: _repair(report))


def salvage_card(report: SalvageReport) -> str:
    """Return the card of a salvage: the new cache, and which samples it has not."""
    return card_of("SalvageReport", lambda: _salvage(report))


def _repair(report: RepairReport) -> list[Markup]:
    states = {file.state for file in report.files}
    verdict: tuple[BadgeKind, str] = ("ok", "restored" if states else "nothing to repair")
    if "lost" in states:
        verdict = "bad", "beyond repair in place"
    elif report.dry_run and states:
        verdict = "warn", "can be restored"
    remark = badge("plain", "looked only") if report.dry_run else ""
    beside = [one for one in ("repair", badge(*verdict), remark) if one]
    numbers = [
        ("samples", count(report.samples_total), ""),
        ("lost", count(report.samples_lost), ""),
        ("damaged files", count(len(report.files)), ""),
    ]
    advice = ""
    if "lost" in states and report.samples_lost < report.samples_total:
        advice = "salvage_cache(path, into) saves the other samples into a new cache"
    elif states == {"restorable"}:
        advice = "repair_cache(path) restores them"
    return [
        title(name_of(report.path), *beside),
        tiles(numbers),
        facts([("path", str(report.path)), *_lost(report.lost)]),
        *_files(report.files),
        *([note(advice)] if advice else []),
        *([note("report.lost_metadata() says what they were")] if report.samples_lost else []),
    ]


def _salvage(report: SalvageReport) -> list[Markup]:
    verdict = badge("bad", "nothing written")
    if report.new_path is not None:
        verdict = badge("ok" if report.is_proven else "warn", "new cache written")
    elif not report.samples_lost:
        verdict = badge("plain", "not needed: no sample is lost")
    proof = "the old manifest" if report.is_proven else "nothing: the old manifest is lost"
    numbers = [
        ("samples kept", count(report.samples_kept), ""),
        ("lost", count(report.samples_lost), ""),
        ("damaged files", count(len(report.files)), ""),
    ]
    rows: list[tuple[AnyContent, AnyContent]] = [
        ("damaged cache", str(report.path)),
        ("new cache", "none" if report.new_path is None else str(report.new_path)),
        ("proven by", proof),
    ]
    if report.new_path is not None:
        is_same = "the old one: saved tables stay valid" if report.is_identical else "a new one"
        rows.append(("cache_id", f"{report.cache_id}, {is_same}"))
    return [
        title(name_of(report.path), "salvage", verdict),
        tiles(numbers),
        facts([*rows, *_lost(report.lost)]),
        *_files(report.files),
        *([note("report.lost_metadata() says what they were")] if report.samples_lost else []),
    ]


def _lost(lost: Sequence[LostSamples]) -> list[tuple[AnyContent, AnyContent]]:
    ranges = joined((samples.start, samples.stop) for samples in lost)
    return [("lost sample_ids", ranges_text(ranges))] if ranges else []


def _files(files: Sequence[DamagedFile]) -> list[Markup]:
    rows = [
        (
            badge(_STATES[file.state], file.state),
            file.file,
            note(
                shortened(file.reason),
                *([f"cannot be restored: {file.obstacle}"] if file.obstacle else []),
            ),
        )
        for file in files
    ]
    return [table(["", "file", "what"], rows, rows_max=_FILES_SHOWN)] if rows else []

"""The card of a verification report: the verdict, and what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataset_rt.cards.guarded import card_of
from dataset_rt.cards.names import name_of
from dataset_rt.html import (
    AnyContent,
    BadgeKind,
    Markup,
    badge,
    content,
    element,
    facts,
    joined,
    note,
    table,
    tiles,
    title,
)
from dataset_rt.inspection.checks import MEANING, checked, shortened, verdict
from dataset_rt.text import count, size

if TYPE_CHECKING:
    from dataset_rt.verification import Finding, VerificationReport

_FINDINGS_SHOWN = 50
_VALUES_CELLS_MAX = 400


def report_card(report: VerificationReport) -> str:
    """Return the card of a report; of many findings it has the first 50."""
    return card_of("VerificationReport", lambda: _parts(report))


def _parts(report: VerificationReport) -> list[Markup]:
    # A quick check proves no payload: nothing about it is green.
    kind: BadgeKind = "bad" if not report.ok else "plain" if report.level == "quick" else "ok"
    level = badge("plain", f"level {report.level}")
    is_twice = report.level == "deep" and report.is_complete
    parts = [
        title(name_of(report.path), "verification", badge(kind, verdict(report)), level),
        tiles(
            [
                ("findings", count(len(report.findings)), ""),
                ("files checked", count(report.files_checked), ""),
                ("read", size(report.bytes_checked), "most bytes twice" if is_twice else ""),
            ]
        ),
        facts([("checked", checked(report)), ("path", str(report.path))]),
    ]
    if report.findings:
        rows = map(_row, report.findings)
        parts.append(table(["", "where", "what"], list(rows), rows_max=_FINDINGS_SHOWN))
    if not report.ok:
        parts.append(
            note("repair_cache(path, dry_run=True) says which samples are lost, and what to do")
        )
    elif report.level == "quick":
        parts.append(note('verify_cache(path, "full") reads every byte'))
    return parts


def _row(finding: Finding) -> tuple[AnyContent, ...]:
    values = f"expected {shortened(finding.expected)}, found {shortened(finding.found)}"
    return (
        badge("warn" if finding.severity == "warning" else "bad", finding.rule),
        f"{finding.file} {finding.place}".strip(),
        joined(
            element("div", {}, MEANING.get(finding.rule, "breaks the format")),
            element("div", {"class": "drt-key"}, content(values, _VALUES_CELLS_MAX)),
        ),
    )

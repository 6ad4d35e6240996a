"""Draws what a verification found, and what to do about it."""

from __future__ import annotations

from dataset_rt.html import BadgeKind, Markup, badge, content, element, facts
from dataset_rt.inspection.checks import MEANING, amount, checked, verdict
from dataset_rt.inspection.integrity import Integrity
from dataset_rt.inspection.words import in_words
from dataset_rt.report.frame import section
from dataset_rt.text import count, counted
from dataset_rt.verification import Finding

_FINDINGS_SHOWN = 40
_PLACE_CELLS_MAX = 120
_VALUES_CELLS_MAX = 400
_ADVICE_CELLS_MAX = 600


def status_badge(integrity: Integrity) -> Markup:
    """Return the status in a few words."""
    report = integrity.report
    kind: BadgeKind = "bad" if not report.ok else "plain" if report.level == "quick" else "ok"
    return badge(kind, verdict(report))


def integrity_section(integrity: Integrity) -> Markup:
    """Return the whole status: what was checked, what was found, what is lost, what to do."""
    report = integrity.report
    more = " (--level full reads every byte)" if report.level == "quick" else ""
    looked_at = f"Level {report.level}: {checked(report)}{more}. {amount(report)} checked"
    if report.ok:
        kind = "warn" if report.level == "quick" else "ok"
        return section("Integrity", f"{looked_at}; nothing was found wrong.", kind=kind)
    number = counted(len(report.findings), "finding")
    shown = report.findings[:_FINDINGS_SHOWN]
    parts = [element("div", {"class": "findings"}, *map(_finding, shown))]
    rest = len(report.findings) - len(shown)
    if rest > 0:
        text = f"and {count(rest)} more findings: dataset-rt verify --json has all"
        parts.append(element("div", {"class": "drt-key"}, text))
    parts.append(
        facts(
            (name, content(in_words(text), _ADVICE_CELLS_MAX)) for name, text in integrity.advice()
        )
    )
    return section("Integrity: damaged", f"{looked_at}; {number}.", *parts, kind="bad")


def _finding(finding: Finding) -> Markup:
    place = f"{finding.file} {finding.place}".strip()
    values = f"expected {in_words(finding.expected)}, found {in_words(finding.found)}"
    return element(
        "div",
        {},
        badge("bad", finding.rule),
        element("b", {}, content(place, _PLACE_CELLS_MAX)),
        element("span", {}, MEANING.get(finding.rule, "breaks the format")),
        element("div", {"class": "drt-key"}, content(values, _VALUES_CELLS_MAX)),
    )

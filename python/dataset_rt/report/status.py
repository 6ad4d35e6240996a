"""Draws what a verification found, and what to do about it."""

from __future__ import annotations

import re

from dataset_rt.html import Markup, badge, content, element, facts, table
from dataset_rt.inspection.integrity import CHECKED, MEANING, Integrity
from dataset_rt.report.frame import section
from dataset_rt.text import count, counted, size

_FINDINGS_SHOWN = 40
_PLACE_CELLS_MAX = 120
_VALUE_CELLS_MAX = 160
_ADVICE_CELLS_MAX = 600

_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
_WORDS = {
    "quick": "structure ok, payloads not read",
    "full": "every byte verified",
    "deep": "every byte and value verified",
}


def status_badge(integrity: Integrity) -> Markup:
    """Return the status in a few words."""
    report = integrity.report
    if not report.ok:
        return badge("bad", "damaged")
    return badge("ok" if report.level != "quick" else "plain", _WORDS[report.level])


def integrity_section(integrity: Integrity) -> Markup:
    """Return the whole status: what was checked, what was found, what is lost, what to do."""
    report = integrity.report
    checked = (
        f"Level {report.level}: {CHECKED[report.level]}. "
        f"{counted(report.files_checked, 'file')}, {size(report.bytes_checked)} checked"
    )
    if report.ok:
        kind = "warn" if report.level == "quick" else "ok"
        return section("Integrity", f"{checked}; nothing was found wrong.", kind=kind)
    number = counted(len(report.findings), "finding")
    rows = [
        (
            badge("bad", finding.rule),
            content(f"{finding.file} {finding.place}".strip(), _PLACE_CELLS_MAX),
            MEANING.get(finding.rule, "breaks the format"),
            _value(finding.expected),
            _value(finding.found),
        )
        for finding in report.findings[:_FINDINGS_SHOWN]
    ]
    parts = [table(["rule", "file", "what", "expected", "found"], rows)]
    rest = len(report.findings) - len(rows)
    if rest > 0:
        text = f"and {count(rest)} more findings: dataset-rt verify --json has all"
        parts.append(element("div", {"class": "drt-key"}, text))
    parts.append(
        facts((name, content(text, _ADVICE_CELLS_MAX)) for name, text in integrity.advice())
    )
    return section("Integrity: damaged", f"{checked}; {number}.", *parts, kind="bad")


def _value(text: str) -> Markup:
    return content(_DIGEST.sub(r"\1...", text), _VALUE_CELLS_MAX)

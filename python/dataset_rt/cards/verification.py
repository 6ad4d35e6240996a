"""The card of a verification report: the verdict, and what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataset_rt.cards.guarded import card_of
from dataset_rt.html import Markup, badge, facts, note, table, tiles, title
from dataset_rt.text import count, size

if TYPE_CHECKING:
    from dataset_rt.verification import VerificationReport

_FINDINGS_SHOWN = 50
_CHECKED = {
    "quick": "manifest, sizes and structure; payloads were not read",
    "full": "every byte against its digest",
    "deep": "every byte against its digest, every value and cross-reference",
}


def report_card(report: VerificationReport) -> str:
    """Return the card of a report; of many findings it has the first 50."""
    return card_of("VerificationReport", lambda: _parts(report))


def _parts(report: VerificationReport) -> list[Markup]:
    verdict = badge("ok", "ok") if report.ok else badge("bad", "not ok")
    parts = [
        title(report.path.name, "verification", verdict, badge("plain", f"level {report.level}")),
        tiles(
            [
                ("findings", count(len(report.findings)), ""),
                ("files checked", count(report.files_checked), ""),
                ("read and compared", size(report.bytes_checked), ""),
            ]
        ),
        facts([("checked", _CHECKED[report.level]), ("path", str(report.path))]),
    ]
    if report.findings:
        rows = [
            (
                badge("warn" if one.severity == "warning" else "bad", one.severity),
                one.rule,
                f"{one.file} {one.place}".strip(),
                one.expected,
                one.found,
            )
            for one in report.findings
        ]
        headings = ["", "rule", "where", "expected", "found"]
        parts.append(table(headings, rows, rows_max=_FINDINGS_SHOWN))
    if not report.ok:
        parts.append(note("repair_cache(path) says what can be restored"))
    return parts

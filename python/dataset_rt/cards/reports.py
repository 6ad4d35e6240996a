"""The card of a report that was written: where it is, and what it says of the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataset_rt.cards.guarded import card_of
from dataset_rt.cards.names import name_of
from dataset_rt.html import BadgeKind, Markup, badge, facts, note, title
from dataset_rt.inspection.checks import checked, verdict
from dataset_rt.text import count, size

if TYPE_CHECKING:
    from dataset_rt.report import WrittenReport

_TROUBLES_SHOWN = 10


def written_report_card(written: WrittenReport) -> str:
    """Return the card of a report."""
    return card_of("WrittenReport", lambda: _parts(written))


def _parts(written: WrittenReport) -> list[Markup]:
    found = written.verification
    kind: BadgeKind = "bad" if not found.ok else "plain" if found.level == "quick" else "ok"
    more = len(written.troubles) - _TROUBLES_SHOWN
    troubles = [*written.troubles[:_TROUBLES_SHOWN], *([f"and {count(more)} more"] * (more > 0))]
    return [
        title(name_of(found.path), "report", badge(kind, verdict(found))),
        facts(
            [
                ("file", str(written.path)),
                ("size", size(written.size_bytes)),
                ("checked", checked(found)),
            ]
        ),
        *([note(*troubles)] if troubles else []),
    ]

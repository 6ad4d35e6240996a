"""How broken rules of the format are shown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from dataset_rt.cli.console import styled, table
from dataset_rt.inspection.checks import MEANING, shortened
from dataset_rt.text import cut, safe
from dataset_rt.verification import Finding

_ROWS_SHOWN = 30


def findings_table(findings: Sequence[Finding]) -> RenderableType:
    """Return findings as a table, digests shortened."""
    rows = []
    for finding in findings[:_ROWS_SHOWN]:
        what = styled(MEANING.get(finding.rule, "breaks the format")).append("\n")
        details = f"expected {_shortened(finding.expected)}, found {_shortened(finding.found)}"
        what.append_text(styled(details, "dim"))
        place = f"{finding.file} {finding.place}".strip()
        rows.append((styled(finding.rule, "bold red"), styled(cut(safe(place), 44)), what))
    if len(findings) > _ROWS_SHOWN:
        more = styled(f"and {len(findings) - _ROWS_SHOWN:,} more: --json has all", "dim")
        rows.append((styled(""), more, styled("")))
    return table(("rule", "file", "what"), rows, folding=("file", "what"))


def _shortened(text: str) -> str:
    return cut(safe(shortened(text)), 60)

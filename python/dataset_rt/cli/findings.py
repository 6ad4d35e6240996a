"""How broken rules of the format are shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import RenderableType

from dataset_rt.cli.console import styled, table
from dataset_rt.text import cut, safe
from dataset_rt.verification import Finding

# In the words of someone who never read the format; docs/format/v0.md has the rules.
_MEANING = {
    "M01": "manifest is not of this format",
    "M02": "manifest was changed or damaged",
    "M03": "manifest contradicts itself",
    "F01": "file missing or unreadable",
    "F02": "file has another size",
    "F03": "file has other bytes than written",
    "F04": "block digests are wrong",
    "I01": "index begins wrongly",
    "I02": "index points elsewhere",
    "A01": "Arrow file ends wrongly",
    "A02": "Arrow file begins wrongly",
    "A03": "Arrow file has another schema",
    "A04": "record batch is malformed",
    "A05": "other number of rows",
    "A06": "other compression",
    "A07": "values are malformed",
    "A08": "nulls where none may be",
    "S01": "samples are numbered wrongly",
    "S02": "metadata differs from the shard",
    "S03": "payload does not decompress",
    "C01": "contents differ from the manifest",
    "C02": "payload sizes differ",
}

_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
_ROWS_SHOWN = 30


def findings_table(findings: Sequence[Finding]) -> RenderableType:
    """Return findings as a table, digests shortened."""
    rows = []
    for finding in findings[:_ROWS_SHOWN]:
        what = styled(_MEANING.get(finding.rule, "breaks the format")).append("\n")
        details = f"expected {_shortened(finding.expected)}, found {_shortened(finding.found)}"
        what.append_text(styled(details, "dim"))
        place = f"{finding.file} {finding.place}".strip()
        rows.append((styled(finding.rule, "bold red"), styled(cut(safe(place), 44)), what))
    if len(findings) > _ROWS_SHOWN:
        more = styled(f"and {len(findings) - _ROWS_SHOWN:,} more: --json has all", "dim")
        rows.append((styled(""), more, styled("")))
    return table(("rule", "file", "what"), rows, folding=("file", "what"))


def _shortened(text: str) -> str:
    return cut(safe(_DIGEST.sub(r"\1...", text)), 60)

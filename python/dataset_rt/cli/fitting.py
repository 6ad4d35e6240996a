"""As many columns of some rows as fit the width."""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from typing import Any

from rich.text import Text

from dataset_rt.cli.console import styled
from dataset_rt.progress import cells
from dataset_rt.text import cut, safe, value_text

_VALUE_CELLS_MAX = 24


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns side by side; a heading with `>` stands to the right."""

    headings: list[str]
    rows: list[list[Text]]

    def cells(self) -> int:
        """Return the cells that they take when nothing is cut, the gaps behind them included."""
        return sum(
            2 + max(cells(heading.removeprefix(">")), *(cells(str(row[i])) for row in self.rows))
            for i, heading in enumerate(self.headings)
        )

    def beside(self, other: Columns) -> Columns:
        """Return these columns and the others on their right."""
        rows = [[*left, *right] for left, right in zip(self.rows, other.rows, strict=True)]
        return Columns([*self.headings, *other.headings], rows)


def fitting(
    rows: list[dict[str, Any]], room: int, *, is_chosen: bool = False
) -> tuple[Columns, list[str]]:
    """Return the first columns that fit `room` cells, one at least, and their names.

    What was chosen by name is cut rather than left out.
    """
    columns = Columns([], [[] for _ in rows])
    shown: list[str] = []
    for name in rows[0]:
        is_number = all(type(row[name]) in {int, float, NoneType} for row in rows)
        heading = (">" if is_number else "") + cut(safe(name), _VALUE_CELLS_MAX)
        wider = columns.beside(Columns([heading], [[_cell(row[name])] for row in rows]))
        if wider.cells() > room and shown and not is_chosen:
            break
        columns = wider
        shown.append(name)
    return columns, shown


def _cell(value: object) -> Text:
    return styled(value_text(value, _VALUE_CELLS_MAX), "dim" if value is None else "")

"""Columns of a table and their types, the many folded."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dataset_rt.html import AnyContent, Markup, details, note, table
from dataset_rt.text import counted

_UNFOLDED_MAX = 12
_ROWS_MAX = 500


def type_name(dtype: pl.DataType) -> str:
    """Return the name of a Polars type, times without the names of their parameters."""
    if isinstance(dtype, pl.Datetime):
        zone = f", {dtype.time_zone}" if dtype.time_zone else ""
        return f"Datetime({dtype.time_unit}{zone})"
    if isinstance(dtype, pl.Duration):
        return f"Duration({dtype.time_unit})"
    return str(dtype)


def columns_table(
    columns: Sequence[tuple[AnyContent, AnyContent, AnyContent]], *, types: str = "type"
) -> Markup:
    """Return a table of columns, of more than 12 folded.

    Args:
        columns: Name, type, and what else is to be said.
        types: Heading of the types: whose they are.
    """
    if not columns:
        return note("no columns: samples are payloads alone")
    is_plain = not any(remark for _, _, remark in columns)
    headings = ["column", types] if is_plain else ["column", types, ""]
    rows = [column[:2] if is_plain else column for column in columns]
    drawn = table(headings, rows, rows_max=_ROWS_MAX)
    return drawn if len(rows) <= _UNFOLDED_MAX else details(counted(len(rows), "column"), drawn)

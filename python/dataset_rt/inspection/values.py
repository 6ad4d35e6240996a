"""Values of columns as texts and as Python values; dates and times from their integers.

Polars panics over instants that Python's dates cannot hold, and a cache may have them.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

from dataset_rt.text import value_text

TEXT_CELLS_MAX = 80
"""Characters of one value."""

_BINARY_BYTES = 12
_DATED_DAYS = 3
_DATE_LETTERS, _MOMENT_LETTERS_MAX = len("2000-01-01"), 40
_LARGE = 10**9
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of times without a zone
_PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_SECONDS = 86_400
_FIRST_DAY = date.min.toordinal() - _EPOCH.toordinal() + 1
_LAST_DAY = date.max.toordinal() - _EPOCH.toordinal() - 1


def text_of(value: Any, dtype: pl.DataType, cells_max: int = TEXT_CELLS_MAX) -> str:
    """Return a value of a column.

    Args:
        value: As `to_physical` of Polars leaves it: dates and times are integers.
        dtype: Polars type of the column.
        cells_max: Cells, beyond which it is cut.
    """
    if value is None:
        return "null"
    if isinstance(dtype, (pl.Date, pl.Datetime)):
        return _moment(int(value), dtype)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number_text(value)
    if isinstance(value, bytes):
        more = "..." if len(value) > _BINARY_BYTES else ""
        return f"0x{value[:_BINARY_BYTES].hex()}{more}" if value else "(empty)"
    return value_text(value, cells_max) if value else "(empty)"


def plain_value(value: Any, dtype: pl.DataType) -> Any:
    """Return a value as Python has it; a date or time beyond every calendar of Python as a text.

    Args:
        value: As `to_physical` of Polars leaves it.
        dtype: Polars type of the column.
    """
    if value is None or not isinstance(dtype, (pl.Date, pl.Datetime)):
        return value
    if not _is_in_calendar(value, dtype):
        return _moment(int(value), dtype)
    return pl.Series([value], dtype=pl.Int64).cast(dtype).item()


def is_in_calendars(column: pl.Series) -> bool:
    """Whether Python has every date or time of a column; true of other columns."""
    if not isinstance(column.dtype, (pl.Date, pl.Datetime)) or not column.count():
        return True
    values = column.to_physical()
    return all(_is_in_calendar(end, column.dtype) for end in (values.min(), values.max()))


def _is_in_calendar(value: Any, dtype: pl.Date | pl.Datetime) -> bool:
    a_day = 1 if isinstance(dtype, pl.Date) else _PER_SECOND[dtype.time_unit] * _DAY_SECONDS
    # A day less at both ends: no zone shifts an instant beyond them.
    return _FIRST_DAY < int(value) // a_day < _LAST_DAY


def plain_values(column: pl.Series) -> list[Any]:
    """Return the values of a column as `plain_value` does."""
    values = column.to_physical().to_list()
    if not isinstance(column.dtype, (pl.Date, pl.Datetime)):
        return values
    return [plain_value(value, column.dtype) for value in values]


def plain_rows(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table, their values as `plain_value` has them."""
    columns = map(plain_values, table.get_columns())
    return [dict(zip(table.columns, row, strict=True)) for row in zip(*columns, strict=True)]


def edge_text(value: Any, dtype: pl.DataType, span: Any) -> str:
    """Return the edge of a histogram: with the digits that matter beside a span as wide."""
    text = text_of(value, dtype)
    if isinstance(dtype, pl.Datetime):
        is_long = span > _DATED_DAYS * _DAY_SECONDS * _PER_SECOND[dtype.time_unit]
        return text[:_DATE_LETTERS] if is_long and len(text) < _MOMENT_LETTERS_MAX else text
    is_large = isinstance(value, int) and abs(value) >= _LARGE and span > _LARGE
    return f"{value:.4g}" if is_large and dtype != pl.Date else text


def number_text(value: float) -> str:
    """Return six digits of a float, and every digit of an integer, from 10,000 with commas."""
    if isinstance(value, int):
        # Years, ids and the like are read as they are.
        return str(value) if abs(value) < 10_000 else f"{value:,}"
    if math.isnan(value):
        return "NaN"
    if value.is_integer() and abs(value) < 1e6:
        return f"{value:.0f}" if value else "0"
    return f"{value:,.1f}" if 1e4 <= abs(value) < 1e9 else f"{value:.6g}"


def _moment(count: int, dtype: pl.DataType) -> str:
    """Return a date or time in ISO 8601; what no calendar of Python has, by its count."""
    try:
        if isinstance(dtype, pl.Datetime):
            per_second = _PER_SECOND[dtype.time_unit]
            whole, rest = divmod(count, per_second)
            moment = _EPOCH + timedelta(seconds=whole)
            digits = f"{rest:0{len(str(per_second)) - 1}}".rstrip("0")
            offset = ""
            if dtype.time_zone:
                local = moment.replace(tzinfo=UTC).astimezone(ZoneInfo(dtype.time_zone))
                moment, offset = local.replace(tzinfo=None), local.isoformat()[19:]
            return f"{moment.isoformat(' ')}{'.' if digits else ''}{digits}{offset}"
        return (_EPOCH + timedelta(seconds=count * _DAY_SECONDS)).date().isoformat()
    except (OverflowError, ValueError, KeyError):
        unit = dtype.time_unit if isinstance(dtype, pl.Datetime) else "days"
        return f"1970-01-01 {'+' if count >= 0 else '-'} {abs(count):,} {unit}"

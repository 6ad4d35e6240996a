"""`--where`: a condition in SQL about the rows of a dataset; knows no export."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dataset_rt.errors import InvalidInputError
from dataset_rt.inspection.lengths import raw_lengths

if TYPE_CHECKING:
    import polars as pl

    from dataset_rt.dataset import CachedDataset

_LENGTH = "payload_bytes"
_ROW = ["cache_id", "sample_id"]
_SEE = "docs/sources.md has examples"


def rows_where(dataset: CachedDataset, where: str) -> pl.DataFrame:
    """Return the rows of the dataset's table that fulfil a condition.

    Besides the columns of the table, `payload_bytes` is the length of the payload in bytes, taken
    from the index: no payload is read.

    Args:
        dataset: Its table is not changed.
        where: An expression in the SQL of Polars.

    Raises:
        InvalidInputError: It is no condition, or cannot be evaluated.
        CorruptError: `payload_bytes` is asked for, and an index is damaged.
    """
    import polars as pl  # noqa: PLC0415 - slow

    table = dataset.get_metadata()
    names = table.columns
    if _LENGTH in where and _LENGTH not in names:
        lengths = _lengths_of(dataset)
        table = table.join(lengths, on=_ROW, how="left", maintain_order="left")
    try:
        # An expression, not a query: it can name columns and functions, but no file.
        return table.filter(pl.sql_expr(where)).select(names)
    except pl.exceptions.ColumnNotFoundError as error:
        raise InvalidInputError(
            f"--where {where!r}: {_unknown(str(error), where, names)}"
        ) from error
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0].removesuffix(" as Expr")
        hints = [reason, *_hints(table, where), _SEE]
        raise InvalidInputError(f"--where {where!r}: {'; '.join(hints)}") from error


def _lengths_of(dataset: CachedDataset) -> pl.DataFrame:
    import polars as pl  # noqa: PLC0415 - slow

    from dataset_rt.cache import open_cache  # noqa: PLC0415 - slow

    parts = []
    schema = dataset.get_metadata().schema
    for path in dataset.cache_paths:
        cache = open_cache(path)
        rows = pl.DataFrame({_LENGTH: raw_lengths(path, cache.manifest)}).with_columns(
            pl.lit(cache.cache_id).cast(schema["cache_id"]).alias("cache_id"),
            pl.int_range(pl.len()).cast(schema["sample_id"]).alias("sample_id"),
        )
        parts.append(rows)
    return pl.concat(parts)


def _unknown(error: str, where: str, names: list[str]) -> str:
    found = re.search(r'"([^"]*)"', error)
    name = found[1] if found else "?"
    if name == "payload":
        return f"conditions do not read payloads; {_LENGTH} is their length in bytes"
    listed = f"no column {name!r}; there are: {', '.join([*names, _LENGTH])}"
    if f'"{name}"' in where:
        return f"{listed}; texts take single quotes: '{name}'"
    return listed


def _hints(table: pl.DataFrame, where: str) -> Iterator[str]:
    """Yield what to write where a column of the condition is often written otherwise."""
    import polars as pl  # noqa: PLC0415 - slow

    words = set(re.findall(r"\w+", where))
    for name, kind in table.schema.items():
        if name not in words:
            continue
        if kind == pl.Date:
            yield f"dates are written {name} >= DATE '2024-01-31'"
        elif isinstance(kind, pl.Datetime) and kind.time_zone is None:
            yield f"times are written {name} >= TIMESTAMP '2024-01-31 12:00:00'"
        elif isinstance(kind, pl.Datetime):
            yield f"{name} has a time zone, in UTC it is {name}::timestamp >= '2024-01-31 12:00:00'"
        elif kind == pl.String:
            yield f"{name} is text, which is written {name} = 'text'"
    if "nan" in where.lower():
        yield "NaN is found with = 'NaN'::float"

"""`stats`: each column, the payload sizes and the kinds of payloads of a cache in numbers."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from dataset_rt.cli.console import (
    bar,
    heading,
    line,
    paragraph,
    show,
    show_json,
    styled,
    table,
    width,
)
from dataset_rt.cli.options import CacheArgument, ColumnsOption, JsonOption, stored_columns
from dataset_rt.cli.progress import counting
from dataset_rt.inspection.caches import open_existing
from dataset_rt.inspection.kinds import UNREADABLE, Kinds, kinds_of_all, kinds_of_some
from dataset_rt.inspection.lengths import Lengths, lengths_of
from dataset_rt.inspection.rows import batches_of
from dataset_rt.text import count, counted, cut, path_text, share, size, value_text

if TYPE_CHECKING:
    from dataset_rt.cache import Cache
    from dataset_rt.inspection.column_stats import ColumnStats

_COLUMNS_SHOWN = 40
_TOP_JSON = 20
_TOP_SHOWN = 5
_TOP_COLUMNS_SHOWN = 12
_BAR_CELLS = 24
_KINDS_SHOWN = 12
_WIDE, _NARROW_NAME = 100, 16


def stats(
    cache: CacheArgument,
    columns: ColumnsOption = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            metavar="N",
            min=0,
            max=1000,
            help="Most frequent values shown [default: all of up to 12, 5 of more].",
            show_default=False,
        ),
    ] = None,
    all_payloads: Annotated[
        bool,
        typer.Option("--payloads", help="Look at every payload for its kind, not at 500 of them."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show columns, payload sizes and kinds in numbers.

    Columns are read batch by batch, in bounded memory. Values that come again and again are listed;
    of numbers and dates the quartiles are said. Payload sizes come from the index of the
    cache. Kinds are what the first bytes look like, of 500 payloads or 64 MiB spread evenly; with
    --payloads of all. The exit code is 1 when one of these cannot be read.

    With --columns that name no payload, none is read.
    """
    opened = open_existing(cache)
    names, with_payloads = stored_columns(opened, columns)
    hidden = 0
    if columns is None and not as_json:
        hidden = max(0, len(names) - _COLUMNS_SHOWN)
        names = names[:_COLUMNS_SHOWN]
    found = _column_stats(opened, names)
    lengths, kinds = None, None
    if with_payloads:
        lengths = lengths_of(cache, opened.manifest)
        kinds = _kinds(opened, lengths, all_payloads)
    exit_code = 1 if kinds and UNREADABLE in kinds.counts else 0
    if as_json:
        show_json(_document(opened, found, lengths, kinds))
        raise typer.Exit(exit_code)
    parts: list[RenderableType] = [
        line((path_text(opened.path), "bold"), f"  {count(opened.num_samples)} samples")
    ]
    if found:
        parts += [Text(), _columns_table(found)]
    if hidden:
        parts.append(line((f"  {count(hidden)} more columns: name them with --columns", "dim")))
    parts += _quartiles(found)
    if top != 0:
        parts += _top_tables(found, top)
    if lengths and kinds:
        parts += [Text(), *_payload_parts(lengths, opened.num_samples)]
        parts += [Text(), *_kinds_parts(kinds, opened.num_samples)]
    show(*parts)
    raise typer.Exit(exit_code)


def _kinds(cache: Cache, lengths: Lengths, is_all: bool) -> Kinds:
    if not is_all:
        return kinds_of_some(cache, lengths.raw_bytes / cache.num_samples)
    with counting(f"reading {cache.path.name}", cache.num_samples) as on_progress:
        return kinds_of_all(cache, on_progress)


def _column_stats(cache: Cache, names: list[str]) -> list[ColumnStats]:
    import polars as pl  # noqa: PLC0415 - slow to import

    from dataset_rt.inspection.column_stats import ColumnStats  # noqa: PLC0415 - Polars

    types = {column["name"]: column["type"] for column in cache.manifest["columns"]}
    found = [ColumnStats(name, types[name]) for name in names]
    if not names:
        return found
    with counting(f"reading {cache.path.name}", cache.num_samples) as on_progress:
        done = 0
        for batch in batches_of(cache, names):
            for column, array in zip(found, batch.columns, strict=True):
                column.add(pl.Series(array))
            done += batch.num_rows
            on_progress(done)
    for column in found:
        column.finish()
    return found


def _document(
    cache: Cache, found: list[ColumnStats], lengths: Lengths | None, kinds: Kinds | None
) -> dict[str, Any]:
    from dataset_rt.inspection.values import plain_value  # noqa: PLC0415 - Polars

    return {
        "path": str(cache.path),
        "samples": cache.num_samples,
        "columns": [
            {
                "name": column.name,
                "type": column.type,
                "nulls": column.nulls,
                "nans": column.nans,
                "distinct": column.distinct,
                "min": plain_value(column.min, column.dtype),
                "max": plain_value(column.max, column.dtype),
                "mean": column.mean,
                "quartiles": None
                if (quartiles := column.quartiles()) is None
                else [plain_value(value, column.dtype) for value in quartiles],
                "top": [
                    {"value": plain_value(value, column.dtype), "count": number}
                    for value, number in column.top(_TOP_JSON)
                ],
            }
            for column in found
        ],
        "payload": None
        if lengths is None or kinds is None
        else {
            "raw_bytes": lengths.raw_bytes,
            "stored_bytes": lengths.stored_bytes,
            "min_bytes": lengths.min,
            "mean_bytes": lengths.raw_bytes / cache.num_samples,
            "max_bytes": lengths.max,
            "empty": lengths.empty,
            "first_empty": lengths.first_empty,
            "kinds_of": kinds.looked_at,
            "kinds": [
                {"kind": kind, "samples": number, "first": first}
                for kind, number, first in kinds.by_frequency()
            ],
            "histogram": [
                {"begin_bytes": begin, "end_bytes": end, "samples": number}
                for begin, end, number in _histogram(lengths)
            ],
        },
    }


def _columns_table(found: list[ColumnStats]) -> RenderableType:
    from dataset_rt.inspection.column_stats import DISTINCT_MAX  # noqa: PLC0415 - Polars

    rows = []
    cells_max = 24 if width() >= _WIDE else _NARROW_NAME
    for column in found:
        distinct = f">{count(DISTINCT_MAX)}" if column.distinct is None else count(column.distinct)
        rows.append(
            (
                cut(column.name, cells_max),
                styled(column.type, "cyan"),
                _missing(column),
                distinct,
                _edge(column, column.min),
                "" if column.mean is None else _mean(column.mean),
                _edge(column, column.max),
            )
        )
    headings = ("column", "type", ">nulls", ">distinct", ">min", ">mean", ">max")
    return table(headings, rows, flexible=("min", "max"), folding=("type",))


def _missing(column: ColumnStats) -> Text | str:
    """Nulls, and the floats that are no number."""
    if not column.nulls and not column.nans:
        return styled("0", "dim")
    nans = f" + {share(column.nans / column.rows)} NaN" if column.nans else ""
    return f"{share(column.nulls / column.rows) if column.nulls else 0}{nans}"


def _mean(mean: float) -> str:
    """Return four digits, and all in front of the point of a number below a billion."""
    return f"{mean:,.0f}" if 1e4 <= abs(mean) < 1e9 else f"{mean:.4g}"


def _edge(column: ColumnStats, value: Any) -> Text | str:
    from dataset_rt.inspection.values import plain_value  # noqa: PLC0415 - Polars

    if value is None:
        return ""
    text = _text(column, value, 20)
    if not isinstance(plain := plain_value(value, column.dtype), datetime):
        return text
    # The type says the zone. A date and its time may stand below each other, but are never cut.
    return Text(plain.replace(tzinfo=None).isoformat(" "), no_wrap=False, overflow="fold")


def _text(column: ColumnStats, value: Any, cells_max: int) -> str:
    from dataset_rt.inspection.values import plain_value  # noqa: PLC0415 - Polars

    return value_text(plain_value(value, column.dtype), cells_max)


def _quartiles(found: list[ColumnStats]) -> list[RenderableType]:
    """Where the values lie of which no list says so."""
    rows = []
    for column in found:
        quartiles = None if column.is_classes else column.quartiles()
        if quartiles is not None and column.min != column.max:
            rows.append((cut(column.name, 24), *(_edge(column, value) for value in quartiles)))
    headings = ("column", ">25%", ">median", ">75%")
    return [Text(), table(headings, rows, flexible=("25%", "median", "75%"))] if rows else []


def _top_tables(found: list[ColumnStats], top: int | None) -> list[RenderableType]:
    """The most frequent values of columns where some value is frequent at all."""
    from dataset_rt.inspection.column_stats import FEW_VALUES  # noqa: PLC0415 - Polars

    parts: list[RenderableType] = []
    telling = [column for column in found if column.is_classes]
    for column in telling[:_TOP_COLUMNS_SHOWN]:
        distinct = column.distinct or 0
        shown = top or (distinct if distinct <= FEW_VALUES else _TOP_SHOWN)
        # A line of its own for one other value would take as much room as the value.
        values = column.top(distinct if shown == distinct - 1 else shown)
        largest = values[0][1]
        rows = [
            (
                styled(_text(column, value, 32)),
                count(number),
                share(number / column.rows),
                styled(bar(number / largest, _BAR_CELLS), "blue"),
            )
            for value, number in values
        ]
        rest = column.values - sum(number for _, number in values)
        if rest:
            others = f"{count((column.distinct or 0) - len(values))} others"
            rows.append((styled(others, "dim"), count(rest), share(rest / column.rows), styled("")))
        heading = (
            column.name if len(column.name) <= 24 else cut(column.name, 24),
            ">samples",
            ">share",
            "",
        )
        parts += [Text(), table(heading, rows, flexible=(heading[0],))]
    if len(telling) > _TOP_COLUMNS_SHOWN:
        text = f"  values of {len(telling) - _TOP_COLUMNS_SHOWN} more columns: --columns NAMES"
        parts.append(line((text, "dim")))
    return parts


def _payload_parts(lengths: Lengths, samples: int) -> list[RenderableType]:
    summary = f"{size(lengths.raw_bytes)}"
    if lengths.stored_bytes not in {None, lengths.raw_bytes} and lengths.raw_bytes:
        stored = lengths.stored_bytes or 0
        summary += f", stored as {size(stored)} ({stored / lengths.raw_bytes:.0%})"
    summary += (
        f"; smallest {size(lengths.min)}, {size(lengths.raw_bytes / samples)} on average, "
        f"largest {size(lengths.max)}"
    )
    histogram = _histogram(lengths)
    largest = max(number for _, _, number in histogram)
    rows = [
        (
            "empty" if end == 1 else f"{_binary(begin)} to {_binary(end)}",
            count(number),
            share(number / samples),
            styled(bar(number / largest, _BAR_CELLS), "blue"),
        )
        for begin, end, number in histogram
    ]
    parts = [
        heading("Payloads", summary, style=""),
        table((">size", ">samples", ">share", ""), rows),
    ]
    if lengths.empty:
        text = f"{counted(lengths.empty, 'payload')} without any bytes: "
        parts.append(paragraph(text + _named(lengths.first_empty, lengths.empty), "yellow"))
    return parts


def _kinds_parts(kinds: Kinds, samples: int) -> list[RenderableType]:
    looked_at = (
        f"of all {count(samples)} payloads"
        if kinds.looked_at == samples
        else f"of {count(kinds.looked_at)} payloads, evenly spread; --payloads looks at all"
    )
    rows = [
        (
            styled(kind, "bold red" if kind == UNREADABLE else "cyan"),
            count(number),
            share(number / kinds.looked_at),
            # Those of most samples tell nothing.
            "" if kind != UNREADABLE and 2 * number > kinds.looked_at else _named(first, number),
        )
        for kind, number, first in kinds.by_frequency()[:_KINDS_SHOWN]
    ]
    return [
        heading("Kinds", looked_at),
        table(("kind", ">payloads", ">share", "samples"), rows, folding=("samples",)),
    ]


def _named(first: list[int], total: int) -> str:
    return ", ".join(map(count, first)) + (", ..." if total > len(first) else "")


def _histogram(lengths: Lengths) -> list[tuple[int, int, int]]:
    """Return `(begin, end, payloads)` from the smallest size to the largest, gaps included."""
    used = sorted(lengths.buckets)
    return [
        (2 ** (bits - 1) if bits else 0, 2**bits, lengths.buckets.get(bits, 0))
        for bits in range(used[0], used[-1] + 1)
    ]


def _binary(size_bytes: int) -> str:
    """Return a power of two with its binary unit."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size_bytes >= 2**power:
            return f"{size_bytes >> power} {unit}"
    return f"{size_bytes} B"

"""Draws the parts of the page that tell of samples: some of them, draws, columns, payloads."""

from __future__ import annotations

from dataset_rt.html import Markup, badge, bars, content, element, joined, table
from dataset_rt.inspection.draws import due_words, rows_words
from dataset_rt.inspection.kinds import UNREADABLE, Kinds
from dataset_rt.report.charts import (
    column_card,
    distinct_text,
    histogram_chart,
    sample_card,
    shares_table,
)
from dataset_rt.report.facts import CacheFacts, ColumnFacts, Histogram, Missing
from dataset_rt.report.frame import missing_section, section
from dataset_rt.text import count, counted, share, size

_NAME_CELLS_MAX = 60
_EDGE_CELLS_MAX = 28
_COLUMNS_LISTED = 200
_TABLE_FIRST_MAX = 24
_KINDS_SHOWN = 12


def samples_section(found: CacheFacts) -> Markup:
    """Return some samples with the faces of their payloads."""
    if isinstance(found.samples, Missing):
        return missing_section("Samples", found.samples)
    if not found.samples:
        return Markup("")
    total = int(found.manifest["samples_total"])
    said = (
        f"{count(len(found.samples))} of {count(total)}, spread over the cache"
        if len(found.samples) < total
        else f"All {count(total)}"
    )
    classes = "samples pictured" if has_pictures(found) else "samples wide"
    cards = element("div", {"class": classes}, *map(sample_card, found.samples))
    return section("Samples", f"{said}.", cards)


def has_pictures(found: CacheFacts) -> bool:
    """Whether a sample is shown as a picture."""
    return isinstance(found.samples, list) and any(
        sample.payload.picture for sample in found.samples
    )


def draws_section(found: CacheFacts) -> Markup:
    """Return what training sees: shares of classes as stored, due and drawn."""
    title = "What training sees"
    draws = found.draws
    if isinstance(draws, Missing):
        return missing_section(title, draws)
    what = "one epoch" if draws.drawn == draws.rows else f"of an epoch of {count(draws.rows)}"
    rows = rows_words(draws.rows, draws.rows_drawn, draws.drawn, draws.most_often)
    said = (
        f"{counted(draws.drawn, 'sample')} really drawn ({what}): sampling {draws.sampling}, seed "
        f"{draws.seed}, weights {draws.weights}; {rows}."
    )
    is_equal = draws.weights == "all equal"
    if remark := "" if is_equal else due_words(draws.sampling, draws.due):
        said += f" {remark[0].upper()}{remark[1:]}."
    if draws.of_lost:
        said += (
            f" {count(draws.of_lost)} of these draws are of lost samples, where reading raises: "
            "shares are as if they could be read."
        )
    if draws.by is None:
        hint = f"No classes are shown: {draws.why}. --by COLUMN or --balance COLUMN names one."
        return section(title, said, element("p", {"class": "said"}, hint))
    parts = [shares_table(draws.by, draws.shares, draws.due)]
    notes = []
    if draws.why:
        notes.append(f"By {draws.by}: {draws.why}; --by COLUMN shows another.")
    if is_equal and draws.sampling == "multinomial":
        notes.append(f"--balance {draws.by} shows the same with classes balanced.")
    if notes:
        parts.append(element("p", {"class": "said"}, content(" ".join(notes), 400)))
    return section(title, said, *parts)


def columns_sections(found: CacheFacts) -> list[Markup]:
    """Return the columns: a line each, then a chart each."""
    facts = found.columns
    if isinstance(facts, Missing):
        return [missing_section("Columns", facts)]
    columns = facts.columns
    if not columns:
        words = "None: samples are payloads alone." if not facts.left_out else "None was asked for."
        return [section("Columns", words)]
    said = counted(len(columns), "column")
    if facts.left_out:
        said += f" of {count(len(columns) + facts.left_out)}; --columns NAMES shows others"
    if facts.rows_lost:
        said += f"; of the {counted(columns[0].rows, 'row')} that can be read"
    kind = "bad" if facts.rows_lost else ""
    nullable = {
        column["name"]: column.get("nullable", True) for column in found.manifest["columns"]
    }
    rows = [
        (
            content(column.name, _NAME_CELLS_MAX),
            element("code", {}, column.type + ("" if nullable[column.name] else " not null")),
            _nulls(column),
            distinct_text(column),
            content(column.min or "", _EDGE_CELLS_MAX),
            column.mean or "",
            content(column.max or "", _EDGE_CELLS_MAX),
        )
        for column in columns
    ]
    headings = ["column", "type", ">nulls", ">distinct", ">min", ">mean", ">max"]
    cards = element("div", {"class": "grid"}, *map(column_card, columns))
    parts = [
        section(
            "Columns",
            f"{said}; types as stored.",
            table(headings, rows, rows_max=_COLUMNS_LISTED),
            kind=kind,
        ),
        section("Distributions", "", cards),
    ]
    # A long table would stand between the reader and the charts, which name types and nulls, too.
    return parts if len(columns) <= _TABLE_FIRST_MAX else parts[::-1]


def _nulls(column: ColumnFacts) -> str:
    return share(column.nulls / column.rows) if column.nulls else "0"


def payloads_section(found: CacheFacts) -> Markup:
    """Return sizes and kinds of payloads."""
    lengths, kinds = found.lengths, found.kinds
    if isinstance(lengths, Missing):
        return missing_section("Payloads", lengths)
    samples = max(1, sum(lengths.buckets.values()))
    said = (
        f"{size(lengths.raw_bytes)} together: smallest {size(lengths.min)}, "
        f"{size(lengths.raw_bytes / samples)} on average, largest {size(lengths.max)}"
    )
    if lengths.stored_bytes not in {None, lengths.raw_bytes} and lengths.raw_bytes:
        part = (lengths.stored_bytes or 0) / lengths.raw_bytes
        said += f"; stored as {size(lengths.stored_bytes or 0)} ({part:.0%})"
    if lengths.empty:
        said += f"; {counted(lengths.empty, 'payload')} empty"
    parts = [_half("Sizes", "", _sizes(found.sizes))]
    if isinstance(kinds, Missing):
        parts.append(_half("Kinds", f"could not be read: {kinds.reason}", Markup("")))
    else:
        parts.append(_kinds(kinds, samples))
    return section("Payloads", f"{said}.", element("div", {"class": "two"}, *parts))


def _half(title: str, said: str, *parts: Markup) -> Markup:
    heading = element("h3", {}, title)
    remark = [element("div", {"class": "drt-key"}, content(said, 300))] if said else []
    return element("div", {}, heading, *remark, *parts)


def _sizes(found: Histogram | None) -> Markup:
    return histogram_chart(found, "payload") if found is not None else Markup("")


def _kinds(kinds: Kinds, samples: int) -> Markup:
    is_all = kinds.looked_at >= samples
    said = (
        f"of all {counted(samples, 'payload')}, by their first bytes"
        if is_all
        else f"of {count(kinds.looked_at)} payloads, evenly spread, by their first bytes"
    )
    rows = [
        (badge("bad", kind) if kind == UNREADABLE else kind, number)
        for kind, number, _ in kinds.by_frequency()[:_KINDS_SHOWN]
    ]
    return _half("Kinds", said, joined(bars(rows)))

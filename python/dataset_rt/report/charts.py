"""Draws one column, one sample, one comparison of shares."""

from __future__ import annotations

import base64
import re

from dataset_rt.html import Bin, Markup, bars, content, element, histogram, joined, progress_bar
from dataset_rt.inspection.column_stats import DISTINCT_MAX
from dataset_rt.inspection.draws import Due
from dataset_rt.report.facts import ClassShare, ColumnFacts, Histogram, PayloadFacts, SampleFacts
from dataset_rt.text import count, counted, cut, share, size

_NAME_CELLS_MAX = 60
_BAR_VALUE_CELLS = 32
_FIELD_CELLS_MAX = 40
_LINE_CELLS_MAX = 1200
_MOMENT = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})(?P<time> [0-9:.]+)?(?P<offset>[+-][0-9]{2}:[0-9]{2})?"
)
TINY = 64
"""Pixels up to which a picture is drawn larger than it is, each pixel a square."""


def column_card(column: ColumnFacts) -> Markup:
    """Return the distribution of a column in its own frame."""
    heading = element(
        "h3",
        {},
        element("span", {}, content(column.name, _NAME_CELLS_MAX)),
        element("code", {}, column.type),
    )
    parts = [heading, element("div", {"class": "drt-key"}, ", ".join(_summary(column)))]
    if column.histogram is not None:
        parts.append(histogram_chart(column.histogram, "row"))
    elif column.top:
        parts.append(_top(column))
    if column.nulls and column.values:
        parts.append(_nulls(column))
    return element("div", {"class": "column"}, *parts)


def _nulls(column: ColumnFacts) -> Markup:
    part = column.nulls / column.rows
    return element(
        "div",
        {"class": "nulls"},
        element("span", {}, "null"),
        progress_bar(part),
        element("span", {}, f"{count(column.nulls)} \u00b7 {share(part)}"),
    )


def _summary(column: ColumnFacts) -> list[str]:
    if not column.values:
        return ["nulls only" if column.nulls else "no values"]
    words = []
    if column.distinct == column.values > 1:
        words.append("every value once")
    elif column.distinct == 1:
        words.append("one value")
    else:
        words.append(f"{distinct_text(column)} distinct")
    if column.nulls:
        words.append(f"{share(column.nulls / column.rows)} null")
    if column.nans:
        words.append(f"{share(column.nans / column.rows)} NaN")
    if column.infinite:
        words.append(f"{count(column.infinite)} infinite")
    if column.mean is not None:
        words.append(f"mean {column.mean}")
    if column.histogram is None and not column.top and column.min != column.max:
        words.append(f"{column.min} to {column.max}")
    return words


def distinct_text(column: ColumnFacts) -> str:
    """Return the number of distinct values, or that they are more than are counted."""
    return f"over {count(DISTINCT_MAX)}" if column.distinct is None else count(column.distinct)


def histogram_chart(found: Histogram, noun: str) -> Markup:
    """Return a histogram, and how many of what it counts lie outside."""
    edges = found.edges
    bins = [Bin(i, i + 1, number) for i, number in enumerate(found.counts)]
    drawn = histogram(
        bins,
        form=lambda place: edges[int(place)],
        noun=noun,
        last_width=found.last_width,
    )
    drawn = joined(_remark(f"highest bar: {counted(max(found.counts), noun)}"), drawn)
    outliers = []
    if found.below:
        outliers.append(f"{counted(found.below, noun)} below")
    if found.above:
        outliers.append(f"{counted(found.above, noun)} above")
    return (
        drawn if not outliers else joined(drawn, _remark(f"and, far off, {' and '.join(outliers)}"))
    )


def _top(column: ColumnFacts) -> Markup:
    # Shares of all rows: what is drawn are not all values.
    drawn = bars(
        [(content(value, _BAR_VALUE_CELLS), number) for value, number in column.top],
        form=lambda number: f"{count(int(number))} \u00b7 {share(number / column.rows)}",
        is_share_shown=False,
    )
    rest = column.values - sum(number for _, number in column.top)
    if not rest:
        return drawn
    others = (column.distinct or 0) - len(column.top)
    text = f"and {counted(others, 'other')}: {counted(rest, 'row')}, {share(rest / column.rows)}"
    return joined(drawn, _remark(text))


def _remark(text: str) -> Markup:
    return element("div", {"class": "drt-key"}, text)


def shares_table(column: str, shares: list[ClassShare], due: Due) -> Markup:
    """Return the shares of classes: as bars in the rows and as drawn, as a mark what is due."""
    longest = max(max(one.share_stored, one.share_drawn, one.share_expected or 0) for one in shares)
    names = ["stored", *([] if due is None else ["due"]), "drawn"]
    headings = [
        element("th", {}, content(column, _BAR_VALUE_CELLS)),
        element("th", {"class": "drt-right"}, "rows"),
        element("th", {}),
        *(element("th", {"class": "drt-right"}, name) for name in names),
    ]
    lines = [
        element(
            "tr",
            {},
            element("th", {"scope": "row"}, content(one.value, _BAR_VALUE_CELLS)),
            element("td", {"class": "drt-right"}, count(one.stored)),
            element(
                "td",
                {"class": "track"},
                element(
                    "div",
                    {},
                    _bar(one.share_stored / longest, "stored"),
                    _bar(one.share_drawn / longest, "drt-first"),
                    _tick(one.share_expected, longest),
                ),
            ),
            *(
                element("td", {"class": "drt-right"}, share(part))
                for part in (one.share_stored, one.share_expected, one.share_drawn)
                if part is not None
            ),
        )
        for one in shares
    ]
    head = element("thead", {}, element("tr", {}, *headings))
    table = element("table", {"class": "drt-table shares"}, head, element("tbody", {}, *lines))
    keys = [("stored", "as stored"), ("drawn", "as drawn")]
    if due is not None:
        keys.append(("tick", f"due by {due}"))
    legend = element(
        "div",
        {"class": "keys"},
        *(element("span", {}, element("i", {"class": kind}), words) for kind, words in keys),
    )
    return joined(legend, element("div", {"class": "drt-scroll"}, table))


def _tick(part: float | None, longest: float) -> Markup:
    if part is None:
        return Markup("")
    return element("i", {"class": "tick", "style": f"left:{100 * part / longest:.1f}%"})


def _bar(part: float, side: str) -> Markup:
    return element("div", {"class": f"drt-bar {side}", "style": f"width:{100 * part:.1f}%"})


def sample_card(sample: SampleFacts) -> Markup:
    """Return one sample: its payload's face, its id and its metadata."""
    payload = sample.payload
    words = [payload.kind]
    if payload.size_bytes is not None:
        words.append(size(payload.size_bytes))
    if payload.picture is not None:
        words.insert(1, f"{payload.picture.width} \u00d7 {payload.picture.height}")
    about = [
        element("div", {}, element("b", {}, f"#{sample.sample_id}"), f" {', '.join(words)}"),
    ]
    if sample.metadata is None:
        about.append(element("div", {"class": "drt-bad"}, "metadata unreadable"))
    elif sample.metadata:
        pairs = (
            joined(
                element("dt", {}, cut(name, _FIELD_CELLS_MAX)), element("dd", {}, _breaking(value))
            )
            for name, value in sample.metadata
        )
        about.append(element("dl", {}, *pairs))
    inner = element("div", {"class": "about"}, *about)
    return element("div", {"class": "sample"}, _face(payload), inner)


def _breaking(value: str) -> Markup:
    """Return a value that breaks between date, time and offset, where it has to break."""
    found = _MOMENT.fullmatch(value)
    if found is None:
        return content(value)
    parts = [_whole(found["date"]), content(found["time"] or "")]
    if found["offset"]:
        parts += [element("wbr"), _whole(found["offset"])]
    return joined(*parts)


def _whole(text: str) -> Markup:
    return element("span", {"class": "whole"}, text)


def _face(payload: PayloadFacts) -> Markup:
    if payload.picture is not None:
        picture = payload.picture
        encoded = base64.b64encode(picture.content).decode("ascii")
        is_tiny = max(picture.width, picture.height) <= TINY
        shown = element(
            "img",
            {
                "src": f"data:{picture.mime};base64,{encoded}",
                "alt": f"{payload.kind} of {picture.width} \u00d7 {picture.height} pixels",
                **({"class": "tiny"} if is_tiny else {}),
            },
        )
    elif payload.text is not None:
        shown = element("pre", {}, _text(payload.text))
    elif payload.note is not None:
        is_lost = payload.size_bytes is None
        shown = element(
            "div",
            {"class": f"none {'drt-bad' if is_lost else ''}".strip()},
            content(payload.note, 300),
        )
    elif payload.head:
        shown = element("pre", {"class": "hex"}, _text(_hex(payload.head)))
    else:
        shown = element("div", {"class": "none"}, "empty")
    return element("div", {"class": "face"}, shown)


def _text(text: str) -> Markup:
    """Return text in its own lines, all else made safe."""
    lines = text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
    return Markup("\n".join(content(line, _LINE_CELLS_MAX) for line in lines))


def _hex(head: bytes) -> str:
    lines = []
    for at in range(0, len(head), 8):
        part = head[at : at + 8]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{part.hex(' '):<23}  {letters}")
    return "\n".join(lines)

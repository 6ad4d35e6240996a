"""HTML fragments: values never become markup, and bars and bins are as long as their numbers."""

import math
import re
from html.parser import HTMLParser

import pytest

from dataset_rt.html import (
    Bin,
    Markup,
    badge,
    bars,
    content,
    details,
    element,
    facts,
    fragment,
    histogram,
    note,
    paired_bars,
    progress_bar,
    table,
    tiles,
    title,
)

HOSTILE = [
    "<script>alert(1)</script>",
    "\" onmouseover='alert(1)' x=\"",
    "</style></table></div><img src=x onerror=alert(1)>",
    "a\x00b\x1b[31m\u202eevil\u2066",
    "\ud800",
    "&lt;b&gt;",
    "x" * 100_000,
    "<" * 100_000,
]


class Reader(HTMLParser):
    """Collects elements, their attributes and texts; fails where they are not nested well."""

    VOID = frozenset({"br", "img", "rect"})

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.names, self.attributes, self.texts, self.open = set(), set(), [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        self.names.add(name)
        self.attributes.update(key for key, _ in attributes)
        self.open.append(name)

    def handle_startendtag(self, name, attributes):
        assert name in self.VOID
        self.names.add(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.texts.append(data)


def everything(value):
    return fragment(
        title(value, badge("ok", value)),
        tiles([(value, value, value)]),
        facts([(value, value)]),
        table([value, ">" + value], [[value, value]]),
        bars([(value, 1)]),
        paired_bars([(value, 1, 2)], (value, value)),
        histogram([Bin(0, 1, 1)], form=lambda _: value, noun=value, axis=value),
        details(value, note(value)),
        element("a", {"title": value}, value),
    )


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_no_value_becomes_markup_and_none_is_long(value):
    html = everything(value)
    found, harmless = Reader(html), Reader(everything("harmless"))
    assert found.names - harmless.names <= {"span"}
    assert found.attributes - harmless.attributes <= {"title"}
    shown = "".join(found.texts)
    assert shown.isprintable()
    html.encode()
    # The attribute of `element` is the caller's; nothing else grows with the value.
    assert len(html) < 40_000 + 5 * (len(value) if len(value) > 1000 else 0)


def test_words_from_right_to_left_are_kept_apart():
    assert content("\u05e9\u05dc\u05d5\u05dd") == "<bdi>\u05e9\u05dc\u05d5\u05dd</bdi>"
    assert content("a\u202eb") == "a\\u202eb"


def test_markup_stays_and_what_is_made_of_it_as_text_does_not():
    assert content(Markup("<b>x</b>")) == "<b>x</b>"
    assert content(Markup("<b>") + "x") == "&lt;b&gt;x"


def widths(html):
    return [float(found) for found in re.findall(r'style="width:([^%]+)%"', html)]


def test_bars_are_as_long_as_their_numbers():
    html = bars([("a", 200), ("b", 50), ("none", 0), ("nan", math.nan), ("below", -3), ("c", 1)])
    assert widths(html) == [100, 25, 0.5]
    assert Reader(html).texts == [
        *("a", "200", "79.7%", "b", "50", "19.9%", "none", "0", "0.0%"),
        *("nan", "NaN", "0.0%", "below", "-3", "0.0%", "c", "1", "0.4%"),
    ]
    assert widths(bars([("all", 3)])) == [100]
    assert widths(bars([("a", 0), ("b", 0)])) == []
    assert bars([]).count("<tr>") == 0
    assert widths(bars([("a", 1e300), ("b", math.inf), ("c", 5e-324)])) == [100, 0]


def test_of_many_categories_the_largest_are_shown_and_the_others_summed():
    rows = [(f"c{i}", i % 100) for i in range(300)]
    found = Reader(bars(rows, rows_max=4)).texts
    assert found[::3] == ["c99", "c199", "c299", "other (297)"]
    assert found[-2] == f"{3 * sum(range(99)):,}"
    pairs = Reader(paired_bars([(name, i / 9, 1) for name, i in rows], ("x", "y"), rows_max=2))
    assert pairs.texts[-3] == "other (299)"
    assert pairs.texts[-1] == "29900.0%"


def test_pairs_have_one_scale():
    html = paired_bars([("a", 0.5, 0.25), ("b", 0, 0.125)], ("weight", "drawn"))
    assert widths(html) == [100, 50, 25]
    assert Reader(html).texts == ["weight", "drawn", "a", "50.0%", "25.0%", "b", "0.0%", "12.5%"]


def test_histograms_are_as_high_as_their_numbers_and_say_them():
    html = histogram([Bin(0, 1, 0), Bin(1, 2, 500), Bin(2, 4, 1000), Bin(4, 8, 1)], form=str)
    heights = [float(found) for found in re.findall(r' height="([^"]+)"', html)]
    assert heights == [0, 50, 100, 1.5]
    assert "2 to 4: 1,000 samples" in Reader(html).texts
    many = histogram([Bin(i, i + 1, 1) for i in range(1000)], form=str)
    assert many.count("<rect") <= 120
    assert sum(map(int, re.findall(r": (\d+) sample", many))) == 1000
    assert "no files" in histogram([], form=str, noun="file")


def test_tables_say_how_many_rows_are_left_out():
    assert "and 7 more" in table(["a"], [[i] for i in range(10)], rows_max=3)
    assert "and more" in table(["a"], ([i] for i in range(10)), rows_max=3)
    assert "more" not in table(["a"], ([i] for i in range(10)), rows_max=10)


@pytest.mark.parametrize(
    ("part", "drawn"), [(0.5, [50]), (0, []), (7, [100]), (-1, []), (None, []), (math.nan, [])]
)
def test_progress_is_drawn_between_none_and_all(part, drawn):
    assert widths(progress_bar(part)) == drawn


def test_a_fragment_needs_nothing_from_elsewhere():
    html = everything("x")
    assert not re.search(r"https?:|<script|@import|url\(", html)
    rules = re.findall(r"([^{}]+)\{", html.partition("<style>")[2].partition("</style>")[0])
    rules = [re.sub(r"\([^)]*\)", "", rule) for rule in rules if "@media" not in rule]
    selectors = [one for rule in rules for one in rule.split(",")]
    assert len(selectors) > 50
    assert [one for one in selectors if ".drt" not in one] == []

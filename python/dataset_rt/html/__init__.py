"""HTML fragments for notebooks and reports: tables, bars and histograms, without JavaScript.

    markup.py   what is HTML and what is text: text is always escaped
    tables.py   tiles, facts, tables, badges
    bars.py     bars of shares, progress
    histogram.py  histograms
    style.py    the one style sheet, in light and dark, and what wraps a fragment

Everything here returns `Markup`, a `str` that holds HTML. Whatever else is given to a function, a
`str` included, is a value: it is made safe (`<`, quotes, control and bidi characters), cut, and
shown as text. So a name or a value of a cache never becomes markup, wherever it is passed.

    card = fragment(
        title("pets", badge("ok", "complete")),
        tiles([("samples", "1,000", ""), ("payload", "12 MB", "12 kB each")]),
        table(["column", ">nulls"], [["label", 0]]),
        bars([("cat", 700), ("dog", 300)]),
    )

`fragment` brings the style sheet with it: for one output of a notebook. A document with many parts
puts `style_sheet()` in its head once, and its parts into `element("div", {"class": "drt"}, ...)`.
Classes begin with `drt`; nothing outside is touched. A fragment takes the colour of the text
around it, and is never wider than its place: wide tables scroll in themselves.

Knows nothing of caches and datasets.
"""

from dataset_rt.html.bars import bars, progress_bar
from dataset_rt.html.histogram import Bin, histogram
from dataset_rt.html.markup import AnyContent, Markup, content, element, joined
from dataset_rt.html.style import fragment, style_sheet
from dataset_rt.html.tables import BadgeKind, badge, details, facts, note, table, tiles, title

__all__ = [
    "AnyContent",
    "BadgeKind",
    "Bin",
    "Markup",
    "badge",
    "bars",
    "content",
    "details",
    "element",
    "facts",
    "fragment",
    "histogram",
    "joined",
    "note",
    "progress_bar",
    "style_sheet",
    "table",
    "tiles",
    "title",
]

"""What is HTML and what is text: the only place where the one becomes the other."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, TypeAlias

from dataset_rt.text import safe, value_text

VALUE_CELLS_MAX = 80
"""Width of one value, in characters of a terminal; what is longer is cut, and ends with `...`."""

_TIP_LETTERS_MAX = 400
_VOID = frozenset({"br", "hr", "img", "col", "meta", "link", "rect", "wbr"})


class Markup(str):
    """HTML that is shown as it is. Adding text to it gives a `str`, which is a value again."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


AnyContent: TypeAlias = Any
"""`Markup`, which stays as it is, or any value of a cell: text, number, date, `None`."""


def content(value: AnyContent, cells_max: int = VALUE_CELLS_MAX) -> Markup:
    """Return what shows a value: `Markup` as it is, anything else as safe text.

    Args:
        value: Anything. What is not printable, formatting characters that turn the direction of
            text among it, is shown as its escape, as Python writes it.
        cells_max: A longer text is cut; the pointer over it shows 400 characters.
    """
    if isinstance(value, Markup):
        return value
    shown = value_text(value, cells_max)
    html = escape(shown)
    if not shown.isascii():
        # Words that run from right to left turn nothing beside them.
        html = f"<bdi>{html}</bdi>"
    if isinstance(value, str) and len(value) > cells_max and shown.endswith("..."):
        return Markup(f'<span title="{escape(safe(value[:_TIP_LETTERS_MAX]))}">{html}</span>')
    return Markup(html)


def element(name: str, attributes: Mapping[str, str] | None = None, *inner: AnyContent) -> Markup:
    """Return one HTML element.

    Args:
        name: Name of the element.
        attributes: Its attributes; values are escaped, and made safe.
        *inner: What stands in it.
    """
    given = "".join(f' {key}="{escape(safe(text))}"' for key, text in (attributes or {}).items())
    if name in _VOID and not inner:
        return Markup(f"<{name}{given}/>")
    return Markup(f"<{name}{given}>{joined(*inner)}</{name}>")


def joined(*parts: AnyContent) -> Markup:
    """Return the parts one behind the other."""
    return Markup("".join(content(part) for part in parts))

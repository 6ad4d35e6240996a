"""Draws what all parts of the page have: a frame with a heading, and what is said under it."""

from __future__ import annotations

from dataset_rt.html import AnyContent, Markup, content, element
from dataset_rt.report.facts import Missing

_SAID_CELLS_MAX = 1000


def section(title: str, said: AnyContent, *parts: AnyContent, kind: str = "") -> Markup:
    """Return one part of the page.

    Args:
        title: Its heading.
        said: A remark under the heading, or nothing.
        *parts: What stands in it.
        kind: `ok`, `warn` or `bad`, for a mark at its side.
    """
    heading = [element("h2", {}, title)]
    if said:
        heading.append(element("p", {"class": "said"}, content(said, _SAID_CELLS_MAX)))
    top = element("div", {}, *heading)
    return element("section", {"class": f"panel {kind}".strip()}, top, *parts)


def missing_section(title: str, missing: Missing) -> Markup:
    """Return a part that says why it could not be collected."""
    return section(title, f"Could not be read. {missing.reason}", kind="bad")

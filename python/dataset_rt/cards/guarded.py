"""A card never raises: whoever looks at a broken object wants to see that it is broken."""

from __future__ import annotations

from collections.abc import Callable

from dataset_rt.html import Markup, badge, fragment, note, title


def card_of(name: str, parts: Callable[[], list[Markup]]) -> str:
    """Return a card, or one that says why there is none.

    Args:
        name: What the object is, for the second case.
        parts: Makes what is in the card.
    """
    try:
        return str(fragment(*parts()))
    except Exception as error:  # noqa: BLE001 - anything may be wrong with what is looked at
        reason = f"{type(error).__name__}: {error}"
        return str(fragment(title(name, badge("bad", "cannot be shown")), note(reason)))

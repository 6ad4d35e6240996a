"""The bar that a notebook shows while a source is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataset_rt.html import badge, fragment, note, progress_bar, title

if TYPE_CHECKING:
    from dataset_rt.html import Markup
    from dataset_rt.progress import State


def progress_card(state: State) -> str:
    """Return the bar of a state; the last one says what was written, or that it stopped."""
    from dataset_rt.progress import parts_of  # noqa: PLC0415 - it imports this module

    beside: dict[str, Markup] = {
        "done": badge("ok", "done"),
        "stopped": badge("bad", "stopped"),
    }
    expected = state.expected
    part = None if expected is None else state.samples / expected
    if state.stage == "stopped" and part is None:
        part = 0.0
    return str(
        fragment(
            title(state.name, *filter(None, [beside.get(state.stage)])),
            progress_bar(part, is_done=state.stage == "done"),
            note(", ".join(parts_of(state))),
        )
    )

"""Notices what a loader's source is told and the loader never hears; knows no PyTorch."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataset_rt.dataset import CachedDataset


class SourceWatch:
    """What the dataset a loader was made of was told since, and the loader was not.

    It counts what is said to either (`CachedDataset._said`), and so keeps neither the source nor
    a table alive. Nothing is lost where the loader was told the same kind of thing, where a newer
    loader was made of the source afterwards, and where the source was only read.
    """

    def __init__(self, source: CachedDataset, own: CachedDataset) -> None:
        """Watch `source`, of which `own` was made, from now on."""
        self._source = weakref.ref(source)
        self._heard = source._said
        self._own_heard = own._said

    def unheard(self, own: CachedDataset) -> str | None:
        """Return a warning of what `own` missed since this was last asked, `None` for nothing."""
        source = self._source()
        if source is None:
            return None
        before, own_before = self._heard, self._own_heard
        now, own_now = self._heard, self._own_heard = source._said, own._said
        if now in (before, source._said_before_loader):
            return None
        missed = []
        if now.tables != before.tables and own_now.tables == own_before.tables:
            missed.append("another table")
        if now.lengths != before.lengths and own_now.lengths == own_before.lengths:
            begin, _, end, _ = source._native.next_window()
            missed.append(f"{end - begin} samples per epoch")
        if now.places != before.places and own_now.places == own_before.places:
            missed += _missed_place(source, own)
        if not missed:
            return None
        return (
            f"the dataset that this loader was made of was given {' and '.join(missed)}; the "
            "loader does not see that, since it has a dataset of its own, and reads epoch "
            f"{own.epoch} of that: tell it (loader.dataset.update_metadata, "
            "loader.dataset.set_epoch_len, loader.set_epoch, loader.load_state_dict), or make a "
            "new loader"
        )


def _missed_place(source: CachedDataset, own: CachedDataset) -> list[str]:
    """Say where the source was placed, if it stands there still and the loader does not."""
    start, begin, _, epoch = window = source._native.next_window()
    own_start, own_begin, _, own_epoch = own._native.next_window()
    was_read = window != source._said.window
    if was_read or (epoch, begin - start) == (own_epoch, own_begin - own_start):
        return []
    return [f"epoch {epoch}" if begin == start else f"a place inside epoch {epoch}"]

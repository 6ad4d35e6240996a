"""The cards of what became of sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dataset_rt.cards.dataset import dataset_parts
from dataset_rt.cards.guarded import card_of
from dataset_rt.html import AnyContent, Markup, badge, note, table, title
from dataset_rt.results import CacheWriteSuccess
from dataset_rt.text import counted

if TYPE_CHECKING:
    from dataset_rt.results import (
        CacheSourcesDatasetError,
        CacheSourcesDatasetSuccess,
        CacheWriteError,
        CacheWriteResult,
    )

_RESULTS_SHOWN = 100


def result_card(result: CacheWriteResult) -> str:
    """Return the card of one source."""
    return card_of("CacheWriteResult", lambda: [_results_table([result])])


def loaded_card(found: CacheSourcesDatasetSuccess) -> str:
    """Return the card of sources that became a dataset."""
    return card_of(
        "CacheSourcesDatasetSuccess",
        lambda: [_results_table(found.results), *dataset_parts(found.dataset)],
    )


def failed_card(found: CacheSourcesDatasetError) -> str:
    """Return the card of sources that became no dataset."""
    return card_of("CacheSourcesDatasetError", lambda: _failed(found))


def _results_table(results: Sequence[CacheWriteResult]) -> Markup:
    """Return one row per source: what became of it, and where its cache is or what failed."""
    rows = [_row(result) for result in results]
    are_caches = all(isinstance(result, CacheWriteSuccess) for result in results)
    heading = "cache" if are_caches else "cache, or what failed"
    return table(["source", "", heading], rows, rows_max=_RESULTS_SHOWN)


def _row(result: CacheWriteSuccess | CacheWriteError) -> tuple[AnyContent, ...]:
    if isinstance(result, CacheWriteSuccess):
        return result.source_name, badge("ok", result.status), str(result.path)
    return result.source_name, badge("bad", "failed"), note(result.message)


def _failed(found: CacheSourcesDatasetError) -> list[Markup]:
    heading = title("no dataset", badge("bad", counted(len(found.results), "source")))
    return [heading, note(found.message), _results_table(found.results)]

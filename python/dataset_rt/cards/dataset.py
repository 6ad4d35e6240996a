"""The card of a dataset, and of the loader made of it."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from dataset_rt.cache import open_cache
from dataset_rt.cards.cache import on_average
from dataset_rt.cards.columns import columns_table, type_name
from dataset_rt.cards.guarded import card_of
from dataset_rt.cards.names import name_of, names_text
from dataset_rt.cards.weights import Weights, weights_of
from dataset_rt.errors import DatasetRTError
from dataset_rt.html import AnyContent, Markup, badge, content, facts, note, table, tiles, title
from dataset_rt.inspection.active_sizes import ActiveSizes
from dataset_rt.text import count, counted, size

if TYPE_CHECKING:
    from dataset_rt.dataset import CachedDataset
    from dataset_rt.torch_faces.dataset_loader import DatasetLoader

_CACHES_OPENED_MAX = 16
# An edited table has its sizes added up where the indices of its caches are small, 16 MB
# together, and it has about a million rows at most.
_SIZED_SAMPLES_MAX = 1_000_000
_SIZED_BATCHES_MAX = 16
_TROUBLE_CELLS_MAX = 400
_IDENTITY = ("cache_id", "sample_id", "weight", "payload")


def dataset_card(dataset: CachedDataset) -> str:
    """Return the card of a dataset: caches, length, order, weights, columns."""
    return card_of("CachedDataset", lambda: dataset_parts(dataset))


def loader_card(loader: DatasetLoader) -> str:
    """Return the card of a loader: its batches, its workers, and its dataset."""
    return card_of("DatasetLoader", lambda: _loader_parts(loader))


def dataset_parts(dataset: CachedDataset) -> list[Markup]:
    """Return what is in the card of a dataset."""
    caches = [_Found(path) for path in dataset.cache_paths[:_CACHES_OPENED_MAX]]
    total = len(dataset.cache_paths)
    names = [one.name for one in caches] + [""] * (total - len(caches))
    if dataset.runtime._native.closed:
        closed = "its runtime is closed: open_dataset(dataset.cache_paths) opens its caches anew"
        paths = facts(("cache", path) for path in dataset.cache_paths[:_CACHES_OPENED_MAX])
        return [title(names_text(names), "dataset", *_badges(dataset)), note(closed), paths]
    start, begin, end, epoch = dataset._native.next_window()
    likely = sum(one.samples for one in caches) if dataset._native.epoch_len_set else end - start
    weights = weights_of(dataset, likely)
    badges = [*_badges(dataset), *_troubles(weights, caches)]
    parts = [
        title(names_text(names), "dataset", *badges),
        *([note(weights.trouble)] if weights.trouble else []),
        tiles(_numbers(dataset, weights, caches, epoch)),
        facts(_order(dataset, weights, begin)),
        columns_table(_columns(dataset), types="type in the table"),
    ]
    if total > 1 or any(one.trouble for one in caches):
        parts.insert(-2, _caches_table(caches, total))
    return parts


class _Found:
    """What the manifest of a cache says now: it may have gone since the dataset was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.samples, self.payload_bytes, self.trouble = 0, 0, ""
        self.name = name_of(path)
        try:
            manifest = open_cache(path).manifest
        except DatasetRTError as error:
            self.trouble = f"{error}"
            return
        self.samples = manifest["samples_total"]
        self.payload_bytes = manifest["payload_bytes_total"]


def _badges(dataset: CachedDataset) -> list[Markup]:
    config = dataset.reader_config
    mode = f"shuffled, {config.sampling}" if config.shuffle else "in table order"
    badges = [badge("plain", mode.replace("_", " "))]
    rank, world_size, global_batch, _ = dataset._native.rank
    if world_size > 1 or global_batch is not None:
        badges.append(badge("plain", f"rank {rank} of {world_size}"))
    if dataset.runtime._native.closed:
        badges.append(badge("bad", "runtime closed"))
    return badges


def _troubles(weights: Weights, caches: list[_Found]) -> list[Markup]:
    if weights.trouble:
        return [badge("bad", "its table cannot be read")]
    is_any = any(one.trouble for one in caches)
    return [badge("bad", "a cache cannot be opened")] if is_any else []


def _numbers(
    dataset: CachedDataset, weights: Weights, caches: list[_Found], epoch: int
) -> list[tuple[str, str, str]]:
    numbers = [("rows", weights.rows, "")]
    numbers.append(("samples per epoch", count(len(dataset)), _length_remark(dataset)))
    numbers.append(("next epoch", str(epoch), ""))
    if any(one.samples for one in caches):
        numbers.append(_payload(dataset, caches))
    return numbers


def _payload(dataset: CachedDataset, caches: list[_Found]) -> tuple[str, str, str]:
    """The payload of the rows; where that costs too much or cannot be had, that of the caches."""
    payload = sum(one.payload_bytes for one in caches)
    samples = sum(one.samples for one in caches)
    if len(dataset.cache_paths) > len(caches):
        return "payload of the caches", size(payload), f"the first {len(caches)}"
    if dataset._native.edited_columns is None:
        return "payload", size(payload), on_average(payload, samples)
    if samples <= _SIZED_SAMPLES_MAX:
        with suppress(DatasetRTError):
            sizes = list(islice(ActiveSizes(dataset), _SIZED_BATCHES_MAX + 1))
            if len(sizes) <= _SIZED_BATCHES_MAX:
                active = sum(int(one.sum()) for one in sizes)
                return "payload", size(active), on_average(active, sum(map(len, sizes)))
    return "payload of the caches", size(payload), on_average(payload, samples)


def _length_remark(dataset: CachedDataset) -> str:
    length = dataset._native.epoch_len_set
    return "" if length is None else "by set_epoch_len"


def _order(dataset: CachedDataset, weights: Weights, begin: int) -> list[tuple[str, AnyContent]]:
    rows: list[tuple[str, AnyContent]] = []
    if not weights.trouble:
        rows.append(("weights", weights.weights))
    if dataset.reader_config.shuffle:
        rows.append(("seed", str(dataset.reader_config.seed)))
    rows.append(("stream position", count(begin)))
    _, world_size, global_batch, drop_last = dataset._native.rank
    if global_batch is not None:
        short = ", a short one left out" if drop_last else ""
        rows.append(("global batch", f"{count(global_batch)}{short}"))
    elif world_size > 1:
        short = ", fewer at the end left out" if drop_last else ""
        rows.append(("share", f"one of every {count(world_size)} samples{short}"))
    if edited := dataset._native.edited_columns:
        rows.append(("edited", f"a saved table comes back only with edited={edited[:20]!r}"))
    if len(dataset.cache_paths) == 1:
        rows.append(("cache", str(dataset.cache_paths[0])))
    return rows


def _columns(dataset: CachedDataset) -> list[tuple[str, str, str]]:
    """Columns with the types that `get_metadata` gives them."""
    types = pl.DataFrame(pa.schema(dataset._native.face()).empty_table()).schema
    at_weight = list(types).index("weight")
    remarks = dict.fromkeys(dataset._native.edited_columns or [], "edited")
    remarks |= dict.fromkeys(list(types)[at_weight + 1 :], "extra")
    return [
        (name, type_name(dtype), remarks.get(name, ""))
        for name, dtype in types.items()
        if name not in _IDENTITY
    ]


def _caches_table(caches: list[_Found], total: int) -> Markup:
    rows: list[tuple[AnyContent, ...]] = [
        (
            one.name,
            count(one.samples) if not one.trouble else "?",
            size(one.payload_bytes) if not one.trouble else "?",
            badge("bad", "cannot be opened") if one.trouble else "",
            content(one.trouble, _TROUBLE_CELLS_MAX),
        )
        for one in caches
    ]
    if total > len(caches):
        rows.append((f"and {count(total - len(caches))} more", "", "", "", ""))
    return table(["cache", ">samples", ">payload", "", ""], rows)


def _loader_parts(loader: DatasetLoader) -> list[Markup]:
    _, world_size, global_batch, _ = loader.dataset._native.rank
    of = f"of {counted(loader.batch_size, 'sample')}"
    if world_size > 1:
        of += f", {count(global_batch or loader.batch_size * world_size)} on all ranks"
    batches = tiles(
        [
            ("batches per epoch", count(len(loader)), of),
            ("worker processes", str(loader.num_workers), ""),
        ]
    )
    return [title("DataLoader", "of the dataset below"), batches, *dataset_parts(loader.dataset)]

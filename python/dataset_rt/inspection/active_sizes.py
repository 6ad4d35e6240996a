"""Payload sizes of the rows of an active table, from the indices of its caches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from dataset_rt.cache import open_cache
from dataset_rt.errors import FileUnavailableError
from dataset_rt.inspection.lengths import raw_lengths

if TYPE_CHECKING:
    from dataset_rt.dataset import CachedDataset


class ActiveSizes:
    """Sizes of payloads before compression, row by row in the order of the active table.

    Indices are read once: 16 bytes a sample of the caches, of which 8 are kept.

    Args:
        dataset: Its caches are looked at now, its table when sizes are asked for.

    Raises:
        CorruptError: An index is damaged.
        ConflictError: Iterating, when a cache was replaced since the dataset was opened.
        FileUnavailableError: An index cannot be read.
    """

    def __init__(self, dataset: CachedDataset) -> None:
        """See the class."""
        self._dataset = dataset
        ids, lengths = [], []
        for path in dataset.cache_paths:
            cache = open_cache(path)
            ids.append(cache.cache_id)
            try:
                lengths.append(raw_lengths(path, cache.manifest))
            except OSError as error:
                refused = FileUnavailableError(f"cannot read the index of {path}: {error}")
                refused.errno = error.errno
                raise refused from error
        starts = [0]
        for one in lengths:
            starts.append(starts[-1] + len(one))
        self._lengths: pl.Series = pl.concat(lengths)
        self._starts = dict(zip(ids, starts[:-1], strict=True))

    def __iter__(self) -> Iterator[pl.Series]:
        """Return the sizes in bytes (UInt64), at most 65,536 rows at once."""
        for batch in self._dataset.to_arrow(["cache_id", "sample_id"]):
            identity = pl.DataFrame(batch)
            starts = identity["cache_id"].replace_strict(self._starts, return_dtype=pl.UInt64)
            yield self._lengths.gather(starts + identity["sample_id"])

"""Samples of caches that may be damaged: those that can be read, and which cannot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl
import pyarrow as pa

from dataset_rt import _native
from dataset_rt.errors import CorruptError, InvalidInputError
from dataset_rt.inspection.caches import anatomy_of, open_existing
from dataset_rt.inspection.rows import batches_of
from dataset_rt.text import joined

if TYPE_CHECKING:
    from dataset_rt.cache import Cache

Runs: TypeAlias = Iterator[tuple[int, pa.RecordBatch]]
"""Batches of neighbouring samples, each with the id of its first, in order."""


@dataclass(slots=True)
class Readable:
    """A cache as far as it can be read.

    Attributes:
        path: The cache directory.
        manifest: Its manifest, which is proven.
        lost: Samples that cannot be read, as joined ranges `[start, stop)`; `None` while nobody
            looked for any.
    """

    path: Path
    manifest: dict[str, Any]
    lost: list[tuple[int, int]] | None = None
    _cache: Cache | None = None

    @classmethod
    def open(cls, path: Path) -> Readable:
        """Return the cache at `path`.

        Raises:
            NotFoundError: There is none.
            CorruptError: Its manifest is damaged, so that nothing in it is proven.
        """
        try:
            cache = open_existing(path)
        except CorruptError:
            found = cls(path, anatomy_of(path).manifest)
            found.look_for_losses()
            return found
        return cls(path, cache.manifest, _cache=cache)

    @property
    def num_samples(self) -> int:
        """Number of samples, lost ones included."""
        return int(self.manifest["samples_total"])

    @property
    def is_whole(self) -> bool:
        """Whether it can be read as any cache is."""
        return self._cache is not None

    def types(self) -> dict[str, str]:
        """Return the type of each stored column."""
        return {column["name"]: column["type"] for column in self.manifest["columns"]}

    def look_for_losses(self) -> None:
        """Set `lost`: reads every byte, and tries every sample of damaged files.

        Raises:
            CorruptError: The manifest is damaged.
        """
        found = json.loads(_native.examine_cache(str(self.path), False, True))
        self.lost = joined((part["start"], part["stop"]) for part in found["lost"])
        if found["files"]:
            self._cache = None

    def runs(self, names: list[str]) -> Runs:
        """Return the samples that are not known to be lost.

        Raises:
            CorruptError: One more is; the next sample asks `look_for_losses`.
        """
        if self._cache is not None:
            yield from _numbered(batches_of(self._cache, names), [(0, self.num_samples)])
            return
        lost = self.lost or []
        remains = _native.NativeRemains(str(self.path), False, lost, False, False)
        yield from _numbered(_selected(remains, names), _gaps(lost, self.num_samples))

    def runs_by(self, column: str, names: list[str]) -> Runs:
        """Return the same, numbered by an ascending column of integers.

        Raises:
            CorruptError: As `runs`.
            InvalidInputError: The column holds no integers, or does not ascend.
        """
        if "int" not in self.types()[column]:
            found = self.types()[column]
            raise InvalidInputError(f"{column} of {self.path}: expected integers, found {found}")
        last = -1
        for _, batch in self.runs(list(dict.fromkeys([*names, column]))):
            ids = pl.Series(batch[column]).cast(pl.Int64)
            steps = ids.diff()
            if ids.null_count() or ids[0] <= last or (steps < 1).any():
                raise InvalidInputError(f"{column} of {self.path} does not ascend without nulls")
            last = ids[-1]
            starts = [0, *(steps != 1).fill_null(False).arg_true().to_list(), batch.num_rows]
            for begin, end in pairwise(starts):
                yield ids[begin], batch.slice(begin, end - begin).select(names)


def _gaps(lost: list[tuple[int, int]], total: int) -> list[tuple[int, int]]:
    """Return the ranges between the lost ones."""
    edges = [0, *(edge for part in lost for edge in part), total]
    return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]


def _numbered(batches: Iterator[pa.RecordBatch], kept: list[tuple[int, int]]) -> Runs:
    """Return batches of the samples in `kept`, split where one range ends."""
    ranges = iter(kept)
    start, stop = next(ranges, (0, 0))
    for whole in batches:
        batch = whole
        while batch.num_rows:
            if start == stop:
                start, stop = next(ranges)
            rows = min(batch.num_rows, stop - start)
            yield start, batch.slice(0, rows)
            batch, start = batch.slice(rows), start + rows


def _selected(remains: _native.NativeRemains, names: list[str]) -> Iterator[pa.RecordBatch]:
    while (found := remains.next_batch()) is not None:
        for batch in pa.RecordBatchReader.from_stream(found):
            yield batch.select(names)

"""What kinds of payloads a cache has: from some of them, spread evenly, or from all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dataset_rt.errors import CorruptError
from dataset_rt.inspection.payload_kind import HEAD_BYTES, payload_kind
from dataset_rt.inspection.positions import spread

if TYPE_CHECKING:
    from dataset_rt.cache import Cache
    from dataset_rt.inspection.survivors import Readable

UNREADABLE = "unreadable"
"""The kind of payloads that damage keeps from being read."""

_SAMPLES_MAX = 500
_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of payloads that are read for a look at some: fewer samples where they are large."""

_NAMED_MAX = 5


@dataclass(slots=True)
class Kinds:
    """How often each kind was seen.

    Attributes:
        looked_at: Payloads looked at.
        counts: Their number by kind.
        first: The first samples of each kind.
    """

    looked_at: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, list[int]] = field(default_factory=dict)

    def add(self, sample: int, kind: str) -> None:
        """Take in one payload."""
        self.looked_at += 1
        self.counts[kind] = self.counts.get(kind, 0) + 1
        named = self.first.setdefault(kind, [])
        if len(named) < _NAMED_MAX:
            named.append(sample)

    def by_frequency(self) -> list[tuple[str, int, list[int]]]:
        """Return kind, count and first samples, the most frequent kind first."""
        ordered = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        return [(kind, number, self.first[kind]) for kind, number in ordered]


def kinds_of_some(cache: Cache, mean_bytes: float) -> Kinds:
    """Look at 500 payloads or 64 MiB of them, spread evenly over the cache, at least at one."""
    wanted = max(1, min(_SAMPLES_MAX, cache.num_samples, int(_BYTES_MAX // max(mean_bytes, 1))))
    found, left = Kinds(), _BYTES_MAX
    for sample in spread(cache.num_samples, wanted):
        try:
            payload = cache.payload(sample)
        except CorruptError:
            found.add(sample, UNREADABLE)
            continue
        head = payload.slice(0, min(HEAD_BYTES, payload.size)).to_pybytes()
        found.add(sample, payload_kind(head, payload.size))
        left -= payload.size
        if left < 0:
            break
    return found


def kinds_of_all(cache: Cache, on_progress: Callable[[int], None]) -> Kinds:
    """Look at every payload, batch by batch; one that is damaged costs itself alone."""
    from dataset_rt.inspection.survivors import Readable  # noqa: PLC0415 - Polars

    return kinds_of_readable(Readable(cache.path, cache.manifest, _cache=cache), on_progress)


def kinds_of_readable(side: Readable, on_progress: Callable[[int], None] = lambda _: None) -> Kinds:
    """Look at every payload of a cache that may be damaged; what is lost is of no kind."""
    try:
        return _kinds_of(side, on_progress)
    except CorruptError:
        side.look_for_losses()
        if side.is_whole:
            raise
        return _kinds_of(side, on_progress)


def _kinds_of(side: Readable, on_progress: Callable[[int], None]) -> Kinds:
    import polars as pl  # noqa: PLC0415 - slow to import

    found = Kinds()
    for start, stop in side.lost or []:
        for sample in range(start, stop):
            found.add(sample, UNREADABLE)
    for start, batch in side.runs(["payload"]):
        payloads = pl.Series(batch["payload"])
        heads, sizes = payloads.bin.head(HEAD_BYTES), payloads.bin.size()
        for row, (head, size_bytes) in enumerate(zip(heads, sizes, strict=True)):
            found.add(start + row, payload_kind(head, size_bytes))
        on_progress(start + batch.num_rows)
    return found

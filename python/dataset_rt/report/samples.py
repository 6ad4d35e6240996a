"""Collects some samples of a cache, evenly spread, as far as they can be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pyarrow as pa

from dataset_rt.cache import Cache
from dataset_rt.errors import DatasetRTError
from dataset_rt.inspection.payload_kind import HEAD_BYTES, payload_kind
from dataset_rt.inspection.survivors import Readable
from dataset_rt.inspection.values import text_of
from dataset_rt.inspection.words import in_words
from dataset_rt.report.facts import PayloadFacts, SampleFacts
from dataset_rt.report.images import MIME, picture_of

_FIELDS_MAX = 24
_FIELDS_OF_MANY = 10
_MANY = 12
"""Columns shown of a sample; fewer where samples are more than the page shows by itself."""

_TEXT_BYTES = 4096
_TEXT_LETTERS = 360
_TEXT_LINES = 8
_HEAD_BYTES = 64
_PICTURES_BYTES_MAX = 768 * 1024
"""Bytes of all pictures of a report: a third more as text."""


def samples_of(
    side: Readable, cache: Cache | None, ids: list[int], names: list[str]
) -> list[SampleFacts]:
    """Return what the samples look like.

    Args:
        side: The cache, and which of its samples are lost.
        cache: The same where it can be opened: it finds payloads at once.
        ids: The samples, ascending.
        names: Columns; the first of them are shown.

    Raises:
        CorruptError: No column can be read.
    """
    metadata = _metadata_of(
        side, ids, names[: _FIELDS_OF_MANY if len(ids) > _MANY else _FIELDS_MAX]
    )
    payloads = _read_at(cache, ids) if cache is not None else _read_through(side, ids)
    room = _PICTURES_BYTES_MAX
    found = []
    for sample, payload in zip(ids, payloads, strict=True):
        facts = payload if isinstance(payload, PayloadFacts) else payload_facts(payload, room)
        room -= len(facts.picture.content) if facts.picture else 0
        found.append(SampleFacts(sample, metadata.get(sample), facts))
    return found


def payload_facts(payload: memoryview, room_bytes: int) -> PayloadFacts:
    """Return what is shown of a payload; a picture of it has at most `room_bytes`."""
    head = bytes(payload[:HEAD_BYTES])
    kind = payload_kind(head, len(payload))
    if kind in MIME:
        picture = picture_of(payload, kind)
        if isinstance(picture, str):
            return PayloadFacts(len(payload), kind, head=head[:_HEAD_BYTES], note=picture)
        if len(picture.content) > room_bytes:
            note = "not shown: the report has pictures enough"
            return PayloadFacts(len(payload), kind, head=head[:_HEAD_BYTES], note=note)
        return PayloadFacts(len(payload), kind, picture=picture)
    if kind.endswith("text"):
        return PayloadFacts(len(payload), kind, text=_beginning(payload))
    return PayloadFacts(len(payload), kind, head=head[:_HEAD_BYTES])


def _beginning(payload: memoryview) -> str:
    """Return the first lines and letters of a text."""
    whole = bytes(payload[:_TEXT_BYTES]).decode("utf-8", "ignore")
    text = "\n".join(whole.splitlines()[:_TEXT_LINES])[:_TEXT_LETTERS]
    is_whole = len(payload) <= _TEXT_BYTES and len(text) >= len(whole.rstrip())
    return text if is_whole else f"{text}..."


def _read_at(cache: Cache, ids: list[int]) -> Iterator[memoryview | PayloadFacts]:
    for sample in ids:
        try:
            payload = memoryview(cache.payload(sample))
        except DatasetRTError as error:
            # What it goes on to advise is said once, of the whole cache.
            yield PayloadFacts(note=in_words(error).partition(": ")[0])
        else:
            yield payload


def _read_through(side: Readable, ids: list[int]) -> Iterator[memoryview | PayloadFacts]:
    """Return the same of a cache whose index may be gone: all its batches are looked through."""
    left = iter(ids)
    sample = next(left, None)
    for start, batch in side.runs(["payload"]):
        while sample is not None and sample < start + batch.num_rows:
            if sample < start:
                yield PayloadFacts(note="lost to damage")
            else:
                yield memoryview(batch.column(0)[sample - start].as_buffer())
            sample = next(left, None)
    while sample is not None:
        yield PayloadFacts(note="lost to damage")
        sample = next(left, None)


def _metadata_of(
    side: Readable, ids: list[int], names: list[str]
) -> dict[int, list[tuple[str, str]]]:
    if not names:
        return {sample: [] for sample in ids}
    found: dict[int, list[tuple[str, str]]] = {}
    for start, batch in side.runs(names):
        for sample in ids:
            if start <= sample < start + batch.num_rows:
                row = batch.slice(sample - start, 1)
                found[sample] = [
                    (name, _text(array)) for name, array in zip(names, row.columns, strict=True)
                ]
    return found


def _text(array: pa.Array) -> str:
    column: Any = pl.Series(array)
    return text_of(column.to_physical()[0], column.dtype)

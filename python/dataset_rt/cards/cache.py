"""The card of a cache: what its manifest says, and whether its files are there."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataset_rt.cache import open_cache
from dataset_rt.cards.columns import columns_table
from dataset_rt.cards.guarded import card_of
from dataset_rt.cards.names import cache_name
from dataset_rt.errors import DatasetRTError, NotFoundError
from dataset_rt.html import AnyContent, Markup, badge, details, facts, note, tiles, title
from dataset_rt.text import count, counted, size

if TYPE_CHECKING:
    from dataset_rt.cache import Cache

_FILES_LOOKED_AT_MAX = 2000
_TROUBLES_SHOWN = 5


def cache_card(cache: Cache) -> str:
    """Return the card of a cache.

    Sizes of its files are asked for, of 2,000 at most; no file is read.
    """
    return card_of("Cache", lambda: _parts(cache))


def _parts(cache: Cache) -> list[Markup]:
    manifest = cache.manifest
    if gone := _gone(cache):
        heading = title(
            cache_name(manifest["source_name"], cache.path), "cache", badge("bad", gone[0])
        )
        return [heading, note(gone[1]), facts(_facts(cache, manifest))]
    troubles = _troubles(cache.path, manifest)
    samples, payload = manifest["samples_total"], manifest["payload_bytes_total"]
    stored = sum(file["size_bytes"] for file in _files(manifest)) + _manifest_size(cache.path)
    compression = manifest["compression"]["algo"]
    state = badge("bad", "damaged") if troubles else badge("plain", "files there, not verified")
    parts = [title(cache_name(manifest["source_name"], cache.path), "cache", state)]
    if troubles:
        more = len(troubles) - _TROUBLES_SHOWN
        rest = [f"and {count(more)} more files"] if more > 0 else []
        parts.append(note(*troubles[:_TROUBLES_SHOWN], *rest, "verify_cache(path) says more"))
    parts.append(
        tiles(
            [
                ("samples", count(samples), f"in {counted(len(manifest['shards']), 'shard')}"),
                ("payload", size(payload), on_average(payload, samples)),
                (
                    "on disk",
                    size(stored),
                    "not compressed" if compression == "none" else compression,
                ),
            ]
        )
    )
    parts.append(facts(_facts(cache, manifest)))
    columns = [
        (column["name"], column["type"], "" if column.get("nullable", True) else "not null")
        for column in manifest["columns"]
    ]
    parts.append(columns_table(columns, types="type, as stored"))
    if manifest.get("provenance"):
        parts.append(details("provenance", facts(islice(manifest["provenance"].items(), 200))))
    return parts


def on_average(payload_bytes: int, samples: int) -> str:
    """Return the mean size of a payload, in words; nothing where there is none."""
    return f"{size(payload_bytes / samples)} on average" if samples else ""


def _facts(cache: Cache, manifest: dict[str, Any]) -> list[tuple[str, AnyContent]]:
    return [
        ("path", str(cache.path)),
        ("cache_id", str(cache.cache_id)),
        ("fingerprint", manifest.get("fingerprint") or "none"),
    ]


def _manifest_size(path: Path) -> int:
    try:
        return (path / "manifest.json").stat().st_size
    except OSError:
        return 0


def _gone(cache: Cache) -> tuple[str, str] | None:
    """Return what happened to the whole cache since it was opened, and what to say of it."""
    try:
        there = open_cache(cache.path).cache_id
    except NotFoundError as error:
        return "gone", str(error)
    except DatasetRTError:
        # It is there: which of its files are not as they should be is looked at one by one.
        return None
    if there == cache.cache_id:
        return None
    return "replaced", f"another cache is at {cache.path} now: open_cache(path) opens it"


def _files(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    single = (manifest.get(name) for name in ("metadata", "index", "digests", "dictionary"))
    return [*filter(None, single), *manifest["shards"]]


def _troubles(path: Path, manifest: dict[str, Any]) -> list[str]:
    found = []
    for file in _files(manifest)[:_FILES_LOOKED_AT_MAX]:
        name, expected = file["path"], file["size_bytes"]
        try:
            there = (path / name).stat().st_size
        except OSError as error:
            found.append(f"{name}: {error.strerror or error}")
            continue
        if there != expected:
            found.append(f"{name}: expected {count(expected)} bytes, found {count(there)}")
    return found

"""What an import says when it ended, well or not; knows no option's value and draws nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataset_rt.errors import ConflictError, DatasetRTError, SourceError
from dataset_rt.text import counted

if TYPE_CHECKING:
    from dataset_rt.results import CacheWriteError

_EXTENSIONS_SHOWN_MAX = 8


def remarks(source: Any, samples: int, empty: int, left_out: Mapping[str, int]) -> Iterator[str]:
    """Yield what somebody might not expect of a cache that was made or reused.

    Args:
        source: The importer.
        samples: How many there are.
        empty: How many of them have an empty payload.
        left_out: Files that were not taken, by extension.
    """
    if empty:
        yield (
            "all payloads are empty"
            if empty == samples
            else (f"{counted(empty, 'payload')} {'is' if empty == 1 else 'are'} empty")
        )
    if (column := getattr(source, "text_payload", None)) is not None:
        yield f"column {column!r} is text: its UTF-8 bytes are the payload"
    if left_out:
        most = sorted(left_out.items(), key=lambda item: -item[1])
        named = [f"{number:,} {kind or 'without extension'}" for kind, number in most]
        more = ", ..." if len(named) > _EXTENSIONS_SHOWN_MAX else ""
        yield (
            f"left out: {counted(sum(left_out.values()), 'file')} "
            f"({', '.join(named[:_EXTENSIONS_SHOWN_MAX])}{more}); --extensions says what is taken"
        )


def what_is_kept(caches_dir: Path, name: str) -> str:
    """Say what an interrupted import leaves, and what to do."""
    from dataset_rt.unfinished import unfinished_writes  # noqa: PLC0415 - only after Ctrl-C

    try:
        kept = sum(
            left.samples for left in unfinished_writes(caches_dir) if left.source_name == name
        )
    except (DatasetRTError, OSError):
        kept = 0
    if kept == 0:
        return (
            "interrupted: no sample is kept, since none had filled a shard (--max-shard-bytes); "
            "the same command begins anew"
        )
    return f"interrupted: {counted(kept, 'sample')} kept; the same command goes on behind them"


def failure_of(result: CacheWriteError, source: Any, caches_dir: Path) -> DatasetRTError:
    """Return the error of an import, in terms of what was imported.

    Args:
        result: What became of the source.
        source: The importer.
        caches_dir: Directory of the caches.
    """
    found = result.exception
    message = result.message
    if isinstance(found, ConflictError):
        message = _why_stale(source, caches_dir / source.name) or message
    elif isinstance(found, DatasetRTError) and str(found) in message:
        # Importers say file and row themselves; behind it stands how many samples came before.
        message = message[message.index(str(found)) :]
    kind = type(found) if isinstance(found, DatasetRTError) else SourceError
    error = kind(message)
    error.__cause__ = found
    return error


def _why_stale(source: Any, path: Path) -> str | None:
    """Say what changed since a cache was made, `None` when its fingerprint is the source's."""
    from dataset_rt.cache import open_cache  # noqa: PLC0415 - pyarrow and Polars
    from dataset_rt.sources.inputs.files import changed_part  # noqa: PLC0415 - as above

    try:
        stored = open_cache(path).manifest["fingerprint"]
    except (DatasetRTError, OSError):
        return None
    if stored == source.fingerprint:
        return None
    why = {
        "options": "this import has other options or another --transform-version; the input files "
        "are the same",
        "inputs": "the input files are others or have changed; the options are the same",
        None: f"it was made of something else (fingerprint {stored}, now {source.fingerprint})",
    }[changed_part(stored, source.fingerprint)]
    other = shlex.quote(f"{source.name}-2")
    return (
        f"{path} is there already, and {why}. Keep both: give this one another name, for example "
        f"--name {other}. Or take the old one as it is: --on-stale reuse. Or make it anew: "
        "--on-stale rewrite, which replaces it"
    )

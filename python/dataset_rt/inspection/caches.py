"""Caches on disk: opening them with helpful refusals, and what a damaged one still tells.

Opens no payload, and imports neither Polars nor pyarrow before somebody asks for rows.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataset_rt import _native
from dataset_rt.errors import DatasetRTError, InvalidInputError, NotFoundError, UnsupportedError
from dataset_rt.verification import Finding, VerificationLevel, VerificationReport, verify_cache

if TYPE_CHECKING:
    from dataset_rt.cache import Cache

MANIFEST = "manifest.json"
_MANIFEST_BYTES_MAX = 16 * 1024 * 1024


def open_existing(path: Path) -> Cache:
    """Return the cache at `path`.

    Raises:
        NotFoundError: There is none; the message names caches with a name like it.
        DatasetRTError: It cannot be opened; the message says how to learn more.
    """
    from dataset_rt.cache import open_cache  # noqa: PLC0415 - pyarrow and Polars

    try:
        return open_cache(path)
    except NotFoundError as error:
        raise NotFoundError(f"{error}{hint(path)}") from None


def hint(path: Path) -> str:
    """Return words to add to "there is no cache at `path`", or nothing."""
    if is_cache(path.parent):
        return f"; {path.parent} is a cache itself"
    if is_remains(path):
        return "; dataset-rt repair --into DIRECTORY --unproven salvages what is well-formed"
    near = difflib.get_close_matches(path.name, [found.name for found in caches_below(path.parent)])
    return f"; did you mean {path.parent / near[0]}?" if near else ""


def is_cache(path: Path) -> bool:
    """Whether `path` holds a manifest, however damaged."""
    try:
        return (path / MANIFEST).exists()
    except OSError:
        return False


def is_remains(path: Path) -> bool:
    """Whether `path` holds what a cache has beside its manifest, which is gone."""
    others = ("index.bin", "metadata.arrow", "digests.bin")
    try:
        return (
            not is_cache(path)
            and (path / "shards").is_dir()
            and any((path / name).exists() for name in others)
        )
    except OSError:
        return False


def report_of_remains(path: Path, level: VerificationLevel) -> VerificationReport:
    """Return what a verification finds where the manifest is gone."""
    lacks = Finding("F01", "error", MANIFEST, "", "the manifest of a cache", "nothing")
    return VerificationReport(path, level, False, (lacks,), 0, 0, is_complete=False)


def caches_below(path: Path) -> list[Path]:
    """Return the caches in a directory, by name; none where it cannot be listed.

    One whose manifest is gone is among them: that it is damaged must not hide it.
    """
    try:
        return sorted(
            entry
            for entry in path.iterdir()
            if not entry.name.startswith(".") and (is_cache(entry) or is_remains(entry))
        )
    except OSError:
        return []


@dataclass(frozen=True, slots=True)
class Anatomy:
    """What is known of a cache without reading a sample, however damaged it is.

    Attributes:
        path: The cache directory.
        manifest: The fields, each of the type that the format gives it; those of a damaged
            manifest are what it says, and some may be missing.
        findings: What the level "quick" found.
        trouble: Why it cannot be opened, if so.
        is_newer: Whether it is of a version that this library does not read.
    """

    path: Path
    manifest: dict[str, Any]
    findings: tuple[Finding, ...]
    trouble: str | None
    is_newer: bool

    @property
    def status(self) -> str:
        """`ok` as far as structure goes, `damaged` or `unsupported`."""
        if self.is_newer:
            return "unsupported"
        return "damaged" if self.findings or self.trouble else "ok"

    def sizes_on_disk(self) -> dict[str, int]:
        """Return the bytes of the files that the format has, by their path in the cache."""
        return {
            str(file.relative_to(self.path)): file.lstat().st_size for file in _files(self.path)
        }


def anatomy_of(path: Path) -> Anatomy:
    """Return what is known of the cache at `path`.

    Raises:
        NotFoundError: There is none.
        InvalidInputError: `path` is no path.
    """
    trouble, is_newer = None, False
    if is_remains(path):
        return Anatomy(path, {}, report_of_remains(path, "quick").findings, None, False)
    try:
        manifest = json.loads(_native.NativeCache(str(path)).manifest_json())
    except (NotFoundError, InvalidInputError):
        raise
    except DatasetRTError as error:
        manifest = what_it_says(path / MANIFEST)
        trouble, is_newer = str(error), isinstance(error, UnsupportedError)
    report = verify_cache(path, "quick")
    return Anatomy(path, manifest, report.findings, trouble, is_newer)


def what_it_says(file: Path) -> dict[str, Any]:
    """Return the fields of a manifest that nobody vouches for, as far as they have their types."""
    try:
        with file.open("rb") as opened:
            content = json.loads(opened.read(_MANIFEST_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {
        name: content[name]
        for name, is_such in _FIELDS.items()
        if name in content and is_such(content[name])
    }


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_file(value: object) -> bool:
    return (
        isinstance(value, dict)
        and _is_text(value.get("path"))
        and _is_count(value.get("size_bytes"))
    )


def _is_column(value: object) -> bool:
    return isinstance(value, dict) and _is_text(value.get("name")) and _is_text(value.get("type"))


def _is_shard(value: object) -> bool:
    return _is_file(value) and isinstance(value, dict) and _is_count(value.get("rows"))


def _is_compression(value: object) -> bool:
    return isinstance(value, dict) and _is_text(value.get("algo"))


def _is_provenance(value: object) -> bool:
    return isinstance(value, dict) and all(_is_text(text) for text in value.values())


_FIELDS = {
    "format_version": _is_count,
    "cache_id": _is_count,
    "content_blake3": _is_text,
    "source_name": _is_text,
    "fingerprint": lambda value: value is None or _is_text(value),
    "samples_total": _is_count,
    "payload_bytes_total": _is_count,
    "columns": lambda value: isinstance(value, list) and all(map(_is_column, value)),
    "compression": _is_compression,
    "shards": lambda value: isinstance(value, list) and all(map(_is_shard, value)),
    "provenance": _is_provenance,
}


def _files(path: Path) -> Iterator[Path]:
    for pattern in ("manifest.json", "*.arrow", "*.bin", "shards/*.arrow"):
        try:
            yield from sorted(file for file in path.glob(pattern) if not file.is_dir())
        except OSError:
            continue

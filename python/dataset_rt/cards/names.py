"""What the caches of a card are called: by their sources, by directory where that differs."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

from dataset_rt.inspection.caches import MANIFEST, what_it_says
from dataset_rt.text import count


def cache_name(source_name: str | None, path: Path) -> str:
    """Return the name of a source, and that of the directory where it is another.

    Args:
        source_name: As its manifest has it; `None` where that cannot be read.
        path: The cache directory.
    """
    directory = path.name or path.absolute().name
    if not source_name or unicodedata.normalize("NFC", directory) == source_name:
        return directory
    return f"{source_name} (in {directory})"


def name_of(path: Path) -> str:
    """Return what a cache is called, a damaged one too: its manifest may still say so."""
    return cache_name(what_it_says(path / MANIFEST).get("source_name"), path)


def names_text(names: Sequence[str]) -> str:
    """Return three names, or two and the number of the others."""
    if len(names) <= 3:
        return ", ".join(names)
    return f"{', '.join(names[:2])} and {count(len(names) - 2)} more"

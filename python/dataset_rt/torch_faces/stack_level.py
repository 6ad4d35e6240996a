"""Where a warning belongs: to the first caller outside this package."""

from __future__ import annotations

import sys


def level_of_caller() -> int:
    """Return the `stacklevel` for a caller of this that warns whoever called the package."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    return level


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "dataset_rt"

"""Which samples stand for all where not all are looked at."""

from __future__ import annotations

import random


def spread(total: int, wanted: int, seed: int = 0) -> list[int]:
    """Return ascending positions, evenly spread: one of each of `wanted` equal parts.

    Within its part a position is drawn: equal steps would see one half only of what alternates.

    Args:
        total: Positions there are.
        wanted: How many to return; all, if there are no more.
        seed: Of the draw; the same positions for the same seed.
    """
    parts = min(total, wanted)
    draw = random.Random(seed)  # noqa: S311 - what is looked at need not be a secret
    return [
        draw.randrange(total * part // parts, total * (part + 1) // parts) for part in range(parts)
    ]

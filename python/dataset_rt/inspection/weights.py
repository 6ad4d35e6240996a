"""Where weights do nothing: said wherever weights are shown."""

from __future__ import annotations

from dataset_rt.config import ReaderConfig


def why_unused(config: ReaderConfig) -> str:
    """Return why no weight changes how often a row is read; nothing where weights do."""
    if not config.shuffle:
        return "in table order (shuffle=False) weights do nothing"
    if config.sampling == "permutation":
        return 'sampling="permutation" reads each row once a cycle: weights do nothing'
    return ""

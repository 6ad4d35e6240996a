"""A source whose items are looked at or changed on their way; everything else stays its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from dataset_rt.sources.protocols import CacheSource


class WrappedSource(ABC):
    """Has every member of another source, the optional ones only if that one has them.

    Args:
        source: The other source.
    """

    def __init__(self, source: CacheSource) -> None:
        """See the class."""
        self._source = source

    @abstractmethod
    def _pass_on(self, items: Iterator[Any], start: int, /) -> Iterator[Any]:
        """Yield what becomes of the items, the first of which has this number."""

    def __iter__(self) -> Iterator[Any]:
        """Yield what becomes of all items."""
        return self._pass_on(iter(self._source), 0)

    @property
    def iter_from(self) -> Callable[[int], Iterator[Any]] | None:
        """See `HasIterFrom`; `None` where the source has no such member."""
        inner = getattr(self._source, "iter_from", None)
        if inner is None:
            return None
        return lambda start: self._pass_on(iter(inner(start)), start)

    def __len__(self) -> int:
        """Return the length of the source; `TypeError` where it has none."""
        return len(self._source)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        """Return a member of the source itself."""
        return getattr(self._source, name)

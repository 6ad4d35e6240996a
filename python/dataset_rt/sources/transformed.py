"""A source with `transform`, its samples made where it is iterated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from dataset_rt.errors import InvalidInputError
from dataset_rt.sources.wrapped import WrappedSource

Transform: TypeAlias = Callable[[Any], Any]
"""Makes one sample of one item; whether it does is for `checked` to say."""


def has_transform(source: Any) -> bool:
    """Whether a source yields items instead of samples; `transform = None` is no transform."""
    try:
        return getattr(source, "transform", None) is not None
    except Exception:  # noqa: BLE001 - a property of theirs; it fails again where it is reported
        return True


def checked(sample: Any) -> Any:
    """Return what `transform` returned, if it is one sample.

    Raises:
        InvalidInputError: It is something else, several samples in a batch included.
    """
    if isinstance(sample, tuple) and len(sample) == 2:
        return sample
    raise InvalidInputError(
        f"transform returned {type(sample).__name__}; expected one CacheInput(data, metadata)"
    )


class TransformedSource(WrappedSource):
    """A source with `transform` as a source of samples."""

    def _pass_on(self, items: Iterator[Any], _start: int, /) -> Iterator[Any]:
        transform: Transform = self._source.transform  # type: ignore[attr-defined]
        for item in items:
            yield checked(transform(item))

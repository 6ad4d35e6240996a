"""A map-style dataset with a function that encodes its items; knows nothing of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from dataset_rt.samples import CacheInput
from dataset_rt.sources.inputs.importer import Importer, named

_T_co = TypeVar("_T_co", covariant=True)
_T = TypeVar("_T")


class MapDataset(Protocol[_T_co]):
    """Anything with a length and items by number, for example a `torch.utils.data.Dataset`."""

    def __len__(self) -> int:
        """Return the number of items."""
        ...

    def __getitem__(self, index: int, /) -> _T_co:
        """Return one item."""
        ...


class MapDatasetSource(Importer):
    """The items of a map-style dataset, encoded by a function of yours.

    Items are taken and encoded where `transform` runs, so that several processes share the loading
    too; dataset and function are pickled for them.

    Args:
        name: Name of the source and of its cache directory.
        dataset: Has `__len__` and `__getitem__`; an item depends on its number alone (no random
            augmentation: that belongs behind the cache).
        encode: Makes the `CacheInput` of an item.
        fingerprint: Version of dataset and function together. Nobody can see either from outside,
            so it is required: change it whenever one of them changes.
        schema: Metadata columns; inferred by default.

    Raises:
        TypeError: `dataset` has no length or no items.

    Example:
        >>> from dataset_rt.sources import MapDatasetSource
        >>> def encode(item):
        ...     return CacheInput(item.encode(), {"length": len(item)})
        >>> source = MapDatasetSource("words", ["a", "bc"], encode, fingerprint="v1")
        >>> [source.transform(index).metadata for index in source]
        [{'length': 1}, {'length': 2}]
    """

    kind = "map_dataset"

    def __init__(
        self,
        name: str,
        dataset: MapDataset[_T],
        encode: Callable[[_T], CacheInput],
        *,
        fingerprint: str,
        schema: pa.Schema | None = None,
    ) -> None:
        """See the class."""
        for member in ("__len__", "__getitem__"):
            if not hasattr(type(dataset), member):
                raise TypeError(
                    f"dataset must be map-style: {type(dataset).__qualname__} has no {member}"
                )
        if not callable(encode):
            raise TypeError(f"encode must be callable, found {type(encode).__name__}")
        self._encoded = _EncodedItem(dataset, encode)
        super().__init__(name, schema=schema, fingerprint=fingerprint)

    @property
    def transform(self) -> Callable[[int], CacheInput]:
        """Takes one item by its number and encodes it."""
        return self._encoded

    @property
    def _dataset(self) -> MapDataset[Any]:
        return self._encoded.dataset

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._dataset)

    def iter_from(self, start: int) -> Iterator[int]:
        """Yield the numbers of the items from `start` on, which `transform` takes."""
        return iter(range(start, len(self._dataset)))

    def _computed_fingerprint(self, options: dict[str, object]) -> None:
        del options

    def _origin(self) -> Mapping[str, str]:
        return {"dataset": _name_of(self._dataset), "encode": _name_of(self._encoded.encode)}


@dataclass(frozen=True, slots=True)
class _EncodedItem(Generic[_T]):
    dataset: MapDataset[_T]
    encode: Callable[[_T], CacheInput]

    def __call__(self, index: int) -> CacheInput:
        with named(f"item {index}", "the dataset"):
            item = self.dataset[index]
        with named(f"item {index}", "encode"):
            return self.encode(item)


def _name_of(thing: object) -> str:
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"

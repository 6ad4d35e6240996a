"""What a source must and may have, for type checkers; knows nothing of writing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from dataset_rt.frames import ArrowArrayExporter
from dataset_rt.samples import CacheInput


@runtime_checkable
class CacheSource(Protocol):
    """An object with a name that can be iterated; one cache is made of it.

    Sources are iterated on the calling thread, once, one after another. Besides `CacheInput` a
    source may yield `pa.RecordBatch` (or any object with `__arrow_c_array__`) with a binary
    column `payload`; `ArrowSource` does so for whole tables.

    Example:
        >>> class Words:
        ...     name = "words"
        ...
        ...     def __iter__(self):
        ...         for position, word in enumerate(["a", "b"]):
        ...             yield CacheInput(word.encode(), {"position": position})
        >>> isinstance(Words(), CacheSource)
        True
    """

    @property
    def name(self) -> str:
        """One path segment, at most 200 UTF-8 bytes; it names the cache directory."""
        ...

    def __iter__(self) -> Iterator[CacheInput | ArrowArrayExporter]:
        """Yield the samples in the order in which they are stored."""
        ...


@runtime_checkable
class HasFingerprint(Protocol):
    """Optional member of a source: the version of its preprocessing."""

    @property
    def fingerprint(self) -> str | None:
        """A stored cache with another fingerprint is stale; `None` against a value counts."""
        ...


@runtime_checkable
class HasIterFrom(Protocol):
    """Optional member of a source: begin in the middle, after an interrupted write.

    It is used when the source has an equal `fingerprint` too, which says that the stored samples
    are what it would yield again. Every other source is iterated from its start, and each batch
    is compared with the stored one; from the first difference on the stored samples are dropped
    with a warning. Either way the cache is the one an uninterrupted write would have made.

    Example:
        >>> class Numbers:
        ...     name = "numbers"
        ...     fingerprint = "v1"
        ...
        ...     def __iter__(self):
        ...         return self.iter_from(0)
        ...
        ...     def iter_from(self, start):
        ...         for number in range(start, 1000):
        ...             yield CacheInput(str(number).encode(), {"number": number})
        >>> isinstance(Numbers(), HasIterFrom)
        True
    """

    def iter_from(self, start: int) -> Iterator[CacheInput | ArrowArrayExporter]:
        """Yield the samples from number `start` on, counted from 0."""
        ...


@runtime_checkable
class HasTransform(Protocol):
    """Optional member of a source: turns one item into one sample, where that costs CPU time.

    Such a source yields items of its own from `__iter__` and `iter_from`, and `transform` makes
    the sample of each. `WriterConfig(num_processes=N)` runs it in N processes, which get the
    method or function and the items pickled; the cache is the same to the byte. A source whose
    `transform` is `None` has none.

    Example:
        >>> class Files:
        ...     name = "files"
        ...
        ...     def __iter__(self):
        ...         return iter(["a.txt", "b.txt"])
        ...
        ...     def transform(self, file):
        ...         return CacheInput(f"what {file} says".encode(), {"file": file})
        >>> isinstance(Files(), HasTransform)
        True
    """

    def transform(self, item: Any, /) -> CacheInput:
        """Return the sample of one `item`; it depends on the item alone."""
        ...


@runtime_checkable
class HasSchema(Protocol):
    """Optional member of a source: its metadata columns, declared instead of inferred."""

    @property
    def schema(self) -> pa.Schema:
        """Metadata columns in order, without the payload."""
        ...


@runtime_checkable
class HasLength(Protocol):
    """Optional member of a source: how many samples it yields, for a progress line with ETA."""

    def __len__(self) -> int:
        """Return the number of samples; it is shown, never relied on."""
        ...


@runtime_checkable
class HasProvenance(Protocol):
    """Optional member of a source: free text kept in the manifest."""

    @property
    def provenance(self) -> Mapping[str, str]:
        """Free text; it has no part in the identity of the cache."""
        ...

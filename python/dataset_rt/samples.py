"""One sample going in and one coming out, with the types inside; knows nothing of caches."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from typing_extensions import Buffer

from dataset_rt.field_docs import with_field_docs

if TYPE_CHECKING:
    import numpy.typing as npt

    # NumPy's stubs say only from Python 3.12 on that its arrays are buffers.
    BytesLike: TypeAlias = Buffer | npt.NDArray[Any]
    """Any C-contiguous buffer: `bytes`, `bytearray`, `memoryview`, array, `pa.Buffer`, mmap."""
else:
    BytesLike: TypeAlias = Buffer

MetadataValue: TypeAlias = bool | int | float | str | date | datetime | None
"""What one metadata cell may hold; NumPy scalars count as their Python twins."""

Metadata: TypeAlias = Mapping[str, MetadataValue]
"""The metadata of one sample: column name to value, the same keys in every sample."""


_SHOWN_BYTES = 64


@with_field_docs
class CacheInput(NamedTuple):
    """One sample from a source.

    Attributes:
        data: The payload, 0 to 2**31 - 1 bytes. It is copied before the source is asked for the
            next sample, so a source may reuse its buffer.
        metadata: The stored columns of this sample. The keys of the first sample fix names and
            order of the columns for the whole source.

    Example:
        >>> CacheInput(b"payload", {"label": 3}).metadata["label"]
        3
    """

    data: BytesLike
    metadata: Metadata


@with_field_docs
class CachedSample(NamedTuple):
    """One sample read from a dataset: a tuple with four names, so unpacking and `match` work.

    Attributes:
        data: The payload. With `ReaderConfig(zero_copy=True)` it is a read-only `memoryview` over
            the mapped shard instead, valid as long as the file is not modified in place: touching
            it after the file was cut short ends the process.
        metadata: Stored and extra columns of the active row, without `weight`.
        cache_id: Identity of the cache's contents, below 2**53.
        sample_id: Row in that cache, 0-based.

    Example:
        >>> data, metadata, cache_id, sample_id = CachedSample(b"x", {"label": 1}, 7, 0)
        >>> metadata
        {'label': 1}
    """

    data: bytes
    metadata: dict[str, Any]
    cache_id: int
    sample_id: int

    def __repr__(self) -> str:
        """The four fields; of a long payload its length and its beginning."""
        data: object = self.data
        if isinstance(data, (bytes, memoryview)) and len(data) > _SHOWN_BYTES:
            shown = f"<{len(data)} bytes: {bytes(data[:16])!r}...>"
        else:
            shown = repr(data)
        return (
            f"CachedSample(data={shown}, metadata={self.metadata!r}, cache_id={self.cache_id}, "
            f"sample_id={self.sample_id})"
        )

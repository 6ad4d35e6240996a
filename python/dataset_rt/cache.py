"""A read-only look into one cache; needs no runtime and knows nothing of datasets or order."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from dataset_rt._native import NativeCache
from dataset_rt.arguments import AnyPath, to_cache_path, to_integer, to_names
from dataset_rt.errors import SampleNotFoundError


class Cache:
    """One cache on disk, opened by `open_cache`.

    Example:
        >>> open_cache(cache).num_samples
        2
    """

    _native: NativeCache

    def __init__(self) -> None:
        """Refuse: use `open_cache`."""
        raise TypeError("Cache is not built directly: call open_cache(path)")

    @classmethod
    def _open(cls, path: str) -> Cache:
        cache = cls.__new__(cls)
        cache._native = NativeCache(path)
        return cache

    @property
    def path(self) -> Path:
        """The cache directory."""
        return Path(self._native.path)

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest, parsed anew at each call."""
        manifest: dict[str, Any] = json.loads(self._native.manifest_json())
        return manifest

    @property
    def schema(self) -> pa.Schema:
        """The stored metadata columns, in source order, without the payload."""
        return pa.schema(self._native.schema())

    @property
    def num_samples(self) -> int:
        """Number of samples in the cache."""
        return self._native.num_samples

    @property
    def cache_id(self) -> int:
        """Identity of the logical contents, below 2**53."""
        return self._native.cache_id

    def metadata(self) -> pl.DataFrame:
        """Return the stored columns, one row per sample; fixed-width ones share the file's pages.

        Raises:
            CorruptError: The file does not hold what the manifest promises.
        """
        return pl.DataFrame(self._native.metadata())

    def to_arrow(self, columns: Iterable[str] | None = None) -> pa.RecordBatchReader:
        """Return all samples in file order, batch by batch, payloads decompressed and verified.

        Any Arrow library also takes the cache itself, as often as it likes: `pa.table(cache)`.

        Args:
            columns: Some of `sample_id`, the stored columns and `payload`, in this order; all by
                default. Without `payload` no payload is read.

        Returns:
            A reader that can be read once. `payload` is binary_view: views of the mapped shards
            when they are uncompressed.

        Raises:
            InvalidInputError: A column is unknown or named twice.
        """
        names = None if columns is None else to_names(columns, "columns")
        return pa.RecordBatchReader.from_stream(self._native.face().select(names))

    def __arrow_c_schema__(self) -> object:
        """Return the schema of `to_arrow()` as an Arrow PyCapsule."""
        return self._native.face().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return `to_arrow()` as an Arrow PyCapsule, a fresh one at each call.

        Args:
            requested_schema: As in `CachedDataset.__arrow_c_stream__`.

        Raises:
            InvalidInputError: Something was requested that cannot be had.
        """
        return self._native.face().__arrow_c_stream__(requested_schema)

    def shards(self) -> list[Shard]:
        """Return the shards in sample order; none is read before its `to_arrow()`."""
        return [Shard._of(self._native, index) for index in range(self._native.num_shards)]

    def payload(self, i: int) -> pa.Buffer:
        """Return the payload of one sample.

        Args:
            i: Row in the cache, `0 <= i < num_samples`.

        Returns:
            The bytes, verified; a view of the mapped file when it is uncompressed.

        Raises:
            TypeError: `i` is not an integer.
            SampleNotFoundError: It is out of range (an `IndexError`).
            CorruptError: The block does not hold what the manifest promises.
        """
        row = to_integer(i, "i")
        if not 0 <= row < self.num_samples:
            raise SampleNotFoundError(
                f"no sample {row} in {self.path}: 0 <= i < {self.num_samples}"
            )
        return pa.py_buffer(self._native.payload(row))

    def _repr_html_(self) -> str:
        """What a notebook shows: sizes, columns, missing files; never raises."""
        from dataset_rt.cards.cache import cache_card  # noqa: PLC0415 - notebooks only

        return cache_card(self)

    def __repr__(self) -> str:
        """Path, size and identity."""
        return (
            f"Cache({str(self.path)!r}, num_samples={self.num_samples}, cache_id={self.cache_id})"
        )


class Shard:
    """One shard file of a cache, from `Cache.shards()`.

    Attributes:
        index: Number of the shard, from 0.
    """

    index: int
    _native: NativeCache

    def __init__(self) -> None:
        """Refuse: use `Cache.shards()`."""
        raise TypeError("Shard is not built directly: call open_cache(path).shards()")

    @classmethod
    def _of(cls, native: NativeCache, index: int) -> Shard:
        shard = cls.__new__(cls)
        shard._native = native
        shard.index = index
        return shard

    def to_arrow(self) -> pa.Table:
        """Return the shard in the types of its file: `sample_id`, stored columns, `payload`.

        Returns:
            The table; a view of the mapped file once it was verified, when it is uncompressed.

        Raises:
            CorruptError: The file does not hold what the manifest promises.
        """
        return pa.table(self._native.shard(self.index))

    def __repr__(self) -> str:
        """Number and cache."""
        return f"Shard(index={self.index}, cache={self._native.path!r})"


def open_cache(path: AnyPath) -> Cache:
    """Open one cache for inspection, without threads.

    Args:
        path: The cache directory.

    Returns:
        A read-only view. Cost grows with the number of files, not of samples.

    Raises:
        TypeError: `path` is no path.
        NotFoundError: There is no cache; for a parent directory the message lists its caches.
        CorruptError: The manifest is damaged.
        UnsupportedError: The cache has a newer format.

    Example:
        >>> open_cache(cache).metadata()["position"].to_list()
        [0, 1]
    """
    return Cache._open(to_cache_path(path, "path"))

"""DatasetRuntime: owns the native threads, writes caches and opens datasets.

Knows nothing of files, formats or order: it checks arguments, calls, and sorts outcomes.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import NoReturn, Self, Unpack

from dataset_rt import _native
from dataset_rt.arguments import (
    AnyPath,
    to_config,
    to_count,
    to_directory,
    to_paths,
    to_sources,
)
from dataset_rt.config import ReaderConfig, ReaderOptions, WriterConfig
from dataset_rt.dataset import CachedDataset
from dataset_rt.errors import DatasetRTError, InvalidInputError
from dataset_rt.results import (
    CacheSourcesDatasetError,
    CacheSourcesDatasetResult,
    CacheSourcesDatasetSuccess,
    CacheWriteError,
    CacheWriteResult,
    CacheWriteSuccess,
)
from dataset_rt.sources import CacheSource
from dataset_rt.writing import write_all


class DatasetRuntime:
    """The native threads, and everything that needs them.

    Use it as a context manager, or call `close()`. A dataset keeps its runtime alive; after
    `close()` its datasets raise.

    Args:
        num_workers: Native threads, at least 1; `None` takes the CPUs this process may use
            (affinity and container limits). It never changes what is written or read.

    Raises:
        TypeError: `num_workers` is not an integer.
        InvalidInputError: it is out of range.

    Example:
        >>> with DatasetRuntime(num_workers=2) as runtime:
        ...     runtime.num_workers
        2
    """

    def __init__(self, num_workers: int | None = None) -> None:
        """See the class."""
        if num_workers is not None:
            num_workers = to_count(num_workers, "num_workers", minimum=1)
        self._native = _native.NativeRuntime(num_workers)

    @property
    def num_workers(self) -> int:
        """Number of native threads."""
        return self._native.num_workers

    def close(self) -> None:
        """End the native threads; calling it again does nothing."""
        self._native.close()

    def __enter__(self) -> Self:
        """Return the runtime itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the runtime."""
        self.close()

    def write_cache(
        self,
        sources: CacheSource | Sequence[CacheSource],
        path: AnyPath,
        *,
        writer_config: WriterConfig = WriterConfig(),
    ) -> list[CacheWriteResult]:
        """Write one immutable cache per source at `path / source.name`.

        Sources are iterated one after another on this thread, unless `writer_config` asks for
        several processes. A source that fails leaves no cache directory and does not stop the
        others. An existing cache is never overwritten or reused: it is a `CacheWriteError` with a
        `ConflictError`.

        Args:
            sources: One source, or a list of them with different names.
            path: Directory of the caches; made when missing.
            writer_config: Settings of writing.

        Returns:
            One result per source, in the order of `sources`.

        Raises:
            TypeError: An argument has the wrong type.
            InvalidInputError: No sources, a bad or repeated name, or a closed runtime; nothing
                was written.

        Example:
            >>> with DatasetRuntime() as runtime:
            ...     results = runtime.write_cache(Words(), tmp_path)
            >>> results[0].status
            'written'
        """
        return self._write(sources, path, writer_config, reuse=False)

    def cached_dataset(
        self, paths: AnyPath | Sequence[AnyPath], *, reader_config: ReaderConfig
    ) -> CachedDataset:
        """Open one or more caches as one dataset.

        Args:
            paths: Cache directories with equal stored schemas and different contents. Their order
                is the order of the table, and changes nothing about which samples a shuffled
                dataset draws.
            reader_config: Settings of reading.

        Returns:
            The dataset, with the untouched table active. Cost grows with the number of files, not
            of samples, unless `validate_cache` asks for a check of every byte.

        Raises:
            TypeError: An argument has the wrong type.
            InvalidInputError: No paths, schemas that differ, or the same content twice.
            NotFoundError: There is no cache at a path.
            CorruptError: A cache is damaged.
            UnsupportedError: A cache has a newer format.

        Example:
            >>> with DatasetRuntime() as runtime:
            ...     dataset = runtime.cached_dataset(cache, reader_config=ReaderConfig(seed=1))
            ...     len(dataset)
            2
        """
        config = to_config(reader_config, ReaderConfig, "reader_config")
        return self._open(to_paths(paths, "paths"), config)

    def from_cache_sources(
        self,
        sources: CacheSource | Sequence[CacheSource],
        path: AnyPath,
        *,
        reader_config: ReaderConfig,
        writer_config: WriterConfig = WriterConfig(),
    ) -> CacheSourcesDatasetResult:
        """Reuse the complete caches of `sources`, write the missing ones, open all as one dataset.

        A complete cache is reused without touching its source. It is stale when its fingerprint
        or a declared schema differs from the source's; `writer_config.on_stale` decides then.

        Args:
            sources: One source, or a list of them with different names.
            path: Directory of the caches; made when missing.
            reader_config: Settings of reading.
            writer_config: Settings of writing.

        Returns:
            `CacheSourcesDatasetSuccess` when at least one cache loaded, `CacheSourcesDatasetError`
            when none did or when the loaded ones cannot form one dataset. Both carry one result
            per source, in the order of `sources`.

        Raises:
            TypeError: An argument has the wrong type.
            InvalidInputError: No sources, a bad or repeated name, or a closed runtime; nothing
                was written.

        Example:
            >>> runtime = DatasetRuntime()
            >>> match runtime.from_cache_sources(
            ...     Words(), tmp_path, reader_config=ReaderConfig(seed=1)
            ... ):
            ...     case CacheSourcesDatasetSuccess(dataset, results):
            ...         print(len(dataset), results[0].status)
            ...     case CacheSourcesDatasetError(results, message):
            ...         print(message)
            2 written
        """
        config = to_config(reader_config, ReaderConfig, "reader_config")
        results = self._write(sources, path, writer_config, reuse=True)
        loaded = [str(result.path) for result in results if isinstance(result, CacheWriteSuccess)]
        if not loaded:
            return CacheSourcesDatasetError(results, _no_cache_message(results))
        try:
            return CacheSourcesDatasetSuccess(self._open(loaded, config), results)
        except DatasetRTError as error:
            return CacheSourcesDatasetError(results, str(error))

    def _write(
        self, sources: object, path: object, writer_config: object, *, reuse: bool
    ) -> list[CacheWriteResult]:
        named = to_sources(sources)
        directory = to_directory(path, "path")
        config = to_config(writer_config, WriterConfig, "writer_config")
        if self._native.closed:
            raise InvalidInputError("the runtime is closed: make a new DatasetRuntime")
        names = _native.check_source_names([name for _, name in named])
        sources = [source for source, _ in named]
        results, notes = write_all(
            self._native, sources, names, directory, config=config, reuse=reuse
        )
        # At the end: a filter may make an exception of a warning, and all sources count.
        for note in notes:
            warnings.warn(note, stacklevel=3)
        return results

    def _open(self, paths: list[str], config: ReaderConfig) -> CachedDataset:
        native = self._native.open_dataset(paths, config._native_options())
        return CachedDataset._wrap(native, config, self)

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: threads belong to one process."""
        raise TypeError("a DatasetRuntime cannot be pickled: make one in each process")

    def __repr__(self) -> str:
        """Worker count, or that it is closed."""
        if self._native.closed:
            return "DatasetRuntime(closed)"
        return f"DatasetRuntime(num_workers={self.num_workers})"


def open_dataset(
    paths: AnyPath | Sequence[AnyPath],
    *,
    seed: int = 0,
    shuffle: bool = False,
    **reader_config: Unpack[ReaderOptions],
) -> CachedDataset:
    """Open caches in one line, for notebooks; the dataset owns a runtime of its own.

    Args:
        paths: One cache directory or a list of them.
        seed: See `ReaderConfig`.
        shuffle: See `ReaderConfig`; here the default is table order.
        **reader_config: Further fields of `ReaderConfig`.

    Returns:
        The dataset; `dataset.runtime.close()` ends its threads, and so does forgetting it.

    Raises:
        TypeError: An argument is no field of `ReaderConfig`.
        pydantic.ValidationError: A field of `ReaderConfig` is wrong (a `ValueError`).
        DatasetRTError: As `DatasetRuntime.cached_dataset`.

    Example:
        >>> [sample.data for sample in open_dataset(cache)]
        [b'a', b'b']
    """
    unknown = reader_config.keys() - ReaderConfig.model_fields.keys()
    if unknown:
        raise TypeError(
            f"open_dataset() takes no {', '.join(sorted(unknown))}: expected fields of "
            f"ReaderConfig, {', '.join(ReaderConfig.model_fields)}"
        )
    config = ReaderConfig(seed=seed, shuffle=shuffle, **reader_config)
    return DatasetRuntime().cached_dataset(paths, reader_config=config)


def _no_cache_message(results: list[CacheWriteResult]) -> str:
    errors = [result for result in results if isinstance(result, CacheWriteError)]
    lines = [f"{error.source_name}: {error.message}" for error in errors]
    if len(lines) == 1:
        return f"no cache to load; {lines[0]}"
    return f"no cache to load, all {len(lines)} sources failed:\n" + "\n".join(lines)

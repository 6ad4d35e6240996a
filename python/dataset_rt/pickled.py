"""Datasets in pickles: what one carries, and how it becomes a dataset again.

Knows nothing of what is in a table: the compiled module hands it over.
"""

from __future__ import annotations

import os
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, NamedTuple

from dataset_rt import _native

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataset_rt.config import ReaderConfig
    from dataset_rt.dataset import CachedDataset
    from dataset_rt.runtime import DatasetRuntime


class Memory(NamedTuple):
    """Where the table lies, which its receiver maps."""

    name: str
    process: int
    descriptor: int
    inherited: Any | None
    """The descriptor on its way to a process that is being started; `None` for other pickles."""


class Pages(NamedTuple):
    """The numbers that tell where the streams of the sender and of its parents stand."""

    inherited: list[tuple[Any, int]]
    """Descriptors on their way, and numbers of pages there; nearest first."""
    table: int


class Sent(NamedTuple):
    """All that a pickled dataset is."""

    paths: list[str]
    contents: list[str]
    config: ReaderConfig
    num_workers: int
    cursor: tuple[int, int, int, bool, int]
    rank: tuple[int, int, int | None, bool]
    memory: Memory | None
    pages: Pages | None


def reduced(dataset: CachedDataset) -> tuple[Callable[[Sent], CachedDataset], tuple[Sent]]:
    """Return what `pickle` is to keep of a dataset: a few hundred bytes, whatever its table."""
    is_started = get_spawning_popen() is not None
    paths, contents, cursor, memory, pages = dataset._native.hand_over(is_started)
    sent = Sent(
        [os.fspath(path) for path in paths],
        contents,
        dataset.reader_config,
        dataset.runtime.num_workers,
        cursor,
        dataset._native.rank,
        None if memory is None else _sent_memory(*memory, is_started),
        None if pages is None else _sent_pages(*pages),
    )
    return restored, (sent,)


def restored(sent: Sent) -> CachedDataset:
    """Open the same caches and take over table and position.

    Raises:
        NotFoundError: A cache, or the memory with the table, is not there any more.
        ConflictError: A cache holds other contents now.
    """
    from dataset_rt.dataset import CachedDataset  # noqa: PLC0415 - it imports this module

    runtime = _shared_runtime(sent.num_workers)
    memory: tuple[int | None, int, str] | None = None
    pages: tuple[list[tuple[int, int]], int] | None = None
    received: list[int] = []
    try:
        if sent.memory is not None:
            name, process, descriptor, inherited = sent.memory
            if inherited is None:
                memory = (process, descriptor, name)
            else:
                received.append(inherited.detach())
                memory = (None, received[-1], name)
        if sent.pages is not None:
            pages = ([], sent.pages.table)
            for inherited, number in sent.pages.inherited:
                received.append(inherited.detach())
                pages[0].append((received[-1], number))
        native = runtime._native.take_over(
            sent.paths,
            sent.config._native_options(),
            sent.contents,
            sent.cursor,
            sent.rank,
            memory,
            pages,
        )
    finally:
        for descriptor in received:
            os.close(descriptor)
    return CachedDataset._wrap(native, sent.config, runtime)


def _sent_memory(descriptor: int, process: int, name: str, is_started: bool) -> Memory:
    inherited = reduction.DupFd(descriptor) if is_started else None
    return Memory(name, process, descriptor, inherited)


def _sent_pages(places: list[tuple[int, int]], table: int) -> Pages:
    return Pages([(reduction.DupFd(descriptor), number) for descriptor, number in places], table)


_runtimes: dict[int, DatasetRuntime] = {}


def _shared_runtime(num_workers: int) -> DatasetRuntime:
    """Return the one runtime of this process for so many threads, at most one per usable CPU.

    No lock: a fork could copy it while it is held. Two threads may make two runtimes, of which one
    is soon forgotten.
    """
    from dataset_rt.runtime import DatasetRuntime  # noqa: PLC0415 - it imports datasets

    count = max(1, min(num_workers, _native.cpus_usable()))
    runtime = _runtimes.get(count)
    if runtime is None or runtime._native.closed:
        runtime = _runtimes[count] = DatasetRuntime(count)
    return runtime

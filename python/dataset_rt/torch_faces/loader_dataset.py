"""The dataset a loader reads: a CachedDataset that also reads batches by task, in any process."""

from __future__ import annotations

import copy
import logging
import os
import pickle
from collections.abc import Iterable
from multiprocessing.context import get_spawning_popen
from typing import Any, Self

from torch.utils.data import get_worker_info

from dataset_rt.dataset import CachedDataset
from dataset_rt.torch_faces.batch_reader import BatchReader, ReadBatch
from dataset_rt.torch_faces.batch_task import BatchTask

_LOGGER = logging.getLogger("dataset_rt")


class LoaderDataset(CachedDataset):
    """A `CachedDataset` of its own for one loader: table, epoch and place in the stream.

    It is the loader's `dataset`: a new table is given to it by `loader.dataset.update_metadata`.
    """

    _has_seeds: bool
    _for_workers: CachedDataset
    _reader: BatchReader | None

    @classmethod
    def of(cls, dataset: CachedDataset, *, has_seeds: bool) -> Self:
        """Take over `dataset`, which nobody else uses."""
        own = cls.__new__(cls)
        own.__dict__.update(dataset.__dict__)
        own._has_seeds = has_seeds
        own._for_workers = dataset
        own._reader = None
        return own

    def reader_of(self, dataset: CachedDataset) -> BatchReader:
        """Return a reader of batches of `dataset`, a copy of this one."""
        return BatchReader(dataset._native, has_seeds=self._has_seeds)

    def give_to_workers(self, dataset: CachedDataset) -> None:
        """Have workers that are started from now on read `dataset`, a copy of this one."""
        self._for_workers = dataset

    def __getitems__(self, indices: Iterable[int] | BatchTask) -> Any:
        """Return the batch of a task, or samples as `CachedDataset` does."""
        if not isinstance(indices, BatchTask):
            return super().__getitems__(indices)
        reader = indices.reader or self._reader
        if reader is None:
            # In a forked worker.
            reader = self._reader = self.reader_of(self._for_workers)
            _note_start(self._for_workers)
        return reader.read(indices)

    def __reduce__(self) -> Any:
        """Be sent to a worker that is started, or pickled as any other dataset."""
        if get_spawning_popen() is None:
            return copy.copy(self).__reduce__()
        return _DatasetToOpen, (pickle.dumps(self._for_workers), self._has_seeds)


class _DatasetToOpen:
    """What a started worker gets: opened at the first batch, where an error reaches the trainer."""

    def __init__(self, pickled: bytes, has_seeds: bool) -> None:
        self._pickled = pickled
        self._has_seeds = has_seeds
        self._reader: BatchReader | None = None

    def __getitems__(self, task: BatchTask) -> ReadBatch:
        if self._reader is None:
            dataset: CachedDataset = pickle.loads(self._pickled)  # noqa: S301 - our parent made it
            # A copy follows nobody: what becomes of the parent's dataset is not its business.
            self._reader = BatchReader(dataset._native.copy(), has_seeds=self._has_seeds)
            _note_start(dataset)
        return self._reader.read(task)


def _note_start(dataset: CachedDataset) -> None:
    worker = get_worker_info()
    if worker is not None:
        _LOGGER.info(
            "loader worker %d of %d started: process %d, native threads %d",
            worker.id,
            worker.num_workers,
            os.getpid(),
            dataset.runtime.num_workers,
        )

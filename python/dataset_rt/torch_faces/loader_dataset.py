"""The dataset a loader reads: a CachedDataset that also reads batches by task, in any process."""

from __future__ import annotations

import itertools
import json
import logging
import os
import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, Self

from torch.utils.data import get_worker_info

from dataset_rt.dataset import CachedDataset
from dataset_rt.errors import InvalidInputError
from dataset_rt.torch_faces.batch_reader import BatchReader, ReadBatch
from dataset_rt.torch_faces.batch_task import BatchTask
from dataset_rt.torch_faces.lost_batch import LostBatch

if TYPE_CHECKING:
    from dataset_rt.arguments import AnyPath
    from dataset_rt.frames import AnyArrowTable
    from dataset_rt.torch_faces.loader_iterator import LoaderIterator

_LOGGER = logging.getLogger("dataset_rt")
_NUMBERS = itertools.count(1)


class LoaderDataset(CachedDataset):
    """A `CachedDataset` of its own for one loader: table, epoch and place in the stream.

    It is the loader's `dataset`: a new table is given to it by `loader.dataset.update_metadata`.

    Attributes:
        title: Names the loader in the log of its process.
    """

    title: str
    _has_seeds: bool
    _for_workers: CachedDataset
    _reader: BatchReader | None
    _samples_per_epoch: int | None
    _starts_workers: bool
    _unordered: LoaderIterator | None

    @classmethod
    def of(
        cls, dataset: CachedDataset, *, has_seeds: bool, samples_per_epoch: int | None = None
    ) -> Self:
        """Take over `dataset`, which nobody else uses."""
        own = cls.__new__(cls)
        own.__dict__.update(dataset.__dict__)
        own.title = _next_title(dataset)
        own._has_seeds = has_seeds
        own._for_workers = dataset
        own._reader = None
        own._samples_per_epoch = samples_per_epoch
        if samples_per_epoch is not None:
            own.set_epoch_len(samples_per_epoch)
        own._starts_workers = False
        own._unordered = None
        return own

    def reader_of(self, dataset: CachedDataset) -> BatchReader:
        """Return a reader of batches of `dataset`, a copy of this one."""
        return BatchReader(dataset._native, has_seeds=self._has_seeds)

    def give_to_workers(self, dataset: CachedDataset) -> None:
        """Have workers that are started from now on read `dataset`, a copy of this one."""
        self._for_workers = dataset

    @contextmanager
    def sent_to_workers(self) -> Iterator[None]:
        """Have processes that are started meanwhile be workers of the loader."""
        self._starts_workers = True
        try:
            yield
        finally:
            self._starts_workers = False

    def refuse_states_of(self, iterator: LoaderIterator | None) -> None:
        """Refuse states while `iterator` gives batches in no fixed order."""
        self._unordered = iterator

    def update_metadata(self, df: AnyArrowTable, *, edited: Iterable[str] = ()) -> None:
        """Replace the table as `CachedDataset`; `samples_per_epoch` of the loader stays."""
        super().update_metadata(df, edited=edited)
        if self._samples_per_epoch is not None:
            self.set_epoch_len(self._samples_per_epoch)

    def state_dict(self) -> dict[str, int | str | bool]:
        """Return where the trainer stands, as `CachedDataset.state_dict`.

        Raises:
            InvalidInputError: Inside an epoch of a loader with `in_order=False`, whose batches
                come in no fixed order.
        """
        self._refuse_no_place()
        return super().state_dict()

    def save_state(self, path: AnyPath) -> None:
        """Save table and place, as `CachedDataset.save_state`.

        Raises:
            InvalidInputError: As `state_dict`.
        """
        self._refuse_no_place()
        super().save_state(path)

    def _refuse_no_place(self) -> None:
        if self._unordered is None or self._unordered.is_over:
            return
        _, begin, _, _ = self._native.next_window()
        # Whoever moved the dataset meanwhile stands where the next iterator begins.
        if json.loads(self._native.state())["position"] != begin:
            raise InvalidInputError(
                "with in_order=False an epoch has no place to resume at: save the state between "
                "epochs, or leave in_order=True"
            )

    def __getitems__(self, indices: Iterable[int] | BatchTask) -> Any:
        """Return the batch of a task, or samples as `CachedDataset` does."""
        if not isinstance(indices, BatchTask):
            return super().__getitems__(indices)
        reader = indices.reader or self._reader
        try:
            if reader is None:
                # In a forked worker.
                reader = self._reader = self.reader_of(self._for_workers)
                _note_start(self.title, self._for_workers)
            return reader.read(indices)
        except Exception as error:  # noqa: BLE001 - the trainer raises it
            return LostBatch.of(indices.number, error)

    def __reduce__(self) -> Any:
        """Be sent to a worker of the loader, or pickled as any other dataset."""
        if get_spawning_popen() is None or not self._starts_workers:
            return super().__reduce__()
        return _DatasetToOpen, (self.title, pickle.dumps(self._for_workers), self._has_seeds)


class _DatasetToOpen:
    """What a started worker gets: opened at the first batch, where an error reaches the trainer."""

    def __init__(self, title: str, pickled: bytes, has_seeds: bool) -> None:
        self._title = title
        self._pickled = pickled
        self._has_seeds = has_seeds
        self._reader: BatchReader | None = None

    def __getitems__(self, task: BatchTask) -> ReadBatch | LostBatch:
        try:
            return self._reader_here().read(task)
        except Exception as error:  # noqa: BLE001 - the trainer raises it
            return LostBatch.of(task.number, error)

    def _reader_here(self) -> BatchReader:
        if self._reader is None:
            dataset: CachedDataset = pickle.loads(self._pickled)  # noqa: S301 - our parent made it
            # A copy follows nobody: what becomes of the parent's dataset is not its business.
            self._reader = BatchReader(dataset._native.copy(), has_seeds=self._has_seeds)
            _note_start(self._title, dataset)
        return self._reader


def _next_title(dataset: CachedDataset) -> str:
    first, *others = (path.name for path in dataset.cache_paths)
    more = f" and {len(others)} more" if others else ""
    return f"loader {next(_NUMBERS)} ({first}{more})"


def _note_start(title: str, dataset: CachedDataset) -> None:
    worker = get_worker_info()
    if worker is not None:
        _LOGGER.info(
            "%s: worker %d of %d started: process %d, native threads %d",
            title,
            worker.id,
            worker.num_workers,
            os.getpid(),
            dataset.runtime.num_workers,
        )

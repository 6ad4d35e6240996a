"""A DataLoader in the global order: claims an epoch per iteration, in the trainer's process.

Reads nothing itself: PyTorch hands tasks to workers, and their batches back in order.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from dataset_rt.errors import ConflictError, InvalidInputError
from dataset_rt.torch_faces.batch_task import BatchTasks
from dataset_rt.torch_faces.loader_iterator import LoaderIterator
from dataset_rt.torch_faces.source_watch import SourceWatch
from dataset_rt.torch_faces.stack_level import level_of_caller

if TYPE_CHECKING:
    from dataset_rt._native import NativeBatching
    from dataset_rt.dataset import CachedDataset
    from dataset_rt.torch_faces.batch_maker import BatchMaker
    from dataset_rt.torch_faces.loader_dataset import LoaderDataset

_LOGGER = logging.getLogger("dataset_rt")


class DatasetLoader(DataLoader):  # type: ignore[misc] # without PyTorch its classes are Any
    """Batches of a dataset in its global order; made by `CachedDataset.to_torch_dataloader`.

    Each `iter(loader)` claims the next epoch, in the trainer's process: any number of workers,
    started in any way, persistent or not, delivers the same batches. An iterator keeps the table
    it began with; workers that persist are started anew when the table was replaced.

    Attributes:
        dataset: The `CachedDataset` it reads: its own, with a table, an epoch and a place in the
            stream of its own. Give later tables to `loader.dataset.update_metadata`.
        batch_size: Samples of this rank in a batch.
        num_workers: Worker processes.
    """

    dataset: LoaderDataset

    def __init__(
        self,
        source: CachedDataset,
        dataset: LoaderDataset,
        *,
        batch_size: int,
        num_workers: int,
        maker: BatchMaker,
        options: dict[str, Any],
    ) -> None:
        """See the class; `dataset` was made of `source`, for this loader alone."""
        _, _, _, drop_last = dataset._native.rank
        self._planned = _PlannedBatches(batch_size, drop_last)
        self._watch = SourceWatch(source, dataset)
        self._snapshot: CachedDataset | None = None
        self._newest: LoaderIterator | None = None
        self._iterations = 0
        # The epoch that a loaded state stands in, until something is read.
        self._loaded: int | None = None
        super().__init__(
            dataset,
            batch_sampler=self._planned,
            num_workers=num_workers,
            collate_fn=maker,
            **options,
        )
        # DataLoader says None and False where it is given a batch sampler.
        self.__dict__["batch_size"] = batch_size
        self.__dict__["drop_last"] = drop_last

    def __len__(self) -> int:
        """Return the batches of a whole epoch, on every rank the same."""
        start, _, end, _ = self.dataset._native.next_window()
        # Counted from 0: it is the length that matters, and behind the stream is no epoch.
        return self.dataset._native.batching(0, end - start, self._planned.batch_size).batches

    def __iter__(self) -> LoaderIterator:
        """Claim the next epoch, or what is left of one after `load_state_dict`, and read it.

        Where workers cannot be started nothing is claimed.
        """
        self._warn_of_unheard()
        self._end_newest()
        # What this iteration reads, whatever becomes of the dataset meanwhile.
        snapshot = copy.copy(self.dataset)
        # Claimed of a copy: while workers are started, the epoch is nobody's yet.
        batching = snapshot._native.copy().claim_batching(self._planned.batch_size)
        batches, tasks = self._start(batching, snapshot)
        claimed = self.dataset._native.claim_batching(self._planned.batch_size)
        if claimed.window != batching.window:
            # Another thread moved the dataset meanwhile.
            batches, tasks = self._start(claimed, snapshot)
        is_in_order = self.in_order or not self.num_workers
        self._loaded = None
        self._newest = LoaderIterator(
            batches,
            claimed,
            tasks=None if self.num_workers else tasks,
            snapshot=snapshot,
            title=self.dataset.title,
            epoch=self._note_start(claimed),
            in_order=is_in_order,
        )
        self.dataset.refuse_states_of(None if is_in_order else self._newest)
        return self._newest

    def _start(
        self, batching: NativeBatching, snapshot: CachedDataset
    ) -> tuple[Iterator[Any], BatchTasks]:
        """Have PyTorch read `batching`: its workers get their first tasks at once."""
        self._give_to_workers(snapshot)
        self._iterations += 1
        tasks = BatchTasks(
            batching,
            iteration=self._iterations,
            batch_size=self._planned.batch_size,
            lanes=max(1, self.num_workers),
            reader=None if self.num_workers else self.dataset.reader_of(snapshot),
        )
        self._planned.tasks = tasks
        try:
            with self.dataset.sent_to_workers():
                return super().__iter__(), tasks
        except BaseException:
            # Workers that persist are of no use when they did not begin anew together.
            self._iterator = None
            raise
        finally:
            self._planned.tasks = None

    @property
    def epoch(self) -> int:
        """Number of the epoch that the next iterator reads, from 0."""
        return self.dataset.epoch

    def set_epoch(self, epoch: int) -> None:
        """Have the next iterator read this epoch.

        A training loop need not: epochs advance by themselves. It may: the epoch that a loaded
        state stands in keeps its place there, any other begins at its start.
        """
        start, begin, _, next_epoch = self.dataset._native.next_window()
        if self._loaded is not None and epoch < self._loaded:
            warnings.warn(
                f"epoch {epoch} was over when the state was saved that this loader goes on from, "
                f"and is read once more: go on with range(loader.epoch, ...), from {self._loaded}",
                stacklevel=level_of_caller(),
            )
        self._loaded = None if epoch != next_epoch else self._loaded
        if begin == start or epoch != next_epoch:
            self.dataset.set_epoch(epoch)
        self.dataset._note_said(places=1)

    def state_dict(self) -> dict[str, int | str | bool]:
        """Return where the trainer stands: behind the batches that the newest iterator gave it.

        Batches that workers made ahead do not count. It is a state of `CachedDataset.state_dict`:
        the same on all ranks after equally many batches, and any dataset or loader with the same
        contents, table, seed and sampling takes it, with any number of workers and ranks.

        Raises:
            InvalidInputError: Inside an epoch of a loader with `in_order=False`, whose batches
                come in no fixed order.
        """
        return self.dataset.state_dict()

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Have the next iterator go on where `state` was taken.

        Raises:
            InvalidInputError: As `CachedDataset.load_state_dict`; nothing was changed.
        """
        self.dataset.load_state_dict(state)
        self._loaded = self.epoch

    def _repr_html_(self) -> str:
        """What a notebook shows: batches, workers, and the dataset."""
        from dataset_rt.cards.dataset import loader_card  # noqa: PLC0415 - notebooks only

        return loader_card(self)

    def __repr__(self) -> str:
        """Batches, workers, and the dataset."""
        return (
            f"DatasetLoader({len(self)} batches per epoch, batch_size={self.batch_size}, "
            f"num_workers={self.num_workers}, dataset={self.dataset!r})"
        )

    def _note_start(self, batching: NativeBatching) -> int:
        start, begin, end, epoch = batching.window or (0, 0, 0, 0)
        rank, world_size, _, _ = self.dataset._native.rank
        resumed = f"resumed at stream position {begin} of"
        began = resumed if begin > start else "started: stream positions"
        _LOGGER.info(
            "%s: epoch %d %s [%d, %d), %d batches, rank %d of %d, %d workers",
            self.dataset.title,
            epoch,
            began,
            start,
            end,
            batching.batches,
            rank,
            world_size,
            self.num_workers,
        )
        return epoch

    def _end_newest(self) -> None:
        """Say what was left unread, and free workers that persist for the next iterator."""
        if self._newest is None:
            return
        self._newest.note_end()
        if self._newest.is_broken:
            self._iterator = None
        if self.persistent_workers:
            reason = (
                "this iterator was ended by a newer one of its loader: workers that persist serve "
                "one iterator at a time"
            )
            self._newest.end(ConflictError(reason))

    def _give_to_workers(self, snapshot: CachedDataset) -> None:
        """Have workers read `snapshot`; those that persist are started anew for another table."""
        if self.persistent_workers and self._snapshot is not None:
            if snapshot._native.has_table_of(self._snapshot._native):
                return
            self._iterator = None
        self._snapshot = snapshot
        self.dataset.give_to_workers(snapshot)

    def _warn_of_unheard(self) -> None:
        """Say once what the dataset the loader was made of was told and the loader was not."""
        unheard = self._watch.unheard(self.dataset)
        if unheard is not None:
            warnings.warn(unheard, stacklevel=level_of_caller())


class _PlannedBatches:
    """The batch sampler of a loader: gives tasks only while the loader starts an iteration."""

    def __init__(self, batch_size: int, drop_last: bool) -> None:
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.tasks: BatchTasks | None = None

    def __iter__(self) -> BatchTasks:
        if self.tasks is None:
            raise InvalidInputError(
                "the batches of this loader are planned by the loader: iterate over it alone, and "
                "do not have a framework build another DataLoader from its parts (ranks are "
                "divided already: pass rank and world_size)"
            )
        # PyTorch asks more than once before it begins.
        self.tasks.number = 0
        return self.tasks

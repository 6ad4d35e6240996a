"""One batch to read, as the trainer's process tells it to whoever reads it; knows no PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dataset_rt._native import NativeBatching
    from dataset_rt.torch_faces.batch_reader import BatchReader


class BatchTask(NamedTuple):
    """All that a worker is told of a batch.

    Attributes:
        iteration: Number of the iteration it belongs to: tasks of another do not follow it.
        number: Which batch of the iteration, from 0.
        begin: Stream position of its first global step.
        end: Stream position behind the iteration.
        batch_size: Local samples of a batch.
        lanes: Readers that take batches in turn.
        reader: Who reads it in the trainer's process; a worker has its own.
    """

    iteration: int
    number: int
    begin: int
    end: int
    batch_size: int
    lanes: int
    reader: BatchReader | None


class BatchTasks(Iterator[BatchTask]):
    """The tasks of all batches, in order.

    Attributes:
        number: Which batch is next; set it to go back.
    """

    def __init__(
        self,
        batching: NativeBatching,
        *,
        iteration: int,
        batch_size: int,
        lanes: int,
        reader: BatchReader | None,
    ) -> None:
        """See `BatchTask`."""
        self.number = 0
        self._batching = batching
        self._batches = batching.batches
        self._end = batching.begin_of(self._batches)
        self._iteration = iteration
        self._batch_size = batch_size
        self._lanes = lanes
        self._reader = reader

    def __next__(self) -> BatchTask:
        """Return the next task."""
        number = self.number
        if number >= self._batches:
            raise StopIteration
        self.number = number + 1
        begin = self._batching.begin_of(number)
        return BatchTask(
            self._iteration, number, begin, self._end, self._batch_size, self._lanes, self._reader
        )

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


def tasks_of(
    batching: NativeBatching,
    *,
    iteration: int,
    batch_size: int,
    lanes: int,
    reader: BatchReader | None,
) -> Iterator[BatchTask]:
    """Give the tasks of all batches, in order."""
    end = batching.begin_of(batching.batches)
    for number in range(batching.batches):
        begin = batching.begin_of(number)
        yield BatchTask(iteration, number, begin, end, batch_size, lanes, reader)

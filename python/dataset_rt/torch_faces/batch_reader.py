"""Reads batches in one process, ahead of demand; decides nothing about their order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from dataset_rt.errors import InternalError
from dataset_rt.samples import CachedSample

if TYPE_CHECKING:
    from dataset_rt._native import NativeDataset
    from dataset_rt.torch_faces.batch_task import BatchTask


class ReadBatch(NamedTuple):
    """The samples of one task.

    Attributes:
        number: Which batch it is.
        samples: This rank's samples in it; there may be none.
        positions: Their stream positions.
        seeds: Their position seeds, where they are wanted.
    """

    number: int
    samples: list[CachedSample]
    positions: list[int]
    seeds: list[int]


class BatchReader:
    """Reads one batch after another from a dataset whose table does not change meanwhile.

    Each task says by itself what to read. Tasks of one reader usually follow each other, each
    `lanes` batches behind the last: the native iterator is kept for that, since it reads ahead
    (as far as `prefetch_size` and `prefetch_bytes` allow). Any other task opens a new one.
    """

    def __init__(self, native: NativeDataset, *, has_seeds: bool = False) -> None:
        """See the class; `has_seeds` asks for the seed of each position."""
        self._native = native
        self._has_seeds = has_seeds
        self._samples: Iterator[CachedSample] = iter(())
        self._follows: tuple[int, int] | None = None

    def read(self, task: BatchTask) -> ReadBatch:
        """Return a batch.

        Raises:
            CorruptError: A sample is damaged; the message names it. The batch is lost, those
                behind it are not.
        """
        batching = self._native.batching(task.begin, task.end, task.batch_size)
        positions = batching.positions_of(0)
        samples = self._take(task, batching.rows_full, len(positions)) if positions else []
        seed_of = self._native.position_seed
        seeds = [seed_of(position) for position in positions] if self._has_seeds else []
        return ReadBatch(task.number, samples, positions, seeds)

    def _take(self, task: BatchTask, rows_full: int, rows: int) -> list[CachedSample]:
        if self._follows != (task.iteration, task.number):
            self._samples = self._native.window_samples(
                task.begin, task.end, 0, task.lanes, rows_full
            )
        # Until the batch is whole, nothing follows: after an error the next task begins anew.
        self._follows = None
        samples = list(islice(self._samples, rows))
        if len(samples) != rows:
            raise InternalError(
                f"batch {task.number} at stream position {task.begin} has {len(samples)} samples; "
                f"expected {rows}"
            )
        self._follows = (task.iteration, task.number + task.lanes)
        return samples

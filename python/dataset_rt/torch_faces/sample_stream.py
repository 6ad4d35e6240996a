"""A dataset as PyTorch's IterableDataset: one epoch, dealt out to the workers in turn."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.utils.data import IterableDataset, get_worker_info

from dataset_rt.arguments import to_json
from dataset_rt.errors import ConflictError, CorruptError, InvalidInputError
from dataset_rt.samples import CachedSample
from dataset_rt.torch_faces.batch_reader import BatchReader
from dataset_rt.torch_faces.batch_task import BatchTask

if TYPE_CHECKING:
    from dataset_rt._native import NativeDataset
    from dataset_rt.dataset import CachedDataset

_LOGGER = logging.getLogger("dataset_rt")
_FORMAT = "dataset_rt.sample_stream"
_VERSION = 1


class _Lane(NamedTuple):
    """One reader of those that take items in turn."""

    number: int
    lanes: int

    @classmethod
    def here(cls) -> _Lane:
        worker = get_worker_info()
        return cls(0, 1) if worker is None else cls(worker.id, worker.num_workers)


class SampleStream(IterableDataset):  # type: ignore[misc] # without PyTorch its classes are Any
    """One epoch of a dataset for a `DataLoader`; see `CachedDataset.to_torch_iterable_dataset`.

    Each iteration reads the epoch last given to `set_epoch`, in the trainer's process, also where
    workers persist; none advances by itself. Worker `w` of `W` makes items `w`, `w + W`, ..:
    samples, or whole batches (lists of `CachedSample`) with `batch_size`. `DataLoader` asks its
    workers in turn, so with `batch_size=None` there the order is the global one.

    `state_dict` and `load_state_dict` are called by torchdata's `StatefulDataLoader`, in each
    worker: a state belongs to the worker and the number of workers that it was taken with.

    Attributes:
        dataset: What it reads; `dataset.set_epoch` is the same as `set_epoch`.
        batch_size: Samples of this rank in a batch, or `None` for single samples.
    """

    def __init__(self, dataset: CachedDataset, batch_size: int | None) -> None:
        """See the class."""
        self.dataset = dataset
        self.batch_size = batch_size
        self._newest: _Iteration | None = None
        self._loaded: _Iteration | None = None

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration read this epoch; as `CachedDataset.set_epoch`."""
        self.dataset.set_epoch(epoch)

    def __len__(self) -> int:
        """Return the items of a whole epoch, all workers together.

        A `DataLoader` that makes batches itself in several workers gives more than it computes
        from this: each worker ends with a short one.
        """
        native = self.dataset._native
        start, _, end, _ = native.next_window()
        # Counted from 0: it is the length that matters, and behind the stream is no epoch.
        batching = native.batching(0, end - start, self.batch_size or _rows_per_step(native))
        return batching.rows if self.batch_size is None else batching.batches

    def __iter__(self) -> Iterator[Any]:
        """Return this worker's items of the epoch.

        A worker that cannot read the epoch (its table was replaced, for example) says so at the
        first item: PyTorch hands that on to the trainer, but not what is raised here.
        """
        try:
            iteration = self._loaded or _Iteration.of_next_epoch(self)
        except Exception as error:
            if get_worker_info() is None:
                raise
            return _refusing(error)
        self._loaded = None
        self._newest = iteration
        _LOGGER.info(
            "sample stream of epoch %d started: worker %d of %d",
            iteration.epoch,
            *iteration.lane,
        )
        return iteration

    def state_dict(self) -> dict[str, Any]:
        """Return where this process's newest iteration stands, as JSON can hold it."""
        iteration = self._newest or self._loaded or _Iteration.of_next_epoch(self)
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "dataset": json.loads(iteration.start),
            "batch_size": self.batch_size,
            "worker": iteration.lane.number,
            "workers": iteration.lane.lanes,
            "taken": iteration.taken,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have this process's next iteration go on where `state` was taken.

        Raises:
            TypeError: `state` is no mapping.
            InvalidInputError: It is no such state, of another worker, number of workers or
                batch size, or of a dataset with another order.
        """
        lane = _Lane.here()
        expected = {
            "format": _FORMAT,
            "version": _VERSION,
            "batch_size": self.batch_size,
            "workers": lane.lanes,
            "worker": lane.number,
        }
        if not isinstance(state, Mapping):
            raise TypeError(f"state must be a dict, found {type(state).__name__}")
        for key, value in expected.items():
            found = state.get(key, "missing")
            if found != value:
                raise InvalidInputError(
                    f"the state does not fit this sample stream: {key} is {found!r}, expected "
                    f"{value!r}. It must be loaded with the worker count and batch_size it was "
                    "saved with; to_torch_dataloader has states for any"
                )
        taken = state.get("taken")
        if type(taken) is not int or taken < 0:
            raise InvalidInputError(f"taken is {taken!r} in the state; expected an integer from 0")
        copy = self.dataset._native.copy()
        copy.load_state(to_json(state.get("dataset"), "state['dataset']"))
        self._loaded = _Iteration(copy, self.batch_size, lane, taken)
        self._newest = None


class _Iteration(Iterator[Any]):
    """What one process reads of one epoch, from a copy that nobody moves or changes."""

    def __init__(
        self, native: NativeDataset, batch_size: int | None, lane: _Lane, taken: int
    ) -> None:
        self.lane = lane
        self.taken = taken
        self.start = native.state()
        _, begin, end, self.epoch = native.next_window()
        self._native = native
        self._batch_size = batch_size or _rows_per_step(native)
        self._batching = native.batching(begin, end, self._batch_size)
        if batch_size is None:
            self._next_item: Callable[[], Any] = self._open_samples(end).__next__
        else:
            self._next_item = partial(self._read_batch, BatchReader(native))

    @classmethod
    def of_next_epoch(cls, stream: SampleStream) -> _Iteration:
        return cls(stream.dataset._native.copy(), stream.batch_size, _Lane.here(), 0)

    def __next__(self) -> Any:
        try:
            item = self._next_item()
        except (CorruptError, ConflictError):
            # Whoever goes on gets what is behind it.
            self.taken += 1
            raise
        self.taken += 1
        return item

    @property
    def _number(self) -> int:
        """Which of all items is this lane's next."""
        return self.lane.number + self.taken * self.lane.lanes

    def _read_batch(self, reader: BatchReader) -> list[CachedSample]:
        number, batching = self._number, self._batching
        if number >= batching.batches:
            raise StopIteration
        begin, end = batching.begin_of(number), batching.begin_of(batching.batches)
        task = BatchTask(0, number, begin, end, self._batch_size, self.lane.lanes, None)
        return reader.read(task).samples

    def _open_samples(self, end: int) -> Iterator[CachedSample]:
        """Open at the global step of the next sample, and pass over what was taken of it."""
        step, inside = divmod(self._number, max(1, self._batching.rows_full))
        passed, lane = divmod(inside, self.lane.lanes)
        begin = self._batching.begin_of(step)
        samples = self._native.window_samples(begin, end, lane, self.lane.lanes, 1)
        for _ in range(passed):
            with suppress(CorruptError, ConflictError, StopIteration):
                next(samples)
        return samples


def _refusing(error: Exception) -> Iterator[Any]:
    """Raise `error` at the first item, and end."""
    yield from ()
    raise error


def _rows_per_step(native: NativeDataset) -> int:
    """Samples of a rank in a global step, rounded up: the least batch there is."""
    _, world_size, global_batch_size, _ = native.rank
    return 1 if global_batch_size is None else -(-global_batch_size // world_size)

"""Makes the batch a trainer gets of samples that were read; runs wherever they were read."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import date, datetime
from multiprocessing.reduction import ForkingPickler
from types import NoneType
from typing import TYPE_CHECKING, Any

from torch.utils.data import default_collate, get_worker_info

from dataset_rt.errors import InvalidInputError
from dataset_rt.samples import CachedSample
from dataset_rt.torch_faces.lost_batch import LostBatch

if TYPE_CHECKING:
    from dataset_rt.torch_faces.batch_reader import ReadBatch

AnyTransform = Callable[..., Any]
"""`transform(sample)`, or `transform(sample, seed)` with `position_seeds=True`."""


class BatchMaker:
    """The `collate_fn` of a loader: transform of each sample, then the user's `collate_fn`.

    Returns `[number, batch]`, so that the trainer's side knows which batch it took whatever was
    prefetched, or a `LostBatch` where an error took its place. A batch without samples is `[]`,
    whatever `collate_fn` makes of others.
    """

    def __init__(
        self, transform: AnyTransform | None, collate_fn: Callable[[list[Any]], Any] | None
    ) -> None:
        """See the class."""
        self._transform = transform
        self._collate_fn = collate_fn

    def __call__(self, read: ReadBatch | LostBatch) -> object:
        """Make one batch."""
        made = read if isinstance(read, LostBatch) else self._make(read)
        worker = get_worker_info()
        if worker is None:
            return made
        if not isinstance(read, LostBatch) and self._has_plain_samples(read.samples):
            return made
        return made if _is_sent_for_sure(made) else Parcel(read.number, made, worker.id)

    def _make(self, read: ReadBatch) -> list[Any] | LostBatch:
        try:
            batch = self._collate(self._items(read)) if read.samples else []
        except Exception as error:  # noqa: BLE001 - the trainer raises it
            return LostBatch.of(read.number, error)
        return [read.number, batch]

    def _has_plain_samples(self, samples: list[CachedSample]) -> bool:
        """Whether the batch is a list of samples as they were read, with payloads of their own."""
        return (
            self._transform is None
            and self._collate_fn is list
            and bool(samples)
            and type(samples[0].data) is bytes
        )

    def _items(self, read: ReadBatch) -> list[Any]:
        transform = self._transform
        if transform is None:
            return _plain(read.samples) if self._collate_fn is None else list(read.samples)
        items = []
        arguments = zip(read.samples, read.seeds, strict=True) if read.seeds else read.samples
        for i, argument in enumerate(arguments):
            try:
                items.append(transform(*argument) if read.seeds else transform(argument))
            except Exception as error:
                sample = read.samples[i]
                error.add_note(
                    f"raised by transform, for the sample at stream position "
                    f"{read.positions[i]} (cache_id={sample.cache_id}, "
                    f"sample_id={sample.sample_id})"
                )
                raise
        return items

    def _collate(self, items: list[Any]) -> Any:
        if self._collate_fn is not None:
            return self._collate_fn(items)
        try:
            return default_collate(items)
        except (TypeError, RuntimeError) as error:
            error.add_note(
                "PyTorch's default_collate takes numbers, text, bytes, arrays and tensors of equal "
                "shape, not None, dates or timestamps: make them such in transform, or pass "
                "collate_fn=list to get plain lists"
            )
            raise


def _plain(samples: list[CachedSample]) -> list[CachedSample]:
    """Samples with `bytes`: default_collate would take a memoryview for a sequence of numbers."""
    return [sample._replace(data=bytes(sample.data)) for sample in samples]


def _is_sent_for_sure(value: Any, depth: int = 0) -> bool:
    """Whether pickling cannot fail, here or over there; True only for types that are known.

    Tensors are none: they travel as file descriptors or files, which may run out.
    """
    kind = type(value)
    if kind in _PLAIN:
        return True
    # Deeper, and what holds itself, is no batch.
    if depth < 8 and kind in {list, tuple, CachedSample}:
        return all(_is_sent_for_sure(item, depth + 1) for item in value)
    if depth < 8 and kind is dict:
        return all(type(key) in _PLAIN for key in value) and all(
            _is_sent_for_sure(item, depth + 1) for item in value.values()
        )
    return False


_PLAIN = {bytes, int, float, str, bool, NoneType, date, datetime}


class Parcel:
    """A batch, or its error, on its way out of a worker.

    PyTorch's queue pickles in a thread whose errors nobody hears of, and what the trainer cannot
    unpickle it loses: one would wait for it for ever. So a parcel pickles itself and is opened
    with care, and whatever goes wrong arrives as the error of its batch. That costs a copy of the
    pickle at either end, which what is sure to be sent is spared.
    """

    def __init__(self, number: int, content: list[Any] | LostBatch, worker: int) -> None:
        """Hold batch `number` of worker number `worker`."""
        self._number = number
        self._content = content
        self._worker = worker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[int, bytes]]:
        """Become what it holds, or a `LostBatch`."""
        try:
            data = bytes(ForkingPickler.dumps(self._content))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is said over there
            data = pickle.dumps(self._failure(error))
        return _opened, (self._number, data)

    def _failure(self, cause: Exception) -> LostBatch:
        if isinstance(self._content, LostBatch):
            return self._content.in_plain_words()
        error = InvalidInputError(
            f"batch {self._number} cannot be sent from its worker to the trainer "
            f"({type(cause).__name__}: {cause}): have transform or collate_fn return what can "
            "be pickled, for example bytes(sample.data) for a memoryview"
        )
        error.__cause__ = cause
        return LostBatch.in_worker(self._number, error, self._worker)


def _opened(number: int, data: bytes) -> Any:
    """Unpickle a parcel in the trainer's process."""
    try:
        return pickle.loads(data)  # noqa: S301 - our own worker made it
    except Exception as cause:  # noqa: BLE001 - the trainer raises it when the batch is due
        error = InvalidInputError(
            f"batch {number} came from its worker but cannot be unpickled in the trainer's process "
            f"({type(cause).__name__}: {cause}): have transform or collate_fn return what can be"
        )
        error.__cause__ = cause
        return LostBatch(number, error)

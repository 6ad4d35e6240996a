"""One epoch of a loader as the trainer takes it: hands batches out, and counts them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dataset_rt.errors import DatasetRTError, UnavailableError
from dataset_rt.torch_faces.lost_batch import LostBatch

if TYPE_CHECKING:
    from dataset_rt._native import NativeBatching
    from dataset_rt.dataset import CachedDataset
    from dataset_rt.torch_faces.batch_task import BatchTasks

_LOGGER = logging.getLogger("dataset_rt")


class LoaderIterator(Iterator[Any]):
    """The batches of one epoch, in order.

    Where a batch cannot be made its error is raised; `next` goes on behind it. Batches and their
    errors come with their numbers, and these alone are counted. Any other error (PyTorch waited
    too long, a worker died, Ctrl-C) says nothing of any batch and moves nothing:

    - without workers, `next` makes the same batch again;
    - behind PyTorch's timeout, `next` waits for the same batch again;
    - else what was on its way may be lost: the iterator has ended, and says so ever after.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        batching: NativeBatching,
        *,
        tasks: BatchTasks | None,
        snapshot: CachedDataset,
        title: str,
        epoch: int,
        in_order: bool,
    ) -> None:
        """Hand out `batches`, which are those of the claim `batching`, read from `snapshot`.

        Without workers, `tasks` are what they are made of. `title` names the loader in the log.
        """
        self._batches: Iterator[Any] | None = batches
        # Workers may still have to open it: what it hands to them lives as long as it does.
        self._snapshot = snapshot
        self._batching = batching
        self._tasks = tasks
        self._title = title
        self._epoch = epoch
        self._in_order = in_order
        # Threads that share the iterator take batches in turn, whose numbers tell of gaps.
        self._lock = threading.RLock()
        # Handed out, and those whose error was raised in their place.
        self._passed = 0
        self._why_ended: DatasetRTError | None = None
        self._is_noted = False

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            ConflictError: A newer iterator took the workers, which persist and serve one.
            UnavailableError: The iterator ended before the epoch did.
        """
        with self._lock:
            passed = self._passed
            try:
                made = self._receive()
            except StopIteration:
                raise
            except BaseException as error:
                self._take_back(passed, error)
                raise
        if isinstance(made, LostBatch):
            made.raise_error()
        return made[1]

    def __len__(self) -> int:
        """Return the batches of this iterator, those handed out included."""
        return self._batching.batches

    @property
    def is_over(self) -> bool:
        """Whether no batch is left."""
        return self._passed >= len(self)

    @property
    def is_broken(self) -> bool:
        """Whether it ended before its epoch, so that its workers are of no use any more."""
        return isinstance(self._why_ended, UnavailableError)

    def end(self, reason: DatasetRTError) -> None:
        """Let go of the workers; `next` raises `reason` from now on."""
        self._batches = None
        self._why_ended = self._why_ended or reason

    def note_end(self) -> None:
        """Log once how the epoch ended."""
        if self._is_noted:
            return
        self._is_noted = True
        if self.is_over:
            how = f"finished: {len(self)} batches"
        else:
            how = f"abandoned after {self._passed} of {len(self)} batches"
        _LOGGER.info("%s: epoch %d %s", self._title, self._epoch, how)

    def _receive(self) -> list[Any] | LostBatch:
        """Wait for a batch or its error, and count it."""
        if self._batches is None:
            raise self._reason()
        try:
            made: list[Any] | LostBatch = next(self._batches)
        except StopIteration:
            if not self.is_over:
                raise self._broken("PyTorch's iterator ended before") from None
            self._stand_at(len(self))
            self.note_end()
            raise
        number = made.number if isinstance(made, LostBatch) else made[0]
        if self._in_order and number != self._passed:
            raise self._broken(f"batch {number} came instead")
        self._stand_at(self._passed + 1)
        return made

    def _stand_at(self, passed: int) -> None:
        self._passed = passed
        # Out of order, only all of them together say where one stands.
        self._batching.take(passed if self._in_order or self.is_over else 0)

    def _take_back(self, passed: int, error: BaseException) -> None:
        """Stand where `next` was called, since it gives nothing."""
        if self._batches is None:
            return
        self._stand_at(passed)
        if self._tasks is not None:
            self._tasks.number = passed
        elif self.is_over:
            # PyTorch was interrupted as it ended its workers; nothing is left to come.
            self._batches = iter(())
        elif not _is_timeout(error):
            if not isinstance(error, UnavailableError):
                cause, error = error, self._broken(f"{type(error).__name__}: {error}")
                cause.add_note(self._advice())
            self.end(error)

    def _broken(self, found: str) -> UnavailableError:
        return UnavailableError(self._advice(f" ({found})"))

    def _advice(self, found: str = "") -> str:
        go_on = (
            "go on there with loader.load_state_dict(loader.state_dict()) and a new iter(loader)"
            if self._in_order
            else f"begin it anew with loader.set_epoch({self._epoch})"
        )
        return (
            f"this iterator of epoch {self._epoch} has ended: batch {self._passed} of {len(self)} "
            f"did not come{found}, and what else was on its way may be lost; {go_on}"
        )

    def _reason(self) -> DatasetRTError:
        reason = self._why_ended or UnavailableError("this iterator has ended")
        return type(reason)(*reason.args)


def _is_timeout(error: BaseException) -> bool:
    """Whether PyTorch only waited; whatever else it raises may have cost what it was receiving.

    That it is not recognised, because PyTorch says it otherwise, would end an iterator needlessly.
    """
    return type(error) is RuntimeError and str(error).startswith("DataLoader timed out")

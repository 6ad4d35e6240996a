"""One epoch of a loader as the trainer takes it: hands batches out, and counts them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dataset_rt.errors import ConflictError, CorruptError, UnavailableError

if TYPE_CHECKING:
    from dataset_rt._native import NativeBatching
    from dataset_rt.dataset import CachedDataset

_LOGGER = logging.getLogger("dataset_rt")


class LoaderIterator(Iterator[Any]):
    """The batches of one epoch, in order.

    Where a batch cannot be made the error is raised; `next` goes on behind it.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        batching: NativeBatching,
        *,
        snapshot: CachedDataset,
        epoch: int,
        in_order: bool,
    ) -> None:
        """Hand out `batches`, which are those of the claim `batching`, read from `snapshot`."""
        self._batches: Iterator[Any] | None = batches
        # Workers may still have to open it: what it hands to them lives as long as it does.
        self._snapshot = snapshot
        self._batching = batching
        self._epoch = epoch
        self._in_order = in_order
        # Handed out, and those whose error was raised in their place.
        self._passed = 0
        self._is_noted = False

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            ConflictError: A newer iterator took the workers, which persist and serve one.
            UnavailableError: PyTorch's iterator ended before the epoch did.
        """
        if self._batches is None:
            raise ConflictError(
                "this iterator was ended by a newer one of its loader: workers that persist serve "
                "one iterator at a time"
            )
        try:
            number, batch = next(self._batches)
        except StopIteration:
            self._refuse_early_end()
            self._batching.take(len(self))
            self.note_end()
            raise
        except (CorruptError, ConflictError):
            # The batch is lost for good: who resumes does not meet it again.
            self._pass(self._passed)
            raise
        except Exception:
            self._passed += 1
            raise
        self._pass(number)
        return batch

    def __len__(self) -> int:
        """Return the batches of this iterator, those handed out included."""
        return self._batching.batches

    @property
    def is_over(self) -> bool:
        """Whether no batch is left."""
        return self._passed >= len(self)

    def end(self) -> None:
        """Let go of the workers."""
        self._batches = None

    def note_end(self) -> None:
        """Log once how the epoch ended."""
        if self._is_noted:
            return
        self._is_noted = True
        if self.is_over:
            _LOGGER.info("epoch %d finished: %d batches", self._epoch, len(self))
        else:
            _LOGGER.info(
                "epoch %d abandoned after %d of %d batches", self._epoch, self._passed, len(self)
            )

    def _pass(self, number: int) -> None:
        """Count batch `number`; out of order, only all of them together say where one stands."""
        self._passed += 1
        if self.is_over:
            self._batching.take(len(self))
        elif self._in_order:
            self._batching.take(number + 1)

    def _refuse_early_end(self) -> None:
        """PyTorch passes over batches of a worker that died, and ends at any StopIteration."""
        if self._passed < len(self):
            raise UnavailableError(
                f"the epoch ended after {self._passed} of {len(self)} batches: a worker died, or "
                "transform or collate_fn raised StopIteration; resume from a saved state"
            )

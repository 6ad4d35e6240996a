"""What comes back in place of a batch that cannot be made: its number, and why."""

from __future__ import annotations

from typing import NoReturn, Self

from torch._utils import ExceptionWrapper
from torch.utils.data import get_worker_info


class LostBatch:
    """An error on its way to the trainer, who raises it in place of the batch.

    It travels as data does, so that whoever gets it knows which batch it stands for. What PyTorch
    raises by itself (a timeout, a worker that died) stands for none.

    Attributes:
        number: Which batch was lost.
    """

    def __init__(self, number: int, error: Exception | ExceptionWrapper) -> None:
        """Hold an error, or what a worker can send of one."""
        self.number = number
        self._error = error

    @classmethod
    def of(cls, number: int, error: Exception) -> Self:
        """Take an error over as the process it occurred in can hand it on."""
        if isinstance(error, StopIteration):
            # As such it would end the epoch of whoever iterates.
            stop, error = error, RuntimeError("transform or collate_fn raised StopIteration")
            error.__cause__ = stop
        worker = get_worker_info()
        return cls(number, error if worker is None else _wrapped(error, worker.id))

    @classmethod
    def in_worker(cls, number: int, error: Exception, worker: int) -> Self:
        """Take over an error that occurred on the way out of worker number `worker`."""
        return cls(number, _wrapped(error, worker))

    def in_plain_words(self) -> LostBatch:
        """Return it as a `RuntimeError` of the same text, which any process knows."""
        error = self._error
        text = error.exc_msg if isinstance(error, ExceptionWrapper) else str(error)
        plain = ExceptionWrapper((RuntimeError, RuntimeError(text), None), "in a DataLoader worker")
        return LostBatch(self.number, plain)

    def raise_error(self) -> NoReturn:
        """Raise it, in the trainer."""
        if isinstance(self._error, ExceptionWrapper):
            self._error.reraise()
        raise self._error


def _wrapped(error: Exception, worker: int) -> ExceptionWrapper:
    return ExceptionWrapper(
        (type(error), error, error.__traceback__), f"in DataLoader worker process {worker}"
    )

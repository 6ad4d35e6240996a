"""What a process does that writes whole sources: one job after another, each told of."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from dataset_rt.processes.failures import AskedToEnd, encode, load
from dataset_rt.processes.messages import Message, Part
from dataset_rt.processes.parent import Parent
from dataset_rt.processes.spawned import NOTHING, enter_directory, leave_interrupts_to_parent
from dataset_rt.results import CacheWriteError, CacheWriteSuccess
from dataset_rt.sources.wrapped import WrappedSource

_LOGGER = logging.getLogger("dataset_rt")

# From the parent.
JOB: Final = 0
"""A source to write: the pickled `Job`, the pickled source."""

# To the parent.
PROGRESS: Final = 1
"""So many samples (the number) and bytes (`int.to_bytes`) so far."""
LOG: Final = 2
"""A record of the library's logger: the number is its level, the part its text."""
WRITTEN: Final = 3
"""The pickled `CacheWriteSuccess` and its warnings."""
REFUSED: Final = 4
"""The message of a `CacheWriteError`, and its exception, encoded."""
ENDED: Final = 5
"""An exception that ends the whole call, encoded."""

_SECONDS_TO_END = 2.0
_SECONDS_TO_ASK_AGAIN = 0.01


class Job(NamedTuple):
    """How to write one source; the source comes beside it.

    Attributes:
        name: Name of the source, checked and normalised.
        directory: Where the cache goes.
        options: Settings, as the compiled module takes them.
        reuse: Whether a complete cache serves as it is.
        num_workers: Native threads.
        working_directory: Where relative paths begin.
        log_level: What the parent's logger takes.
    """

    name: str
    directory: str
    options: dict[str, Any]
    reuse: bool
    num_workers: int
    working_directory: bytes
    log_level: int


def run(connection: Any, hand: Any) -> None:
    """Serve the parent until it hangs up.

    Args:
        connection: Socket to the parent.
        hand: Shared memory, where the parent sees which sample is being made.
    """
    signal.signal(signal.SIGTERM, _end_cleanly)
    sys.unraisablehook = _ask_again
    leave_interrupts_to_parent()
    parent = Parent(connection, _end_soon)
    _LOGGER.addHandler(_ToParent(parent))
    # The parent's handlers decide; here there is no terminal to write to.
    _LOGGER.propagate = False
    hand.value = NOTHING
    for message in parent.messages():
        _write(message, hand, parent)


def _end_cleanly(_number: int, _frame: object) -> None:
    """What is unfinished goes, and what is finished stays, as after Ctrl-C in a serial write."""
    raise AskedToEnd(0)


def _ask_main_thread() -> None:
    """Interrupt what it waits for: a signal to the process may wake another thread instead."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _ask_again(lost: Any) -> None:
    """Ask once more where the exception met code that nothing can leave, such as a finaliser."""
    if lost.exc_type is not AskedToEnd:
        sys.__unraisablehook__(lost)
        return
    # Not at once: it would be raised in here, and lost again.
    again = threading.Timer(_SECONDS_TO_ASK_AGAIN, _ask_main_thread)
    again.daemon = True
    again.start()


def _end_soon() -> None:
    """Nobody waits any more: clean up if that is possible, but end."""
    _ask_main_thread()
    timer = threading.Timer(_SECONDS_TO_END, os._exit, (1,))
    timer.daemon = True
    timer.start()


def _write(message: Message, hand: Any, parent: Parent) -> None:
    from dataset_rt.runtime import DatasetRuntime  # noqa: PLC0415 - it imports this package
    from dataset_rt.writing import write_one  # noqa: PLC0415 - as above

    job: Job = pickle.loads(message.parts[0])  # noqa: S301 - the parent's own
    enter_directory(job.working_directory)
    _LOGGER.setLevel(job.log_level)
    try:
        source = load(message.parts[1], "the source")
    except Exception as error:  # noqa: BLE001 - the source's own code may raise anything
        parent.send(REFUSED, 0, str(error).encode(errors="replace"), encode(error))
        return

    def on_progress(samples: int, size_bytes: int, _finished: bool) -> None:
        parent.send(PROGRESS, samples, size_bytes.to_bytes(8, "little"))

    try:
        with DatasetRuntime(job.num_workers) as runtime:
            result, notes = write_one(
                runtime._native,
                _Watched(source, hand),
                job.name,
                job.directory,
                options=job.options,
                reuse=job.reuse,
                on_progress=on_progress,
            )
    except AskedToEnd:
        raise
    except BaseException as error:  # noqa: BLE001 - the parent raises it
        parent.send(ENDED, 0, encode(error))
        return
    if isinstance(result, CacheWriteSuccess):
        parent.send(WRITTEN, 0, pickle.dumps((result, notes)))
    else:
        parent.send(REFUSED, 0, *_error_parts(result))


def _error_parts(result: CacheWriteError) -> tuple[Part, ...]:
    error = result.exception
    return result.message.encode(errors="replace"), b"" if error is None else encode(error)


class _Watched(WrappedSource):
    """Shows the parent which item the source is at."""

    def __init__(self, source: Any, hand: Any) -> None:
        super().__init__(source)
        self._hand = hand

    def _pass_on(self, items: Iterator[Any], start: int, /) -> Iterator[Any]:
        hand = self._hand
        number = start
        try:
            while True:
                hand.value = number
                try:
                    item = next(items)
                except StopIteration:
                    return
                hand.value = NOTHING
                yield item
                number += 1
        finally:
            hand.value = NOTHING


class _ToParent(logging.Handler):
    """Hands records on to the process that has handlers."""

    def __init__(self, parent: Parent) -> None:
        super().__init__()
        self._parent = parent

    def emit(self, record: logging.LogRecord) -> None:
        self._parent.send(LOG, record.levelno, record.getMessage().encode(errors="replace"))

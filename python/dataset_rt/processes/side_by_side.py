"""Several sources are written at a time, each by a process of its own.

A process that has written one source takes the next. It holds what one writer holds
(`WriterConfig.prefetch_bytes`); the native threads of all together are no more than those of the
runtime, or one each. Nothing but jobs and reports goes between the processes.
"""

from __future__ import annotations

import logging
import pickle
import select
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from dataset_rt import _native
from dataset_rt.config import WriterConfig
from dataset_rt.errors import DatasetRTError
from dataset_rt.processes import source_worker as worker_side
from dataset_rt.processes.failures import IMPORTABLE, decode, dump, log_failure
from dataset_rt.processes.messages import Message
from dataset_rt.processes.spawned import Spawned, end_all, kill_all
from dataset_rt.results import CacheWriteError, CacheWriteResult

_LOGGER = logging.getLogger("dataset_rt")

_LOOK_SECONDS = 0.5
_END_SECONDS = 5.0
# Ctrl-C ends everything within a second, cleaning up included.
_CLEAN_SECONDS = 0.5

_ADVICE = (
    "a process that writes it gets the source pickled: keep open files, connections, locks and "
    f"generators out of it, or write it alone with num_processes=1; {IMPORTABLE}"
)


class Task(NamedTuple):
    """One source to write, and where its result goes."""

    position: int
    source: Any
    job: worker_side.Job


class _Writer(Spawned):
    """A process, and the source it writes."""

    def __init__(self, number: int) -> None:
        super().__init__(worker_side.run, f"writer {number}")
        self.task: Task | None = None


class SideBySide:
    """Writes sources by several processes.

    Args:
        num_processes: How many at most.
        config: Settings of writing.
        on_progress: Called with the samples and bytes of all sources so far.
    """

    def __init__(
        self,
        num_processes: int,
        config: WriterConfig,
        on_progress: Callable[[int, int, bool], None] | None,
    ) -> None:
        """See the class."""
        self._num_processes = num_processes
        self._config = config
        self._on_progress = on_progress
        self._writers: list[_Writer] = []
        self._started = 0
        self._counts: dict[int, tuple[int, int]] = {}
        self._results: dict[int, tuple[CacheWriteResult, list[str]]] = {}

    def write(self, tasks: Sequence[Task]) -> dict[int, tuple[CacheWriteResult, list[str]]]:
        """Write them all; return what became of each, and what to warn of, by position.

        Raises:
            BaseException: Whatever ends the whole call: Ctrl-C, or what a source raised that is
                no `Exception`.
        """
        waiting = list(reversed(tasks))
        try:
            while waiting or any(writer.task for writer in self._writers):
                while waiting and self._give(waiting):
                    pass
                self._exchange()
            if self._on_progress is not None:
                self._on_progress(*self._sums(), True)
        except BaseException:
            self._interrupt()
            raise
        end_all([*self._writers], _END_SECONDS)
        return self._results

    def _give(self, waiting: list[Task]) -> bool:
        """Give the next source to a process that is free; false when none is."""
        writer = next((writer for writer in self._writers if writer.task is None), None)
        if writer is None and len(self._writers) >= self._num_processes:
            return False
        task = waiting.pop()
        try:
            pickled = dump(task.source, f"source {task.job.name!r}", _ADVICE)
            if writer is None:
                writer = _Writer(self._started + 1)
                self._started += 1
                self._writers.append(writer)
        except DatasetRTError as error:
            self._refuse(task, str(error), error)
            return True
        writer.task = task
        writer.outbox.put(Message(worker_side.JOB, 0, [pickle.dumps(task.job), pickled]))
        return True

    def _refuse(self, task: Task, message: str, error: BaseException) -> None:
        self._results[task.position] = CacheWriteError(task.job.name, message, error), []

    def _exchange(self) -> None:
        """Move messages, waiting for the first."""
        seconds = _LOOK_SECONDS
        timeout = self._config.process_timeout
        if timeout is not None:
            seconds = min(seconds, max(timeout / 4, 0.01))
        poll = select.poll()
        writers = {writer.socket.fileno(): writer for writer in self._writers}
        for descriptor, writer in writers.items():
            poll.register(descriptor, select.POLLIN | (select.POLLOUT if writer.outbox else 0))
        moved = poll.poll(seconds * 1000)
        for descriptor, events in moved:
            if events & select.POLLOUT:
                writers[descriptor].outbox.send()
            if events & ~select.POLLOUT:
                self._read(writers[descriptor])
        for writer in [*self._writers]:
            self._look_after(writer, is_quiet=not moved)

    def _look_after(self, writer: _Writer, *, is_quiet: bool) -> None:
        timeout = self._config.process_timeout
        if timeout is not None and (number := writer.overdue(timeout)) is not None:
            writer.kill(
                f"the source took more than {timeout:g} s (process_timeout) for sample {number}; "
                "raise the limit, or see what it waits for"
            )
        # Descriptors that a fork of this process holds open keep its end from being seen.
        if is_quiet and not writer.is_alive():
            while self._read(writer):
                pass
            self._lose(writer)

    def _read(self, writer: _Writer) -> bool:
        try:
            message = writer.inbox.read()
        except EOFError:
            self._lose(writer)
            return False
        if message is None:
            return False
        self._take(writer, message)
        return True

    def _take(self, writer: _Writer, message: Message) -> None:
        task, parts = writer.task, message.parts
        if message.kind == worker_side.LOG:
            # Of those without handlers, Python prints what is a warning or worse.
            if _LOGGER.hasHandlers():
                _LOGGER.log(message.number, "%s", bytes(parts[0]).decode(errors="replace"))
        elif message.kind == worker_side.ENDED:
            raise decode(parts[0])
        elif task is None:
            return
        elif message.kind == worker_side.PROGRESS:
            self._counts[task.position] = message.number, int.from_bytes(parts[0], "little")
            if self._on_progress is not None:
                self._on_progress(*self._sums(), False)
        elif message.kind == worker_side.WRITTEN:
            self._results[task.position] = pickle.loads(parts[0])  # noqa: S301 - our own process's
            writer.task = None
        elif message.kind == worker_side.REFUSED:
            text = bytes(parts[0]).decode(errors="replace")
            error = decode(parts[1]) if parts[1] else None
            self._results[task.position] = CacheWriteError(task.job.name, text, error), []
            writer.task = None

    def _sums(self) -> tuple[int, int]:
        samples = sum(count for count, _ in self._counts.values())
        return samples, sum(size for _, size in self._counts.values())

    def _lose(self, writer: _Writer) -> None:
        """A process hung up: its source has failed."""
        if writer not in self._writers:
            return
        self._writers.remove(writer)
        error = writer.how_it_ended()
        kill_all([writer])
        if writer.task is not None:
            text = f"source {writer.task.job.name!r}: {error}"
            log_failure("%s", text)
            self._refuse(writer.task, text, error)
            self._remove_unfinished(writer.task)

    def _remove_unfinished(self, task: Task) -> None:
        """Remove what a process left that could not clean up, unless it serves to resume."""
        name, directory = task.job.name, task.job.directory
        with suppress(DatasetRTError):
            kept = self._config.resume and any(
                (found, samples > 0) == (name, True)
                for found, _, samples, _, _ in _native.unfinished_writes(directory)
            )
            if not kept:
                _native.remove_unfinished_write(directory, name)

    def _interrupt(self) -> None:
        """End everything: what can clean up has a moment for it."""
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.ask_to_end()
        deadline = time.monotonic() + _CLEAN_SECONDS
        try:
            for writer in writers:
                writer.forget(deadline)
        finally:
            kill_all([*writers])
        for writer in writers:
            if writer.task is not None:
                self._remove_unfinished(writer.task)

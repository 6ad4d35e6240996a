"""Several processes make the samples of one source, which arrive in its order.

The source is iterated on the calling thread, where everything else of it happens, too. Its items
are pickled at once (a source may use its buffers again), dealt out in chunks, and their samples
are put back in order. One loop on that thread moves all messages without ever blocking in a
write: a worker that waits to be read and one that waits to be written to never wait for each
other.

What is held, in bytes. Items: two chunks a worker, each at most 1 MiB or one larger item. Samples
that wait for their turn here: `buffer_bytes`, and per worker one message of at most 1 MiB or one
larger sample. In each worker: the chunk it works on, 4 MiB of samples or one larger one that wait
to be sent, and the one being made.
"""

from __future__ import annotations

import logging
import pickle
import select
import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

from dataset_rt.errors import ExhaustedError
from dataset_rt.processes import transform_worker as worker_side
from dataset_rt.processes.failures import IMPORTABLE, decode, dump
from dataset_rt.processes.messages import Message, Part
from dataset_rt.processes.spawned import Spawned, end_all, kill_all, working_directory
from dataset_rt.sources.transformed import Transform, checked
from dataset_rt.sources.wrapped import WrappedSource

_LOGGER = logging.getLogger("dataset_rt")

_CHUNK_BYTES = 1024 * 1024
_CHUNK_ITEMS_MAX = 1024
# Long against what a message costs, short against what a worker may stand idle at the end.
_CHUNK_SECONDS = 0.03
# A source that is slow itself does not keep workers waiting for a full chunk.
_FILL_SECONDS = 0.01
_CHUNKS_A_WORKER = 2
# What the objects of a waiting sample cost beside its bytes.
_SAMPLE_BYTES = 300
_LOOK_SECONDS = 0.5
_END_SECONDS = 5.0


class _Chunk:
    """Items that a worker has not answered yet."""

    def __init__(self, first: int, items: list[bytes]) -> None:
        self.next = first
        self.items = deque(items)


class _Block(NamedTuple):
    """Samples that came in one message; `items` has what must be made again here."""

    parts: list[tuple[Part, Part]]
    items: dict[int, bytes]
    size_bytes: int


class _Worker(Spawned):
    """A process of the pool, and what it owes."""

    def __init__(self, number: int) -> None:
        super().__init__(worker_side.run, f"worker {number}")
        self.chunks: deque[_Chunk] = deque()
        self.transform: bytes | None = None


class TransformPool:
    """Processes that make samples, started when there is work, kept from source to source.

    Args:
        num_processes: How many at most.
        process_timeout: Seconds that one sample may take.
        buffer_bytes: Bound on samples that wait for their turn.
    """

    def __init__(
        self, num_processes: int, process_timeout: float | None, buffer_bytes: int
    ) -> None:
        """See the class."""
        self.num_processes = num_processes
        self.process_timeout = process_timeout
        self.buffer_bytes = buffer_bytes
        self.workers: list[_Worker] = []
        self._started = 0

    def __enter__(self) -> Self:
        """Return the pool itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the processes; those that do not end by themselves are killed."""
        self.kill_busy()
        workers, self.workers = self.workers, []
        if exc_type is None:
            end_all([*workers], _END_SECONDS)
        else:
            kill_all([*workers])

    def kill_busy(self) -> None:
        """End what is at work on something that nobody waits for any more."""
        busy = [worker for worker in self.workers if worker.chunks]
        self.workers = [worker for worker in self.workers if not worker.chunks]
        kill_all([*busy])

    def has_room(self) -> bool:
        """Whether another chunk may be given out."""
        return len(self.workers) < self.num_processes or any(
            len(worker.chunks) < _CHUNKS_A_WORKER for worker in self.workers
        )

    def for_a_chunk(self) -> _Worker:
        """Return the worker that gets the next chunk, started if that spares a wait."""
        least = min(self.workers, key=lambda worker: len(worker.chunks), default=None)
        if least is not None and (not least.chunks or len(self.workers) >= self.num_processes):
            return least
        try:
            worker = _Worker(self._started + 1)
        except ExhaustedError as error:
            if least is None:
                raise
            # Those that are there must do.
            _LOGGER.info("%s", error)
            self.num_processes = len(self.workers)
            return least
        self._started += 1
        self.workers.append(worker)
        return worker


class PooledSource(WrappedSource):
    """A source with `transform`, its samples made by a pool."""

    def __init__(self, source: Any, pool: TransformPool) -> None:
        """See the class."""
        super().__init__(source)
        self._pool = pool

    def _pass_on(self, items: Iterator[Any], start: int, /) -> Iterator[Any]:
        return _Pass(self._source, items, start, self._pool).samples()


class _Pass:
    """One iteration of one source."""

    def __init__(self, source: Any, items: Iterator[Any], start: int, pool: TransformPool) -> None:
        self._transform: Transform = source.transform
        self._items = items
        self._pool = pool
        self._next = start
        self._due = start
        self._blocks: dict[int, _Block] = {}
        self._bytes = 0
        # What ends the pass, and in front of which sample; the first wins.
        self._end: tuple[int, BaseException | None] | None = None
        self._seconds_a_sample = 0.0
        self._chunk_items = 1
        self._is_told = False

    def samples(self) -> Iterator[Any]:
        """Yield the samples in order."""
        # Nobody owes anything to an earlier pass, not even one that is still referred to.
        self._pool.kill_busy()
        is_whole = False
        try:
            self._pickled = dump(self._transform, "transform", _ADVICE_TRANSFORM)
            while self._end is None or self._due < self._end[0]:
                block = self._blocks.pop(self._due, None)
                is_moving = self._deal() or block is not None
                self._exchange(0 if is_moving else _LOOK_SECONDS)
                if block is not None:
                    yield from self._samples_of(block)
                    self._due += len(block.parts)
                    self._bytes -= block.size_bytes
            if self._end[1] is not None:
                raise self._end[1]
            is_whole = True
        finally:
            if not is_whole:
                self._pool.kill_busy()

    def _stop_at(self, number: int, error: BaseException | None) -> None:
        if self._end is None or number < self._end[0]:
            self._end = number, error

    # Items to the workers.

    def _deal(self) -> bool:
        """Give one chunk to a worker that has room for it, if there is one."""
        if self._end is not None or not self._pool.has_room():
            return False
        first = self._next
        items = self._take_items()
        if not items:
            return False
        worker = self._pool.for_a_chunk()
        if worker.transform is not self._pickled:
            worker.transform = self._pickled
            worker.outbox.put(
                Message(worker_side.TRANSFORM, 0, [self._pickled, working_directory()])
            )
        worker.chunks.append(_Chunk(first, items))
        worker.outbox.put(Message(worker_side.CHUNK, first, items))
        worker.outbox.send()
        return True

    def _take_items(self) -> list[bytes]:
        pickled: list[bytes] = []
        size_bytes = 0
        latest = time.monotonic() + _FILL_SECONDS
        while len(pickled) < self._chunk_items and size_bytes < _CHUNK_BYTES:
            try:
                item = next(self._items)
                data = dump(item, f"item {self._next} ({type(item).__name__})", _ADVICE_ITEM)
            except StopIteration:
                self._stop_at(self._next, None)
                break
            except Exception as error:  # noqa: BLE001 - raised in its turn, behind the samples
                self._stop_at(self._next, error)
                break
            pickled.append(data)
            size_bytes += len(data)
            self._next += 1
            if time.monotonic() >= latest:
                break
        return pickled

    # Samples from the workers.

    def _samples_of(self, block: _Block) -> Iterator[Any]:
        for number, (payload, metadata) in enumerate(block.parts, self._due):
            if number in block.items:
                item = pickle.loads(block.items[number])  # noqa: S301 - pickled here
                yield checked(self._transform(item))
                self._tell_why(number, payload)
            else:
                yield payload, pickle.loads(metadata)  # noqa: S301 - our own process's

    def _tell_why(self, number: int, why: Part) -> None:
        if not self._is_told:
            self._is_told = True
            _LOGGER.warning(
                "samples are made a second time in this process, since they cannot be sent to it: "
                "%s (sample %d); return plain values",
                bytes(why).decode(errors="replace"),
                number,
            )

    def _exchange(self, seconds: float) -> None:
        """Move messages, waiting at most so long for the first."""
        timeout = self._pool.process_timeout
        if timeout is not None:
            seconds = min(seconds, max(timeout / 4, 0.01))
        is_full = self._bytes >= self._pool.buffer_bytes
        poll = select.poll()
        workers = {worker.socket.fileno(): worker for worker in self._pool.workers}
        for descriptor, worker in workers.items():
            # With enough waiting here only the one that owes the next sample is read.
            is_read = not is_full or any(chunk.next == self._due for chunk in worker.chunks)
            wanted = select.POLLIN if is_read else 0
            poll.register(descriptor, wanted | (select.POLLOUT if worker.outbox else 0))
        moved = poll.poll(seconds * 1000)
        for descriptor, events in moved:
            if events & select.POLLOUT:
                workers[descriptor].outbox.send()
            if events & ~select.POLLOUT:
                self._read(workers[descriptor])
        for worker in [*self._pool.workers]:
            self._look_after(worker, is_quiet=not moved)

    def _look_after(self, worker: _Worker, *, is_quiet: bool) -> None:
        timeout = self._pool.process_timeout
        if timeout is not None and (number := worker.overdue(timeout)) is not None:
            worker.kill(
                f"sample {number} took more than {timeout:g} s (process_timeout); raise the limit, "
                "or see what the item is"
            )
        # Descriptors that a fork of this process holds open keep its end from being seen.
        if is_quiet and not worker.is_alive():
            while self._read(worker):
                pass
            self._lose(worker)

    def _read(self, worker: _Worker) -> bool:
        """Take one message, if there is one: what is held stays bounded."""
        try:
            message = worker.inbox.read()
        except EOFError:
            self._lose(worker)
            return False
        if message is None:
            return False
        if message.kind == worker_side.SAMPLES:
            self._take_samples(worker, message)
        elif message.kind == worker_side.FAILED:
            self._stop_at(message.number, decode(message.parts[0]))
        return True

    def _take_samples(self, worker: _Worker, message: Message) -> None:
        chunk = worker.chunks[0]
        parts = list(worker_side.to_samples(message.parts))
        odd: dict[int, bytes] = {}
        for number, (_, metadata) in enumerate(parts, message.number):
            item = chunk.items.popleft()
            if not metadata:
                odd[number] = item
        size_bytes = sum(len(part) for part in message.parts) + _SAMPLE_BYTES * len(parts)
        self._blocks[message.number] = _Block(parts, odd, size_bytes)
        self._bytes += size_bytes
        chunk.next += len(parts)
        if not chunk.items:
            worker.chunks.popleft()
        (seconds,) = worker_side.SECONDS.unpack(message.parts[-1])
        self._learn(seconds / len(parts))

    def _learn(self, seconds: float) -> None:
        """Make chunks that take `_CHUNK_SECONDS`, at most twice the size they had."""
        before = self._seconds_a_sample or seconds
        self._seconds_a_sample = 0.8 * before + 0.2 * seconds
        wanted = int(_CHUNK_SECONDS / max(self._seconds_a_sample, 1e-9))
        self._chunk_items = max(1, min(wanted, 2 * self._chunk_items, _CHUNK_ITEMS_MAX))

    def _lose(self, worker: _Worker) -> None:
        """A worker hung up: what it owed will not come."""
        if worker not in self._pool.workers:
            return
        self._pool.workers.remove(worker)
        if worker.chunks:
            error = worker.how_it_ended()
            _LOGGER.info("%s", error)
            self._stop_at(worker.chunks[0].next, error)
        kill_all([worker])


_ADVICE_TRANSFORM = (
    "a function of a module, or a static method, needs nothing of the source; a method takes the "
    f"whole source along, which must then be picklable; {IMPORTABLE}"
)
_ADVICE_ITEM = (
    "let the source yield plain values (paths, bytes, arrays), and open files in transform"
)

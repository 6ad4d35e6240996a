"""Messages between this process and one that it started, over a stream socket; knows no meaning.

A message is a kind, a number and parts of bytes. Parts travel as they are: a payload is copied
into the socket and out of it, nowhere else.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

Part: TypeAlias = bytes | memoryview

_HEAD = struct.Struct("<BQI")
# Below this, one more copy costs less than one more call into the system.
_ALONE_BYTES = 64 * 1024


class Message(NamedTuple):
    """What one side tells the other.

    Attributes:
        kind: Which of the sender's messages it is.
        number: A sample, mostly.
        parts: Bytes; the received ones are views of one buffer that they keep alive.
    """

    kind: int
    number: int
    parts: Sequence[Part]

    def to_buffers(self) -> list[Part]:
        """Return what goes over the socket, small parts joined."""
        sizes = [len(part) for part in self.parts]
        small: list[Part] = [
            _HEAD.pack(self.kind, self.number, len(sizes)),
            struct.pack(f"<{len(sizes)}Q", *sizes),
        ]
        buffers: list[Part] = []
        for part, size in zip(self.parts, sizes, strict=True):
            if size < _ALONE_BYTES:
                small.append(part)
            else:
                buffers.extend((b"".join(small), part))
                small = []
        buffers.append(b"".join(small))
        return buffers


class Inbox:
    """Puts messages together from what a socket has; holds one unfinished message."""

    def __init__(self, source: socket.socket) -> None:
        """Read from this socket, blocking or not."""
        self._source = source
        self._begin()

    def _begin(self) -> None:
        self._head: tuple[int, int] | None = None
        self._sizes: Sequence[int] | None = None
        self._expect(_HEAD.size)

    def _expect(self, size: int) -> None:
        self._buffer = bytearray(size)
        self._filled = 0

    def read(self) -> Message | None:
        """Return the next message, or `None` where a non-blocking socket has no whole one.

        Raises:
            EOFError: The other end is gone.
        """
        while True:
            if self._filled < len(self._buffer):
                try:
                    size = self._source.recv_into(memoryview(self._buffer)[self._filled :])
                except BlockingIOError:
                    return None
                except ConnectionError as error:
                    raise EOFError from error
                if size == 0:
                    raise EOFError
                self._filled += size
                continue
            if self._head is None:
                kind, number, count = _HEAD.unpack(self._buffer)
                self._head = kind, number
                self._expect(8 * count)
            elif self._sizes is None:
                self._sizes = struct.unpack(f"<{len(self._buffer) // 8}Q", self._buffer)
                self._expect(sum(self._sizes))
            else:
                message = Message(*self._head, _split(self._buffer, self._sizes))
                self._begin()
                return message


def _split(buffer: bytearray, sizes: Sequence[int]) -> list[memoryview]:
    view = memoryview(buffer).toreadonly()
    parts = []
    start = 0
    for size in sizes:
        parts.append(view[start : start + size])
        start += size
    return parts


class Outbox:
    """What a non-blocking socket has still to take; whoever fills it bounds it."""

    def __init__(self, target: socket.socket) -> None:
        """Write to this socket."""
        self._target = target
        self._left: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        """Whether anything is left to send."""
        return bool(self._left)

    def put(self, message: Message) -> None:
        """Add a message behind the others."""
        self._left.extend(memoryview(buffer) for buffer in message.to_buffers())

    def send(self) -> None:
        """Send as much as the socket takes now; a closed other end takes everything.

        That it is closed is found by reading, which also finds what it said last.
        """
        while self._left:
            try:
                size = self._target.send(self._left[0])
            except BlockingIOError:
                return
            except ConnectionError:
                self._left.clear()
                return
            if size == len(self._left[0]):
                self._left.popleft()
            else:
                self._left[0] = self._left[0][size:]

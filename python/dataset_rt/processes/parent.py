"""What a started process has of the one that started it: messages in, messages out.

Two threads of the process move bytes while its main thread works. When the other end hangs up,
the process ends: at once where it is at work, since nobody waits for it any more.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from dataset_rt.processes.messages import Inbox, Message, Part

_LOST = 1
_OUT_BYTES_MAX = 4 * 1024 * 1024


class Parent:
    """The connection to the parent, seen from the process that it started.

    Incoming messages are bounded by the parent, which knows what it sent and what came back.
    Outgoing ones wait in at most 4 MiB, or one larger message; then `send` blocks.

    Args:
        connection: This end; it is closed with the process.
        on_lost: Ends the process when the parent is gone amid work; the default asks nobody.
    """

    def __init__(
        self, connection: socket.socket, on_lost: Callable[[], None] = lambda: os._exit(_LOST)
    ) -> None:
        """Start the two threads."""
        connection.setblocking(True)
        self._connection = connection
        self._on_lost = on_lost
        self._incoming: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._outgoing: deque[tuple[list[Part], int]] = deque()
        self._out_bytes = 0
        self._is_at_work = True
        for move in (self._receive, self._transmit):
            threading.Thread(target=move, name=f"dataset-rt {move.__name__}", daemon=True).start()

    def messages(self) -> Iterator[Message]:
        """Yield what the parent sends, until it hangs up."""
        while True:
            self._is_at_work = False
            message = self._incoming.get()
            self._is_at_work = True
            if message is None:
                # For whoever asks again.
                self._incoming.put(None)
                return
            yield message

    def send(self, kind: int, number: int, *parts: Part) -> None:
        """Send a message; it is copied by nobody, so nobody may change its parts."""
        buffers = Message(kind, number, parts).to_buffers()
        size = sum(len(buffer) for buffer in buffers)
        with self._changed:
            self._changed.wait_for(
                lambda: not self._outgoing or self._out_bytes + size <= _OUT_BYTES_MAX
            )
            self._outgoing.append((buffers, size))
            self._out_bytes += size
            self._changed.notify_all()

    def _receive(self) -> None:
        inbox = Inbox(self._connection)
        with suppress(EOFError, OSError):
            while message := inbox.read():
                self._incoming.put(message)
        if self._is_at_work or not self._incoming.empty():
            self._on_lost()
        self._incoming.put(None)

    def _transmit(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._outgoing)
                buffers, size = self._outgoing.popleft()
            try:
                for buffer in buffers:
                    self._connection.sendall(buffer)
            except OSError:
                self._on_lost()
                return
            # Kept no longer than needed: the next wait may be a long one.
            del buffers
            with self._changed:
                self._out_bytes -= size
                self._changed.notify_all()

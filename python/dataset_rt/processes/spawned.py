"""One process that this one started: its start, its end, and what it has in hand.

Knows nothing of what it is for. Processes are spawned, never forked: threads of this process, ours
and others', would be missing in a fork, with their locks taken.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from typing import Any

from dataset_rt.errors import ExhaustedError, UnavailableError
from dataset_rt.processes.messages import Inbox, Outbox

_LOGGER = logging.getLogger("dataset_rt")

NOTHING = -1
"""What a process has in hand while none of the user's code runs in it."""

_STARTING = -2
"""The same until its main function runs: it imports, the user's script above all."""

Main = Callable[[socket.socket, Any], None]
"""Runs in the process, with its end of the connection and the number it has in hand.

Until it sets that number, the process counts as one that did not even start.
"""

_START_LOCK = threading.Lock()
_EXITING = threading.Event()
_ALIVE: weakref.WeakSet[Spawned] = weakref.WeakSet()


class Spawned:
    """A process, and this end of the connection to it.

    Args:
        main: What it runs, of this package: it is imported before anything of the user's.
        title: What messages call it.

    Raises:
        ExhaustedError: The system starts no further process.
        UnavailableError: This process may start none.
    """

    def __init__(self, main: Main, title: str) -> None:
        """Start it."""
        _check_script(title)
        context = multiprocessing.get_context("spawn")
        self.title = title
        self._starter = os.getpid()
        self._killed_for: str | None = None
        self._seen = (NOTHING, 0.0)
        try:
            self._hand = context.RawValue(ctypes.c_int64, _STARTING)
            self.socket, theirs = socket.socketpair()
        except OSError as error:
            raise _exhausted(title, error) from error
        self._process = context.Process(
            target=main, args=(theirs, self._hand), name=f"dataset-rt {title}"
        )
        try:
            with _START_LOCK, _interrupts_held():
                self._process.start()
        except AssertionError as error:
            self.socket.close()
            raise UnavailableError(
                f"cannot start a {title}: {error}; use num_processes=1 here"
            ) from error
        except OSError as error:
            self.socket.close()
            raise _exhausted(title, error) from error
        except BaseException:
            self.socket.close()
            if self._process.pid is not None:
                self._process.kill()
                self._process.join(10)
            raise
        finally:
            theirs.close()
        self.pid: int = self._process.pid or 0
        self._is_forgotten = False
        self.socket.setblocking(False)
        self.inbox = Inbox(self.socket)
        self.outbox = Outbox(self.socket)
        _ALIVE.add(self)
        _LOGGER.debug("%s started: process %d", title, self.pid)

    @property
    def in_hand(self) -> int:
        """The sample that the user's code is at work on; negative if it is at none."""
        return int(self._hand.value)

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._process.is_alive()

    def overdue(self, seconds: float) -> int | None:
        """Return the sample it has had in hand for longer than this, if so.

        It compares two looks of the caller, which may be far apart: never too strict.
        """
        number, now = self.in_hand, time.monotonic()
        if number < 0 or number != self._seen[0]:
            self._seen = (number, now)
            return None
        return number if now - self._seen[1] > seconds else None

    def kill(self, reason: str | None = None) -> None:
        """End it at once; what it said before can still be read."""
        if reason is not None:
            self._killed_for = reason
        self._signal(signal.SIGKILL)

    def ask_to_end(self) -> None:
        """Ask it to clean up and end."""
        self._signal(signal.SIGTERM)

    def hang_up(self) -> None:
        """Close the connection: a process that has nothing to do ends then."""
        self.socket.close()

    def forget(self, deadline: float) -> None:
        """Wait until it has ended; after `deadline` (monotonic seconds) it is killed."""
        self.socket.close()
        if self._is_forgotten or os.getpid() != self._starter:
            return
        self._process.join(max(deadline - time.monotonic(), 0))
        if self._process.is_alive():
            self.kill()
            self._process.join(10)
        self._is_forgotten = True
        _ALIVE.discard(self)
        _LOGGER.debug("%s ended: process %d", self.title, self.pid)
        # At exit multiprocessing joins what ran when it looked, and may do so after this.
        if not _EXITING.is_set():
            # Another thread may just be reaping it.
            with suppress(ValueError):
                self._process.close()

    def _signal(self, number: int) -> None:
        # A fork of this process unwinds the same stack, but the process is not its child.
        if os.getpid() == self._starter and not self._is_forgotten and self.is_alive():
            with suppress(OSError):
                os.kill(self.pid, number)

    def how_it_ended(self) -> UnavailableError:
        """Say what became of a process that hung up."""
        hand = self.in_hand
        self._process.join(5)
        code = self._process.exitcode
        what = f"{self.title} (process {self.pid})"
        if self._killed_for is not None:
            return UnavailableError(f"{what} was ended: {self._killed_for}")
        at = "" if hand < 0 else f" while it was at work on sample {hand}"
        if code is not None and code < 0:
            text = f"{what} was killed by {_signal_name(-code)}{at}"
            if -code == signal.SIGKILL:
                text += "; often memory ran out: use fewer processes or smaller samples"
        else:
            text = f"{what} ended{at} with exit code {code}"
        if hand == _STARTING:
            text += (
                " before it was ready: what it printed says why; a script needs `if __name__ == "
                '"__main__":` around what it runs, since each process imports it'
            )
        return UnavailableError(text)


def _check_script(title: str) -> None:
    """Refuse to start what would fail at its first import: the script of this process.

    Raises:
        UnavailableError: It was read from a pipe, or is gone.
    """
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    # As multiprocessing finds it; what `python -m` runs is imported by its name.
    if path is None or getattr(getattr(main, "__spec__", None), "name", None) is not None:
        return
    directory = getattr(multiprocessing.process, "ORIGINAL_DIR", None)
    if not os.path.isfile(os.path.join(directory or "", path)):
        raise UnavailableError(
            f"cannot start a {title}: it would import this script, and {path!r} is no file; save "
            "the script as one, or use num_processes=1"
        )


def _exhausted(title: str, error: OSError) -> ExhaustedError:
    return ExhaustedError(f"cannot start a {title}: {error}; use fewer processes")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Start a process so that Ctrl-C, which the whole group gets, says nothing there.

    It begins with the signal held back, until `answer_to_parent` has a handler for it.
    """
    # The tracker lets the signal through again when it is started itself.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_interrupts_to_parent() -> None:
    """Let Ctrl-C do nothing in this process: whoever started it decides.

    A handler, since programs that the user's code starts would inherit an ignored signal.
    """
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def working_directory() -> bytes:
    """Return where relative paths begin, for a process that starts elsewhere; empty if nowhere."""
    try:
        return os.fsencode(os.getcwd())
    except OSError:
        return b""


def enter_directory(directory: bytes) -> None:
    """Let relative paths begin where they do in the parent; they are looked for where it is not."""
    with suppress(OSError):
        os.chdir(directory)


def stop_script_without_guard() -> None:
    """End a process that runs its parent's script again, because nothing there forbids it.

    Each process that is spawned imports the script of `__main__` first. One that comes to write
    there would start processes that do the same, and wait for the lock its parent has.

    Raises:
        SystemExit: This is such a process; its parent reports it.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(
            "dataset_rt: this script writes with several processes, and each of them imports it: "
            'put what it runs under `if __name__ == "__main__":`'
        )


def end_all(processes: list[Spawned], seconds: float) -> None:
    """Hang up; kill those that have not ended after so many seconds."""
    for process in processes:
        process.hang_up()
    deadline = time.monotonic() + seconds
    try:
        for process in processes:
            process.forget(deadline)
    except BaseException:
        kill_all(processes)
        raise


def kill_all(processes: list[Spawned]) -> None:
    """End them now."""
    for process in processes:
        process.kill()
    for process in processes:
        process.forget(time.monotonic() + 10)


@atexit.register
def _end_with_interpreter() -> None:
    _EXITING.set()
    # Before multiprocessing waits for them: a daemon thread that started them may be asleep.
    for process in list(_ALIVE):
        process.kill()

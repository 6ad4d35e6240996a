"""Ways to run `dataset-rt`: in this process, in one of its own, and on a terminal."""

import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from contextlib import redirect_stderr, redirect_stdout
from fcntl import ioctl
from typing import NamedTuple
from unittest import mock

PROGRAM = [sys.executable, "-m", "dataset_rt.cli"]

# A shell says 130 for both. CPython ends itself by the signal where that came while code made
# from text ran, such as that of a dataclass, although the exception was handled.
INTERRUPTED = {130, -signal.SIGINT}


class Outcome(NamedTuple):
    """What one command line did."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self):
        """stdout as text."""
        return self.raw.decode()

    @property
    def json(self):
        """stdout as the one JSON document that it must be."""
        return json.loads(self.out, parse_constant=lambda name: 1 / 0)

    @property
    def lines(self):
        """stdout by lines, the blanks of its columns taken together."""
        return [" ".join(line.split()) for line in self.out.splitlines()]


def call(*arguments, columns=None, environment=None):
    """Run one command line in this process, as if it were piped somewhere."""
    from dataset_rt.cli.app import run

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    width = {} if columns is None else {"COLUMNS": str(columns)}
    code = None
    with (
        mock.patch.object(sys, "argv", ["dataset-rt", *map(str, arguments)]),
        mock.patch.dict(os.environ, width | (environment or {})),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            run()
        except SystemExit as error:
            code = error.code
    for stream in (out, err):
        stream.flush()
    return Outcome(code or 0, out.buffer.getvalue(), err.buffer.getvalue().decode())


def spawn(*arguments, environment=None, seconds=60, **options):
    """Run one command line in a process of its own, under a hard time limit."""
    done = subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        capture_output=True,
        env={**os.environ, **(environment or {})},
        timeout=seconds,
        check=False,
        **options,
    )
    return Outcome(done.returncode, done.stdout, done.stderr.decode())


class Terminal:
    """One command line whose stdout and stderr are a terminal of `columns` columns."""

    def __init__(self, *arguments, columns=80):
        self._ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        self.process = subprocess.Popen(
            [*PROGRAM, *map(str, arguments)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment | {"TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = b""

    def read(self, until=None, seconds=60):
        """Read until a text was shown, or to the end; return all that was shown so far."""
        while until is None or until not in self.shown:
            if not select.select([self._ours], [], [], seconds)[0]:
                self.process.kill()
                raise TimeoutError(self.shown)
            try:
                piece = os.read(self._ours, 65536)
            except OSError:
                piece = b""
            if not piece:
                break
            self.shown += piece
        return self.shown

    def finish(self, seconds=60):
        """Return the exit code."""
        self.read()
        code = self.process.wait(seconds)
        os.close(self._ours)
        return code

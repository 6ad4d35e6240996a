"""The progress line: its text, a real pseudo-terminal, a notebook shell, and silence elsewhere."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_rt import progress
from dataset_rt.cards.progress import progress_card

SCRIPT = """
import sys
from dataset_rt.progress import progress_line
name, length, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
source = range(length) if length >= 0 else iter(())
try:
    with progress_line(name, source, mode != "off") as on_progress:
        if on_progress is None:
            print("nobody looks")
        else:
            for samples in (10, 500, 900):
                on_progress(samples, samples * 1000, False)
            if mode == "fail":
                raise OSError("disk full")
            on_progress(1000, 1_000_000, True)
except OSError as error:
    print(error, file=sys.stderr)
print("after", file=sys.stderr)
"""


def run_in_terminal(columns, *arguments, environment=None):
    """Return what the script wrote to a terminal of this width, as bytes."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=follower,
        env={**os.environ, **(environment or {})},
    ) as process:
        os.close(follower)
        written = b""
        while True:
            try:
                chunk = os.read(leader, 65536)
            except OSError:  # Linux reports a closed terminal as an error
                break
            if not chunk:
                break
            written += chunk
    os.close(leader)
    assert process.returncode == 0, written
    return written


def screen_of(written):
    """Return the lines a terminal would show: a carriage return goes back to the line's start."""
    lines = [[]]
    column = 0
    for character in written.decode():
        if character == "\r":
            column = 0
        elif character == "\n":
            lines.append([])
        else:
            line = lines[-1]
            line.extend(" " * (column + 1 - len(line)))
            line[column] = character
            column += 1
    return ["".join(line).rstrip() for line in lines]


def test_a_terminal_shows_one_line_per_source_and_leaves_it_standing():
    written = run_in_terminal(100, "words", "1000", "on")
    line, after, rest = screen_of(written)
    assert line.startswith("words: 1,000 samples, done in ")
    assert "samples/s" in line
    assert "MB/s" in line
    assert line.endswith("1.0 MB")
    assert (after, rest) == ("after", "")
    assert written.count(b"\n") == 2
    assert b"\x1b" not in written
    assert b"words: 500/1,000 (50%) samples, ETA " in written


def test_without_a_length_there_is_no_percentage_and_no_eta():
    written = run_in_terminal(100, "words", "-1", "on")
    assert b"words: 500 samples, " in written
    assert b"%" not in written
    assert b"ETA" not in written


def test_a_length_that_was_too_small_is_dropped():
    written = run_in_terminal(100, "words", "100", "on")
    assert b"words: 10/100 (10%) samples" in written
    assert b"words: 500 samples" in written


@pytest.mark.parametrize("columns", [10, 20, 40, 60])
def test_a_narrow_terminal_is_never_wrapped(columns):
    written = run_in_terminal(columns, "a-rather-long-source-name", "1000", "on")
    states = written.decode().replace("\r\n", "\n").split("\n")[0].split("\r")
    assert states.pop(0) == ""
    assert len(states) == 4
    assert max(map(len, states)) < columns


def test_a_failing_write_leaves_its_line_and_later_output_its_own():
    lines = screen_of(run_in_terminal(100, "words", "1000", "fail"))
    assert lines[0].startswith("words: 900/1,000 (90%) samples")
    assert lines[1:3] == ["disk full", "after"]


def test_a_terminal_without_utf8_still_gets_its_line():
    written = run_in_terminal(
        100, "wörter", "1000", "on", environment={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    )
    assert written.isascii()
    assert b"w?rter: 1,000 samples" in written


def test_switched_off_it_writes_nothing():
    assert run_in_terminal(100, "words", "1000", "off") == b"after\r\n"
    environment = {"DATASET_RT_PROGRESS": "0"}
    assert run_in_terminal(100, "words", "9", "on", environment=environment) == b"after\r\n"


def test_a_pipe_gets_nothing():
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT, "words", "1000", "on"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert (finished.stdout, finished.stderr) == ("nobody looks\n", "after\n")


class FakeClock:
    def __init__(self):
        self.seconds = 100.0

    def __call__(self):
        return self.seconds


class ListCanvas:
    """Keeps what it is told to show."""

    def __init__(self):
        self.texts = []
        self.left = 0

    def show(self, state):
        self.texts.append(progress.line_of(state, 100))

    def leave(self, state):
        self.left += 1


def test_rates_and_eta_follow_the_clock():
    clock, canvas = FakeClock(), ListCanvas()
    line = progress.Progress("s", 4000, canvas, clock)
    clock.seconds += 2
    line(1000, 5_000_000, False)
    clock.seconds += 6
    line(4000, 20_000_000, True)
    line.close()
    assert canvas.texts == [
        "s: 1,000/4,000 (25%) samples, ETA 6.0s, 500 samples/s, 2.5 MB/s, 5.0 MB",
        "s: 4,000 samples, done in 8.0s, 500 samples/s, 2.5 MB/s, 20.0 MB",
    ]
    assert canvas.left == 1


def test_a_source_that_was_reused_draws_nothing():
    canvas = ListCanvas()
    progress.Progress("s", None, canvas, FakeClock()).close()
    assert (canvas.texts, canvas.left) == ([], 0)


def test_a_terminal_that_went_away_does_not_stop_the_write():
    class BrokenCanvas(ListCanvas):
        def show(self, state):
            raise BrokenPipeError(32, "Broken pipe")

    line = progress.Progress("s", None, BrokenCanvas(), FakeClock())
    line(1, 1, False)
    line(2, 2, True)
    line.close()
    assert line._shown is None


def test_a_source_whose_length_fails_is_written_without_eta(monkeypatch):
    class Moody:
        def __len__(self):
            raise RuntimeError("not now")

    canvas = ListCanvas()
    monkeypatch.setattr(progress, "_find_canvas", lambda stream: canvas)
    with progress.progress_line("s", Moody(), True) as on_progress:
        on_progress(5, 5, False)
    assert canvas.texts[0].startswith("s: 5 samples")


@pytest.fixture
def notebook(monkeypatch):
    """A kernel's shell and display; gives what is shown, one entry per display and update."""
    shown = []

    class Handle:
        def update(self, content, raw):
            shown.append(("update", content, raw))

    def display(content, raw, display_id):
        shown.append(("display", content, raw and display_id))
        return Handle()

    class ZMQInteractiveShell:
        pass

    class GoogleShell(ZMQInteractiveShell):
        pass

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = GoogleShell
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return shown


def bar_of(content):
    """The length of the bar in per cent, if its end is known, and the words beside it."""
    html = content["text/html"].partition("</style>")[2]
    width = re.search(r'drt-track"><div class="drt-bar[^"]*"(?: style="width:([^%]+)%")?', html)
    return width and float(width[1] or 0), re.sub(r"<[^>]+>", " ", html).split()


def test_a_notebook_gets_one_bar_updated_in_place(notebook):
    with progress.progress_line("<b>s", range(10), True) as on_progress:
        on_progress(5, 5, False)
        on_progress(10, 10, True)
    texts = [(how, c["text/plain"].partition(" samples")[0], raw) for how, c, raw in notebook]
    assert texts == [("display", "<b>s: 5/10 (50%)", True), ("update", "<b>s: 10", True)]
    (half, words), (full, last) = (bar_of(content) for _, content, _ in notebook)
    assert (half, full) == (50, 100)
    assert words[:4] == ["&lt;b&gt;s", "5/10", "(50%)", "samples,"]
    assert last[:5] == ["&lt;b&gt;s", "done", "10", "samples,", "done"]


def test_a_notebook_is_told_of_a_write_that_stopped(notebook):
    def fail():
        with progress.progress_line("s", range(8), True) as on_progress:
            on_progress(2, 2, False)
            raise OSError("disk full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert notebook[-1][1]["text/plain"].startswith("s: 2/8 (25%) samples, stopped after")
    width, words = bar_of(notebook[-1][1])
    assert (width, words[:3]) == (25, ["s", "stopped", "2/8"])


def test_a_notebook_without_a_length_gets_a_bar_without_an_end(notebook):
    with progress.progress_line("s", iter(()), True) as on_progress:
        on_progress(5, 5, False)
    assert "drt-unknown" in notebook[0][1]["text/html"]
    assert bar_of(notebook[-1][1])[1][:2] == ["s", "stopped"]


def test_a_terminal_ipython_is_no_notebook(monkeypatch):
    class TerminalInteractiveShell:
        pass

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = TerminalInteractiveShell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.progress_line("s", range(10), True) as on_progress:
        assert on_progress is None


def test_a_missing_or_closed_stderr_is_nobody_looking(monkeypatch):
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.progress_line("s", range(10), True) as on_progress:
            assert on_progress is None


@settings(deadline=None)
@given(
    name=st.text(st.characters(exclude_categories=["Cc", "Cs"])),
    samples=st.integers(0, 2**63),
    size_bytes=st.integers(0, 2**63),
    seconds=st.floats(0, 1e9),
    total=st.none() | st.integers(0, 2**63),
    stage=st.sampled_from(["running", "done", "stopped"]),
    width=st.integers(1, 200),
)
def test_the_text_always_fits(name, samples, size_bytes, seconds, total, stage, width):
    state = progress.State(name, samples, size_bytes, seconds, total, stage)
    text = progress.line_of(state, width)
    progress_card(state)
    assert progress.cells(text) <= width
    assert "\n" not in text


def test_wide_characters_take_two_cells():
    assert progress.cells("ab") == 2
    assert progress.cells("日本") == 4
    assert progress.cells("e\u0301") == 1

"""Signals, deaths of the parent, and scripts without a guard: nothing hangs, nothing is left."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from conftest import directory_digest
from slow_sources import Numbers, Plain

import dataset_rt as drt

HERE = Path(__file__).parent
SECONDS = 60
PRELUDE = f"""
import os, sys, time
sys.path.insert(0, {str(HERE)!r})
import dataset_rt as drt
import slow_sources as slow
from slow_sources import Numbers, Plain, At

def write(sources, **options):
    config = drt.WriterConfig(num_processes=2, show_progress=False, max_shard_bytes=2000, **options)
    return drt.DatasetRuntime(2).write_cache(sources, sys.argv[1], writer_config=config)

def tell(path):
    open(path, "w").close()
    time.sleep(60)

class Finaliser:
    def __init__(self, path):
        self.path = path

    def __del__(self):
        tell(self.path)

def finalise(path):
    Finaliser(path)
"""
WAYS = {
    "in a transform": 'write([Numbers("a", 600, At(450, tell, sys.argv[2])), Numbers("b", 9)])',
    "in sources": 'write([Plain("a", 600, At(450, tell, sys.argv[2])), Plain("b", 600)])',
}
SOURCES = {
    "in a transform": [Numbers("a", 600), Numbers("b", 9)],
    "in sources": [Plain("a", 600), Plain("b", 600)],
}


def start(tmp_path, script, *arguments):
    """Run a script in a session of its own."""
    path = tmp_path / "script.py"
    path.write_text(PRELUDE + textwrap.dedent(script))
    return subprocess.Popen(
        [sys.executable, path, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def alive(session):
    """Processes of a session that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_session) == session and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def wait_until(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_of_the_whole_group_ends_it_quietly_and_resumes(runtime, tmp_path, way):
    script = f'if __name__ == "__main__":\n    {WAYS[way]}\n'
    process = start(tmp_path, script, tmp_path / "n", tmp_path / "begun")
    try:
        wait_until((tmp_path / "begun").exists)
        wait_until(lambda: any(w.samples for w in drt.unfinished_writes(tmp_path / "n")))
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)
        seconds = time.monotonic() - began
        wait_until(lambda: not alive(process.pid))
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert seconds < 5
    config = drt.WriterConfig(show_progress=False, max_shard_bytes=2000, lock_timeout=0)
    outcome = runtime.from_cache_sources(
        SOURCES[way],
        tmp_path / "n",
        reader_config=drt.ReaderConfig(seed=0),
        writer_config=config,
    )
    assert outcome.results[0].status == "resumed"
    runtime.write_cache(SOURCES[way], tmp_path / "1", writer_config=config)
    assert directory_digest(tmp_path / "n") == directory_digest(tmp_path / "1")


@pytest.mark.parametrize("way", [*WAYS, "in a finaliser"])
def test_processes_end_with_a_parent_that_is_killed(runtime, tmp_path, way):
    # What a signal raises in a finaliser is lost.
    begin, way = ("finalise", "in sources") if way == "in a finaliser" else ("tell", way)
    script = f'if __name__ == "__main__":\n    {WAYS[way].replace("tell", begin)}\n'
    process = start(tmp_path, script, tmp_path / "n", tmp_path / "begun")
    try:
        wait_until((tmp_path / "begun").exists)
        process.kill()
        process.wait()
        wait_until(lambda: not alive(process.pid))
        _, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    assert errors == ""
    config = drt.WriterConfig(show_progress=False, max_shard_bytes=2000, lock_timeout=0)
    runtime.from_cache_sources(
        SOURCES[way],
        tmp_path / "n",
        reader_config=drt.ReaderConfig(seed=0),
        writer_config=config,
    )
    runtime.write_cache(SOURCES[way], tmp_path / "1", writer_config=config)
    assert directory_digest(tmp_path / "n") == directory_digest(tmp_path / "1")


def test_an_interrupt_while_a_process_starts_is_left_to_the_caller(tmp_path):
    script = """
    if __name__ == "__mp_main__":
        os.mkfifo(sys.argv[2])
        with open(sys.argv[2], "w") as pipe:
            pipe.write(str(os.getpid()))
        with open(sys.argv[2]) as pipe:
            pipe.read()
    if __name__ == "__main__":
        (result,) = write([Numbers("a", 1)])
        print(result.status)
    """
    pipe = tmp_path / "pipe"
    process = start(tmp_path, script, tmp_path / "n", pipe)
    try:
        wait_until(pipe.exists)
        os.kill(int(pipe.read_text()), signal.SIGINT)
        pipe.write_text("go on")
        output, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    assert (output, errors) == ("written\n", "")


@pytest.mark.parametrize("way", ["made", "plain"])
def test_a_script_without_a_guard_is_told_so(tmp_path, way):
    sources = {
        "made": '[Numbers("a", 9), Numbers("b", 9)]',
        "plain": '[Plain("a", 9), Plain("b", 9)]',
    }
    script = f"for result in write({sources[way]}):\n    print(result.message)\n"
    process = start(tmp_path, script, tmp_path / "n")
    try:
        output, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    lines = output.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert 'needs `if __name__ == "__main__":`' in line
    assert "each of them imports it" in errors
    assert "Traceback" not in errors
    wait_until(lambda: not alive(process.pid))


def test_classes_of_a_script_with_a_guard_are_found(tmp_path):
    script = """
    class Mine:
        name = "mine"
        def __iter__(self):
            return iter(range(20))
        def transform(self, item):
            if item == 13:
                raise MineError("thirteen")
            return drt.CacheInput(b"", {"item": item})

    class MineError(Exception):
        pass

    if __name__ == "__main__":
        (result,) = write(Mine())
        print(type(result.exception) is MineError, result.message)
    """
    process = start(tmp_path, script, tmp_path / "n")
    output, errors = process.communicate(timeout=SECONDS)
    assert output == 'True source "mine" raised MineError: thirteen (after 13 samples)\n', errors


def test_classes_of_a_prompt_are_said_to_be_missing(tmp_path):
    script = PRELUDE + textwrap.dedent("""
    class Mine(Numbers):
        pass
    a, b, c = write([Mine("a", 5), *map(type("Other", (Plain,), {}), "bc", [5, 5])])
    print(a.message)
    """).replace('*map(type("Other", (Plain,), {}), "bc", [5, 5])', 'Plain("b", 1), Plain("c", 1)')
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "n"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert "transform cannot be loaded in a worker process" in done.stdout
    assert "define it in a module, not in a notebook" in done.stdout


@pytest.mark.parametrize("sources", ['Numbers("a", 5)', '[Plain("a", 5), Plain("b", 5)]'])
def test_a_script_from_a_pipe_is_said_to_be_no_file(tmp_path, sources):
    script = f'if __name__ == "__main__":\n    print(write({sources})[0].message)\n'
    done = subprocess.run(
        [sys.executable, "-", tmp_path / "n"],
        input=PRELUDE + script,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert "it would import this script, and '<stdin>' is no file; save" in done.stdout
    assert done.stderr == ""


def test_a_daemon_thread_that_writes_does_not_keep_the_program(tmp_path):
    script = """
    import threading
    if __name__ == "__main__":
        sources = [Numbers("a", 600, At(450, tell, sys.argv[2]))]
        threading.Thread(target=write, args=(sources,), daemon=True).start()
        while not os.path.exists(sys.argv[2]):
            time.sleep(0.01)
    """
    process = start(tmp_path, script, tmp_path / "n", tmp_path / "begun")
    try:
        _, errors = process.communicate(timeout=SECONDS / 2)
        wait_until(lambda: not alive(process.pid))
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, errors) == (0, "")


def test_a_daemon_process_says_that_it_may_start_none(tmp_path):
    script = """
    import multiprocessing
    def child():
        (result,) = write(Numbers("a", 5))
        print(result.message, flush=True)
    if __name__ == "__main__":
        process = multiprocessing.get_context("spawn").Process(target=child, daemon=True)
        process.start()
        process.join()
    """
    process = start(tmp_path, script, tmp_path / "n")
    output, errors = process.communicate(timeout=SECONDS)
    assert "daemonic processes are not allowed to have children; use num_processes=1" in output, (
        errors
    )

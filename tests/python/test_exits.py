"""Ends of the process while threads are at work, under hard time limits: clean, every time."""

import pytest
from conftest import numbered, run_script, written

SOURCE = """
import os, sys, threading
import dataset_rt as drt

class Numbers:
    name = "numbers"
    def __iter__(self):
        for i in range(20000):
            yield drt.CacheInput(b"x" * 500, {"v": i})

runtime = drt.DatasetRuntime(num_workers=2)
"""


def test_a_child_forked_inside_a_source_cannot_go_on_writing(tmp_path):
    code = f"""{SOURCE}
class Forking(Numbers):
    def __iter__(self):
        for i, sample in enumerate(super().__iter__()):
            if i == 10000:
                self.child = os.fork()
            yield sample

source = Forking()
config = drt.WriterConfig(max_shard_bytes=200_000)
(result,) = runtime.write_cache(source, {str(tmp_path)!r}, writer_config=config)
if source.child == 0:
    os._exit(0 if "fork" in getattr(result, "message", "") else 1)
_, status = os.waitpid(source.child, 0)
print(type(result).__name__, os.waitstatus_to_exitcode(status))
print(drt.verify_cache(result.path, level="deep").ok)
"""
    assert run_script(code).split() == ["CacheWriteSuccess", "0", "True"]


READERS = """
dataset = drt.open_dataset(sys.argv[1], shuffle=True, prefetch_size=64)
shared = iter(dataset)
def work(number, ready):
    ready()
    while True:
        for sample in dataset:
            pass
        next(shared, None)
        dataset.get_metadata()
"""

# At 0.02 s an item such a source is awake at any moment; at 2 s it is when Python has ended.
WRITERS = """
import time
class Endless:
    def __init__(self, number, ready):
        self.name = f"endless-{number}"
        self.ready = ready
    def __iter__(self):
        number = 0
        while True:
            yield drt.CacheInput(b"x" * 100, {"v": number})
            number += 1
            if number == 2:
                self.ready()
            SOURCE
config = drt.WriterConfig(show_progress=False)
def work(number, ready):
    runtime.write_cache(Endless(number, ready), sys.argv[1] + "s", writer_config=config)
"""


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(READERS, id="readers"),
        pytest.param(WRITERS.replace("SOURCE", "pass"), id="writers"),
        pytest.param(WRITERS.replace("SOURCE", "time.sleep(0.02)"), id="slow writers"),
        pytest.param(WRITERS.replace("SOURCE", "sum(range(4 * 10**7))"), id="writers deep in C"),
    ],
)
def test_the_interpreter_ends_while_daemon_threads_work(runtime, tmp_path, work):
    path = written(runtime, tmp_path, numbered(5000))
    code = f"""
import sys, threading
import dataset_rt as drt
runtime = drt.DatasetRuntime(num_workers=2)
{work}
started = threading.Barrier(4)
for number in range(3):
    threading.Thread(target=work, args=(number, started.wait), daemon=True).start()
started.wait()
print("leaving")
"""
    assert run_script(code, path) == "leaving\n"


def test_threads_that_are_no_daemons_finish_their_work_first(runtime, tmp_path):
    path = written(runtime, tmp_path, numbered(5000))
    code = """
import sys, threading
import dataset_rt as drt
dataset = drt.open_dataset(sys.argv[1])
started = threading.Barrier(3)
def work():
    started.wait()
    samples = sum(1 for _ in range(5) for _ in drt.open_dataset(sys.argv[1]))
    sys.stdout.write(f"{samples}\\n")
for _ in range(2):
    threading.Thread(target=work).start()
started.wait()
"""
    assert run_script(code, path) == "25000\n25000\n"


def test_whatever_is_left_for_the_end_may_still_read(cache):
    code = """
import atexit, sys
atexit.register(lambda: print(len(list(dataset))))  # runs after what the package registers
import dataset_rt as drt
dataset = drt.open_dataset(sys.argv[1])
"""
    assert run_script(code, cache) == "50\n"


def test_a_forked_child_ends_without_waiting_for_threads_it_does_not_have(cache):
    code = """
import os, sys, threading, time
import dataset_rt as drt
runtime = drt.DatasetRuntime(num_workers=1)
inside, leave = threading.Event(), threading.Event()
class Waiting:
    name = "waiting"
    def __iter__(self):
        yield drt.CacheInput(b"", {"v": 1})
        inside.set()
        leave.wait()
config = drt.WriterConfig(show_progress=False)
def write():
    runtime.write_cache(Waiting(), sys.argv[1] + "s", writer_config=config)
writer = threading.Thread(target=write)
writer.start()
inside.wait()
child = os.fork()
if child == 0:
    start = time.monotonic()
    drt._native.begin_exit()
    os._exit(int(time.monotonic() - start > 0.5))
_, status = os.waitpid(child, 0)
leave.set()
writer.join()
print(os.waitstatus_to_exitcode(status))
"""
    assert run_script(code, cache) == "0\n"

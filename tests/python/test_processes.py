"""Forked, spawned and interrupted processes: right samples or a typed error, never a hang."""

import copy
import gc
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import polars as pl
import pytest
from conftest import QUIET, ListSource, identities, numbered, opened, run_script, written

import dataset_rt as drt

pytestmark = pytest.mark.filterwarnings(
    # The parents of these tests have threads on purpose.
    "ignore:.*multi-threaded.*fork:DeprecationWarning",
    "ignore:Using fork.*:RuntimeWarning",
)

SECONDS = 60


def answers_of_child(context, target, *arguments):
    """Run `target(send, *arguments)` in a child; return what it sent, within a hard limit."""
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=target, args=(send, *arguments))
    child.start()
    try:
        send.close()
        assert receive.poll(SECONDS), "the child hangs"
        answer = receive.recv()
        child.join(SECONDS)
        assert child.exitcode == 0
    finally:
        if child.is_alive():
            child.kill()
        child.join()
        receive.close()
    return answer


def read_inherited(send, dataset):
    try:
        send.send(identities(dataset))
    except drt.DatasetRTError as error:
        send.send(error)


def read_afresh(send, path, workers):
    with drt.DatasetRuntime(num_workers=workers) as runtime:
        send.send(identities(opened(runtime, path, seed=3, shuffle=True)))


def expected_order(runtime, path):
    return identities(opened(runtime, path, seed=3, shuffle=True))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_that_opens_the_cache_reads_the_same_order(runtime, cache, method):
    context = multiprocessing.get_context(method)
    expected = expected_order(runtime, cache)
    assert answers_of_child(context, read_afresh, str(cache), 2) == expected


def test_a_forked_child_reads_the_inherited_dataset(runtime, cache):
    dataset = opened(runtime, cache, seed=3, shuffle=True)
    expected = expected_order(runtime, cache)
    context = multiprocessing.get_context("fork")
    for _ in range(5):
        assert answers_of_child(context, read_inherited, dataset) == expected


def test_forking_after_everything_is_warm_never_hangs(runtime, cache):
    dataset = opened(runtime, cache, seed=3, shuffle=True)
    list(dataset)
    dataset.get_metadata().lazy().group_by("label").agg(pl.col("number").sum()).collect()
    dataset.set_epoch(0)
    expected = expected_order(runtime, cache)
    context = multiprocessing.get_context("fork")
    for _ in range(20):
        assert answers_of_child(context, read_inherited, dataset) == expected


def test_forking_amid_reading_threads_never_hangs(runtime, tmp_path):
    path = written(runtime, tmp_path, numbered(5000))
    busy = opened(runtime, path, prefetch_size=4)
    dataset = opened(runtime, path, seed=3, shuffle=True)
    expected = expected_order(runtime, path)
    stop = threading.Event()

    def read_on():
        while not stop.is_set():
            for _ in busy:
                if stop.is_set():
                    break

    reader = threading.Thread(target=read_on)
    reader.start()
    try:
        context = multiprocessing.get_context("fork")
        for _ in range(10):
            assert answers_of_child(context, read_inherited, dataset) == expected
    finally:
        stop.set()
        reader.join(SECONDS)
    assert not reader.is_alive()


def test_a_child_refuses_its_parents_iterator_whatever_was_made_ahead(runtime, cache):
    iterator = iter(opened(runtime, cache))
    for _ in range(9):
        # Blocks of one sample at first, of many later.
        next(iterator)
        answer = answers_of_child(multiprocessing.get_context("fork"), read_inherited, iterator)
        assert isinstance(answer, drt.ConflictError)
        assert "before the process forked" in str(answer)
    assert [sample.sample_id for sample in iterator] == list(range(9, 50))


def test_the_parent_reads_on_after_forking(runtime, cache):
    dataset = opened(runtime, cache, seed=3, shuffle=True)
    iterator = iter(dataset)
    begun = identities([next(iterator)])
    answers_of_child(multiprocessing.get_context("fork"), read_inherited, dataset)
    assert begun + identities(iterator) == expected_order(runtime, cache)


def forget_inherited(send, kept):
    """Drop the parent's runtime, after the memory of its threads was given back."""
    other = threading.Thread(target=len, args=("",))
    other.start()
    other.join()
    kept.clear()
    gc.collect()
    send.send("alive")


def test_a_forked_child_may_forget_a_runtime_with_many_threads(cache):
    kept = [drt.DatasetRuntime(num_workers=64)]
    opened(kept[0], cache)
    context = multiprocessing.get_context("fork")
    assert answers_of_child(context, forget_inherited, kept) == "alive"


def test_iterators_refuse_pickling_with_advice(cache):
    samples = iter(drt.open_dataset(cache))
    for send in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="dataset itself"):
            send(samples)


def test_a_killed_writer_leaves_nothing_in_the_way_of_the_next(runtime, tmp_path):
    script = """
        import os, signal, sys
        import dataset_rt as drt
        class Dying:
            name = "words"
            def __iter__(self):
                for i in range(1000):
                    yield drt.CacheInput(b"x" * 10_000, {"i": i})
                os.kill(os.getpid(), signal.SIGKILL)
        config = drt.WriterConfig(show_progress=False, max_shard_bytes=1_000_000)
        drt.DatasetRuntime(num_workers=2).write_cache(Dying(), sys.argv[1], writer_config=config)
    """
    died = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], timeout=SECONDS, check=False
    )
    assert died.returncode == -signal.SIGKILL
    assert not (tmp_path / "words").exists()
    with pytest.warns(UserWarning, match="of an interrupted write"):
        path = written(runtime, tmp_path, numbered(7))
    assert len(opened(runtime, path)) == 7
    assert [entry.name for entry in tmp_path.iterdir()] == ["words"]


def test_two_processes_building_one_cache_both_end_with_it(tmp_path):
    script = """
        import sys
        import dataset_rt as drt
        class Words:
            name = "words"
            def __iter__(self):
                for i in range(3000):
                    yield drt.CacheInput(b"x" * 1000, {"i": i})
        with drt.DatasetRuntime(num_workers=1) as runtime:
            result = runtime.from_cache_sources(
                Words(),
                sys.argv[1],
                reader_config=drt.ReaderConfig(seed=1),
                writer_config=drt.WriterConfig(show_progress=False),
            )
            print(len(result.dataset), result.results[0].status)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        outputs = sorted(process.communicate(timeout=SECONDS)[0] for process in both)
    finally:
        for process in both:
            process.kill()
            process.wait()
    assert outputs == ["3000 reused\n", "3000 written\n"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["words"]


def test_a_source_may_read_a_dataset_on_the_same_one_worker_runtime(cache, tmp_path):
    script = """
        import sys
        import dataset_rt as drt
        with drt.DatasetRuntime(num_workers=1) as runtime:
            config = drt.ReaderConfig(seed=1, shuffle=False, prefetch_size=2)
            dataset = runtime.cached_dataset(sys.argv[1], reader_config=config)
            class Copying:
                name = "copy"
                def __iter__(self):
                    for sample in dataset:
                        yield drt.CacheInput(sample.data, sample.metadata)
            writer = drt.WriterConfig(show_progress=False, prefetch_size=1)
            (result,) = runtime.write_cache(Copying(), sys.argv[2], writer_config=writer)
            same = drt.open_cache(result.path).cache_id == drt.open_cache(sys.argv[1]).cache_id
            print(result.status, same)
    """
    assert run_script(script, cache, tmp_path / "copies", seconds=SECONDS) == "written True\n"


def resources():
    gc.collect()  # what earlier tests left in reference cycles is not ours to count
    status = Path("/proc/self/status").read_text()
    return {
        "threads": len(os.listdir("/proc/self/task")),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "maps": len(Path("/proc/self/maps").read_text().splitlines()),
        "anonymous MiB": int(re.search(r"RssAnon:\s+(\d+)", status)[1]) // 1024,
    }


def assert_flat(before, after):
    assert after["threads"] <= before["threads"]
    assert after["descriptors"] <= before["descriptors"]
    assert after["maps"] <= before["maps"] + 20
    assert after["anonymous MiB"] <= before["anonymous MiB"] + 16


def test_ten_thousand_abandoned_iterators_leave_nothing_behind(runtime, cache):
    dataset = opened(runtime, cache, shuffle=True, prefetch_size=8)
    for _ in range(100):
        next(iter(dataset))
    before = resources()
    for _ in range(10_000):
        next(iter(dataset))
    after = resources()
    assert_flat(before, after)


def test_runtimes_and_datasets_give_their_resources_back(cache, tmp_path):
    def use(number):
        with drt.DatasetRuntime(num_workers=2) as runtime:
            list(opened(runtime, cache))
            runtime.write_cache(
                ListSource(f"n{number}", numbered(20)), tmp_path, writer_config=QUIET
            )

    for number in range(5):
        use(number)
    before = resources()
    for number in range(5, 55):
        use(number)
    after = resources()
    assert_flat(before, after)


def test_threads_that_fork_at_once_do_not_wait_for_each_other():
    script = """
        import os, threading
        import dataset_rt
        def fork_often():
            for _ in range(200):
                child = os.fork()
                if child == 0:
                    os._exit(0)
                os.waitpid(child, 0)
        threads = [threading.Thread(target=fork_often) for _ in range(3)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print("done")
    """
    assert run_script(script, seconds=SECONDS) == "done\n"


@pytest.mark.parametrize("hook", ["before", "after_in_parent", "after_in_child"])
def test_hooks_of_a_fork_may_use_the_library(cache, hook):
    script = """
        import os, sys
        used = []
        def use():
            if used:
                dataset, runtime = used
                assert [dataset[3].sample_id, next(iter(dataset)).sample_id] == [3, 0]
                runtime.close()
        hooks = {sys.argv[2]: use}
        os.register_at_fork(**hooks)
        import dataset_rt as drt
        dataset = drt.open_dataset(sys.argv[1])
        next(iter(dataset))
        used.extend([dataset, drt.DatasetRuntime(num_workers=2)])
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print("done")
    """
    assert run_script(script, cache, hook, seconds=SECONDS) == "done\n"


WITH_A_TABLE = """
        import os, signal, sys
        # Runs behind ours before a fork: what is raised there is lost.
        os.register_at_fork(before=lambda: sum(range(1000)))
        import numpy as np
        import polars as pl
        import dataset_rt as drt
        dataset = drt.open_dataset(sys.argv[1], seed=1, shuffle=True)
        frame = dataset.get_metadata()
        rows = np.arange(int(sys.argv[2])) % len(frame)
        weight = pl.Series(np.linspace(1, 2, len(rows)))
        dataset.update_metadata(frame[rows].with_columns(weight=weight))
        def private():
            with open("/proc/self/smaps_rollup") as rollup:
                (line,) = [line for line in rollup if line.startswith("Private_Dirty")]
            return int(line.split()[1]) * 1024
"""


def test_an_order_is_worked_out_once_for_all_forked_children(cache):
    script = (
        WITH_A_TABLE
        + """
        for _ in range(2):
            child = os.fork()
            if child == 0:
                before = private()
                dataset[0]
                print(private() - before, flush=True)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    """
    )
    rows = 3_000_000
    grown = [int(line) for line in run_script(script, cache, rows, seconds=SECONDS).split()]
    assert len(grown) == 2
    # The order has more than 8 bytes a row.
    assert max(grown) < rows * 4


def test_an_interrupt_while_a_fork_works_out_an_order_is_raised_behind_it(cache):
    script = (
        WITH_A_TABLE
        + """
        parent = os.getpid()
        begun = []
        def begin():
            begun.append(True)
        os.register_at_fork(before=begin)   # runs before ours
        def interrupt(_, frame):
            # What is raised within that hook is lost, and no fault of ours.
            if begun and frame.f_code is not begin.__code__:
                raise KeyboardInterrupt
            signal.setitimer(signal.ITIMER_REAL, 0.02)
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        try:
            child = os.fork()
            if os.getpid() == parent:
                while True:
                    signal.pause()
        except KeyboardInterrupt:
            assert os.getpid() == parent
            same = drt.open_dataset(sys.argv[1])[dataset[0].sample_id].data == dataset[0].data
            # At once: two processes write here.
            os.write(1, b"raised %d\\n" % same)
        else:
            os.write(1, b"child %d\\n" % (dataset[0].sample_id >= 0))
            os._exit(0)
        os.wait()
    """
    )
    printed = run_script(script, cache, 3_000_000, seconds=SECONDS).splitlines()
    assert sorted(printed) == ["child 1", "raised 1"]

"""Samples of one source made by several processes: the cache of a serial write, to the byte."""

import itertools
import logging
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import slow_sources as slow
from conftest import directory_digest, run_script
from pydantic import ValidationError
from slow_sources import At, Numbers, Plain, sample

import dataset_rt as drt
from dataset_rt.processes.messages import Outbox
from dataset_rt.processes.transforming import PooledSource, TransformPool


def config(num_processes, **options):
    return drt.WriterConfig(num_processes=num_processes, show_progress=False, **options)


def write(runtime, directory, sources, num_processes=2, **options):
    return runtime.write_cache(sources, directory, writer_config=config(num_processes, **options))


def written(runtime, directory, sources, num_processes=2, **options):
    results = write(runtime, directory, sources, num_processes, **options)
    assert all(isinstance(result, drt.CacheWriteSuccess) for result in results), results
    return results


def same_files(*directories):
    first, *others = map(directory_digest, directories)
    assert first
    for other in others:
        assert other == first


def test_the_cache_is_that_of_one_process(runtime, tmp_path):
    sources = [
        Numbers("any", 1500, slow.any_sample),
        Numbers("skewed", 120, slow.skewed),
        Numbers("large", 30, slow.large),
        Numbers("one", 1),
        slow.ReusedItems("items in one list", 3000),
        Numbers("samples in one buffer", 3000, slow.in_one_buffer),
    ]
    written(runtime, tmp_path / "1", sources, 1, max_shard_bytes=100_000)
    written(runtime, tmp_path / "2", sources, 2, max_shard_bytes=100_000)
    written(runtime, tmp_path / "3", sources, 3, max_shard_bytes=100_000)
    same_files(tmp_path / "1", tmp_path / "2", tmp_path / "3")
    words = drt.open_cache(tmp_path / "3" / "samples in one buffer")
    assert bytes(words.payload(17)) == b"00000017"


def test_every_wrong_result_is_the_error_of_one_process(runtime, tmp_path, caplog):
    sources = [Numbers(kind, 4, At(3, slow.odd, kind)) for kind in slow.ODD]
    sources.append(Numbers("raises", 4, At(3, slow.fail, KeyError("gone"))))
    sources.append(Numbers("raises what cannot be pickled", 4, At(3, slow.fail_locked)))
    sources.append(Numbers("raises what cannot be unpickled", 4, At(3, slow.fail_custom)))
    serial = write(runtime, tmp_path / "1", sources, 1)
    parallel = write(runtime, tmp_path / "2", sources, 2)
    for one, other in zip(serial, parallel, strict=True):
        assert type(one) is type(other), (one, other)
        if isinstance(one, drt.CacheWriteError):
            assert one.message == other.message
            assert type(one.exception).__name__ == type(other.exception).__name__
    assert sum(isinstance(one, drt.CacheWriteSuccess) for one in serial) == 1
    same_files(tmp_path / "1", tmp_path / "2")
    assert len([r for r in caplog.records if "a second time" in r.message]) == 1


def test_an_exception_comes_with_its_traceback_and_leaves_nothing(runtime, tmp_path):
    (result,) = write(runtime, tmp_path, Numbers("s", 50, At(7, slow.fail, KeyError("gone"))))
    assert "source \"s\" raised KeyError: 'gone' (after 7 samples)" in result.message
    assert type(result.exception) is KeyError
    assert result.exception.args == ("gone",)
    assert "slow_sources.py" in result.exception.__notes__[0]
    assert "raise error" in result.exception.__notes__[0]
    assert list(tmp_path.iterdir()) == []


def test_samples_before_an_error_are_kept_for_resume(runtime, tmp_path):
    marker = tmp_path / "marker"
    source = Numbers("s", 600, At(450, slow.fail, KeyError("gone"), marker=marker))
    (result,) = write(runtime, tmp_path / "2", source, max_shard_bytes=2000)
    assert "(after 450 samples)" in result.message
    (unfinished,) = drt.unfinished_writes(tmp_path / "2")
    assert unfinished.samples > 300
    (result,) = written(runtime, tmp_path / "2", source, max_shard_bytes=2000)
    assert result.status == "resumed"
    assert result.samples_reused == unfinished.samples
    written(runtime, tmp_path / "1", source, 1, max_shard_bytes=2000)
    same_files(tmp_path / "1", tmp_path / "2")


def test_a_changed_transform_is_noticed_on_replay(runtime, tmp_path):
    broken = Numbers("s", 600, At(450, slow.fail, KeyError("gone")))
    broken.fingerprint = None
    write(runtime, tmp_path / "2", broken, max_shard_bytes=2000)
    changed = Numbers("s", 600, At(200, sample, 5))
    changed.fingerprint = None
    with pytest.warns(UserWarning, match="were dropped and written again"):
        (result,) = written(runtime, tmp_path / "2", changed, max_shard_bytes=2000)
    assert 100 < result.samples_reused <= 200


def test_a_worker_that_dies_costs_only_its_source(runtime, tmp_path):
    deaths = {
        "kill": (slow.die,),
        "crash": (slow.die, signal.SIGSEGV),
        "exit": (slow.leave, 3),
    }
    sources = [
        Numbers(name, 60, At(37, *what, marker=tmp_path / f"{name} once"))
        for name, what in deaths.items()
    ]
    sources.append(Numbers("lives", 60))
    killed, crashed, left, lived = write(runtime, tmp_path / "2", sources)
    assert "was killed by SIGKILL while it was at work on sample 37; often memory" in killed.message
    assert "was killed by SIGSEGV while it was at work on sample 37" in crashed.message
    assert "ended while it was at work on sample 37 with exit code 3" in left.message
    assert isinstance(killed.exception, drt.UnavailableError)
    assert isinstance(lived, drt.CacheWriteSuccess)
    written(runtime, tmp_path / "2", sources[:3])
    written(runtime, tmp_path / "1", sources, 1)
    same_files(tmp_path / "1", tmp_path / "2")


def test_a_sample_that_takes_too_long_is_named(runtime, tmp_path):
    sources = [
        Numbers("hangs", 30, At(11, slow.die, signal.SIGCONT)),
        Numbers("is stopped", 30, At(12, slow.die, signal.SIGSTOP)),
        Numbers("lives", 30),
    ]
    hung, stopped, lived = write(runtime, tmp_path, sources, process_timeout=0.5)
    assert "sample 11 took more than 0.5 s (process_timeout)" in hung.message
    assert "sample 12 took more than 0.5 s (process_timeout)" in stopped.message
    assert isinstance(hung.exception, drt.UnavailableError)
    assert isinstance(lived, drt.CacheWriteSuccess)


class Unpicklable(Numbers):
    """Holds what cannot be pickled, and a method takes everything along."""

    def __init__(self, name, count):
        super().__init__(name, count)
        self.lock = threading.Lock()


class UnpicklableItems(Numbers):
    def __iter__(self):
        yield from range(5)
        yield threading.Lock()

    transform = staticmethod(sample)


def test_what_cannot_be_pickled_is_said_with_what_to_do(runtime, tmp_path):
    local = Numbers("local", 5)
    local.transform = lambda item: sample(item)
    sources = [Unpicklable("method", 5), local, UnpicklableItems("item", 5), Numbers("lives", 5)]
    method, function, item, lives = write(runtime, tmp_path, sources)
    assert "transform cannot be sent to a worker process" in method.message
    assert "cannot pickle '_thread.lock' object" in method.message
    assert "static method" in method.message
    assert "define it in a module" in function.message
    assert "item 5 (lock) cannot be sent to a worker process" in item.message
    assert "(after 5 samples)" in item.message
    assert isinstance(item.exception, drt.InvalidInputError)
    assert isinstance(lives, drt.CacheWriteSuccess)
    Unpicklable.transform, kept = staticmethod(sample), Unpicklable.transform
    try:
        written(runtime, tmp_path, sources[0])
    finally:
        Unpicklable.transform = kept


def test_a_source_that_raises_is_reported_behind_its_samples(runtime, tmp_path):
    class Raises(Numbers):
        transform = staticmethod(sample)

        def __iter__(self):
            yield from range(500)
            raise OSError("unplugged")

    for num_processes in (1, 2):
        (result,) = write(runtime, tmp_path, Raises("s", 5), num_processes)
        assert 'source "s" raised OSError: unplugged (after 500 samples)' in result.message
        assert type(result.exception) is OSError


@pytest.mark.parametrize(
    ("where", "error"),
    [("source", KeyboardInterrupt()), ("transform", SystemExit(3))],
    ids=["source", "transform"],
)
def test_what_ends_a_program_ends_the_call(runtime, tmp_path, error, where):
    class Ends(Numbers):
        transform = staticmethod(sample)

        def __iter__(self):
            yield from range(20)
            raise error

    source = Ends("s", 5) if where == "source" else Numbers("s", 50, At(20, slow.fail, error))
    with pytest.raises(type(error)):
        write(runtime, tmp_path, [source, Numbers("never", 5)])
    assert list(tmp_path.iterdir()) == []
    written(runtime, tmp_path, [Numbers("s", 5)])


def test_an_earlier_pass_that_was_left_gives_nothing_to_a_later_one():
    with TransformPool(2, None, buffer_bytes=1 << 20) as pool:
        left = iter(PooledSource(Numbers("large", 500, slow.large), pool))
        next(left)
        samples = list(PooledSource(Numbers("other", 500), pool))
    assert [metadata["number"] for _, metadata in samples] == list(range(500))
    assert [bytes(data) for data, _ in samples] == [sample(i).data for i in range(500)]


def test_results_that_wait_for_their_turn_are_bounded():
    taken = itertools.count()

    class Counted(Numbers):
        def __iter__(self):
            for item in range(self.count):
                next(taken)
                yield item

        transform = staticmethod(slow.large_behind_a_slow_one)

    with TransformPool(2, None, buffer_bytes=2 * 1024 * 1024) as pool:
        samples = iter(PooledSource(Counted("s", 1000), pool))
        next(samples)
        ahead = next(taken)
        assert [m["number"] for _, m in samples] == list(range(1, 1000))
    # 8 wait here, 16 + 8 in the worker, with what is on its way; each chunk is short by then.
    assert 8 <= ahead < 120


def test_items_that_wait_for_a_worker_are_bounded(runtime, tmp_path, monkeypatch):
    sizes = []

    def put(outbox, message):
        sizes.append(sum(map(len, message.parts)))
        taken(outbox, message)

    taken = Outbox.put
    monkeypatch.setattr(Outbox, "put", put)
    written(runtime, tmp_path, LargeItems("s", 400))
    # Chunks grow while they are small, and end behind the item that fills them.
    assert 1024 * 1024 < max(sizes) < 1024 * 1024 + 101_000


class LargeItems(Numbers):
    def __iter__(self):
        for _ in range(self.count):
            yield bytes(100_000)

    @staticmethod
    def transform(item):
        return drt.CacheInput(b"", {"size": len(item)})


def test_interrupts_are_left_to_the_caller(runtime, tmp_path):
    sources = [
        Numbers("a", 9, At(5, slow.interrupt)),
        Plain("b", 9, At(5, slow.interrupt)),
        Plain("c", 9),
    ]
    written(runtime, tmp_path, sources)


def test_more_processes_than_samples_are_not_started(runtime, tmp_path, caplog):
    caplog.set_level(logging.DEBUG, "dataset_rt")
    written(runtime, tmp_path, [Numbers("two", 2), Numbers("three", 2)], 50)
    started = [record for record in caplog.records if "started" in record.message]
    assert len(started) == 2


def test_auto_is_the_processors_there_are_and_they_share_the_work(runtime, tmp_path):
    source = Numbers("pids", 40, pid_of_a_slow_sample)
    (result,) = written(runtime, tmp_path, source, "auto", process_timeout=60)
    pids = set(drt.open_cache(result.path).metadata()["pid"])
    assert len(pids) == len(os.sched_getaffinity(0))
    assert os.getpid() not in pids


def pid_of_a_slow_sample(number):
    slow.skewed(3)
    return drt.CacheInput(b"", {"pid": os.getpid()})


@pytest.mark.parametrize(
    "options",
    [
        {"num_processes": 0},
        {"num_processes": -1},
        {"num_processes": True},
        {"num_processes": 1.5},
        {"num_processes": "all"},
        {"process_timeout": 5.0},
        {"num_processes": 2, "process_timeout": 0},
        {"num_processes": 2, "process_timeout": float("inf")},
    ],
)
def test_bad_settings_are_refused(options):
    with pytest.raises(ValidationError):
        drt.WriterConfig(**options)


def test_good_settings_are_taken():
    assert drt.WriterConfig(num_processes=np.int64(3)).num_processes == 3
    assert drt.WriterConfig(num_processes="auto", process_timeout=5).process_timeout == 5.0


def test_a_transform_that_is_none_is_none(runtime, tmp_path):
    source = Plain("s", 5)
    source.transform = None
    for num_processes in (1, 2):
        written(runtime, tmp_path / str(num_processes), source, num_processes)
    same_files(tmp_path / "1", tmp_path / "2")


def test_a_transform_that_cannot_be_had_is_an_error_of_its_source(runtime, tmp_path):
    class Broken(Numbers):
        @property
        def transform(self):
            raise OSError("no such model")

    for num_processes in (1, 2):
        (result,) = write(runtime, tmp_path, Broken("s", 5), num_processes)
        assert "OSError: no such model (after 0 samples)" in result.message


def test_it_works_on_any_thread(runtime, tmp_path):
    results = []
    threads = [
        threading.Thread(
            target=lambda i=i: results.extend(write(runtime, tmp_path / str(i), Numbers("s", 300)))
        )
        for i in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.status for result in results] == ["written", "written"]
    same_files(tmp_path / "0", tmp_path / "1")


def test_relative_paths_begin_where_the_caller_is(runtime, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").write_bytes(b"content")
    (result,) = written(runtime, "caches", Numbers("s", 3, read_relative))
    assert bytes(drt.open_cache(result.path).payload(0)) == b"content"


def read_relative(number):
    with open("data", "rb") as file:
        return drt.CacheInput(file.read(), {"number": number})


def test_the_length_of_a_source_is_compared_as_ever(runtime, tmp_path):
    class Short(Numbers):
        def __iter__(self):
            return iter(range(3))

        transform = staticmethod(sample)

    for num_processes in (1, 2):
        with pytest.warns(UserWarning, match="yielded 3 samples, but its length is 5"):
            written(runtime, tmp_path / str(num_processes), Short("s", 5), num_processes)


def test_a_fork_of_the_caller_leaves_the_workers_alone(runtime, tmp_path):
    # The child unwinds the whole stack, ours included, in a process of its own.
    script = f"""
        import os, sys, warnings
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        warnings.simplefilter("ignore")
        import dataset_rt as drt
        from slow_sources import Numbers, sample

        class Forking(Numbers):
            def __iter__(self):
                for number in range(400):
                    if number == 200:
                        child = os.fork()
                        if child == 0:
                            raise SystemExit
                        os.waitpid(child, 0)
                    yield number
            transform = staticmethod(sample)

        config = drt.WriterConfig(num_processes=2)
        (result,) = drt.DatasetRuntime(1).write_cache(
            Forking("s", 400), sys.argv[1], writer_config=config
        )
        print(result)
    """
    (line,) = run_script(script, tmp_path).splitlines()
    assert "status='written'" in line


def test_no_handler_is_installed_and_nothing_is_printed(tmp_path):
    script = f"""
        import logging, sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import dataset_rt as drt
        from slow_sources import Numbers, Plain, At, fail
        config = drt.WriterConfig(num_processes=2)
        sources = [Numbers("a", 9), Plain("b", 9), Plain("c", 9, At(3, fail, OSError("x")))]
        drt.DatasetRuntime(1).write_cache(sources, sys.argv[1], writer_config=config)
        print(logging.getLogger("dataset_rt").handlers, logging.getLogger().handlers)
    """
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(line[8:] for line in script.splitlines()), tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("[] []\n", "")


def test_what_is_written_is_logged(runtime, tmp_path, caplog):
    caplog.set_level(logging.INFO, "dataset_rt")
    sources = [
        Numbers("made", 20),
        Plain("b", 30),
        Plain("c", 30, At(3, slow.fail, OSError("x"))),
    ]
    write(runtime, tmp_path, sources)
    texts = [record.getMessage() for record in caplog.records]
    for name, end in (
        ("made", "written, 20 samples"),
        ("b", "written, 30 samples"),
        ("c", "failed"),
    ):
        assert [text.split(": ")[1] for text in texts if text.startswith(f"source '{name}'")][
            0
        ].startswith("begins")
        assert any(text.startswith(f"source '{name}': {end}") for text in texts), texts
    loud = [record.getMessage() for record in caplog.records if record.levelno != logging.INFO]
    assert [text.partition(": failed")[0] for text in loud] == ["source 'c'"]
    assert {record.levelno for record in caplog.records} == {logging.INFO, logging.ERROR}

"""Calls from inside calls and from many threads: a result or a typed error, never a deadlock."""

import datetime as dt
import threading

import polars as pl
import pytest
from conftest import QUIET, ListSource, numbered, opened, run_script, written

import dataset_rt as drt

SECONDS = 60


def in_threads(count, work):
    """Run `work(number)` in threads; return what they raised, under a hard time limit."""
    errors = []

    def run(number):
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "a thread hangs"
    return errors


def test_a_source_that_closes_its_own_runtime_ends_with_a_result(tmp_path):
    script = """
        import sys
        import dataset_rt as drt
        runtime = drt.DatasetRuntime(num_workers=1)
        class Closing:
            name = "closing"
            def __iter__(self):
                for i in range(2000):
                    if i == 1000:
                        runtime.close()
                    yield drt.CacheInput(b"x" * 1000, {"i": i})
        config = drt.WriterConfig(show_progress=False, prefetch_size=4, max_shard_bytes=10_000)
        (result,) = runtime.write_cache(Closing(), sys.argv[1], writer_config=config)
        if isinstance(result, drt.CacheWriteSuccess):
            assert drt.open_cache(result.path).num_samples == 2000
        else:
            assert isinstance(result.exception, drt.DatasetRTError), result
        print("done")
    """
    assert run_script(script, tmp_path) == "done\n"


def test_a_source_may_write_another_cache_on_the_same_runtime(tmp_path):
    script = """
        import sys
        import dataset_rt as drt
        config = drt.WriterConfig(show_progress=False, prefetch_size=1)
        class Inner:
            name = "inner"
            def __iter__(self):
                for i in range(500):
                    yield drt.CacheInput(b"x" * i, {"i": i})
        class Outer:
            name = "outer"
            def __iter__(self):
                for i in range(500):
                    if i == 250:
                        (self.inner,) = runtime.write_cache(
                            Inner(), sys.argv[1], writer_config=config
                        )
                    yield drt.CacheInput(b"x" * i, {"i": i})
        with drt.DatasetRuntime(num_workers=1) as runtime:
            outer = Outer()
            (result,) = runtime.write_cache(outer, sys.argv[1], writer_config=config)
            print(result.status, outer.inner.status)
    """
    assert run_script(script, tmp_path) == "written written\n"


def test_a_source_writing_its_own_cache_inside_itself_does_not_hang(tmp_path):
    script = """
        import sys
        import dataset_rt as drt
        config = drt.WriterConfig(show_progress=False, lock_timeout=0.5)
        class Own:
            name = "own"
            depth = 0
            def __iter__(self):
                self.depth += 1
                yield drt.CacheInput(b"x", {"i": 0})
                if self.depth == 1:
                    (self.inner,) = runtime.write_cache(self, sys.argv[1], writer_config=config)
        with drt.DatasetRuntime(num_workers=1) as runtime:
            own = Own()
            (outer,) = runtime.write_cache(own, sys.argv[1], writer_config=config)
            kinds = sorted(type(result).__name__ for result in (outer, own.inner))
            print(kinds)
    """
    assert run_script(script, tmp_path) == "['CacheWriteError', 'CacheWriteSuccess']\n"


def test_threads_may_write_different_caches_at_once(runtime, tmp_path):
    def write(number):
        path = written(runtime, tmp_path, numbered(500, start=number), name=f"c{number}")
        assert drt.open_cache(path).metadata()["number"].to_list() == list(
            range(number, number + 500)
        )

    assert in_threads(6, write) == []


def test_threads_building_the_same_cache_all_get_it(runtime, tmp_path):
    statuses = []

    def build(_):
        result = runtime.from_cache_sources(
            ListSource("words", numbered(500)),
            tmp_path,
            reader_config=drt.ReaderConfig(seed=1),
            writer_config=QUIET,
        )
        statuses.append(result.results[0].status)

    assert in_threads(4, build) == []
    assert sorted(statuses) == ["reused"] * 3 + ["written"]


def test_threads_may_update_and_read_one_dataset_at_once(runtime, cache):
    dataset = opened(runtime, cache, shuffle=True)
    whole = dataset.get_metadata()

    def work(number):
        for turn in range(30):
            kind = (number + turn) % 3
            if kind == 0:
                dataset.update_metadata(whole.head(10 + turn))
            elif kind == 1:
                assert 1 <= len(list(dataset)) <= 50
            else:
                found = dataset.get_metadata()
                assert found["number"].to_list() == list(range(found.height))

    assert in_threads(4, work) == []


def test_threads_closing_a_runtime_in_use_end_with_a_typed_error_or_samples(cache):
    for _ in range(10):
        runtime = drt.DatasetRuntime(num_workers=2)
        dataset = opened(runtime, cache, shuffle=True, prefetch_size=2)

        def work(number, runtime=runtime, dataset=dataset):
            if number == 0:
                runtime.close()
                return
            for _ in range(20):
                list(dataset)

        for error in in_threads(4, work):
            assert isinstance(error, drt.DatasetRTError), error


def test_updating_while_iterating_in_the_same_thread_is_fine(runtime, cache):
    dataset = opened(runtime, cache)
    taken = []
    for sample in dataset:
        taken.append(sample.sample_id)
        if sample.sample_id % 10 == 0:
            dataset.update_metadata(dataset.get_metadata().with_columns(seen=pl.lit(1)))
    assert taken == list(range(50))


def test_reading_releases_the_interpreter_for_other_threads(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"x" * 3_000_000, {"i": i}) for i in range(20)])
    dataset = opened(runtime, path, prefetch_size=2)
    counted = []
    stop = threading.Event()

    def count():
        while not stop.is_set():
            counted.append(1)

    counter = threading.Thread(target=count, daemon=True)
    counter.start()
    try:
        for _ in range(3):
            assert sum(len(sample.data) for sample in dataset) == 60_000_000
    finally:
        stop.set()
        counter.join(SECONDS)
    assert counted


def test_a_generator_that_is_not_finished_is_closed_when_its_write_fails(runtime, tmp_path):
    closed = []

    class Watching(ListSource):
        def __iter__(self):
            try:
                yield drt.CacheInput(b"", {"v": 1})
                yield drt.CacheInput(b"", {"v": "text"})
                yield drt.CacheInput(b"", {"v": 2})
            finally:
                closed.append(True)

    (result,) = runtime.write_cache(Watching("words", []), tmp_path, writer_config=QUIET)
    assert isinstance(result, drt.CacheWriteError)
    assert closed == [True]


def test_samples_left_over_when_the_interpreter_ends_do_no_harm(cache):
    script = """
        import sys
        import dataset_rt as drt
        dataset = drt.open_dataset(sys.argv[1], shuffle=True, zero_copy=True)
        iterator = iter(dataset)
        sample = next(iterator)
        table = dataset.get_metadata()
        print("end")
    """
    assert run_script(script, cache) == "end\n"


def test_a_source_that_writes_its_own_name_is_refused_at_once(runtime, tmp_path):
    inner = []

    class Selfish(ListSource):
        def __iter__(self):
            inner.extend(runtime.write_cache(ListSource("words", [(b"", {"v": 1})]), tmp_path))
            yield from super().__iter__()

    (result,) = runtime.write_cache(Selfish("words", [(b"x", {"v": 2})]), tmp_path)
    assert isinstance(result, drt.CacheWriteSuccess), result
    assert isinstance(inner[0].exception, drt.ConflictError), inner


def test_an_interrupt_inside_a_value_is_no_refusal(runtime, tmp_path):
    class Zone(dt.tzinfo):
        key = "UTC"

        def utcoffset(self, moment):
            raise KeyboardInterrupt

    moment = dt.datetime(2020, 1, 1, tzinfo=Zone())
    with pytest.raises(KeyboardInterrupt):
        runtime.write_cache(ListSource("words", [(b"", {"v": moment})]), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("spelling", ["relative", "link"])
def test_a_source_that_spells_its_own_directory_otherwise_is_refused_too(
    runtime, tmp_path, monkeypatch, spelling
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "caches")
    other = {"relative": "./caches", "link": tmp_path / "link"}[spelling]
    inner = []

    class Selfish(ListSource):
        def __iter__(self):
            inner.extend(runtime.write_cache(ListSource("words", [(b"", {"v": 1})]), other))
            yield from super().__iter__()

    source = Selfish("words", [(b"x", {"v": 2})])
    (result,) = runtime.write_cache(source, tmp_path / "caches")
    assert isinstance(result, drt.CacheWriteSuccess), result
    assert isinstance(inner[0].exception, drt.ConflictError), inner


def test_a_signal_handler_may_read_the_iterator_it_interrupts(runtime, tmp_path):
    script = """
        import signal, sys
        import dataset_rt as drt
        dataset = drt.open_dataset(sys.argv[1], prefetch_size=8)
        iterator = iter(dataset)
        seen = []
        def handler(*_):
            try:
                seen.append(next(iterator).sample_id)
            except (StopIteration, drt.ConflictError):
                pass
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        for sample in iterator:
            seen.append(sample.sample_id)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(sorted(seen) == list(range(len(dataset))))
    """
    samples = [(bytes(100_000), {"i": i}) for i in range(1_500)]
    assert run_script(script, written(runtime, tmp_path, samples)) == "True\n"


def test_a_source_may_hand_on_the_stream_of_another_dataset(tmp_path):
    # Payloads that take long enough for a look at signals while pyarrow holds no interpreter lock.
    script = """
        import random, sys
        import dataset_rt as drt
        payload = random.Random(0).randbytes(1 << 20) * 150

        class Large:
            name = "large"
            def __iter__(self):
                for i in range(2):
                    yield drt.CacheInput(payload, {"n": i})

        class Copy:
            name = "copy"
            def __iter__(self):
                yield from dataset.to_arrow(["n", "payload"])

        config = drt.WriterConfig(
            show_progress=False, shard_compression=drt.ShardCompression(algo="lz4")
        )
        with drt.DatasetRuntime(num_workers=1) as runtime:
            (made,) = runtime.write_cache(Large(), sys.argv[1], writer_config=config)
            dataset = runtime.cached_dataset(made.path, reader_config=drt.ReaderConfig(seed=0))
            stream = dataset.to_arrow(["n", "payload"])
            handed = drt.ArrowSource("handed", stream, payload="payload")
            results = runtime.write_cache([Copy(), handed], sys.argv[1], writer_config=config)
            print(*(drt.open_cache(result.path).cache_id == drt.open_cache(made.path).cache_id
                    for result in results))
    """
    assert run_script(script, tmp_path).split() == ["True", "True"]


@pytest.mark.parametrize("face", ["iter(dataset)", "dataset.iter_batches(3)"])
@pytest.mark.parametrize("hook", ["before", "after_in_parent"])
def test_a_hook_of_a_fork_may_ask_an_iterator_that_a_thread_reads(cache, face, hook):
    script = f"""
        import os, sys, threading
        import dataset_rt as drt
        dataset = drt.open_dataset(sys.argv[1])
        dataset.set_epoch_len(2**40)
        samples = {face}
        begun, ended = threading.Event(), threading.Event()

        def read():
            while not ended.is_set():
                next(samples)
                begun.set()

        def ask():
            try:
                next(samples)
            except drt.ConflictError as error:
                assert "hooks of a fork" in str(error), error

        thread = threading.Thread(target=read)
        thread.start()
        begun.wait()
        os.register_at_fork({hook}=ask)
        for _ in range(100):
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
        ended.set()
        thread.join()
        print("done")
    """
    assert run_script(script, cache).split() == ["done"]


def test_an_interrupt_while_a_table_is_exported_is_no_refusal_of_it(runtime, cache):
    dataset = opened(runtime, cache)
    table = dataset.get_metadata().head(3)

    class Interrupted:
        def __arrow_c_stream__(self, requested_schema=None):
            raise KeyboardInterrupt

        def to_arrow(self):
            return table.to_arrow()

    with pytest.raises(KeyboardInterrupt):
        dataset.update_metadata(Interrupted())
    assert len(dataset) == 50


@pytest.mark.parametrize("sampling", ["multinomial", "weighted_without_replacement"])
@pytest.mark.parametrize("inner", ["state", "sample", "index", "save"])
def test_a_signal_handler_may_need_the_order_that_its_thread_works_out(tmp_path, sampling, inner):
    """A checkpoint in a handler, while the first sample after a new table is waited for."""
    script = """
        import signal, sys
        import polars as pl, pyarrow as pa
        import dataset_rt as drt
        directory, sampling, inner = sys.argv[1:]
        rows = 150_000
        table = pa.table({"payload": [b""] * rows, "i": range(rows)})
        with drt.DatasetRuntime(num_workers=1) as runtime:
            config = drt.WriterConfig(show_progress=False)
            source = drt.ArrowSource("rows", table, payload="payload")
            (written,) = runtime.write_cache(source, directory, writer_config=config)
            config = drt.ReaderConfig(seed=5, sampling=sampling)
            dataset = runtime.cached_dataset(written.path, reader_config=config)
            frame = dataset.get_metadata().sample(fraction=1.0, shuffle=True, seed=1)
            frame = frame.with_columns(weight=pl.col("i") + 1.0)
            calls = {
                "state": dataset.state_dict,
                "sample": lambda: next(iter(dataset)),
                "index": lambda: dataset[3],
                "save": lambda: dataset.save_state(directory + "/state"),
            }
            handled = []
            signal.signal(signal.SIGALRM, lambda *_: handled.append(calls[inner]()))
            # One of the delays meets the order being made.
            for milliseconds in range(1, 12):
                dataset.update_metadata(frame)
                signal.setitimer(signal.ITIMER_REAL, milliseconds / 1000)
                next(iter(dataset))
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert handled
        print("done")
    """
    assert run_script(script, tmp_path, sampling, inner, seconds=60) == "done\n"

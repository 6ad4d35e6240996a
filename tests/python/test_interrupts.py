"""Ctrl-C ends every long call soon, changes nothing, and the process may go on.

A call that does not look for signals still runs the handler, but only once and at its very end.
So these tests let a timer tick through the call: the handler must run again and again meanwhile.
"""

import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

import polars as pl
import pyarrow as pa
import pytest
from conftest import QUIET, ListSource, opened, run_script

import dataset_rt as drt

SECONDS = 60
ROWS = 2_000_000
TICK = 0.02


class Ticks:
    """Ticks of a timer during a block; from tick `raises_at` on each raises KeyboardInterrupt."""

    def __init__(self, raises_at=None):
        self.raises_at = raises_at
        self.count = 0

    def __enter__(self):
        self.before = signal.signal(signal.SIGALRM, self.tick)
        signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
        return self

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)

    def tick(self, *_):
        self.count += 1
        if self.raises_at is not None and self.count >= self.raises_at:
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A cache of many small samples."""
    numbers = pa.array(range(ROWS))
    table = pa.table({"data": pa.repeat(b"payload", ROWS), "n": numbers, "s": numbers.cast("str")})
    with drt.DatasetRuntime(num_workers=2) as runtime:
        (result,) = runtime.write_cache(
            drt.ArrowSource("many", table, payload="data"),
            tmp_path_factory.mktemp("many"),
            writer_config=QUIET,
        )
    return result.path


def shuffled_table(dataset):
    """The table in an order and with weights that leave no short cut."""
    return (
        dataset.get_metadata()
        .sample(fraction=1.0, shuffle=True, seed=1)
        .with_columns(weight=pl.col("n") + 0.5)
    )


def verify(runtime, path, dataset):
    return lambda: drt.verify_cache(path, level="deep").ok


def open_validated(runtime, path, dataset):
    return lambda: len(opened(runtime, path, validate_cache=True))


def reuse_validated(runtime, path, dataset):
    def call():
        built = runtime.from_cache_sources(
            ListSource("many", []),
            path.parent,
            reader_config=drt.ReaderConfig(seed=0),
            writer_config=drt.WriterConfig(show_progress=False, validate_cache=True),
        )
        return built.results[0].status

    return call


def digest_order(runtime, path, dataset):
    return lambda: dataset.order_digest(0, 4 * ROWS)


def take_a_batch(runtime, path, dataset):
    def call():
        dataset.set_epoch(0)
        return next(dataset.iter_batches(ROWS)).num_rows

    return call


def update(runtime, path, dataset):
    table = shuffled_table(dataset)
    return lambda: dataset.update_metadata(table)


LONG_CALLS = [verify, open_validated, reuse_validated, digest_order, update, take_a_batch]


@pytest.mark.parametrize("make", LONG_CALLS, ids=lambda make: make.__name__)
def test_long_calls_look_for_signals_and_an_interrupt_changes_nothing(runtime, many, make):
    dataset = opened(runtime, many, shuffle=True)
    call = make(runtime, many, dataset)
    expected = counted(call)
    state = (len(dataset), dataset.epoch, dataset.order_fingerprint)
    interrupt(call)
    assert (len(dataset), dataset.epoch, dataset.order_fingerprint) == state
    assert call() == expected


def counted(call):
    """What `call` returns, once it is seen that it looks for signals."""
    with Ticks() as ticks:
        start = time.monotonic()
        answer = call()
        seconds = time.monotonic() - start
    # A few ticks of every second, where all but one would be lost.
    assert ticks.count >= max(2, 4 * seconds), (ticks.count, seconds)
    return answer


def interrupt(call):
    with Ticks(raises_at=2), pytest.raises(KeyboardInterrupt):
        call()


@pytest.mark.parametrize("shuffle", [True, False])
def test_working_out_an_order_is_interrupted_and_done_again(runtime, many, shuffle):
    dataset = opened(runtime, many, shuffle=shuffle)
    # An order that is not shuffled is worked out so soon that two million rows are too few.
    table = pl.concat([shuffled_table(dataset)] * (1 if shuffle else 6))
    dataset.update_metadata(table)
    interrupt(lambda: dataset.order_fingerprint)
    fingerprint = counted(lambda: dataset.order_fingerprint)
    dataset.update_metadata(table)
    samples = iter(dataset)
    interrupt(lambda: next(samples))
    first = next(samples)
    assert dataset.order_fingerprint == fingerprint
    dataset.set_epoch(0)
    assert dataset[0] == first


def test_working_out_a_cycle_is_interrupted_and_done_again(runtime, many):
    options = {"shuffle": True, "sampling": "weighted_without_replacement"}
    dataset = opened(runtime, many, **options)
    table = shuffled_table(dataset)
    dataset.update_metadata(table)
    # What all cycles share is there; the first cycle is not.
    fingerprint = dataset.order_fingerprint
    samples = iter(dataset)
    interrupt(lambda: next(samples))
    first = counted(lambda: next(samples))
    interrupt(lambda: dataset[0])
    second = counted(lambda: dataset[0])
    dataset.set_epoch(2)
    interrupt(lambda: next(dataset.iter_batches(10)))
    interrupt(lambda: dataset.order_digest(4 * ROWS, 4 * ROWS + 1))
    assert dataset.order_fingerprint == fingerprint
    again = opened(runtime, many, **options)
    again.update_metadata(table)
    assert again[0] == first
    again.set_epoch(1)
    assert again[0] == second


def test_threads_wait_for_an_order_that_one_of_them_works_out(runtime, many):
    dataset = opened(runtime, many, shuffle=True)
    dataset.update_metadata(shuffled_table(dataset))
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(dataset.order_fingerprint)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    counted(lambda: dataset.order_fingerprint)
    for thread in threads:
        thread.join(SECONDS)
    assert found == [dataset.order_fingerprint] * 3


PRELUDE = """
        import os, signal, sys, threading, time
        import dataset_rt as drt
        target = sys.argv[1]

        def press_soon(when):
            def press():
                when()
                pressed.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)
            pressed = []
            threading.Thread(target=press, daemon=True).start()
            return pressed

        def interrupt(call, when=lambda: time.sleep(0.3)):
            pressed = press_soon(when)
            try:
                call()
            except KeyboardInterrupt:
                print(time.monotonic() - pressed[0])
                return
            raise SystemExit("it was not interrupted")

        def write(source, **options):
            config = drt.WriterConfig(show_progress=False, **options)
            with drt.DatasetRuntime(num_workers=1) as runtime:
                return runtime.write_cache(source, target, writer_config=config)

        class Source:
            def __init__(self, items, name="words"):
                self.name, self.items = name, items
            def __iter__(self):
                for i, item in enumerate(self.items):
                    yield drt.CacheInput(item, {"i": i})

        noise = os.urandom(1 << 20)
        hard = drt.ShardCompression(algo="zstd", level=22)
"""

WRITES = {
    "in the source": """
        import itertools
        interrupt(lambda: write(Source(itertools.repeat(b"x" * 100))))
    """,
    "in a sleeping source": """
        interrupt(lambda: write(Source(time.sleep(60) for _ in range(2))))
    """,
    "in the wait for a full queue": """
        items = (noise[i:] + noise[:i] for i in range(400))
        interrupt(lambda: write(Source(items), shard_compression=hard, prefetch_bytes=1 << 20))
    """,
    "in the wait for the last groups": """
        ended = threading.Event()
        def items():
            for i in range(40):
                yield noise[i:] + noise[:i]
            ended.set()
        interrupt(lambda: write(Source(items()), shard_compression=hard), ended.wait)
    """,
    "in the wait for another writer": """
        begun, leave = threading.Event(), threading.Event()
        def items():
            yield b""
            begun.set()
            leave.wait()
        other = threading.Thread(target=write, args=(Source(items()),))
        other.start()
        begun.wait()
        interrupt(lambda: write(Source([b"mine"])))
        leave.set()
        other.join()
        os.rename(target + "/words", target + "/others")
    """,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_writer_is_interrupted_leaves_nothing_and_may_write_again(tmp_path, write):
    script = (
        textwrap.dedent(PRELUDE)
        + textwrap.dedent(write)
        + textwrap.dedent("""
        left = set(os.listdir(target) if os.path.exists(target) else []) - {"others"}
        assert not left, left
        (result,) = write(Source([b"again"]))
        print(drt.verify_cache(result.path, level="deep").ok)
    """)
    )
    seconds, ok = run_script(script, tmp_path / "caches").split()
    assert ok == "True"
    assert float(seconds) < 5


def test_an_interrupt_that_nobody_catches_ends_the_process_as_a_signal_does(tmp_path):
    script = """
        import itertools
        print("ready", flush=True)
        write(Source(itertools.repeat(b"x" * 1000)))
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PRELUDE + script), str(tmp_path / "caches")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors


READS = {
    "by iteration": "interrupt(lambda: sum(1 for _ in dataset))",
    "by position": "interrupt(lambda: [dataset[i % 50] for i in range(2**50)])",
    "by batches": "interrupt(lambda: sum(b.num_rows for b in dataset.iter_batches(64)))",
    "by a huge batch": "interrupt(lambda: next(dataset.iter_batches(10**8)))",
    "by positions": "interrupt(lambda: dataset.__getitems__(i % 50 for i in range(10**7)))",
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_reader_is_interrupted_and_may_read_on(cache, read):
    script = (
        PRELUDE
        + """
        dataset = drt.open_dataset(target, shuffle=True)
        dataset.set_epoch_len(2**50)
    """
    )
    script = textwrap.dedent(script) + read + "\nprint(len(dataset[7].metadata))"
    seconds, members = run_script(script, cache).split()
    assert float(seconds) < 5
    assert members == "3"


def test_a_library_that_holds_the_lock_is_interrupted(cache):
    """Polars makes a text of any error of a stream: the interrupt comes up right behind it."""
    script = """
        import polars as pl
        dataset = drt.open_dataset(target)
        table = dataset.get_metadata()
        dataset.update_metadata(pl.concat([table] * 200_000))

        def call():
            try:
                pl.DataFrame(dataset)
            except pl.exceptions.PolarsError as error:
                assert "interrupted" in str(error)
                time.sleep(10)

        interrupt(call, when=lambda: time.sleep(0.1))
        print(dataset.to_arrow(["number"]).read_next_batch().num_rows > 0)
    """
    seconds, ok = run_script(textwrap.dedent(PRELUDE + script), cache).split()
    assert float(seconds) < 2
    assert ok == "True"


@pytest.fixture(scope="module")
def huge(tmp_path_factory):
    """A cache of one payload that takes tenths of a second to verify, unpack and copy."""
    payload = random.Random(0).randbytes(1 << 20) * 400
    config = drt.WriterConfig(
        show_progress=False, shard_compression=drt.ShardCompression(algo="lz4", scope="payload")
    )
    with drt.DatasetRuntime(num_workers=1) as runtime:
        (result,) = runtime.write_cache(
            ListSource("huge", [(payload, {"a": 1}), (b"small", {"a": 2})]),
            tmp_path_factory.mktemp("huge"),
            writer_config=config,
        )
    return result.path, payload


def read_next(path):
    samples = iter(drt.open_dataset(path))
    return lambda: next(samples).data


def read_one(path):
    return lambda: drt.open_dataset(path)[0].data


def read_batch(path):
    batches = drt.open_dataset(path).iter_batches(1)
    return lambda: next(batches).num_rows


def read_payload(path):
    return lambda: bytes(drt.open_cache(path).payload(0))


def read_shard(path):
    return lambda: drt.open_cache(path).shards()[0].to_arrow().num_rows


def verify_deep(path):
    return lambda: drt.verify_cache(path, level="deep").ok


@pytest.mark.parametrize(
    "make",
    [read_next, read_one, read_batch, read_payload, read_shard, verify_deep],
    ids=lambda m: m.__name__,
)
def test_a_long_step_over_one_payload_is_interrupted_and_done_again(huge, make):
    path, payload = huge
    call = make(path)
    interrupt(call)
    expected = {read_batch: 1, read_shard: 1, verify_deep: True}.get(make, payload)
    assert counted(call) == expected

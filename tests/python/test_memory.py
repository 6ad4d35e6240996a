"""Memory is bounded by the byte budgets, not by how much is written, read or asked for."""

import pytest
from conftest import run_script, written

import dataset_rt as drt

MIB = 1024 * 1024

# Anonymous memory alone: pages of mapped files belong to the system and are given back at will.
ANONYMOUS = """
        import sys
        import dataset_rt as drt
        def anonymous():
            with open("/proc/self/status") as status:
                (line,) = [line for line in status if line.startswith("RssAnon")]
            return int(line.split()[1]) * 1024
"""


@pytest.mark.parametrize("algo", ["none", "zstd"])
def test_writing_holds_no_more_than_its_budget(tmp_path, algo):
    script = (
        ANONYMOUS
        + """
        class Large:
            name = "large"
            def __iter__(self):
                payload = bytearray(2 << 20)
                self.peak = 0
                for i in range(150):
                    payload[:8] = i.to_bytes(8, "little")
                    yield drt.CacheInput(payload, {"i": i})
                    self.peak = max(self.peak, anonymous())
        source = Large()
        config = drt.WriterConfig(
            show_progress=False,
            prefetch_bytes=8 << 20,
            max_shard_bytes=64 << 20,
            shard_compression=drt.ShardCompression(algo=sys.argv[2]),
        )
        with drt.DatasetRuntime(num_workers=2) as runtime:
            before = anonymous()
            (result,) = runtime.write_cache(source, sys.argv[1], writer_config=config)
        assert isinstance(result, drt.CacheWriteSuccess), result
        print(source.peak - before)
    """
    )
    assert int(run_script(script, tmp_path, algo)) < 100 * MIB


@pytest.fixture(scope="module", params=["none", "zstd", "zstd buffer"])
def large(request, tmp_path_factory):
    algo, _, scope = request.param.partition(" ")
    compression = drt.ShardCompression(algo=algo, scope=scope or "payload")
    config = drt.WriterConfig(
        show_progress=False, max_shard_bytes=16 * MIB, shard_compression=compression
    )
    samples = ((bytes([i]) * (2 * MIB), {"i": i}) for i in range(150))
    with drt.DatasetRuntime(num_workers=2) as runtime:
        return written(runtime, tmp_path_factory.mktemp("large"), samples, config=config)


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("shuffle", ["", "shuffle"])
def test_a_slow_reader_holds_no_more_than_its_budget(large, io, shuffle):
    script = (
        ANONYMOUS
        + """
        path, io, shuffle = sys.argv[1:]
        dataset = drt.open_dataset(
            path, io=io, shuffle=bool(shuffle), prefetch_size=1000, prefetch_bytes=8 << 20
        )
        before = peak = anonymous()
        for sample in dataset:
            peak = max(peak, anonymous())
        print(peak - before)
    """
    )
    # Twice the budget for one large sample, and decompressing a buffer needs the whole of it.
    assert int(run_script(script, large, io, shuffle)) < 120 * MIB


def test_opening_and_the_first_sample_cost_no_memory_per_payload_byte(large):
    script = (
        ANONYMOUS
        + """
        before = anonymous()
        dataset = drt.open_dataset(sys.argv[1])
        next(iter(dataset))
        dataset.get_metadata()
        dataset.runtime.close()
        print(anonymous() - before)
    """
    )
    assert int(run_script(script, large)) < 120 * MIB


def test_reading_again_and_again_does_not_grow(large):
    script = (
        ANONYMOUS
        + """
        dataset = drt.open_dataset(sys.argv[1], shuffle=True, prefetch_bytes=8 << 20)
        dataset.set_epoch_len(40)
        for _ in range(3):
            list(dataset)
        before = anonymous()
        for _ in range(10):
            list(dataset)
        print(anonymous() - before)
    """
    )
    assert int(run_script(script, large)) < 120 * MIB


def test_updating_the_table_again_and_again_does_not_grow(tmp_path):
    with drt.DatasetRuntime(num_workers=2) as runtime:
        samples = ((b"", {"i": i, "s": f"row {i}"}) for i in range(50_000))
        path = written(runtime, tmp_path, samples)
    script = (
        ANONYMOUS
        + """
        import polars as pl
        dataset = drt.open_dataset(sys.argv[1], shuffle=True)
        def turn(number):
            table = dataset.get_metadata().with_columns(weight=pl.col("i") + number)
            dataset.update_metadata(table)
            next(iter(dataset))
        for number in range(1, 6):
            turn(number)
        before = anonymous()
        for number in range(6, 46):
            turn(number)
        print(anonymous() - before)
    """
    )
    assert int(run_script(script, path)) < 40 * MIB


# What a moment between two samples does not show: a second thread looks all the time.
WATCHED = (
    ANONYMOUS
    + """
        import random, resource, threading
        MIB = 1 << 20
        class Watch:
            def __enter__(self):
                self.before = self.peak = anonymous()
                self.over = threading.Event()
                self.thread = threading.Thread(target=self.look)
                self.thread.start()
                return self
            def look(self):
                while not self.over.wait(0.002):
                    self.peak = max(self.peak, anonymous())
            def __exit__(self, *_):
                self.over.set()
                self.thread.join()
            @property
            def mib(self):
                return (self.peak - self.before) // MIB

        class Payloads:
            name = "payloads"
            def __init__(self, size, count):
                self.count, self.payload = count, bytearray(size)
                for start in range(0, size, 4 * MIB):  # a quarter does not compress
                    self.payload[start : start + MIB] = random.randbytes(MIB)
            def __iter__(self):
                for i in range(self.count):
                    self.payload[:8] = i.to_bytes(8, "little")
                    yield drt.CacheInput(self.payload, {"i": i})

        def written_and_read(source, directory, algo, **prefetch):
            # MiB beyond what stood before, in the writer and in the reader.
            config = drt.WriterConfig(
                show_progress=False, shard_compression=drt.ShardCompression(algo=algo), **prefetch
            )
            with drt.DatasetRuntime(num_workers=8) as runtime:
                with Watch() as writer:
                    (result,) = runtime.write_cache(source, directory, writer_config=config)
                assert isinstance(result, drt.CacheWriteSuccess), result
                reader_config = drt.ReaderConfig(seed=1, prefetch_size=10_000, **prefetch)
                dataset = runtime.cached_dataset(result.path, reader_config=reader_config)
                with Watch() as reader:
                    for sample in dataset:
                        del sample
            return writer.mib, reader.mib
"""
)


def test_the_order_of_a_weighted_table_is_made_within_its_bytes_a_row(tmp_path):
    script = (
        WATCHED
        + """
        import polars as pl
        rows = 2_000_000
        numbers = pl.DataFrame({"n": range(rows)}).with_columns(payload=pl.lit(b"x"))
        source = drt.ArrowSource("rows", numbers, payload="payload")
        with drt.DatasetRuntime(num_workers=2) as runtime:
            config = drt.WriterConfig(show_progress=False)
            (result,) = runtime.write_cache(source, sys.argv[1], writer_config=config)
            dataset = runtime.cached_dataset(result.path, reader_config=drt.ReaderConfig(seed=1))
            frame = dataset.get_metadata().with_columns(weight=pl.col("n") % 1000 + 0.5)
            dataset.update_metadata(frame)
            with Watch() as watch:
                next(iter(dataset))
        print(watch.mib)
    """
    )
    # 12.5 bytes a row are 24 MiB; a copy of the weights would be 15 more.
    assert int(run_script(script, tmp_path)) < 29


@pytest.mark.parametrize("algo", ["none", "zstd", "lz4"])
def test_a_payload_far_above_the_budget_is_held_a_few_times_and_no_other_beside_it(tmp_path, algo):
    script = (
        WATCHED
        + """
        print(*written_and_read(
            Payloads(100 * MIB, 5), sys.argv[1], sys.argv[2], prefetch_bytes=8 * MIB
        ))
    """
    )
    writer, reader = map(int, run_script(script, tmp_path, algo).split())
    # Being taken in while its buffer grows, waiting, being encoded; decompressed and as `bytes`.
    assert writer < 450
    assert reader < 250


# The default writer holds at most 256 MiB and twice the largest payload beyond its source, for any
# number of rows and columns; half of that where no metadata wait for their batch.
UNBUDGETED = {
    "large payloads": ("none", "Payloads(4 * MIB, 250)", 200),
    "large payloads, zstd": ("zstd", "Payloads(4 * MIB, 250)", 200),
    "large payloads, lz4": ("lz4", "Payloads(4 * MIB, 250)", 200),
    "a thousand columns": ("none", "Batches(1000, 2000, 20)", 256),
    "three million rows": ("none", "Batches(2, 100_000, 30)", 200),
}


@pytest.mark.parametrize("case", UNBUDGETED)
def test_writing_without_a_budget_is_bounded_whatever_the_shape(tmp_path, case):
    algo, source, limit = UNBUDGETED[case]
    script = (
        WATCHED
        + f"""
        import pyarrow as pa
        class Batches:
            name = "batches"
            def __init__(self, columns, rows, count):
                column = pa.array(range(rows))
                payload = pa.array([b"payload"] * rows, pa.large_binary())
                names = [f"c{{i}}" for i in range(columns)]
                self.count = count
                self.batch = pa.record_batch([column] * columns + [payload], [*names, "payload"])
            def __iter__(self):
                yield from [self.batch] * self.count
        source = {source}
        compression = drt.ShardCompression(algo={algo!r})
        config = drt.WriterConfig(show_progress=False, shard_compression=compression)
        with drt.DatasetRuntime(num_workers=8) as runtime, Watch() as writer:
            (result,) = runtime.write_cache(source, sys.argv[1], writer_config=config)
        assert isinstance(result, drt.CacheWriteSuccess), result
        print(writer.mib)
    """
    )
    assert int(run_script(script, tmp_path)) < limit


def test_without_a_budget_both_sides_fit_a_small_memory(tmp_path):
    script = (
        WATCHED
        + """
        resource.setrlimit(resource.RLIMIT_DATA, (900 * MIB, 900 * MIB))
        print(*written_and_read(Payloads(MIB, 400), sys.argv[1], "zstd"))
    """
    )
    # An eighth of the limit is 112 MiB.
    writer, reader = map(int, run_script(script, tmp_path).split())
    assert writer < 400
    assert reader < 200


@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_a_sample_without_memory_comes_again_once_there_is_some(runtime, tmp_path, algo):
    config = drt.WriterConfig(
        show_progress=False, shard_compression=drt.ShardCompression(algo=algo)
    )
    samples = [(bytes([i]) * (20 * MIB), {"n": i}) for i in range(8)]
    path = written(runtime, tmp_path, samples, config=config)
    script = """
        import resource, sys
        import dataset_rt as drt

        dataset = drt.open_dataset(sys.argv[1])
        dataset[0]
        samples, held, taken, refused = iter(dataset), [], [], 0
        with open("/proc/self/statm") as sizes:
            used = int(sizes.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (90 << 20), -1))
        while True:
            try:
                sample = next(samples, None)
            except (MemoryError, drt.ExhaustedError):
                refused += 1
                held.clear()
                sample = None
                continue
            if sample is None:
                break
            assert sample.data.count(sample.metadata["n"]) == 20 << 20
            held.append(sample)
            taken.append(sample.metadata["n"])
        print(refused > 0, taken)
    """
    assert run_script(script, path) == f"True {list(range(8))}\n"

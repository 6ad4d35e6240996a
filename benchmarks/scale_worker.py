"""One process of the measurements at scale: it writes caches, or times steps on them.

Run by `benchmarks.scale` with a job as JSON; prints one JSON line of values in seconds, bytes,
counts or rates a second, as their names say.
"""

import functools
import itertools
import json
import resource
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

import dataset_rt as drt
from benchmarks.measure import memory
from benchmarks.metadata_handover import Exporter
from dataset_rt import open_dataset

PAYLOAD_BYTES = 8
EPOCH_SAMPLES_MAX = 3_000_000
SPLITS = pa.array(["train", "valid"])
WRITTEN_ROWS = 1 << 20


def seconds(task):
    begin = time.perf_counter()
    task()
    return time.perf_counter() - begin


def stored_table(start, stop):
    numbers = np.arange(start, stop)
    offsets = np.arange(len(numbers) + 1, dtype=np.int64) * PAYLOAD_BYTES
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(numbers.astype("<i8"))]
    split = pa.array((numbers % 10 == 0).astype(np.int8))
    return pa.table(
        {
            "payload": pa.Array.from_buffers(pa.large_binary(), len(numbers), buffers),
            "label": numbers % 10,
            "score": numbers * 0.5,
            "split": pa.DictionaryArray.from_arrays(split, SPLITS).cast(pa.large_string()),
        }
    )


def weights(rows):
    return np.random.default_rng(12).random(rows) + 0.01


def write_table(directory, rows):
    tables = (
        stored_table(start, min(start + WRITTEN_ROWS, rows))
        for start in range(0, rows, WRITTEN_ROWS)
    )
    first = stored_table(0, 1)
    batches = (batch for table in tables for batch in table.to_batches())
    reader = pa.RecordBatchReader.from_batches(first.schema, batches)
    write(directory, drt.ArrowSource("rows", reader, payload="payload"))
    return {}


def write(directory, sources, **options):
    config = drt.WriterConfig(show_progress=False, **options)
    with drt.DatasetRuntime() as runtime:
        results = runtime.write_cache(sources, directory, writer_config=config)
    for result in results:
        if not isinstance(result, drt.CacheWriteSuccess):
            raise TypeError(result.message)


def write_many(directory, caches, rows, shards):
    """Caches of `rows` rows each, and one cache of `shards` shards of one row."""
    tables = (
        drt.ArrowSource(f"{i:06}", stored_table(i * rows, (i + 1) * rows), payload="payload")
        for i in range(caches)
    )
    write(Path(directory) / "caches", list(tables))
    source = drt.ArrowSource("shards", stored_table(0, shards), payload="payload")
    write(directory, source, max_shard_bytes=1, prefetch_size=1)
    return {"shards": len(drt.open_cache(Path(directory) / "shards").shards())}


def open_once(paths, shuffle):
    """The first call of a process, up to its first sample; imports are measured apart."""
    begin = time.perf_counter()
    dataset = open_dataset(paths, seed=1, shuffle=shuffle)
    opened = time.perf_counter()
    next(iter(dataset))
    return {"open": opened - begin, "open to first sample": time.perf_counter() - begin}


def table(path, rows):
    """The life of a table: shown, given weights, sampled."""
    dataset = drt.open_dataset(path, seed=1, shuffle=True)
    values = {"get_metadata, first": seconds(dataset.get_metadata)}
    values["get_metadata"] = min(seconds(dataset.get_metadata) for _ in range(3))
    raw = Exporter(pa.table(dataset._native.table()))
    values["raw import"] = min(seconds(lambda: pl.DataFrame(raw)) for _ in range(3))
    frame = dataset.get_metadata().with_columns(weight=pl.Series(weights(rows)))
    values["memory pass"] = min(seconds(lambda: memory_pass(frame)) for _ in range(3))
    column = frame["weight"].to_numpy()
    values["cumsum"] = min(seconds(lambda: np.cumsum(column)) for _ in range(3))
    update = functools.partial(dataset.update_metadata, frame)
    values["update_metadata"] = min(seconds(update) for _ in range(3))
    private = memory()["private"]
    with Watch() as watch:
        values["first weighted sample"] = seconds(lambda: next(iter(dataset)))
        values["private memory"] = memory()["private"] - private
        begin = time.perf_counter()
        count = sum(1 for _ in itertools.islice(dataset, EPOCH_SAMPLES_MAX))
        values["weighted epoch, samples a second"] = count / (time.perf_counter() - begin)
    values["private memory, highest"] = watch.peak - private
    reverse = frame.reverse()
    values["update_metadata, reversed"] = seconds(lambda: dataset.update_metadata(reverse))
    values["first weighted sample, reversed"] = seconds(lambda: next(iter(dataset)))
    return values


class Watch:
    """The highest private memory of this process, looked at by another thread."""

    def __enter__(self):
        self.peak = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self):
        while not self.over.wait(0.005):
            self.peak = max(self.peak, memory()["private"])

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def memory_pass(frame):
    """Read every byte of every column once, as numbers of 64 bits."""
    for column in frame.to_arrow().columns:
        for chunk in column.chunks:
            for buffer in chunk.buffers():
                if buffer is not None and buffer.size >= 8:
                    np.frombuffer(buffer, np.int64, buffer.size // 8).max()


def mapping_count():
    return len(Path("/proc/self/maps").read_text().splitlines())


def descriptor_count():
    return len(list(Path("/proc/self/fd").iterdir()))


def many(place, limit):
    """Two drawn epochs over many files under a limit of descriptors."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    is_cache = (Path(place) / "manifest.json").exists()
    paths = place if is_cache else [str(path) for path in sorted(Path(place).iterdir())]
    values = {}
    begin = time.perf_counter()
    dataset = drt.open_dataset(paths, seed=1, shuffle=True)
    values["open"] = time.perf_counter() - begin
    next(iter(dataset))
    values["open to first sample"] = time.perf_counter() - begin
    for name in ("first epoch, samples a second", "second epoch, samples a second"):
        begin = time.perf_counter()
        count = sum(1 for _ in dataset)
        values[name] = count / (time.perf_counter() - begin)
    values["descriptors"] = descriptor_count()
    values["mappings"] = mapping_count()
    return values


# Payload bytes: samples.
SUBSETS = {100: 200_000, 4096: 20_000}


def write_subset(directory, rows):
    for size, most in SUBSETS.items():
        count = min(rows, most)
        payload = np.random.default_rng(size).bytes(size)
        samples = pa.table({"payload": [payload] * count, "label": np.arange(count)})
        source = drt.ArrowSource(f"payload-{size}", samples, payload="payload")
        write(directory, source)
    return {}


def bytes_read():
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["rchar"])


def subset(directory):
    """Bytes read for each payload byte, in one epoch over a random hundredth of the rows.

    Files are read at offsets: a block that is met for the first time is read and hashed whole, any
    other only where it is wanted.
    """
    values = {}
    for size in SUBSETS:
        dataset = drt.open_dataset(Path(directory) / f"payload-{size}", io="pread", shuffle=False)
        dataset.update_metadata(dataset.get_metadata().sample(fraction=0.01, seed=5))
        before = bytes_read()
        delivered = sum(len(sample.data) for sample in dataset)
        values[str(size)] = (bytes_read() - before) / delivered
    return values


def imports(times):
    """Seconds of fresh interpreters that import nothing else, in turns."""
    statements = {
        "none": "pass",
        "floor": "import polars, pyarrow",
        "ours": "import dataset_rt",
        "with settings": "from dataset_rt import open_dataset",
    }
    taken = {name: [] for name in statements}
    for _ in range(times):
        for name, statement in statements.items():
            run = functools.partial(subprocess.run, [sys.executable, "-c", statement], check=True)
            taken[name].append(seconds(run))
    medians = {name: statistics.median(values) for name, values in taken.items()}
    start = medians.pop("none")
    return {name: value - start for name, value in medians.items()}


TASKS = {
    "write": write_table,
    "write many": write_many,
    "open": open_once,
    "table": table,
    "many": many,
    "write subset": write_subset,
    "subset": subset,
    "imports": imports,
}

if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    print(json.dumps(TASKS[job.pop("task")](**job)))

"""One process of the suite: one engine writes one workload, or reads it, or floors are measured.

Run by the suite with a job as JSON; prints one JSON line of measured values, in which a task that
the engine cannot do is a text that says why.
"""

import importlib
import json
import os
import shutil
import sys
import time
from itertools import chain
from pathlib import Path

from benchmarks.engines import CannotError
from benchmarks.machine import measure_floors, write_and_sync
from benchmarks.measure import checksum, memory, memory_peak, timed_pass
from benchmarks.workloads import Workload

# Rows asked for at once in batched random access: a training batch.
BATCH_ROWS = 64
# What the disk is measured with beside each write of ours: enough for seconds of writing.
BLOCK = os.urandom(4 << 20)
PLAIN_BYTES_MAX = 512 << 20


def files_of(directory):
    return [path for path in sorted(Path(directory).rglob("*")) if path.is_file()]


def write_timed(module, directory, workload):
    directory.mkdir(parents=True)
    prepare = getattr(module, "prepare", Workload.samples)
    samples = prepare(workload)
    begin = time.perf_counter()
    module.write(directory, samples)
    return time.perf_counter() - begin


def plain_write(directory, workload):
    """Samples per second if their payloads were plain blocks of one file, synced at the end."""
    size = min(int(workload.sizes.sum()), PLAIN_BYTES_MAX)
    path = directory.with_name("plain.bin")
    blocks = max(1, size // len(BLOCK))
    begin = time.perf_counter()
    write_and_sync(path, BLOCK, blocks)
    seconds = time.perf_counter() - begin
    path.unlink()
    return blocks * len(BLOCK) / seconds * workload.count / int(workload.sizes.sum())


def affordable_count(module, directory, workload, seconds_max):
    """How many samples this engine writes in the time given, from two small writes."""
    sizes = (max(2, workload.count // 200), max(6, workload.count // 60))
    if sizes[1] >= workload.count:
        return workload.count
    times = []
    for size in sizes:
        probe = Workload(workload.name, size)
        probe.pool = workload.pool
        times.append(write_timed(module, directory, probe))
        shutil.rmtree(directory)
    # What both cost alike is the start, not the rate.
    per_sample = (times[1] - times[0]) / (sizes[1] - sizes[0])
    if per_sample * workload.count <= seconds_max:
        return workload.count
    return max(sizes[1], int(seconds_max / per_sample))


def memory_highest(forget=False):
    """The most bytes that this process ever held; `forget` starts anew from what it holds now."""
    if forget:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def write(job):
    module = importlib.import_module(f"benchmarks.engines.{job['module']}")
    directory = Path(job["directory"])
    workload = Workload(job["workload"], job["count"])
    workload.pool  # noqa: B018 - made before the clock starts
    if job["count_is_fixed"]:
        count = job["count"]
    else:
        count = affordable_count(module, directory, workload, job["seconds_max"])
    if count < workload.count:
        pool, workload = workload.pool, Workload(job["workload"], count)
        workload.pool = pool
    # The disk changes its speed from minute to minute: measured before and after.
    plain = [plain_write(directory, workload)] if job["plain"] else []
    before = memory_highest(forget=True)
    seconds = write_timed(module, directory, workload)
    peak = memory_highest()
    begin = time.perf_counter()
    for path in files_of(directory):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    synced = seconds + time.perf_counter() - begin
    if plain:
        plain.append(plain_write(directory, workload))
    stored = sum(path.stat().st_blocks * 512 for path in files_of(directory))
    return {
        "count": count,
        "write": count / seconds,
        "write, durable": count / synced,
        "write memory": peak - before,
        "disk bytes": stored,
        "disk bytes per payload byte": stored / int(workload.sizes.sum()),
        **({"write, plain": 2 / sum(1 / rate for rate in plain)} if plain else {}),
    }


def warm(directory):
    """Bring the files into the page cache, if they are not there any more."""
    buffer = bytearray(8 << 20)
    for path in files_of(directory):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


class Reading:
    """The measurements of one reader in a fresh process, in a fixed order."""

    def __init__(self, job):
        self.workload = Workload(job["workload"], job["count"])
        self.seconds_max = job["seconds_max"]
        self.first_seconds_max = job["first_seconds_max"]
        self.rows = range(self.workload.count)
        # What a view has instead of bytes; batches are taken apart for the check.
        self.kind = memoryview if job["mode"] == "zero_copy" else bytes
        self.values = {}
        self.checksums = {}
        self.workload.pool  # noqa: B018 - the check needs it: part of the memory before
        warm(job["directory"])
        module = importlib.import_module(f"benchmarks.engines.{job['module']}")
        self.memory_before = memory()
        begin = time.perf_counter()
        self.reader = module.Reader(Path(job["directory"]), self.workload, job["mode"])
        first = next(iter(self.reader.sequential()))
        self.values["open to first sample"] = time.perf_counter() - begin
        del first

    def measure(self, task):
        try:
            task()
        except CannotError as reason:
            self.values[task.__name__] = str(reason)

    def timed(self, start, order, seconds_max=None):
        return timed_pass(
            start,
            self.workload,
            order,
            seconds_max or self.seconds_max,
            self.reader.delivers_batches,
        )

    def check(self, name, samples, order):
        self.checksums[name] = checksum(
            samples, self.workload, order, self.kind, self.reader.delivers_batches
        )

    def weighted(self):
        """A first epoch, a few with the memory watched, then the one that counts.

        Drawing leaves 37% of the rows for later epochs, which verify or map them then: after five
        epochs less than 1% are left.
        """
        begin = time.perf_counter()
        self.reader.set_weights(self.workload)
        self.values["set weights"] = time.perf_counter() - begin
        self.values["weighted, first epoch"] = self.timed(
            self.reader.weighted, None, self.first_seconds_max
        )
        self.watch_memory(chain.from_iterable(self.reader.weighted() for _ in range(4)))
        self.values["weighted"] = self.timed(self.reader.weighted, None)
        self.check("weighted", self.reader.weighted(), None)

    def watch_memory(self, items):
        chunk = 1 if self.reader.delivers_batches else self.workload.chunk
        peak = memory_peak(items, chunk, self.seconds_max)
        self.values["private memory"] = peak["private"] - self.memory_before["private"]
        self.values["mapped memory"] = peak["mapped"] - self.memory_before["mapped"]

    def sequential(self):
        self.values["sequential, first epoch"] = self.timed(
            self.reader.sequential, self.rows, self.first_seconds_max
        )
        self.values["sequential"] = self.timed(self.reader.sequential, self.rows)
        if "private memory" not in self.values:
            self.watch_memory(self.reader.sequential())
        self.check("sequential", self.reader.sequential(), self.rows)

    def random(self):
        order = self.workload.random_rows()
        self.check("random", map(self.reader.get, order), order)
        self.values["random"] = self.timed(lambda: map(self.reader.get, order), order)

    def batched(self):
        order = self.workload.random_rows()
        parts = [order[i : i + BATCH_ROWS] for i in range(0, len(order), BATCH_ROWS)]

        def samples():
            return chain.from_iterable(map(self.reader.get_batch, parts))

        self.check("batched", samples(), order)
        self.values["batched"] = self.timed(samples, order)


def read(job):
    reading = Reading(job)
    for task in (reading.weighted, reading.sequential, reading.random, reading.batched):
        reading.measure(task)
    return {**reading.values, "checksums": reading.checksums}


def floors(job):
    return measure_floors(Path(job["directory"]), job["quick"])


if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    measured = {"write": write, "read": read, "floors": floors}[job["task"]](job)
    print(json.dumps(measured), flush=True)
    # Threads and mappings of an engine that cannot end are none of our business.
    os._exit(0)

"""Cold data: epochs of ours with nothing in the page cache, beside what the device itself can do.

`python -m benchmarks.cold` writes two workloads once, and reads them in fresh processes that take
turns. Before each the files are dropped from the page cache, and `mincore` has to agree. The device
is read with O_DIRECT: the payloads of the same rows in the same order, each where it is drawn
first, at several queue depths. Results go to `benchmarks/results`, figures into
`docs/benchmarks-cold.md`.
"""

import argparse
import ctypes
import mmap
import os
import resource
import shutil
import statistics
import threading
import time
from collections import deque
from itertools import islice
from pathlib import Path

import numpy as np

import dataset_rt as drt
from benchmarks import report
from benchmarks.engines import ours
from benchmarks.runs import Run, add_options, answer, child
from benchmarks.workloads import SHAPES, Workload

WORKLOADS = ("image", "small")
DEPTHS = (1, 4, 16, 64)
ALIGN = 4096
PAGEOUT = 21
SEQUENTIAL_READ = 1 << 20
MODES = {"": {}, ", 1 worker": {"num_workers": 1}, " pread": {"io": "pread"}}


def files_of(path):
    return [file for file in sorted(Path(path).rglob("*")) if file.is_file()]


def pages_resident(path):
    """How many pages of a file are in the page cache."""
    size = path.stat().st_size
    if not size:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as file:
        # Copy-on-write, only because ctypes asks for a writable buffer.
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    present = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    start = ctypes.c_char.from_buffer(mapped)
    address = ctypes.c_void_p(ctypes.addressof(start))
    if libc.mincore(address, ctypes.c_size_t(size), present):
        raise OSError(ctypes.get_errno(), "mincore")
    del start
    return int((np.frombuffer(present, np.uint8) & 1).sum())


def drop(path):
    """Drop the files below `path` from the page cache; fails when some of them stay."""
    for file in files_of(path):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    left = {file.name: pages_resident(file) for file in files_of(path)}
    if any(left.values()):
        raise RuntimeError(f"pages stay in memory: {left}")


def evict(path, attempts=5):
    """Push out the pages that this process has mapped, as a lack of memory would; then drop."""
    libc = ctypes.CDLL(None, use_errno=True)
    for line in Path("/proc/self/maps").read_text().splitlines():
        if str(path) in line:
            start, stop = (int(end, 16) for end in line.split()[0].split("-"))
            if libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), PAGEOUT):
                raise OSError(ctypes.get_errno(), "madvise")
    try:
        drop(path)
    except RuntimeError:
        # A page that the kernel holds this moment stays.
        if attempts == 1:
            raise
        evict(path, attempts - 1)


def bytes_read():
    """Bytes that this process had read from the device."""
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("read_bytes"))


def major_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def places_of(directory, mode):
    """Offset and size in the flat file of each payload that an epoch reads, in its order."""
    places = np.load(directory / f"{mode}.npy")
    return list(zip(places[0].tolist(), places[1].tolist(), strict=True))


def open_ours(directory, workload, mode, options):
    runtime = drt.DatasetRuntime(num_workers=options.pop("num_workers", None))
    config = drt.ReaderConfig(seed=1, shuffle=mode == "weighted", **options)
    dataset = runtime.cached_dataset(directory / "ours" / ours.Source.name, reader_config=config)
    if mode == "weighted":
        import polars as pl

        weight = pl.Series(workload.weights)
        dataset.update_metadata(dataset.get_metadata().with_columns(weight=weight))
    return dataset


def write(job, directory, workload):
    """Our cache, the same payloads in a flat file, and the order of both kinds of epoch."""
    directory.mkdir(parents=True)
    ours.write(directory / "ours", workload.samples())
    with (directory / "flat.bin").open("wb", buffering=1 << 20) as file:
        for data, _ in workload.samples():
            file.write(data)
    starts = np.concatenate([[0], np.cumsum(workload.sizes)])
    drawn = [sample.sample_id for sample in open_ours(directory, workload, "weighted", {})]
    for mode, rows in (("sequential", range(workload.count)), ("weighted", drawn)):
        # What is drawn again is in memory by then.
        first = np.fromiter(dict.fromkeys(rows), np.int64)
        np.save(directory / f"{mode}.npy", np.stack([starts[first], workload.sizes[first]]))
    return {}


def timed(items):
    begin, before, faults = time.perf_counter(), bytes_read(), major_faults()
    count = size = 0
    for item in items:
        count += 1
        size += len(item)
    seconds = time.perf_counter() - begin
    read = bytes_read() - before
    return {
        "samples/s": count / seconds,
        "bytes/s": size / seconds,
        "device bytes per byte": read / size,
        "major faults per sample": (major_faults() - faults) / count,
    }


def read_ours(job, directory, workload):
    drop(directory / "ours")
    # What a weighted table needs is read and worked out first: it is not what is cold here.
    dataset = open_ours(directory, workload, job["mode"], dict(job["options"]))
    if job["evicted"]:
        deque(dataset, maxlen=0)
        evict(directory / "ours")
    return timed(sample[0] for sample in islice(dataset, job["samples"]))


def read_mapped(job, directory, workload):
    """A plain mapping, touched payload by payload, as LMDB and the like do it."""
    places = places_of(directory, job["mode"])
    flat = directory / "flat.bin"
    with flat.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    drop(flat.parent)
    return timed(mapped[start : start + size] for start, size in places[: job["samples"]])


def read_direct(job, directory, workload):
    """O_DIRECT reads of the same ranges, widened to whole pages, `depth` at a time."""
    places = places_of(directory, job["mode"])
    if job["mode"] == "sequential":
        end = sum(size for _, size in places)
        places = [(start, SEQUENTIAL_READ) for start in range(0, end, SEQUENTIAL_READ)]
    places = places[: job["samples"]]
    descriptor = os.open(directory / "flat.bin", os.O_RDONLY | os.O_DIRECT)
    size_max = max(size for _, size in places) + 2 * ALIGN
    remaining, lock = iter(places), threading.Lock()
    wanted = [0] * job["depth"]

    size_max = size_max // ALIGN * ALIGN
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    views = [memoryview(mmap.mmap(-1, size_max, flags)) for _ in wanted]

    def work(number):
        view = views[number]
        while True:
            with lock:
                place = next(remaining, None)
            if place is None:
                return
            start = place[0] // ALIGN * ALIGN
            stop = -(-(place[0] + place[1]) // ALIGN) * ALIGN
            os.preadv(descriptor, [view[: stop - start]], start)
            wanted[number] += place[1]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(job["depth"])]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    return {"samples/s": len(places) / seconds, "bytes/s": sum(wanted) / seconds}


TASKS = {"write": write, "ours": read_ours, "mapped": read_mapped, "direct": read_direct}


def plan(mode):
    """What is read in one repetition: label, task, what the job says beside."""
    for depth in DEPTHS:
        yield f"O_DIRECT, {depth} at a time", "direct", {"depth": depth}
    yield "plain mapping", "mapped", {}
    for name, options in MODES.items():
        yield f"DatasetRT{name}", "ours", {"options": options, "evicted": False}
    yield "DatasetRT, read before, then evicted", "ours", {"options": {}, "evicted": True}


def to_markdown(results):
    parts = []
    for group, labels in results.items():
        rows = [
            [
                label,
                report.cell(values["samples/s"]),
                f"{statistics.median(values['bytes/s']) / 1e6:,.0f}",
                *(
                    f"{statistics.median(values[name]):.2f}" if name in values else "-"
                    for name in ("device bytes per byte", "major faults per sample")
                ),
            ]
            for label, values in labels.items()
        ]
        header = [group, "samples/s", "MB/s", "device bytes per byte", "major faults per sample"]
        parts.append(report.table(header, rows))
    return "\n\n".join(parts)


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold", description=__doc__)
    parser.add_argument("--count", type=float, default=1, help="share of the samples")
    parser.add_argument("--workloads", nargs="*", default=WORKLOADS, choices=list(SHAPES))
    parser.add_argument("--only", nargs="*", help="labels that contain one of these")
    add_options(parser)
    options = parser.parse_args()
    if options.job:
        job = options.job
        workload = Workload(job["workload"], job["count"])
        answer(TASKS[job["task"]](job, Path(job["directory"]), workload))
    run = Run("cold", options)
    for name in options.workloads:
        count = max(16, int(SHAPES[name][0] * options.count))
        common = {"workload": name, "count": count, "directory": str(run.directory / name)}
        child("cold", task="write", **common)
        for _ in range(options.repetitions):
            for mode in ("weighted", "sequential"):
                # A tenth of an epoch tells how it is where the data are far larger than memory.
                for samples in (count // 10, None) if mode == "weighted" else (None,):
                    part = ", first tenth" if samples else ""
                    for label, task, more in plan(mode):
                        if options.only and not any(word in label for word in options.only):
                            continue
                        job = {"task": task, "mode": mode, "samples": samples, **more, **common}
                        run.add(f"{name}, {mode}{part}", label, child("cold", **job))
        shutil.rmtree(run.directory / name)
    run.finish(to_markdown)


if __name__ == "__main__":
    main()

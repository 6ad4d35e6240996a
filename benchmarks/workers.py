"""Workers: what a second CPU brings, and what each process of PyTorch's `DataLoader` costs.

`python -m benchmarks.workers` reads warm weighted epochs on one CPU and on two, compressed and
not, and then starts loaders over a cache of 10^7 tiny rows with a table of their own. Results go
to `benchmarks/results`, figures into `docs/benchmarks-workers.md`.
"""

import argparse
import importlib.util
import multiprocessing
import os
import shutil
import statistics
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import chain, islice, repeat
from pathlib import Path

import numpy as np

import dataset_rt as drt
from benchmarks import report, scale_worker
from benchmarks.cold import open_ours
from benchmarks.engines import ours
from benchmarks.measure import check_sample, count_samples
from benchmarks.runs import Run, add_options, answer, child
from benchmarks.workloads import POOL_BYTES, SHAPES, Workload

# name: shape, compression, share of the shape's samples
SETS = {
    "image, zstd": ("image", "zstd", 0.2),
    "small, lz4": ("small", "lz4", 0.5),
    "small, uncompressed": ("small", "none", 0.5),
}
ALONE, PAIR = "1 worker on one CPU", "2 processes, each as above"
MANY = (4, 8)
PART_BYTES = 8 << 20
BATCH_ROWS, BATCHES = 256, 40
MEMORY = ("added", "added, anonymous", "private")
FURTHER = MEMORY[:2]
MIB = 1 << 20


class Compressible(Workload):
    """Payloads that compress to about half: filtered pixels, as PNG has them, or short words."""

    @cached_property
    def pool(self):
        random = np.random.default_rng(11)
        if self.name == "image":
            part = random.normal(0, 2, PART_BYTES).round().astype(np.int8).tobytes()
        else:
            words = [random.bytes(size) for size in random.integers(4, 24, 300)]
            picked = random.integers(len(words), size=PART_BYTES // 8)
            part = b"".join(words[i] for i in picked)[:PART_BYTES]
        # Payloads are compressed each alone, so nobody sees that it comes again.
        return part * (POOL_BYTES // PART_BYTES)


def write(job, directory, workload):
    ours.write(directory / "ours", workload.samples(), job["compression"])
    return {}


def read(job, directory, workload):
    """Warm epochs, for as long as the job says, on the CPUs that it names."""
    # Threads inherit it, and the runtime starts its own later.
    os.sched_setaffinity(0, job["cpus"])
    dataset = open_ours(directory, workload, "weighted", {"num_workers": job["workers"]})
    # The first epoch verifies every block.
    for sample in dataset:
        if len(sample.data) != workload.sizes[sample.sample_id]:
            raise ValueError(f"payload {sample.sample_id} has {len(sample.data)} bytes")
    epochs = chain.from_iterable(repeat(dataset))
    begin, busy = time.perf_counter(), time.process_time()
    count, size, last = count_samples(epochs, workload.chunk, job["seconds"])
    seconds, busy = time.perf_counter() - begin, time.process_time() - busy
    if job["checked"]:
        check_sample(last, workload, last.sample_id)
    return {"samples/s": count / seconds, "bytes/s": size / seconds, "CPUs busy": busy / seconds}


def read_pair(job):
    """Two processes at once, each with a CPU and a reader of its own: what two CPUs can do."""
    jobs = [{**job, "cpus": [cpu]} for cpu in job["cpus"]]
    with ThreadPoolExecutor(len(jobs)) as threads:
        found = list(threads.map(lambda job: child("workers", **job), jobs))
    return {name: sum(values[name] for values in found) for name in found[0]}


def with_table(path, rows):
    """A dataset with weights of its own and nine of ten rows."""
    import polars as pl

    dataset = drt.open_dataset(path, seed=1, shuffle=True)
    frame = dataset.get_metadata().with_columns(weight=pl.Series(scale_worker.weights(rows)))
    dataset.update_metadata(frame.filter(pl.col("sample_id") % 10 != 0))
    return dataset


def opened(path):
    return drt.open_dataset(path, seed=1, shuffle=True)


def first_read(path, rows):
    dataset = with_table(path, rows)
    dataset[0]
    return dataset


# How the workers come to be, and what the loader is over: what is forked or pickled.
CASES = {
    "fork": {
        "empty": lambda path, rows: range(rows),
        "one sample read before": first_read,
        "nothing read before": with_table,
    },
    "spawn": {
        "empty": lambda path, rows: range(rows),
        "pickled": lambda path, rows: opened(path),
        "pickled, with its table": with_table,
    },
}


def memory(process):
    """Bytes of one process by the names of the kernel."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    fields = (line.split(":") for line in lines)
    return {name: int(value.split()[0]) * 1024 for name, value in fields}


def added_by(children):
    """What is in memory because of these processes: pages that this one has not.

    In the sum of the PSS of all, pages that some of them share count once. Its own RSS is taken at
    the same moment, since allocators give memory back when they like.
    """
    own, others = memory("self"), [memory(process) for process in children]
    family = [own, *others]
    return {
        "added": sum(values["Pss"] for values in family) - own["Rss"],
        "added, anonymous": sum(values["Pss_Anon"] for values in family) - own["Anonymous"],
        "private": sum(values["Private_Clean"] + values["Private_Dirty"] for values in others),
    }


def settle(quiet=1.0, seconds_max=10):
    """Wait until allocators have given back what was freed: a fork would keep a copy of it."""
    held, since, end = None, time.monotonic(), time.monotonic() + seconds_max
    while time.monotonic() < min(since + quiet, end):
        if (now := memory("self")["Anonymous"]) != held:
            held, since = now, time.monotonic()
        time.sleep(quiet / 10)


def load(job, path):
    """What workers add to the memory of all, when each has read some batches and still lives."""
    from torch.utils.data import DataLoader

    # More workers than CPUs are what is asked for here.
    warnings.filterwarnings("ignore", "This DataLoader will create")
    dataset = CASES[job["method"]][job["case"]](str(path), job["rows"])
    settle()
    found = {}
    for workers in job["loaders"]:
        loader = DataLoader(
            dataset,
            batch_size=BATCH_ROWS,
            num_workers=workers,
            collate_fn=len,
            multiprocessing_context=job["method"],
        )
        begin = time.perf_counter()
        batches = iter(loader)
        next(batches)
        values = {"seconds to first batch": time.perf_counter() - begin}
        # Batches are dealt out in turns.
        for _ in islice(batches, BATCHES * workers - 1):
            pass
        children = [process.pid for process in multiprocessing.active_children()]
        children = [process for process in children if is_worker(process)]
        if len(children) != workers:
            raise RuntimeError(f"{len(children)} workers instead of {workers}")
        found[workers] = values | added_by(children)
        # Its end waits for its workers.
        del batches, loader
    return found


def is_worker(process):
    """Not the process that watches over what `multiprocessing` leaves behind."""
    return b"resource_tracker" not in Path(f"/proc/{process}/cmdline").read_bytes()


def scaling(run, options):
    cpus = sorted(os.sched_getaffinity(0))[:2]
    for name, (shape, compression, share) in SETS.items():
        count = max(16, int(SHAPES[shape][0] * share * options.count))
        directory = run.directory / shape
        job = {"workload": shape, "count": count, "compression": compression}
        job |= {"directory": str(directory)}
        child("workers", task="write", **job)
        job |= {"task": "read", "seconds": options.seconds, "checked": False}
        for repetition in range(options.repetitions):
            # Making the payloads anew takes a moment: once is enough.
            alone = {**job, "cpus": cpus[:1], "workers": 1, "checked": repetition == 0}
            run.add(name, ALONE, child("workers", **alone))
            if len(cpus) < 2:
                continue
            run.add(name, PAIR, read_pair({**job, "cpus": cpus, "workers": 1}))
            for workers in (1, 2, *(MANY if compression == "none" else ())):
                values = child("workers", **job, cpus=cpus, workers=workers)
                run.add(name, f"{workers} worker{'s' * (workers > 1)}", values)
        shutil.rmtree(directory)
    if len(cpus) < 2:
        print("one CPU only: nothing to compare it with")


def loaders(run, options):
    if importlib.util.find_spec("torch") is None:
        print("no loaders: PyTorch is not importable (make torch installs it)")
        return
    job = {"directory": str(run.directory), "rows": options.rows, "loaders": options.loaders}
    child("workers", task="write rows", **job)
    for _ in range(options.repetitions):
        for method in options.methods:
            for case in CASES[method]:
                found = child("workers", task="load", method=method, case=case, **job)
                for workers, values in found.items():
                    run.add(f"DataLoader, {method}", f"{case}: {workers}", values)


def scaling_table(name, labels):
    alone = statistics.median(labels[ALONE]["samples/s"])
    rows = [
        [
            label,
            report.cell(values["samples/s"]),
            f"{statistics.median(values['bytes/s']) / 1e6:,.0f}",
            f"{statistics.median(values['samples/s']) / alone:.2f}",
            f"{statistics.median(values['CPUs busy']):.2f}",
        ]
        for label, values in labels.items()
    ]
    return report.table([name, "samples/s", "MB/s", "of one CPU", "CPUs busy"], rows)


def loaders_table(name, labels):
    """Sums over all workers, and what each beyond the first adds; both beyond empty workers."""
    medians = {
        label: {key: statistics.median(values) for key, values in figures.items()}
        for label, figures in labels.items()
    }
    rows = []
    for label, values in medians.items():
        case, _, workers = label.partition(": ")
        workers = int(workers)

        def beyond(key, workers, case=case):
            value = medians[f"{case}: {workers}"][key]
            return (value - (medians[f"empty: {workers}"][key] if case != "empty" else 0)) / MIB

        sums = [f"{beyond(key, workers):,.0f}" for key in MEMORY]
        further = ["-", "-"]
        if workers > 1 and f"{case}: 1" in medians:
            added = (beyond(key, workers) - beyond(key, 1) for key in FURTHER)
            further = [f"{value / (workers - 1):,.1f}" for value in added]
        seconds = f"{values['seconds to first batch']:.2f}"
        rows.append([case, str(workers), *sums, *further, seconds])
    header = [name, "workers", *(f"{key}, MiB" for key in MEMORY)]
    header += [f"{key}, by each further" for key in FURTHER]
    return report.table([*header, "first batch, s"], rows)


def to_markdown(results):
    return "\n\n".join(
        (loaders_table if group.startswith("DataLoader") else scaling_table)(group, labels)
        for group, labels in results.items()
    )


def work(job):
    """What one process does."""
    directory = Path(job["directory"])
    if job["task"] == "write rows":
        return scale_worker.write_table(directory, job["rows"])
    if job["task"] == "load":
        return load(job, directory / "rows")
    kind = Workload if job["compression"] == "none" else Compressible
    task = {"write": write, "read": read}[job["task"]]
    return task(job, directory, kind(job["workload"], job["count"]))


PARTS = {"scaling": scaling, "loaders": loaders}


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    parser.add_argument("--count", type=float, default=1, help="share of the samples")
    parser.add_argument("--seconds", type=float, default=2, help="of each timed reading")
    parser.add_argument("--rows", type=int, default=10**7, help="of the loaders' cache")
    parser.add_argument("--loaders", type=int, nargs="*", default=[1, 2, 4], help="their workers")
    parser.add_argument("--methods", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    add_options(parser)
    options = parser.parse_args()
    if options.job:
        answer(work(options.job))
    run = Run("workers", options)
    for part in options.parts:
        PARTS[part](run, options)
    run.finish(to_markdown)


if __name__ == "__main__":
    main()

"""What this machine is, and its floors: the speed of memory, files, hashing and Python objects."""

import os
import platform
import shutil
import time
from itertools import repeat
from pathlib import Path

import numpy as np

MIB = 1 << 20


def describe(directory):
    """The machine in the words of its kernel."""
    cpu = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory bytes": pages,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "free disk bytes": shutil.disk_usage(directory).free,
        "load when started": os.getloadavg()[0],
    }


def best_seconds(task, times=3):
    """A floor is the best that the machine can do, so the best of a few runs."""
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        task()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def write_and_sync(path, block, blocks):
    with path.open("wb", buffering=0) as file:
        for _ in range(blocks):
            file.write(block)
        os.fsync(file.fileno())


def read_all(path, buffer):
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def read_rows(path, rows, size):
    with path.open("rb", buffering=0) as file:
        for row in rows:
            os.pread(file.fileno(), size, row * size)


def measure_floors(directory, quick=False):
    """Rates per second: bytes, or what the name says."""
    block = np.random.default_rng(0).bytes(4 * MIB)
    blocks = 4 if quick else 256
    source = np.frombuffer(block * min(blocks, 64), np.uint8)
    target = np.zeros_like(source)
    path = directory / "floor.bin"
    disk = best_seconds(lambda: write_and_sync(path, block, blocks), 1)
    buffer = bytearray(4 * MIB)
    sequential = best_seconds(lambda: read_all(path, buffer))
    rows = np.random.default_rng(1).integers(blocks * 1024, size=1000 if quick else 50_000).tolist()
    floors = {
        "memcpy": len(source) / best_seconds(lambda: np.copyto(target, source)),
        "read, 4 MiB at a time": blocks * len(block) / sequential,
        "pread of 4 KiB, calls": len(rows) / best_seconds(lambda: read_rows(path, rows, 4096)),
        "disk write and fsync": blocks * len(block) / disk,
        **hashing(source),
        "objects of 100 B, samples": objects(2000 if quick else 200_000),
    }
    path.unlink()
    return floors


def hashing(source):
    try:
        from blake3 import blake3
    except ImportError:
        return {}
    threads = len(os.sched_getaffinity(0))
    return {
        "BLAKE3, one thread": len(source) / best_seconds(lambda: blake3(source).digest()),
        "BLAKE3, all threads": len(source)
        / best_seconds(lambda: blake3(source, max_threads=threads).digest()),
    }


def objects(count):
    """Tuples of bytes and a dict of three, built from lists in a plain loop."""
    view = memoryview(bytes(100))
    labels = list(range(count))
    scores = [label * 0.5 for label in labels]

    def build():
        for label, score, split in zip(labels, scores, repeat("train"), strict=False):
            sample = (bytes(view), {"label": label, "score": score, "split": split}, 0, label)
        return sample

    return count / best_seconds(build)

"""One weighted shuffled epoch beside a plain mmap loop, in one run on one machine.

Run `python benchmarks/weighted_epoch.py [samples] [payload bytes] [repetitions]`. The floor is one
flat file, an offsets array and a list of ready metadata dicts: `bytes(mm[a:b])` and a tuple per
sample, drawn by a NumPy inverse CDF. Ours delivers `CachedSample` with verification on. Repetitions
are interleaved; medians are printed with their spread, and the ratio of the medians.
"""

import mmap
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

import dataset_rt as drt


class Samples:
    """Seeded, incompressible payloads with three metadata columns."""

    name = "samples"

    def __init__(self, count, size):
        self.count = count
        self.size = size
        self.block = np.random.default_rng(0).bytes(size * min(count, 1000))

    def payload(self, i):
        start = i % 1000 * self.size
        return self.block[start : start + self.size]

    def __iter__(self):
        for i in range(self.count):
            metadata = {"label": i % 10, "score": i * 0.5, "split": "train"}
            yield drt.CacheInput(self.payload(i), metadata)


def timed(epoch):
    start = time.perf_counter()
    count = epoch()
    return count / (time.perf_counter() - start)


def floor_epoch(flat, offsets, metadata, weights, generator):
    def epoch():
        cdf = np.cumsum(weights)
        draws = np.searchsorted(cdf, generator.random(len(weights)) * cdf[-1], side="right")
        count = 0
        for i in draws.tolist():
            sample = (flat[offsets[i] : offsets[i + 1]], metadata[i], 0, i)
            count += len(sample) == 4
        return count

    return epoch


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 4096
    repetitions = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    source = Samples(count, size)
    generator = np.random.default_rng(1)
    weights = generator.random(count) + 0.01
    with tempfile.TemporaryDirectory() as directory, drt.DatasetRuntime() as runtime:
        start = time.perf_counter()
        (result,) = runtime.write_cache(source, directory)
        seconds = time.perf_counter() - start
        print(f"write, hashed and synced: {count / seconds:,.0f} samples/s")
        path = Path(directory, "flat.bin")
        with path.open("wb") as file:
            for i in range(count):
                file.write(source.payload(i))
        dataset = runtime.cached_dataset(result.path, reader_config=drt.ReaderConfig(seed=1))
        table = dataset.get_metadata()
        dataset.update_metadata(table.with_columns(weight=pl.Series(weights)))
        metadata = [{"label": i % 10, "score": i * 0.5, "split": "train"} for i in range(count)]
        offsets = [i * size for i in range(count + 1)]
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as flat:
            floor = floor_epoch(flat, offsets, metadata, weights, generator)
            ours = lambda: sum(1 for _ in dataset)  # noqa: E731
            print(f"ours, first epoch (verifies every byte): {timed(ours):,.0f} samples/s")
            rates = {"floor": [], "ours": []}
            for _ in range(repetitions):
                rates["floor"].append(timed(floor))
                rates["ours"].append(timed(ours))
    for engine, values in rates.items():
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"{engine}: {middle:,.0f} samples/s ({low:,.0f} to {high:,.0f})")
    ratio = statistics.median(rates["ours"]) / statistics.median(rates["floor"])
    print(f"ours / floor: {ratio:.2f}")


if __name__ == "__main__":
    main()

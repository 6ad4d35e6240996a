"""Arrow batches in weighted random order beside a plain mmap loop, in one run on one machine.

Run `python benchmarks/batches.py [samples] [payload bytes] [batch size] [repetitions]`. The floor
is that of `weighted_epoch.py`: `bytes(mm[a:b])` and a tuple per sample. Ours delivers whole record
batches, payloads as views of the mapped shard, after a first epoch that verifies every byte; once
with all columns, once with the payload alone. Repetitions are interleaved; medians are printed
with their spread, and the ratios of the medians.
"""

import mmap
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from weighted_epoch import Samples, floor_epoch, timed

import dataset_rt as drt


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 4096
    batch_size = int(sys.argv[3]) if len(sys.argv) > 3 else 256
    repetitions = int(sys.argv[4]) if len(sys.argv) > 4 else 5
    source = Samples(count, size)
    generator = np.random.default_rng(1)
    weights = generator.random(count) + 0.01
    with tempfile.TemporaryDirectory() as directory, drt.DatasetRuntime() as runtime:
        (result,) = runtime.write_cache(source, directory)
        path = Path(directory, "flat.bin")
        with path.open("wb") as file:
            for i in range(count):
                file.write(source.payload(i))
        config = drt.ReaderConfig(seed=1, prefetch_size=max(256, 4 * batch_size))
        dataset = runtime.cached_dataset(result.path, reader_config=config)
        table = dataset.get_metadata()
        dataset.update_metadata(table.with_columns(weight=pl.Series(weights)))
        metadata = [{"label": i % 10, "score": i * 0.5, "split": "train"} for i in range(count)]
        offsets = [i * size for i in range(count + 1)]

        def batches(columns=None):
            epoch = dataset.iter_batches(batch_size, columns=columns)
            return sum(batch.num_rows for batch in epoch)

        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as flat:
            engines = {
                "floor": floor_epoch(flat, offsets, metadata, weights, generator),
                "batches": batches,
                "payload only": lambda: batches(["payload"]),
            }
            print(f"first epoch (verifies every byte): {timed(batches):,.0f} rows/s")
            rates = {engine: [] for engine in engines}
            for _ in range(repetitions):
                for engine, epoch in engines.items():
                    rates[engine].append(timed(epoch))
    middle = {engine: statistics.median(values) for engine, values in rates.items()}
    for engine, values in rates.items():
        spread = f"{min(values):,.0f} to {max(values):,.0f}"
        ratio = middle[engine] / middle["floor"]
        print(f"{engine}: {middle[engine]:,.0f} rows/s ({spread}), {ratio:.2f} of the floor")


if __name__ == "__main__":
    main()

"""Handing the active table to Polars, beside a raw Arrow C import of the same columns.

Run `python benchmarks/metadata_handover.py [rows] [repetitions]`. The floor is `pl.DataFrame` over
an object that exports the same columns in the same chunks from memory through the Arrow C stream
interface. Ours is the second and every later `get_metadata()` of a whole dataset; the first one,
which verifies `metadata.arrow`, is printed alone. Repetitions are interleaved, frames dropped in
between; medians are printed with their spread. Fixed-width stored columns must lie in the mapped
file: their addresses are looked up in the memory map of the process.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

import dataset_rt as drt

STORED = {"label": pl.Int64, "score": pl.Float64, "split": pl.String}


class Exporter:
    """Nothing but a stream: Polars takes it as it takes ours."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def stored_table(rows):
    numbers = np.arange(rows)
    split = pa.DictionaryArray.from_arrays(
        pa.array((numbers % 10 == 0).astype(np.int8)), pa.array(["train", "valid"])
    )
    return pa.table(
        {
            "payload": pa.repeat(b"payload", rows),
            "label": numbers % 10,
            "score": numbers * 0.5,
            "split": split.cast(pa.large_string()),
        }
    )


def milliseconds(make):
    start = time.perf_counter()
    frame = make()
    elapsed = time.perf_counter() - start
    del frame
    return 1000 * elapsed


def mapped_ranges(path):
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(path)):
            start, end = line.split()[0].split("-")
            yield range(int(start, 16), int(end, 16))


def are_shared(frame, path):
    ranges = list(mapped_ranges(path))
    chunks = (
        chunk
        for name, dtype in STORED.items()
        if dtype != pl.String
        for chunk in frame[name].get_chunks()
    )
    return all(
        any(chunk.to_arrow().buffers()[1].address in held for held in ranges) for chunk in chunks
    )


def main():
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    repetitions = int(sys.argv[2]) if len(sys.argv) > 2 else 11
    with tempfile.TemporaryDirectory() as directory, drt.DatasetRuntime() as runtime:
        source = drt.ArrowSource("rows", stored_table(rows), payload="payload")
        (result,) = runtime.write_cache(source, directory)
        dataset = runtime.cached_dataset(result.path, reader_config=drt.ReaderConfig(seed=0))
        print(f"first get_metadata, verifying: {milliseconds(dataset.get_metadata):,.1f} ms")
        frame = dataset.get_metadata()
        print(
            f"fixed-width stored columns lie in the mapped file: "
            f"{are_shared(frame, result.path / 'metadata.arrow')}"
        )
        # As from_arrow takes them: chunks stay, numbers are shared.
        floor = Exporter(pa.table(dataset._native.table()))
        times = {"raw import": [], "get_metadata": []}
        for _ in range(repetitions):
            times["raw import"].append(milliseconds(lambda: pl.DataFrame(floor)))
            times["get_metadata"].append(milliseconds(dataset.get_metadata))
        numbers = [name for name, dtype in STORED.items() if dtype != pl.String]
        fixed = Exporter(floor.table.select(["cache_id", "sample_id", *numbers, "weight"]))
        alone = statistics.median(milliseconds(lambda: pl.DataFrame(fixed)) for _ in range(5))
    for way, values in times.items():
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"{way}: {middle:,.2f} ms ({low:,.2f} to {high:,.2f})")
    print(f"raw import without the text column: {alone:,.2f} ms")
    ratio = statistics.median(times["get_metadata"]) / statistics.median(times["raw import"])
    print(f"get_metadata / raw import: {ratio:.2f}")


if __name__ == "__main__":
    main()

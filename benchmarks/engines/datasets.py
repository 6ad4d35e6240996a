"""HF datasets: Arrow IPC files written by `Dataset.from_generator`, mapped into memory."""

from itertools import chain
from pathlib import Path

import datasets

from benchmarks import engines

FEATURES = datasets.Features(
    {
        "payload": datasets.Value("large_binary"),
        "label": datasets.Value("int64"),
        "score": datasets.Value("float64"),
        "split": datasets.Value("string"),
    }
)
BATCH_BYTES = 8 << 20


def write(directory, samples):
    datasets.disable_progress_bars()

    def rows():
        for data, metadata in samples:
            yield {"payload": data, **metadata}

    # A given fingerprint: otherwise the generator, samples and all, is pickled to be hashed.
    datasets.Dataset.from_generator(
        rows, features=FEATURES, cache_dir=str(directory), fingerprint="benchmark"
    )


def to_samples(columns):
    payloads = columns.pop("payload")
    names = columns.keys()
    for data, *row in zip(payloads, *columns.values(), strict=True):
        yield data, dict(zip(names, row, strict=True))


class Reader(engines.Reader):
    def __init__(self, directory, workload, mode):
        files = sorted(Path(directory).rglob("*.arrow"))
        parts = [datasets.Dataset.from_file(str(file)) for file in files]
        self.dataset = parts[0] if len(parts) == 1 else datasets.concatenate_datasets(parts)
        self.rows = max(1, min(256, BATCH_BYTES // workload.mean_bytes))

    def sequential(self):
        # Batches of columns: several times faster than row by row.
        return chain.from_iterable(map(to_samples, self.dataset.iter(batch_size=self.rows)))

    def get(self, row):
        columns = self.dataset[row]
        return columns.pop("payload"), columns

    def get_batch(self, rows):
        return list(to_samples(self.dataset[rows]))

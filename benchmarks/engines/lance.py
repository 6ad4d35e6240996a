"""Lance: a columnar format with row addresses; payloads are a large binary column."""

from itertools import chain

import lance
import pyarrow as pa

from benchmarks import engines
from benchmarks.engines.arrow import SCHEMA, to_batches, to_samples

NAME = "samples.lance"
BATCH_BYTES = 8 << 20


def write(directory, samples):
    data, metadata = next(samples)
    rows = max(1, min(8192, BATCH_BYTES // len(data)))
    batches = to_batches(chain([(data, metadata)], samples), rows)
    lance.write_dataset(pa.RecordBatchReader.from_batches(SCHEMA, batches), directory / NAME)


class Reader(engines.Reader):
    def __init__(self, directory, workload, mode):
        self.dataset = lance.dataset(directory / NAME)
        self.rows = max(1, min(8192, BATCH_BYTES // workload.mean_bytes))

    def sequential(self):
        return chain.from_iterable(map(to_samples, self.dataset.to_batches(batch_size=self.rows)))

    def get(self, row):
        return next(to_samples(self.dataset.take([row])))

    def get_batch(self, rows):
        # Rows come back as asked for, duplicates included.
        return list(to_samples(self.dataset.take(rows)))

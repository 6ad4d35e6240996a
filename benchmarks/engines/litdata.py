"""LitData: chunks of serialized samples, written by one worker, read through a chunk cache."""

from functools import cached_property, partial

import litdata

from benchmarks import engines
from benchmarks.workloads import COLUMNS

CHUNK_BYTES = "64MB"


def to_rows(samples, _):
    for data, metadata in samples:
        yield {"payload": data, **metadata}


def to_sample(row):
    # It delivers views of a chunk: copied once, as everybody's payload is. Rows are kept and may be
    # delivered again, so they are not changed.
    return bytes(row["payload"]), {name: row[name] for name in COLUMNS}


def write(directory, samples):
    # One input, which yields all samples: the source cannot be cut for several workers.
    litdata.optimize(
        fn=partial(to_rows, samples),
        inputs=[0],
        output_dir=str(directory / "store"),
        chunk_bytes=CHUNK_BYTES,
        num_workers=1,
        start_method="fork",
        verbose=False,
    )


class Reader(engines.Reader):
    def __init__(self, directory, workload, mode):
        # A local directory: chunks are read where they lie, not copied to a cache.
        self.directory = str(directory / "store")
        self.dataset = litdata.StreamingDataset(self.directory, shuffle=False)

    @cached_property
    def rows(self):
        # The loader decodes neighbours ahead, which random access would throw away.
        return litdata.StreamingDataset(self.directory, shuffle=False, batch_decode=False)

    def sequential(self):
        return map(to_sample, self.dataset)

    def get(self, row):
        return to_sample(self.rows[row])

    def get_batch(self, rows):
        return [self.get(row) for row in rows]

"""bagz: records in one file with an index of offsets, without compression.

Of its ways to read, each size of payload gets the one that was measured as the fastest: blocks of
records for small ones, single records for large ones; its parallel reading is slower than either.
"""

from itertools import chain

import bagz

from benchmarks import engines
from benchmarks.engines.record import decode, encode

FILE = "samples.bagz"
BLOCK_ROWS = 256
BLOCK_PAYLOAD_MAX = 16 << 10


def write(directory, samples):
    # The name decides: `.bagz` would compress, which gains nothing here.
    options = bagz.Writer.Options(compression=bagz.CompressionNone())
    with bagz.Writer(directory / FILE, options) as writer:
        for data, metadata in samples:
            writer.write(encode(data, metadata))


class Reader(engines.Reader):
    def __init__(self, directory, workload, mode):
        options = bagz.Reader.Options(
            compression=bagz.CompressionNone(),
            limits_storage=bagz.LimitsStorage.IN_MEMORY,
            max_parallelism=1,
        )
        self.reader = bagz.Reader(directory / FILE, options)
        self.in_blocks = workload.mean_bytes <= BLOCK_PAYLOAD_MAX

    def blocks(self):
        count = len(self.reader)
        for start in range(0, count, BLOCK_ROWS):
            yield self.reader.read_range(start, min(BLOCK_ROWS, count - start))

    def sequential(self):
        return map(decode, chain.from_iterable(self.blocks()) if self.in_blocks else self.reader)

    def get(self, row):
        return decode(self.reader[row])

    def get_batch(self, rows):
        if self.in_blocks:
            return [decode(value) for value in self.reader.read_indices(rows)]
        return [self.get(row) for row in rows]

"""LMDB: a memory-mapped tree, keys are row numbers, one write transaction, one sync."""

import lmdb

from benchmarks import engines
from benchmarks.engines.record import decode, encode


def key(row):
    return row.to_bytes(8, "big")


def open_store(directory, **options):
    # The file is sparse: the map only has to be larger than any workload.
    return lmdb.open(str(directory / "store"), map_size=16 << 30, subdir=False, **options)


def write(directory, samples):
    store = open_store(directory)
    with store.begin(write=True) as transaction:
        for row, (data, metadata) in enumerate(samples):
            transaction.put(key(row), encode(data, metadata), append=True)
    store.close()


class Reader(engines.Reader):
    def __init__(self, directory, workload, mode):
        self.store = open_store(directory, readonly=True, lock=False, readahead=False)
        # Values are views of the map: copied once, into the payload.
        self.transaction = self.store.begin(buffers=True)

    def sequential(self):
        cursor = self.transaction.cursor()
        return map(decode, cursor.iternext(keys=False, values=True))

    def get(self, row):
        return decode(self.transaction.get(key(row)))

    def get_batch(self, rows):
        found = self.transaction.cursor().getmulti([key(row) for row in rows])
        return [decode(value) for _, value in found]

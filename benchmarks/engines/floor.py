"""The floor: one flat file in memory, offsets, and a list of ready metadata dicts.

No format, no check, no bound on memory: what a loop costs that does nothing but hand out samples.
"""

import mmap
import os
import pickle
from itertools import pairwise
from pathlib import Path

from benchmarks import engines

DATA, TABLE = "data.bin", "table.pickle"


def write(directory, samples):
    offsets, table = [0], []
    with Path(directory, DATA).open("wb", buffering=1 << 20) as file:
        for data, metadata in samples:
            file.write(data)
            offsets.append(offsets[-1] + len(data))
            table.append(metadata)
        file.flush()
        os.fsync(file.fileno())
    with Path(directory, TABLE).open("wb") as file:
        pickle.dump((offsets, table), file)
        file.flush()
        os.fsync(file.fileno())


class Reader(engines.Reader):
    def __init__(self, directory, workload, mode):
        self.offsets, self.table = pickle.loads(Path(directory, TABLE).read_bytes())
        with Path(directory, DATA).open("rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)

    def sequential(self):
        data = self.map
        for row, (start, stop) in enumerate(pairwise(self.offsets)):
            yield data[start:stop], self.table[row], 0, row

    def get(self, row):
        return self.map[self.offsets[row] : self.offsets[row + 1]], self.table[row], 0, row

    def get_batch(self, rows):
        return [self.get(row) for row in rows]

    def weighted(self):
        data, offsets, table = self.map, self.offsets, self.table
        for row in self._workload.draw():
            yield data[offsets[row] : offsets[row + 1]], table[row], 0, row

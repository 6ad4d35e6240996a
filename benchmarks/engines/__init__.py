"""The engines under test, and the protocol that makes them all do the same work.

A module of this package has a function `write(directory, samples)` that stores every
`(bytes, dict)` and makes the store complete, in its own way and with its own sync, and a class
`Reader`. With a function `prepare(workload)` it writes what that returned before the clock starts.
A sample that a reader delivers is a tuple that starts with the payload as `bytes` and the metadata
as a `dict` of three columns, both of them made: nothing may be left for later.
"""

from typing import NamedTuple


class CannotError(Exception):
    """The engine has no way to do this task."""


class Reader:
    """What every reader can be asked; what it leaves out is reported as something it cannot do."""

    # Iterators deliver samples; a face that delivers Arrow batches says so, and takes them apart
    # for the check only.
    delivers_batches = False

    def __init__(self, directory, workload, mode):
        raise NotImplementedError

    def sequential(self):
        """An iterator over all samples in the order in which they were written."""
        raise CannotError("no sequential reading")

    def get(self, row):
        """One sample."""
        raise CannotError("no access by row")

    def get_batch(self, rows):
        """A list of samples."""
        raise CannotError("no batched access by row")

    def set_weights(self, workload):
        """Prepare for weighted epochs."""
        self._workload = workload

    def weighted(self):
        """An iterator over one epoch drawn by weight; without a sampler, the order is given."""
        return map(self.get, self._workload.draw())


class Store(NamedTuple):
    """One way to write the samples, and the modes in which what was written is read."""

    name: str
    module: str
    modes: tuple[str, ...] = ("",)
    # Ours and the floor run in the environment of the suite, peers in one of their own.
    is_peer: bool = True
    workloads: tuple[str, ...] = ("tiny", "small", "image", "large")

    def label(self, mode):
        return f"{self.name} {mode}".strip()


FLOOR = "mmap floor"
OURS = "DatasetRT"
OURS_ARROW = f"{OURS} Arrow source"

STORES = (
    Store(FLOOR, "floor", is_peer=False),
    Store(OURS, "ours", ("", "zero_copy", "batches", "pread"), is_peer=False),
    Store(OURS_ARROW, "ours_arrow", (), is_peer=False),
    # Compression on data that cannot be compressed: what its machinery costs.
    Store(f"{OURS} lz4", "ours_lz4", is_peer=False, workloads=("small",)),
    Store(f"{OURS} zstd", "ours_zstd", is_peer=False, workloads=("small",)),
    Store("LMDB", "lmdb"),
    Store("Lance", "lance"),
    Store("LitData", "litdata"),
    Store("HF datasets", "datasets"),
    Store("bagz", "bagz"),
    Store("WebDataset", "webdataset"),
)

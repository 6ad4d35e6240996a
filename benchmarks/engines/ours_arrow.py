"""DatasetRT given Arrow record batches, which exist before the clock starts: writing only."""

from benchmarks.engines import arrow, ours
from benchmarks.engines.ours import Reader

__all__ = ["Reader", "prepare", "write"]

BATCH_BYTES = 8 << 20


def prepare(workload):
    """The samples as record batches."""
    rows = max(1, BATCH_BYTES // workload.mean_bytes)
    return list(arrow.to_batches(workload.samples(), rows))


write = ours.write

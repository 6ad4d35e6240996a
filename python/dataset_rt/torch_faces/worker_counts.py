"""How many processes and native threads a loader uses when nobody says; starts none of them."""

from __future__ import annotations

from dataset_rt import _native
from dataset_rt.arguments import to_count
from dataset_rt.errors import InvalidInputError
from dataset_rt.launcher import local_world_size

# Beyond this, one trainer's queue is the limit, not its workers.
_WORKERS_MAX = 16


def process_count(num_workers: object, *, has_python_work: bool, needs_processes: bool) -> int:
    """Return the number of worker processes.

    `"auto"` is 0 where Python has nothing to do for a sample: native threads read ahead, and a
    process would only add a copy. Else it is this rank's part of the CPUs (affinity and container
    limits, divided by `LOCAL_WORLD_SIZE`) less one for the trainer, at most 16. Options that only
    worker processes have (`needs_processes`) make it at least 1.

    Raises:
        TypeError: `num_workers` is neither "auto" nor an integer.
        InvalidInputError: It is negative, or `LOCAL_WORLD_SIZE` makes no sense.
    """
    if not _is_auto(num_workers, "num_workers"):
        return to_count(num_workers, "num_workers", minimum=0)
    found = min(_cpus_of_this_rank() - 1, _WORKERS_MAX) if has_python_work else 0
    return max(found, 1) if needs_processes else found


def thread_count(native_num_workers: object, processes: int) -> int | None:
    """Return the native threads of each process that reads, or `None` for the dataset's own.

    `"auto"` is the dataset's own without worker processes, this rank's part of the CPUs with one,
    and 1 with several: they already are side by side.

    Raises:
        TypeError: `native_num_workers` is neither "auto" nor an integer.
        InvalidInputError: It is below 1, or `LOCAL_WORLD_SIZE` makes no sense.
    """
    if not _is_auto(native_num_workers, "native_num_workers"):
        return to_count(native_num_workers, "native_num_workers", minimum=1)
    if processes == 0:
        return None
    return _cpus_of_this_rank() if processes == 1 else 1


def _cpus_of_this_rank() -> int:
    return max(1, _native.cpus_usable() // local_world_size())


def _is_auto(value: object, argument: str) -> bool:
    if isinstance(value, str) and value != "auto":
        raise InvalidInputError(f'{argument} must be an integer or "auto", found {value!r}')
    return isinstance(value, str)

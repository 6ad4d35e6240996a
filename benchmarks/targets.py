"""What a run has to reach, and whether it did: one line a target, one cell a workload."""

from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from benchmarks.engines import FLOOR, OURS, OURS_ARROW, STORES
from benchmarks.workloads import SHAPES

MIB = 1 << 20
# Writers may hold this and two of the largest payloads.
WRITER_MIB = 256
# Payloads of the lognormal workload reach several times their mean.
LARGEST_OF_MEAN = {"image": 6}


class Target(NamedTuple):
    """`measure` gives the figure of a workload, None where the run has none."""

    text: str
    measure: Callable
    wanted: dict
    is_at_most: bool = False

    def is_met(self, workload, value):
        """Whether a figure reaches what is wanted for this workload."""
        wanted = self.wanted[workload]
        return value <= wanted if self.is_at_most else value >= wanted


def figure(results, label, task):
    """The median of one task, or None."""
    values = results.get(label, {}).get(task)
    return median(values) if isinstance(values, list) else None


def of(task, label=OURS):
    """The figure itself."""
    return lambda results: figure(results, label, task)


def ratio(upper, *lowers):
    """Of one figure to the smallest of others that the run has."""

    def measure(results):
        over = upper(results)
        under = [value for value in (lower(results) for lower in lowers) if value]
        return over / min(under) if over and under else None

    return measure


def best_peer(task):
    """The highest figure among the peers."""

    def measure(results):
        figures = (figure(results, s.label(m), task) for s in STORES if s.is_peer for m in s.modes)
        return max((value for value in figures if value), default=None)

    return measure


def everywhere(wanted, **others):
    """The same for all workloads but those named."""
    return dict.fromkeys(SHAPES, wanted) | others


def writer_mib():
    """Bound of the writer's memory for each workload."""
    return {
        name: WRITER_MIB + 2 * LARGEST_OF_MEAN.get(name, 1) * mean / MIB
        for name, (_, mean, _) in SHAPES.items()
    }


def in_mib(measure):
    """A figure in bytes as MiB."""

    def converted(results):
        value = measure(results)
        return None if value is None else value / MIB

    return converted


ZERO_COPY, BATCHES = f"{OURS} zero_copy", f"{OURS} batches"
TARGETS = (
    Target(
        "weighted epoch, of the floor", ratio(of("weighted"), of("weighted", FLOOR)), everywhere(1)
    ),
    Target(
        "first weighted epoch, times slower than later ones",
        ratio(of("weighted"), of("weighted, first epoch")),
        everywhere(1.35),
        is_at_most=True,
    ),
    Target(
        "sequential epoch, of the floor",
        ratio(of("sequential"), of("sequential", FLOOR)),
        everywhere(0.9, tiny=1),
    ),
    Target(
        "sequential epoch, of the best peer",
        ratio(of("sequential"), best_peer("sequential")),
        everywhere(1),
    ),
    Target(
        "weighted epoch without copying, rows/s",
        of("weighted", ZERO_COPY),
        {"image": 400_000, "large": 40_000},
    ),
    Target("weighted epoch in batches, rows/s", of("weighted", BATCHES), {"tiny": 5_000_000}),
    Target("sequential epoch in batches, rows/s", of("sequential", BATCHES), {"tiny": 5_000_000}),
    Target("one random sample, of LMDB", ratio(of("random"), of("random", "LMDB")), everywhere(1)),
    Target(
        "64 random samples, of LMDB", ratio(of("batched"), of("batched", "LMDB")), everywhere(1)
    ),
    Target("writing, samples/s", of("write"), {"tiny": 600_000}),
    Target(
        "writing, of the slower of floor and plain file",
        ratio(of("write"), of("write", FLOOR), of("write, plain")),
        {"small": 0.8, "image": 0.8, "large": 0.8},
    ),
    Target(
        "writing from Arrow batches, of a plain file",
        ratio(of("write", OURS_ARROW), of("write, plain", OURS_ARROW)),
        everywhere(0.8),
    ),
    Target("writer's memory, MiB", in_mib(of("write memory")), writer_mib(), is_at_most=True),
)

"""Timed passes over samples, the check of what they delivered, and the memory of this process.

A timed pass adds up the sizes of the payloads and keeps the last sample, both compared with the
source when the clock has stopped; an untimed pass of the same kind compares every byte and value.
"""

import hashlib
import time
from itertools import chain, islice
from pathlib import Path

from benchmarks.workloads import COLUMNS, row_of

CHECK_SAMPLES = 2000
CHECK_BYTES = 32 << 20
MEMORY_READINGS = 20


class WrongDataError(Exception):
    """An engine delivered something else than what was written."""


def batch_to_samples(batch):
    names = list(COLUMNS)
    rows = batch.select(names).to_pylist()
    return zip(batch.column("payload").to_pylist(), rows, strict=True)


def count_samples(samples, chunk, seconds_max):
    """Take all samples, or stop after a chunk when the time is over."""
    count = size = 0
    last = None
    deadline = time.perf_counter() + seconds_max
    while time.perf_counter() < deadline:
        taken = 0
        for taken, last in enumerate(islice(samples, chunk), 1):  # noqa: B007
            size += len(last[0])
        count += taken
        if taken < chunk:
            break
    return count, size, last


def count_batches(batches, seconds_max):
    count = 0
    last = None
    deadline = time.perf_counter() + seconds_max
    for last in batches:
        count += last.num_rows
        if time.perf_counter() > deadline:
            break
    return count, None, last


def timed_pass(start, workload, order, seconds_max, batches=False):
    """Samples per second of the iterator that `start` makes; making it counts.

    `order` names the rows to expect, where the harness knows them.
    """
    begin = time.perf_counter()
    if batches:
        count, size, last = count_batches(start(), seconds_max)
    else:
        count, size, last = count_samples(start(), workload.chunk, seconds_max)
    seconds = time.perf_counter() - begin
    if not count:
        raise WrongDataError("no sample was delivered")
    if order is not None and size is not None:
        expected = int(workload.sizes[order[:count]].sum())
        if size != expected:
            raise WrongDataError(f"{count} samples hold {size} bytes instead of {expected}")
    is_cut = seconds > seconds_max
    if not is_cut and count != (workload.count if order is None else len(order)):
        raise WrongDataError(f"an epoch ended after {count} samples")
    for sample in batch_to_samples(last.slice(last.num_rows - 1)) if batches else [last]:
        check_sample(sample, workload, None if order is None else order[count - 1])
    return count / seconds


def check_sample(sample, workload, row=None):
    data, metadata = sample[0], sample[1]
    claimed = row_of(metadata)
    if row is not None and claimed != row:
        raise WrongDataError(f"row {claimed} was delivered instead of row {row}")
    expected = workload.metadata(claimed)
    if type(metadata) is not dict or metadata != expected:
        raise WrongDataError(f"metadata of row {claimed} is {metadata} instead of {expected}")
    if [type(metadata[name]) for name in COLUMNS] != [int, float, str]:
        raise WrongDataError(f"metadata of row {claimed} has other types: {metadata}")
    if data != workload.payload(claimed):
        raise WrongDataError(f"the payload of row {claimed} differs")
    return claimed


def checksum(samples, workload, order, kind, batches=False):
    """The digest of the first samples, each compared with the source and of the type `kind`."""
    if batches:
        samples = chain.from_iterable(map(batch_to_samples, samples))
    digest = hashlib.blake2b(digest_size=16)
    count = min(CHECK_SAMPLES, max(1, CHECK_BYTES // workload.mean_bytes), workload.count)
    if order is not None:
        count = min(count, len(order))
    checked = 0
    for sample in islice(samples, count):
        if type(sample[0]) is not kind:
            raise WrongDataError(f"a payload is {type(sample[0])} instead of {kind}")
        row = check_sample(sample, workload, None if order is None else order[checked])
        digest.update(row.to_bytes(8, "little") + sample[0] + repr(sample[1]).encode())
        checked += 1
    if checked != count:
        raise WrongDataError(f"{checked} samples instead of {count}")
    return digest.hexdigest()


def memory():
    """Bytes of this process: private (anonymous pages), and pages of mapped files."""
    fields = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split(":")
        fields[name] = int(value.split()[0]) * 1024
    return {"private": fields["Anonymous"], "mapped": fields["Rss"] - fields["Anonymous"]}


def memory_peak(items, chunk, seconds_max):
    """The highest memory while `items` pass, for a limited time."""
    peak = memory()
    begin = time.perf_counter()
    reading = 0
    while (seconds := time.perf_counter() - begin) < seconds_max:
        taken = sum(1 for _ in islice(items, chunk))
        if seconds >= reading * seconds_max / MEMORY_READINGS or taken < chunk:
            reading += 1
            now = memory()
            peak = {name: max(peak[name], now[name]) for name in peak}
        if taken < chunk:
            break
    return peak

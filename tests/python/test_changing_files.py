"""Files that change under a reader: right samples or a typed error, and the process lives."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import ListSource, run_script, written

import dataset_rt as drt

ROWS = 400
COMPRESSIONS = {
    "none": drt.ShardCompression(),
    "lz4": drt.ShardCompression(algo="lz4"),
    "zstd": drt.ShardCompression(algo="zstd", dictionary_bytes=1024),
    "zstd buffer": drt.ShardCompression(algo="zstd", scope="buffer"),
}

# What every script knows: the samples, the ways to change a file, the ways to read.
COMMON = """
import faulthandler, itertools, json, os, random, shutil, sys
from pathlib import Path

import polars as pl

import dataset_rt as drt

ROWS = 400


def payload(row):
    return random.Random(row).randbytes(1200 + row % 300) + b"text of many rows" * 20


def metadata(row):
    return {"n": row, "s": f"a text that is longer than twelve bytes: {row}", "f": row / 8}


def check(sample, row=None):
    row = sample.sample_id if row is None else row
    assert bytes(sample.data) == payload(row), ("wrong payload", row)
    assert sample.metadata == metadata(row), ("wrong metadata", row)


def opened(path, io="auto"):
    # A small read-ahead: blocks that are not yet loaded when the file changes, and one that is.
    config = drt.ReaderConfig(seed=1, shuffle=False, io=io, prefetch_size=80)
    return runtime.cached_dataset(path, reader_config=config)


def cut(size):
    def change(path):
        os.truncate(path, int(path.stat().st_size * size))

    return change


def overwrite(path):
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.write(bytes(byte ^ 0x55 for byte in content))


def replace(path):
    other = path.with_name("other")
    other.write_bytes(bytes(byte ^ 0x55 for byte in path.read_bytes()))
    other.rename(path)


IN_PLACE = {"empty": cut(0), "half": cut(0.5), "overwrite": overwrite}
AROUND = {"unlink": Path.unlink, "replace": replace}


def tried(read):
    try:
        return read()
    except drt.DatasetRTError as error:
        assert str(error), "an error without a word"
        return error


def iterate(dataset, change):
    samples = iter(dataset)
    for _ in range(3):
        check(next(samples))
    change()
    refused = 3
    while True:
        sample = tried(lambda: next(samples, None))
        if sample is None:
            return
        if isinstance(sample, Exception):
            yield sample
        else:
            check(sample)


def index(dataset, change):
    rows = random.Random(2).sample(range(ROWS), 60)
    check(dataset[5], 5)
    for number, row in enumerate(rows):
        if number == 10:
            change()
        sample = tried(lambda: dataset[row])
        if isinstance(sample, Exception):
            yield sample
        else:
            check(sample, row)


def update(dataset, change):
    frame = dataset.get_metadata()
    extra = frame.with_columns(extra=pl.col("n") * 2)
    change()
    # The first table is made of views of the file: nobody but us touches them any more.
    for table in (extra, frame):
        outcome = tried(lambda: dataset.update_metadata(table))
        if isinstance(outcome, Exception):
            yield outcome
    outcome = tried(lambda: dataset[7])
    if isinstance(outcome, Exception):
        yield outcome
    else:
        check(outcome, 7)


def edit(dataset, change):
    # Rows of a table that was handed in before, in another order: its texts are long ones.
    frame = dataset.get_metadata()
    dataset.update_metadata(frame.sample(fraction=1.0, shuffle=True, seed=3))
    yield from iterate(dataset, change)


def verify(dataset, change):
    path = dataset.cache_paths[0]
    change()
    report = tried(lambda: drt.verify_cache(path, level="deep"))
    if isinstance(report, Exception):
        yield report
    elif not report.ok:
        yield drt.CorruptError(str(report))


READERS = [iterate, index, update, edit, verify]
"""

EVERY_CHANGE = (
    COMMON
    + """
pristine, io = Path(sys.argv[1]), sys.argv[2]
names = sorted(str(p.relative_to(pristine)) for p in pristine.rglob("*") if p.is_file())
names.remove("manifest.json")
counts = {}
with drt.DatasetRuntime(num_workers=2) as runtime:
    for (what, change), name, read in itertools.product(
        (IN_PLACE | AROUND).items(), names, READERS
    ):
        copy = Path(shutil.copytree(pristine, pristine.parent / f"copy of {pristine.name} {io}"))
        errors = list(read(opened(copy, io), lambda: change(copy / name)))
        counts[f"{what} {name} {read.__name__}"] = sorted({type(e).__name__ for e in errors})
        shutil.rmtree(copy)
print(json.dumps(counts))
"""
)


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    scope = {}
    exec(COMMON, scope)  # noqa: S102
    samples = [(scope["payload"](row), scope["metadata"](row)) for row in range(ROWS)]
    paths = {}
    with drt.DatasetRuntime(num_workers=2) as runtime:
        for name, compression in COMPRESSIONS.items():
            config = drt.WriterConfig(
                max_shard_bytes=200_000, show_progress=False, shard_compression=compression
            )
            directory = tmp_path_factory.mktemp(name.replace(" ", "-"))
            paths[name] = written(runtime, directory, samples, config=config)
    return paths


@pytest.mark.parametrize("io", ["auto", "pread"])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_file_that_changes_under_a_reader_gives_right_samples_or_errors(caches, compression, io):
    outcomes = json.loads(run_script(EVERY_CHANGE, caches[compression], io, seconds=240))
    shards = len(list((caches[compression] / "shards").iterdir()))
    assert shards > 2
    noticed = {case for case, errors in outcomes.items() if errors}
    for what in ("empty", "half", "overwrite"):
        # What all samples need, and a shard of which not all has been read.
        assert f"{what} shards/000001.arrow iterate" in noticed
        assert f"{what} index.bin iterate" in noticed
        assert f"{what} metadata.arrow iterate" in noticed
        assert f"{what} metadata.arrow update" in noticed
        assert f"{what} metadata.arrow edit" in noticed
        assert f"{what} shards/000000.arrow verify" in noticed
    # What was opened goes on when it is unlinked or another file takes its name.
    for what in ("unlink", "replace"):
        for read in ("iterate", "index"):
            assert outcomes[f"{what} index.bin {read}"] == []
            assert outcomes[f"{what} metadata.arrow {read}"] == []

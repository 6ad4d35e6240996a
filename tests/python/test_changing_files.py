"""Files that change under a reader: right samples or a typed error, and the process lives."""

import json
import shutil
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


def opened(path, io="auto", **options):
    # A small read-ahead: blocks that are not yet loaded when the file changes, and one that is.
    config = drt.ReaderConfig(seed=1, shuffle=False, io=io, prefetch_size=80, **options)
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
    while True:
        sample = tried(lambda: next(samples, None))
        if sample is None:
            return
        if isinstance(sample, Exception):
            yield sample
        else:
            check(sample)


def batches(dataset, change):
    found = dataset.iter_batches(20)
    next(found)
    change()
    while True:
        batch = tried(lambda: next(found, None))
        if batch is None:
            return
        if isinstance(batch, Exception):
            yield batch
            continue
        for row in batch.select(["sample_id", "n", "s", "f"]).to_pylist():
            assert metadata(row.pop("sample_id")) == row
        # Views of a mapped file that changed are nobody's to touch.
        if dataset.reader_config.io == "pread":
            assert batch["payload"].to_pylist() == [payload(n) for n in batch["n"].to_pylist()]


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


READERS = [iterate, batches, index, update, edit, verify]
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
    exec(COMMON, scope)
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
        assert f"{what} shards/000001.arrow batches" in noticed
        assert f"{what} index.bin iterate" in noticed
        assert f"{what} index.bin batches" in noticed
        assert f"{what} metadata.arrow iterate" in noticed
        assert f"{what} metadata.arrow update" in noticed
        assert f"{what} metadata.arrow edit" in noticed
        assert f"{what} shards/000000.arrow verify" in noticed
    # What was opened goes on when it is unlinked or another file takes its name.
    for what in ("unlink", "replace"):
        for read in ("iterate", "index"):
            assert outcomes[f"{what} index.bin {read}"] == []
            assert outcomes[f"{what} metadata.arrow {read}"] == []


CUT_WHILE_READING = (
    COMMON
    + """
import ctypes

libc = ctypes.CDLL(None)
SIGBUS = 7 if sys.platform == "linux" else 10


def foreign_handler():
    # Ends the process with its argument as status: the number of the signal.
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal(SIGBUS, ctypes.cast(libc._exit, ctypes.c_void_p))


def nothing():
    pass


handlers = {"faulthandler": faulthandler.enable, "foreign": foreign_handler, "none": nothing}
when, handler, then = sys.argv[2:]
with drt.DatasetRuntime(num_workers=2) as runtime:
    if when == "before":
        handlers[handler]()
    dataset = opened(sys.argv[1])
    view = drt.open_cache(sys.argv[1]).payload(399)
    first = dataset[0]
    if when == "after":
        handlers[handler]()
    change = lambda: [cut(0)(path) for path in Path(sys.argv[1], "shards").iterdir()]
    errors = list(iterate(dataset, change))
    assert {type(error) for error in errors} <= {drt.ConflictError, drt.CorruptError}
    assert errors
    check(first)
    print("alive", flush=True)
    if then == "touch":
        print(bytes(view)[:10], flush=True)
    elif then == "raise":
        import signal
        signal.raise_signal(SIGBUS)
    print("survived", flush=True)
"""
)


@pytest.fixture
def copied(caches, tmp_path):
    """A cache to be changed, uncompressed."""
    return copy_of(caches["none"], tmp_path)


def copy_of(cache, directory):
    return Path(shutil.copytree(cache, directory / "copy"))


def outcome(path, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CUT_WHILE_READING), str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.startswith("alive"), done.stderr
    return done


@pytest.mark.parametrize("handler", ["faulthandler", "foreign"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_readers_survive_whichever_handler_comes_first(copied, when, handler):
    done = outcome(copied, when, handler, "nothing")
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize("then", ["touch", "raise"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_signals_that_are_not_ours_go_where_they_would_have_gone(copied, when, then):
    done = outcome(copied, when, "foreign", then)
    assert (done.stdout, done.returncode) == ("alive\n", signal.SIGBUS)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_view_of_lost_pages_is_never_zeros_and_faulthandler_says_where(copied, when):
    done = outcome(copied, when, "faulthandler", "touch")
    assert (done.stdout, done.returncode) == ("alive\n", -signal.SIGBUS)
    assert "Fatal Python error: Bus error" in done.stderr
    assert 'File "<string>"' in done.stderr


@pytest.mark.parametrize("then", ["touch", "raise"])
def test_without_other_handlers_the_process_dies_of_the_signal(copied, then):
    done = outcome(copied, "before", "none", then)
    assert (done.stdout, done.returncode) == ("alive\n", -signal.SIGBUS)


FINALISER_TOUCHES_LOST_PAGES = (
    COMMON
    + """
import gc


class Finaliser:
    def __del__(self):
        print("read", bytes(view)[:10], flush=True)


face = sys.argv[3]
with drt.DatasetRuntime(num_workers=2) as runtime:
    dataset = opened(sys.argv[2], zero_copy=face == "views")
    for sample in dataset:
        pass
    view = drt.open_cache(sys.argv[1]).payload(399)
    [cut(0)(path) for path in Path(sys.argv[1], "shards").iterdir()]
    cycle = [Finaliser()]
    cycle.append(cycle)
    samples = iter(dataset)
    del cycle
    print("alive", flush=True)
    # From now on the collector runs at every chance.
    gc.set_threshold(1)
    if face == "single":
        dataset[0]
    else:
        next(samples)
"""
)


@pytest.mark.parametrize("face", ["single", "views", "bytes"])
def test_the_collector_does_not_run_where_lost_pages_are_zeros(caches, copied, face):
    done = subprocess.run(
        [sys.executable, "-c", FINALISER_TOUCHES_LOST_PAGES, copied, caches["none"], face],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("alive\n", -signal.SIGBUS), done.stderr


READ_WHILE_REWRITTEN = (
    COMMON
    + """
path = Path(sys.argv[1])


def version_of(sample):
    version = sample.metadata["version"]
    assert bytes(sample.data) == bytes([version]) * (1000 + sample.sample_id), "wrong payload"
    return version


def versions(samples):
    seen, samples = set(), iter(samples)
    while True:
        sample = tried(lambda: next(samples, None))
        if sample is None:
            return seen
        if not isinstance(sample, Exception):
            seen.add(version_of(sample))


with drt.DatasetRuntime(num_workers=2) as runtime:
    first = opened(path)
    expected = version_of(first[0])
    seen_ever = set()
    print("reading", flush=True)
    while not Path(sys.argv[2]).exists():
        assert versions(first) <= {expected}
        dataset = tried(lambda: opened(path))
        if not isinstance(dataset, Exception):
            seen = versions(dataset)
            assert len(seen) <= 1, seen
            seen_ever |= seen
    print(json.dumps(sorted(seen_ever)), flush=True)
"""
)


def test_a_reader_of_a_rewritten_cache_sees_one_version_or_an_error(tmp_path):
    config = drt.WriterConfig(show_progress=False, max_shard_bytes=100_000, on_stale="rewrite")

    def write(version):
        samples = [(bytes([version]) * (1000 + i), {"version": version}) for i in range(300)]
        source = ListSource("a", samples, fingerprint=str(version))
        result = runtime.from_cache_sources(
            source,
            tmp_path,
            writer_config=config,
            reader_config=drt.ReaderConfig(seed=1),
        )
        assert isinstance(result, drt.CacheSourcesDatasetSuccess), result

    with drt.DatasetRuntime(num_workers=2) as runtime:
        write(1)
        reader = subprocess.Popen(
            [
                sys.executable,
                "-c",
                READ_WHILE_REWRITTEN,
                str(tmp_path / "a"),
                str(tmp_path / "end"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert reader.stdout.readline() == "reading\n", reader.stderr.read()
            for version in range(2, 22):
                write(version)
            (tmp_path / "end").touch()
            out, err = reader.communicate(timeout=60)
        finally:
            reader.kill()
    assert reader.returncode == 0, err
    assert json.loads(out), "no cache was ever read"


LOADED_BY_WORKERS = (
    COMMON
    + """
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        sample = dataset[row]
        check(sample, row)
        return row


with drt.DatasetRuntime(num_workers=2) as runtime:
    dataset = opened(sys.argv[1])
    # PyTorch's workers put a handler of their own in the place of the inherited one.
    check(dataset[0], 0)
    loader = DataLoader(Rows(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1, 2, 3]
    for path in Path(sys.argv[1]).rglob("*.*"):
        cut(0)(path)
    # A worker that died would be a RuntimeError of PyTorch's.
    caught = None
    try:
        for _ in batches:
            pass
    except drt.DatasetRTError as error:
        caught = error
    assert isinstance(caught, (drt.ConflictError, drt.CorruptError)), caught
    print("alive")
"""
)


def test_workers_of_a_data_loader_survive_too(copied):
    pytest.importorskip("torch")
    assert run_script(LOADED_BY_WORKERS, copied).endswith("alive\n")


def test_a_stream_without_payloads_looks_before_each_batch(cache):
    script = """
        import sys
        import pyarrow as pa
        import dataset_rt as drt
        path = sys.argv[1] + "/metadata.arrow"
        dataset = drt.open_dataset(sys.argv[1])
        reader = dataset.to_arrow(dataset.get_metadata().columns)
        with open(path, "r+b") as file:
            content = file.read()
            file.seek(0)
            file.write(bytes(255 - byte for byte in content))
        try:
            reader.read_all()
        except pa.ArrowInvalid as error:
            print("changed" in str(error))
    """
    assert run_script(script, cache).split() == ["True"]

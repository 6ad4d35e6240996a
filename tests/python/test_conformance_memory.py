"""What other tools read of our files: whose memory they show, and which pages they touch."""

import ctypes
import mmap
import os
import shutil
import textwrap

import numpy as np
import polars as pl
import pytest
from arrow_tools import pyarrow_mmap
from conftest import QUIET, ListSource, run_script, written

import dataset_rt as drt

PAGE = mmap.PAGESIZE
ROWS = 1024
PAYLOAD_BYTES = 1 << 15
SHARD_BYTES = ROWS * PAYLOAD_BYTES
# A kernel that is asked for one page reads its neighbours ahead.
FEW, MOST = SHARD_BYTES // PAGE // 10, SHARD_BYTES // PAGE * 9 // 10


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """32 MiB in one shard of four batches."""
    rng = np.random.default_rng(0)
    samples = [
        (rng.bytes(PAYLOAD_BYTES), {"label": i, "score": i / 8, "day": None, "text": f"t{i}"})
        for i in range(ROWS)
    ]
    with drt.DatasetRuntime(num_workers=1) as runtime:
        directory = tmp_path_factory.mktemp("memory")
        (result,) = runtime.write_cache(ListSource("big", samples), directory, writer_config=QUIET)
    return result.path


@pytest.fixture
def shard(cache):
    return cache / "shards/000000.arrow"


@pytest.fixture
def small(runtime, tmp_path):
    """A shard with the same columns and few bytes."""
    samples = [(b"", {"label": 0, "score": 0.5, "day": None, "text": ""})]
    return written(runtime, tmp_path, samples) / "shards/000000.arrow"


# Addresses


def mapped_ranges(file):
    """Address ranges of this process that are pages of the file."""
    with open("/proc/self/maps") as maps:
        spans = [line.split()[0].split("-") for line in maps if line.rstrip().endswith(str(file))]
    return [(int(start, 16), int(end, 16)) for start, end in spans]


def outside(arrays, file):
    """Buffers, by column and position, that are not pages of the file."""
    ranges = mapped_ranges(file)
    assert ranges, "the file is not mapped"
    found = []
    for name, array in arrays:
        for position, buffer in enumerate(array.buffers()):
            if buffer is None or buffer.size == 0:
                continue
            end = buffer.address + buffer.size
            if not any(low <= buffer.address and end <= high for low, high in ranges):
                found.append((name, position))
    return found


def chunks(table):
    return [(name, c) for name in table.schema.names for c in table.column(name).chunks]


def test_a_mapped_shard_is_shown_by_pyarrow_and_not_copied(shard):
    table = pyarrow_mmap(shard)
    assert outside(chunks(table), shard) == []


def test_a_verified_shard_is_shown_and_not_copied(cache, shard):
    table = drt.open_cache(cache).shards()[0].to_arrow()
    assert outside(chunks(table), shard) == []


def test_polars_shows_fixed_width_columns_and_payload_bytes_of_a_mapped_shard(shard):
    frame = pl.from_arrow(pyarrow_mmap(shard))
    newest = pl.CompatLevel.newest()
    arrays = [
        (name, chunk)
        for name in ("sample_id", "label", "score", "payload")
        for series in frame[name].get_chunks()
        for chunk in [series.to_arrow(compat_level=newest)]
    ]
    # Polars makes views of its own, 16 bytes a row; what they point at is the file.
    assert set(outside(arrays, shard)) == {("payload", 1)}


def test_tables_of_the_cache_show_fixed_width_columns_of_its_file(cache):
    frame = drt.open_cache(cache).metadata()
    arrays = [(name, frame[name].to_arrow()) for name in ("label", "score")]
    assert outside(arrays, cache / "metadata.arrow") == []


# Pages


@pytest.fixture(scope="module")
def cold(cache, tmp_path_factory):
    """A copy that this process never touches: pages that somebody has mapped cannot be dropped."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("this kernel does not tell peaks of memory")
    copy = tmp_path_factory.mktemp("cold") / "shard.arrow"
    shutil.copy(cache / "shards/000000.arrow", copy)
    return copy


def resident_pages(file):
    """How many pages of the file are in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = os.path.getsize(file)
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as pages:
        shown = np.frombuffer(pages, np.uint8)
        vector = (ctypes.c_ubyte * -(-size // PAGE))()
        address = ctypes.c_void_p(shown.ctypes.data)
        assert libc.mincore(address, ctypes.c_size_t(size), vector) == 0
        del shown
    return sum(flag & 1 for flag in vector)


def drop(file):
    """Have the kernel forget the file's pages; skip where it does not, as on tmpfs."""
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if resident_pages(file) > 0:
        pytest.skip("this file system keeps pages in memory")


# Expressions of `path`, after imports.
READS = {
    "pyarrow.dataset": (
        "import pyarrow.dataset as ds",
        "ds.dataset(path, format='ipc').to_table(columns=COLUMNS)",
    ),
    "pyarrow file": (
        "import pyarrow as pa\noptions = pa.ipc.IpcReadOptions(included_fields=[0, 1, 2])",
        "pa.ipc.open_file(pa.OSFile(path), options=options).read_all()",
    ),
    "pandas": ("import pandas as pd", "pd.read_feather(path, columns=COLUMNS)"),
    "duckdb": (
        "import duckdb, pyarrow.dataset as ds",
        "duckdb.from_arrow(ds.dataset(path, format='ipc')).select(*COLUMNS).to_arrow_table()",
    ),
    "pyarrow mapped": (
        "import pyarrow as pa",
        "pa.ipc.open_file(pa.memory_map(path)).read_all().select(COLUMNS).combine_chunks()",
    ),
    "polars scan": ("import polars as pl", "pl.scan_ipc(path).select(COLUMNS).collect()"),
    "polars read": ("import polars as pl", "pl.read_ipc(path, columns=COLUMNS)"),
    "datafusion": (
        "import datafusion\ncontext = datafusion.SessionContext()",
        "context.read_arrow(path).select(*COLUMNS).to_arrow_table()",
    ),
}
# They read what they are asked for.
READ_COLUMNS = ["pyarrow.dataset", "pyarrow file", "pandas", "duckdb"]
# They have the kernel read whole batches ahead, and then touch what they are asked for.
TOUCH_COLUMNS = [*READ_COLUMNS, "pyarrow mapped", "polars scan", "polars read"]

# The first read warms up: pages of libraries are no pages of ours.
MEASURED = """
    import sys
    COLUMNS = sys.argv[3:]
    {imports}

    def read(path):
        return {expression}

    def status(key):
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))

    read(sys.argv[1])
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")  # the peak starts anew
    before = status("VmRSS")
    table = read(sys.argv[2])
    print(status("VmHWM") - before)
"""


def measured(read, columns, warm, shard):
    """Pages of the shard that were read from disk, and bytes of memory at the peak."""
    imports, expression = READS[read]
    script = textwrap.dedent(MEASURED).format(imports=imports, expression=expression)
    drop(shard)
    peak = int(run_script(script, warm, shard, *columns))
    return resident_pages(shard), peak


@pytest.mark.parametrize("read", TOUCH_COLUMNS)
def test_reading_columns_touches_no_payload(small, cold, read):
    pages, peak = measured(read, ["sample_id", "label", "score"], small, cold)
    assert peak < SHARD_BYTES // 2
    if read in READ_COLUMNS:
        assert pages < FEW


def test_reading_payloads_touches_them(small, cold):
    pages, peak = measured("pyarrow.dataset", ["payload"], small, cold)
    assert peak > SHARD_BYTES // 2
    assert pages > MOST


def test_datafusion_reads_whole_files(small, cold):
    pages, _ = measured("datafusion", ["label"], small, cold)
    assert pages > MOST

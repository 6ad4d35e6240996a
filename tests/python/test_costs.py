"""Hot paths cost a bounded number of countable things per sample; no clock is read.

Counted in a fresh process over whole epochs: system calls for reading and writing
(`/proc/self/io`), page faults and blocking waits (`getrusage`), Python calls (`sys.setprofile`)
and Python objects left alive. Limits stand two to four times above what was counted, so that a
cost per sample where there should be one per block is noticed, and noise is not.
"""

import json
import random
import subprocess

import pytest
from conftest import run_script, written

import dataset_rt as drt

COUNT = 20_000
SIZE = 200

COUNTERS = """
        import gc, itertools, json, resource, sys
        import dataset_rt as drt

        def counters():
            with open("/proc/self/io") as file:
                io = dict(line.split(": ") for line in file.read().splitlines())
            usage = resource.getrusage(resource.RUSAGE_SELF)
            return {
                "reads": int(io["syscr"]),
                "writes": int(io["syscw"]),
                "faults": usage.ru_minflt,
                "waits": usage.ru_nvcsw,
            }

        def counted(task):
            gc.collect()
            before = counters()
            task()
            after = counters()
            return {name: after[name] - before[name] for name in after}

        def python_calls(task):
            calls = 0
            def count(frame, event, argument):
                nonlocal calls
                calls += event in ("call", "c_call")
            sys.setprofile(count)
            try:
                task()
            finally:
                sys.setprofile(None)
            return calls
"""

READING = (
    COUNTERS
    + """
        path, face, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
        shuffle = face not in ("item", "items")
        dataset = drt.open_dataset(
            path, seed=1, shuffle=shuffle, zero_copy=face == "zero_copy",
            io="pread" if face == "pread" else "auto",
        )
        cache_id = drt.open_cache(path).cache_id
        rows = [i * 7919 % count for i in range(count)]
        parts = [rows[i : i + 100] for i in range(0, count, 100)]

        def epoch():
            if face == "batches":
                for batch in dataset.iter_batches(200):
                    pass
            elif face == "item":
                get = dataset.get_item
                for row in rows:
                    get(cache_id, row)
            elif face == "items":
                for part in parts:
                    dataset.__getitems__(part)
            else:
                for sample in dataset:
                    pass

        # Verification and start-up belong to the first epochs.
        epoch()
        epoch()
        spent = counted(epoch)
        spent["calls"] = python_calls(epoch)
        gc.collect()
        before = sys.getallocatedblocks()
        epoch()
        gc.collect()
        spent["left alive"] = max(0, sys.getallocatedblocks() - before)
        print(json.dumps({name: value / count for name, value in spent.items()}))
    """
)

WRITING = (
    COUNTERS
    + """
        class Source:
            name = "samples"
            def __iter__(self):
                for i in range(int(sys.argv[3])):
                    yield drt.CacheInput(data, {"label": i, "score": i / 2, "split": "train"})

        data = bytes(200)
        config = drt.WriterConfig(show_progress=False)
        runtime = drt.DatasetRuntime(num_workers=2)
        def write(name):
            (result,) = runtime.write_cache(Source(), sys.argv[1] + name, writer_config=config)
            assert isinstance(result, drt.CacheWriteSuccess), result
        write("/first")
        spent = counted(lambda: write("/second"))
        spent["calls"] = python_calls(lambda: write("/third"))
        count = int(sys.argv[3])
        print(json.dumps({name: value / count for name, value in spent.items()}))
    """
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    samples = (
        (i.to_bytes(4, "little") * (SIZE // 4), {"label": i, "score": i / 2, "split": "train"})
        for i in range(COUNT)
    )
    with drt.DatasetRuntime(num_workers=2) as runtime:
        return written(runtime, tmp_path_factory.mktemp("costs"), samples)


# One per block of 256 samples would be 0.004, one per sample 1.
PER_BLOCK = 0.02
SHARED_BY_BLOCKS = {
    "reads": PER_BLOCK,
    "writes": PER_BLOCK,
    "faults": 0.1,
    # Two workers and the consumer may all wait for one block.
    "waits": 4 * PER_BLOCK,
    "calls": PER_BLOCK,
    "left alive": PER_BLOCK,
}
LIMITS = {
    "samples": SHARED_BY_BLOCKS,
    "zero_copy": SHARED_BY_BLOCKS,
    "batches": SHARED_BY_BLOCKS,
    # 13 calls for each 100 rows.
    "items": {**SHARED_BY_BLOCKS, "calls": 0.4},
    # One call of ours per sample, which makes one native call.
    "item": {**SHARED_BY_BLOCKS, "calls": 3},
    # The payload; index and metadata are kept.
    "pread": {**SHARED_BY_BLOCKS, "reads": 2},
}


def assert_below(spent, limits):
    above = {name: (spent[name], limit) for name, limit in limits.items() if spent[name] > limit}
    assert above == {}, spent


@pytest.mark.parametrize("face", LIMITS)
def test_reading_costs_per_sample_stay_below_their_limits(cache, face):
    spent = json.loads(run_script(READING, cache, face, COUNT))
    print(face, spent)
    assert_below(spent, LIMITS[face])


def test_large_payloads_reuse_memory_and_share_wakes(tmp_path):
    """The allocator gives back what the consumer dropped, and threads meet a few times a MiB."""
    count, size = 400, 110 << 10
    noise = random.Random(3).randbytes(1 << 20)
    samples = ((noise[i : i + size], {"label": i}) for i in range(count))
    with drt.DatasetRuntime(num_workers=2) as runtime:
        path = written(runtime, tmp_path, samples)
    spent = json.loads(run_script(READING, path, "samples", count))
    print("large", spent)
    # A fresh `bytes` would be 27 pages, a run of 8 MiB has 74 payloads.
    assert_below(spent, {**SHARED_BY_BLOCKS, "faults": 5, "waits": 0.5, "reads": 0.1})


def test_writing_costs_per_sample_stay_below_their_limits(tmp_path):
    spent = json.loads(run_script(WRITING, tmp_path, "", COUNT))
    print("writing", spent)
    assert_below(spent, {"reads": PER_BLOCK, "writes": PER_BLOCK, "waits": 0.1, "calls": 6})


WRITING_MIBS = (
    COUNTERS
    + """
        import ctypes, os, pathlib
        MIB = 1 << 20

        class CacheStat(ctypes.Structure):
            names = "cached", "dirty", "written", "evicted", "recently"
            _fields_ = [(name, ctypes.c_uint64) for name in names]

        def dirty_bytes(path):
            # Bytes of a file that are in memory only and not even on their way to the disk.
            whole, stat = (ctypes.c_uint64 * 2)(0, 0), CacheStat()
            with open(path) as file:
                call = ctypes.CDLL(None).syscall
                if call(451, file.fileno(), ctypes.byref(whole), ctypes.byref(stat), 0) != 0:
                    return 0
            return stat.dirty * os.sysconf("SC_PAGE_SIZE")

        class Source:
            name = "samples"
            def __iter__(self):
                payload = bytearray(MIB)
                for i in range(COUNT):
                    yield drt.CacheInput(payload, {"label": i})
                (shard,) = pathlib.Path(sys.argv[1]).glob(".samples.partial/shards/*")
                self.size, self.dirty = os.path.getsize(shard), dirty_bytes(shard)

        COUNT = 400
        source = Source()
        config = drt.WriterConfig(
            show_progress=False, prefetch_bytes=16 * MIB, max_shard_bytes=1024 * MIB
        )
        runtime = drt.DatasetRuntime(num_workers=2)
        def write():
            (result,) = runtime.write_cache(source, sys.argv[1], writer_config=config)
            assert isinstance(result, drt.CacheWriteSuccess), result
        spent = {name: value / COUNT for name, value in counted(write).items()}
        print(json.dumps({**spent, "size": source.size, "dirty": source.dirty}))
    """
)


def test_writing_a_mebibyte_costs_few_faults_and_few_calls(tmp_path):
    spent = json.loads(run_script(WRITING_MIBS, tmp_path))
    print("writing MiBs", spent)
    # Fresh buffers cost up to 256 faults a MiB; the first few are filled for the first time.
    assert_below(spent, {"writes": 1, "faults": 50, "waits": 10})


def test_the_disk_writes_while_the_source_still_yields(tmp_path):
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True
    )
    if kind.stdout.strip() == "tmpfs":
        pytest.skip("a file system in memory has no disk")
    spent = json.loads(run_script(WRITING_MIBS, tmp_path))
    assert spent["size"] > 256 << 20
    # The newest 8 MiB may not have been begun, and as much again may just have been written.
    assert spent["dirty"] <= 32 << 20, spent


def test_an_import_leaves_what_settings_need_to_their_first_use():
    script = """
        import sys
        import dataset_rt as drt
        print("pydantic" in sys.modules, set(drt.__all__) <= set(dir(drt)))
        from dataset_rt import ReaderConfig, open_dataset
        print(drt.ReaderConfig is ReaderConfig, "pydantic" in sys.modules)
        print(hasattr(drt, "no_such_name"))
    """
    assert run_script(script) == "False True\nTrue True\nFalse\n"

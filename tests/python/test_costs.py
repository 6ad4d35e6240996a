"""Hot paths cost a bounded number of countable things per sample; no clock is read.

Counted in a fresh process over whole epochs: system calls for reading and writing
(`/proc/self/io`), page faults and blocking waits (`getrusage`), Python calls (`sys.setprofile`)
and Python objects left alive. Limits stand two to four times above what was counted, so that a
cost per sample where there should be one per block is noticed, and noise is not.
"""

import json

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
    # One call of ours per sample, and what it calls.
    "item": {**SHARED_BY_BLOCKS, "calls": 6},
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


def test_writing_costs_per_sample_stay_below_their_limits(tmp_path):
    spent = json.loads(run_script(WRITING, tmp_path, "", COUNT))
    print("writing", spent)
    assert_below(spent, {"reads": PER_BLOCK, "writes": PER_BLOCK, "waits": 0.1, "calls": 6})

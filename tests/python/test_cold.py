"""Data that are not in the page cache are asked for before anybody waits for them."""

import json
import sys
from pathlib import Path

import pytest
from conftest import measured, run_script, written

import dataset_rt as drt

ROOT = Path(__file__).resolve().parents[2]
COUNT, SIZE = 3000, 16384

EPOCHS = f"""
        import json, resource, sys
        sys.path.insert(0, {str(ROOT)!r})
        import dataset_rt as drt
        from benchmarks.cold import drop, evict
        path, shuffle, io = sys.argv[1], sys.argv[2] == "shuffled", sys.argv[3]
        faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        drop(path)
        dataset = drt.open_dataset(path, seed=1, shuffle=shuffle, io=io)
        counted = []
        for epoch in range(2):
            before = faults()
            size = sum(len(sample.data) for sample in dataset)
            counted.append(faults() - before)
            evict(path)
        print(json.dumps([size, counted]))
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    payload = b"0123456789abcdef" * (SIZE // 16)
    samples = ((payload, {"label": i}) for i in range(COUNT))
    with drt.DatasetRuntime(num_workers=2) as runtime:
        path = written(runtime, tmp_path_factory.mktemp("cold"), samples)
    sys.path.insert(0, str(ROOT))
    from benchmarks.cold import drop

    try:
        drop(Path(path))
    except RuntimeError:
        pytest.skip("a file system without a device behind it")
    return path


@pytest.mark.parametrize("order", ["shuffled", "in order"])
def test_a_cold_epoch_rarely_waits_for_a_single_page(cache, order):
    """Without hints each payload would be four pages to wait for, in both epochs."""
    size, (first, evicted) = json.loads(run_script(EPOCHS, cache, order, "auto"))
    print(order, first, evicted)
    assert size == COUNT * SIZE
    # The second epoch finds blocks verified, and nothing in memory.
    assert first < COUNT / 10
    assert evicted < COUNT / 2


def test_copies_are_read_without_page_faults(cache):
    size, faults = json.loads(run_script(EPOCHS, cache, "shuffled", "pread"))
    assert size == COUNT * SIZE
    assert max(faults) < COUNT / 10


def test_the_command_measures_cold_epochs(cache, tmp_path):
    size = ["--workloads", "small", "--count", "0.002", "--repetitions", "1"]
    rows = ["--only", "16 at", "mapping", "evicted"]
    record, printed = measured("benchmarks.cold", tmp_path, *size, *rows, seconds=120)
    results = record["results"]
    assert len(results) == 3
    for labels in results.values():
        assert len(labels) == 3
        assert all(values["samples/s"][0] > 0 for values in labels.values())
    assert "| plain mapping |" in printed

"""Many caches and shards in one dataset: descriptors and mappings stay bounded, samples right."""

import json

import pyarrow as pa
import pytest
from conftest import run_script

import dataset_rt as drt

CACHES, ROWS, SHARDS = 120, 3, 400
# Less than half the files, and than the descriptors kept when nothing else is said.
DESCRIPTORS_MAX = 300


def table(start, stop):
    numbers = range(start, stop)
    return pa.table({"payload": [str(i).encode() for i in numbers], "n": list(numbers)})


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    directory = tmp_path_factory.mktemp("many")
    config = drt.WriterConfig(show_progress=False, max_shard_bytes=1, prefetch_size=1)
    sources = [
        drt.ArrowSource(f"{i:03}", table(i * ROWS, (i + 1) * ROWS), payload="payload")
        for i in range(CACHES)
    ]
    shards = drt.ArrowSource("shards", table(0, SHARDS), payload="payload")
    with drt.DatasetRuntime(num_workers=2) as runtime:
        results = [
            *runtime.write_cache(sources, directory / "caches"),
            *runtime.write_cache(shards, directory, writer_config=config),
        ]
    assert all(isinstance(result, drt.CacheWriteSuccess) for result in results)
    return directory


EPOCHS = """
    import json, pathlib, resource, sys
    import dataset_rt as drt

    place, io, limit = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    is_cache = (place / "manifest.json").exists()
    paths = place if is_cache else sorted(place.iterdir())

    def count(name):
        return len(list(pathlib.Path(f"/proc/self/{name}").iterdir()))

    def mappings():
        lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
        return sum(str(place) in line for line in lines)

    before = count("fd")
    dataset = drt.open_dataset(paths, seed=3, shuffle=True, io=io)
    opened = count("fd") - before, mappings()
    right, highest = 0, 0
    for _ in range(3):
        for sample in dataset:
            right += sample.data == str(sample.metadata["n"]).encode()
            highest = max(highest, count("fd") - before)
    print(json.dumps([opened, right, highest, mappings()]))
"""


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize(
    ("place", "rows", "files"),
    [
        ("caches", CACHES * ROWS, 4 * CACHES),
        ("shards", SHARDS, SHARDS + 3),
    ],
)
def test_random_epochs_over_many_files_stay_within_few_descriptors(many, io, place, rows, files):
    output = run_script(EPOCHS, many / place, io, DESCRIPTORS_MAX)
    opened, right, highest, mapped = json.loads(output)
    # Opening keeps no descriptor and maps nothing.
    assert opened == [0, 0]
    assert right == 3 * rows
    assert highest < DESCRIPTORS_MAX
    # A file is mapped once, whole, or not at all.
    assert mapped <= (files if io == "mmap" else 0)

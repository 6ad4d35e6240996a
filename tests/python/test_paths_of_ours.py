"""Objects of the library passed where a path is expected: the message names what has the path."""

import pytest
from conftest import numbered, opened, written

import dataset_rt as drt
from dataset_rt.exporters import to_parquet
from dataset_rt.sources import ParquetSource

ONE = {
    "open_cache": drt.open_cache,
    "verify_cache": drt.verify_cache,
    "repair_cache": drt.repair_cache,
    "salvage_cache": lambda cache: drt.salvage_cache(cache, "into"),
    "write_report": lambda cache: drt.write_report(cache, "page.html"),
    "output": lambda path: drt.write_report("cache", path),
    "to_parquet": lambda path: to_parquet("cache", path),
    "unfinished_writes": drt.unfinished_writes,
    "list": lambda path: drt.open_dataset([path]),
}
SEVERAL = {
    "open_dataset": drt.open_dataset,
    "source": lambda paths: ParquetSource("p", paths),
}


@pytest.fixture
def dataset(runtime, tmp_path):
    return opened(runtime, written(runtime, tmp_path, numbered(3)))


@pytest.mark.parametrize("call", [*ONE, *SEVERAL])
def test_a_dataset_or_a_cache_instead_of_a_path(dataset, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    first = "[0]" if call in ONE else ""
    cache = drt.open_cache(dataset.cache_paths[0])
    success = drt.CacheSourcesDatasetSuccess(dataset, [])
    result = drt.CacheWriteSuccess("words", cache.path, "written")
    for value, advice in (
        (dataset, f"CachedDataset: pass its .cache_paths{first}"),
        (success, f"CacheSourcesDatasetSuccess: pass its .dataset.cache_paths{first}"),
        (cache, "Cache: pass its .path"),
        (result, "CacheWriteSuccess: pass its .path"),
    ):
        with pytest.raises(TypeError) as caught:
            (ONE | SEVERAL)[call](value)
        assert str(caught.value).endswith(f"found {advice}")
    # No epoch was claimed, and failures have no path.
    assert dataset.epoch == 0
    with pytest.raises(TypeError, match=r"found CacheWriteError: it has no path: full$"):
        (ONE | SEVERAL)[call](drt.CacheWriteError("words", "full"))


def test_what_the_message_names_is_taken(dataset):
    assert len(drt.open_dataset(dataset.cache_paths)) == 3
    assert drt.verify_cache(drt.open_cache(dataset.cache_paths[0]).path)

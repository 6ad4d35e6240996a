"""The command that measures workers runs, whether PyTorch is there or not."""

import importlib.util

from conftest import measured


def test_the_command_measures_workers(tmp_path):
    sizes = ["--count", "0.002", "--rows", "60000", "--seconds", "0.05", "--repetitions", "1"]
    loaders = ["--loaders", "1", "--methods", "fork"]
    record, printed = measured("benchmarks.workers", tmp_path, *sizes, *loaders, seconds=200)
    results = record["results"]
    for name in ("image, zstd", "small, lz4", "small, uncompressed"):
        assert all(values["samples/s"][0] > 0 for values in results[name].values())
    assert "| 1 worker on one CPU |" in printed
    if importlib.util.find_spec("torch") is None:
        assert "PyTorch is not importable" in printed
        return
    loaders = results["DataLoader, fork"]
    assert len(loaders) == 3
    assert all(values["private"][0] > 0 for values in loaders.values())
    assert "| nothing read before | 1 |" in printed

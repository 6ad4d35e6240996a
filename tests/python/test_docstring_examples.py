"""Every example in a docstring runs as written, with a small cache called `cache` at hand."""

import doctest
import importlib
import pkgutil

import polars as pl
import pyarrow as pa
import pytest

import dataset_rt

MODULES = sorted(
    ["dataset_rt"]
    + [
        module.name
        for module in pkgutil.walk_packages(dataset_rt.__path__, "dataset_rt.")
        if not module.name.endswith("._native")
    ]
)


class Words:
    name = "words"

    def __iter__(self):
        for position, word in enumerate(["a", "b"]):
            yield dataset_rt.CacheInput(word.encode(), {"position": position})


def imported(name):
    """A module, or `None` for one that needs PyTorch where that is not there."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != "torch":
            raise
        return None


@pytest.mark.parametrize("module_name", MODULES)
def test_examples_run_as_written(module_name, tmp_path, monkeypatch):
    module = imported(module_name)
    if module is None:
        pytest.skip("PyTorch is not importable: see make torch")
    public = {name: getattr(dataset_rt, name) for name in dataset_rt.__all__}
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        if not test.examples:
            continue
        place = tmp_path / test.name
        place.mkdir()
        monkeypatch.chdir(place)
        with dataset_rt.DatasetRuntime() as runtime:
            (written,) = runtime.write_cache(Words(), place / "caches")
        test.globs = {
            **public,
            "Words": Words,
            "cache": written.path,
            "pa": pa,
            "pl": pl,
            "tmp_path": place,
        }
        report = []
        runner = doctest.DocTestRunner(verbose=False)
        runner.run(test, out=report.append)
        assert runner.failures == 0, "".join(report)


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [
        example
        for name in MODULES
        if (module := imported(name)) is not None
        for test in finder.find(module)
        for example in test.examples
    ]
    assert len(examples) >= 10

"""Cache directories from strangers: links, pipes, devices and paths that lead elsewhere are refused
at once, with an error and without a look at what lies behind them."""

import os
import shutil
import socket

import pytest
from conftest import put, run_script

FILES = ["manifest.json", "metadata.arrow", "index.bin", "digests.bin", "shards/000000.arrow"]

# Opening a pipe without a writer would wait for ever: in a process of its own.
READ_EVERYTHING = """
    import sys
    import dataset_rt as drt

    def attempt(action):
        try:
            return action()
        except drt.DatasetRTError as error:
            return type(error).__name__

    for path in sys.argv[1:]:
        print(attempt(lambda: len(list(drt.open_dataset(path)))))
        print(attempt(lambda: drt.open_cache(path) and "opened"))
        for level in ("quick", "full", "deep"):
            print(attempt(lambda: drt.verify_cache(path, level).ok))
"""


def link_to_a_true_copy(file, aside):
    shutil.copy(file, aside)
    file.unlink()
    file.symlink_to(aside)


def link_to_a_device(file, aside):
    file.unlink()
    file.symlink_to("/dev/zero")


def pipe(file, aside):
    file.unlink()
    os.mkfifo(file)


def socket_file(file, aside):
    file.unlink()
    # Names of sockets are short: bound beside, then moved.
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(aside))
    aside.rename(file)


def directory(file, aside):
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    "replace", [link_to_a_true_copy, link_to_a_device, pipe, socket_file, directory]
)
def test_files_that_are_no_files_are_refused_at_once(cache, tmp_path, replace):
    paths = []
    for number, name in enumerate(FILES):
        path = shutil.copytree(cache, tmp_path / f"{replace.__name__}-{number}")
        replace(path / name, tmp_path / f"aside{number}")
        paths.append(path)
    said = run_script(READ_EVERYTHING, *paths, seconds=30).splitlines()
    assert said == ["CorruptError", "CorruptError", "False", "False", "False"] * len(FILES)


def test_a_directory_of_shards_that_lies_elsewhere_is_refused(cache, tmp_path):
    (cache / "shards").rename(tmp_path / "elsewhere")
    (cache / "shards").symlink_to(tmp_path / "elsewhere")
    said = run_script(READ_EVERYTHING, cache, seconds=30).splitlines()
    assert said == ["CorruptError", "CorruptError", "False", "False", "False"]


NESTED = {
    "open": "[" * 100_000,
    "lists": "[" * 4_000_000 + "]" * 4_000_000,
    "objects": '{"a":' * 2_000_000 + "1" + "}" * 2_000_000,
}


@pytest.mark.parametrize("nested", NESTED.values(), ids=NESTED)
def test_deeply_nested_manifests_are_refused(cache, nested):
    text = (cache / "manifest.json").read_text()
    put(cache / "manifest.json", text.replace("{", '{"extra": ' + nested + ",", 1).encode())
    said = run_script(READ_EVERYTHING, cache, seconds=30).splitlines()
    assert said == ["CorruptError", "CorruptError", "False", "False", "False"]

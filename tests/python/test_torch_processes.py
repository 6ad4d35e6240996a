"""Workers that are forked, spawned or served: the same epochs, no hang, errors that arrive."""

import importlib.util
import os
import signal
import subprocess
import sys

import pytest
from conftest import numbered, written

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not importable: see make torch"
)

SECONDS = 200

# A file of its own: started processes import it anew.
TRAINING = """
import sys, warnings
import polars as pl
from torch.utils.data import DataLoader
import dataset_rt as drt

warnings.filterwarnings("ignore", "This DataLoader will create")

def opened(path, edited):
    dataset = drt.open_dataset(path, seed=5, shuffle=True)
    if edited:
        table = dataset.get_metadata()
        dataset.update_metadata(table.with_columns(weight=table["number"] + 1.0))
    return dataset

def batch_of(samples):
    return [(sample.sample_id, sample.metadata["number"], sample.data) for sample in samples]

def use_polars(frame):
    return frame.lazy().group_by("label").agg(pl.col("number").sum()).collect().height

def loaders(dataset, method, workers, persistent):
    options = {"multiprocessing_context": method, "timeout": 100, "num_workers": workers,
               "persistent_workers": persistent}
    ours = dataset.to_torch_dataloader(batch_size=7, collate_fn=batch_of, **options)
    stream = dataset.to_torch_iterable_dataset(7)
    return [
        ("loader", ours),
        ("map-style", DataLoader(dataset, batch_size=7, collate_fn=batch_of, **options)),
        ("stream", DataLoader(stream, batch_size=None, collate_fn=batch_of, **options)),
    ]

def main(path, method, workers, persistent, epochs, edited, faces):
    frame = opened(path, edited == "edited").get_metadata()
    assert use_polars(frame) == 7
    source = opened(path, edited == "edited")
    expected = [batch_of(source) for _ in range(int(epochs))]
    dataset = opened(path, edited == "edited")
    for name, loader in loaders(dataset, method, int(workers), persistent == "persistent"):
        if name not in faces.split(","):
            continue
        for epoch in range(int(epochs)):
            dataset.set_epoch(epoch)
            read = [sample for batch in loader for sample in batch]
            assert read == expected[epoch], (name, epoch)
            assert use_polars(frame) == 7
    print("trained")

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


def run(script, *arguments, seconds=SECONDS):
    """Run a file in a process group under a hard limit; return what it printed."""
    training = subprocess.Popen(
        [sys.executable, script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = training.communicate(timeout=seconds)
    finally:
        if training.poll() is None:
            os.killpg(training.pid, signal.SIGKILL)  # its workers too
            training.wait()
    assert training.returncode == 0, errors
    return output


@pytest.mark.parametrize(
    ("method", "workers", "persistent", "epochs", "edited", "faces"),
    [
        # Fifty forked epochs after Polars filled its pools.
        ("fork", 2, "", 50, "edited", "loader"),
        ("fork", 4, "", 50, "", "map-style"),
        ("fork", 2, "persistent", 50, "edited", "loader,map-style,stream"),
        # A started worker imports everything anew, which takes seconds.
        ("spawn", 2, "persistent", 3, "edited", "loader,map-style,stream"),
        ("forkserver", 2, "", 2, "edited", "loader"),
        ("forkserver", 2, "persistent", 3, "", "stream"),
    ],
)
def test_workers_deliver_every_epoch_however_they_are_started(
    runtime, tmp_path, method, workers, persistent, epochs, edited, faces
):
    path = written(runtime, tmp_path / "caches", numbered(100))
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    arguments = (path, method, workers, persistent, epochs, edited, faces)
    assert run(script, *arguments) == "trained\n"


LOST = """
import shutil, sys
import dataset_rt as drt

if __name__ == "__main__":
    path = sys.argv[1]
    loader = drt.open_dataset(path).to_torch_dataloader(
        num_workers=1, multiprocessing_context="spawn", collate_fn=list
    )
    shutil.move(path, path + "-elsewhere")
    try:
        list(loader)
    except drt.NotFoundError as error:
        assert "in DataLoader worker process 0" in str(error), error
        assert path in str(error), error
        print("told")
"""


def test_a_cache_that_a_started_worker_does_not_find_is_told(runtime, tmp_path):
    path = written(runtime, tmp_path / "caches", numbered(3))
    script = tmp_path / "lost.py"
    script.write_text(LOST)
    assert run(script, path) == "told\n"


GIVEN = """
import multiprocessing, sys
from torch.utils.data import DataLoader
import dataset_rt as drt

def read(dataset, queue):
    queue.put([sample.sample_id for sample in dataset])

def numbers(samples):
    return [sample.sample_id for sample in samples]

if __name__ == "__main__":
    dataset = drt.open_dataset(sys.argv[1], seed=5, shuffle=True)
    loader = dataset.to_torch_dataloader(batch_size=2, num_workers=0, collate_fn=list)
    table = loader.dataset.get_metadata()
    loader.dataset.update_metadata(table.with_columns(weight=table["number"] + 1.0))
    expected = [loader.dataset[i].sample_id for i in range(len(table))]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=read, args=(loader.dataset, queue))
    process.start()
    assert queue.get(timeout=60) == expected
    process.join()
    plain = DataLoader(loader.dataset, batch_size=2, num_workers=1, collate_fn=numbers,
                       multiprocessing_context=context, timeout=60)
    assert [number for batch in plain for number in batch] == expected
    print("read")
"""


def test_the_dataset_of_a_loader_may_be_given_to_other_processes(runtime, tmp_path):
    path = written(runtime, tmp_path / "caches", numbered(7))
    script = tmp_path / "given.py"
    script.write_text(GIVEN)
    assert run(script, path) == "read\n"

"""PyTorch's own DataLoader over datasets: right samples, no hang, however workers are started."""

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

SECONDS = 300

# A file of its own: started processes import it anew.
TRAINING = '''
import sys
import polars as pl
from torch.utils.data import DataLoader
import dataset_rt as drt

def opened(path):
    return drt.open_dataset(path, seed=5, shuffle=True)

class OpenedWhereItIsUsed:
    """Datasets cannot be pickled; a path can."""
    def __init__(self, path):
        self.path = path
        self.dataset = None
    def __len__(self):
        return len(opened(self.path))
    def __getitems__(self, positions):
        if self.dataset is None:
            self.dataset = opened(self.path)
        return self.dataset.__getitems__(positions)

def batch_of(samples):
    return [(sample.sample_id, sample.metadata["number"], sample.data) for sample in samples]

def use_polars(frame):
    return frame.lazy().group_by("label").agg(pl.col("number").sum()).collect().height

def main(path, method, workers, persistent, epochs):
    inherited = opened(path)
    frame = inherited.get_metadata()
    assert use_polars(frame) == 7
    expected = batch_of(opened(path))
    options = {}
    if workers != "0":
        options = {"multiprocessing_context": method, "timeout": 100}
        options["persistent_workers"] = persistent == "persistent"
    loader = DataLoader(
        OpenedWhereItIsUsed(path) if method == "spawn" else inherited,
        batch_size=7, num_workers=int(workers), collate_fn=batch_of, **options,
    )
    for _ in range(int(epochs)):
        assert [sample for batch in loader for sample in batch] == expected
        assert use_polars(frame) == 7
    print("trained")

if __name__ == "__main__":
    main(*sys.argv[1:])
'''


@pytest.mark.parametrize(
    ("method", "workers", "persistent", "epochs"),
    [
        ("fork", 0, "", 50),
        ("fork", 2, "", 50),
        ("fork", 4, "", 50),
        ("fork", 2, "persistent", 50),
        ("fork", 4, "persistent", 50),
        # A started worker imports everything anew, which takes seconds.
        ("spawn", 2, "", 2),
        ("spawn", 2, "persistent", 50),
        ("spawn", 4, "persistent", 50),
    ],
)
def test_a_loader_delivers_every_epoch_right(
    runtime, tmp_path, method, workers, persistent, epochs
):
    path = written(runtime, tmp_path / "caches", numbered(100))
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    training = subprocess.Popen(
        [sys.executable, script, path, method, str(workers), persistent, str(epochs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = training.communicate(timeout=SECONDS)
    finally:
        if training.poll() is None:
            os.killpg(training.pid, signal.SIGKILL)  # its workers too
            training.wait()
    assert (training.returncode, output) == (0, "trained\n"), errors

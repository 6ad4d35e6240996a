"""The example of two ranks: real processes, which together read the one order."""

import json
import subprocess
import sys

from conftest import NEEDS_PYTORCH
from example_tools import ROOT, check_shown

import dataset_rt as drt

pytestmark = NEEDS_PYTORCH


def test_two_ranks_read_one_order(tmp_path):
    example = ROOT / "examples/two_ranks.py"
    done = subprocess.run(
        [sys.executable, example, tmp_path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    check_shown("two_ranks", done.stdout)
    assert done.stdout.count("True") == 3

    dataset = drt.open_dataset(tmp_path / "caches/digits", seed=9, shuffle=True)
    epochs = [[sample.sample_id for sample in dataset] for _ in range(2)]
    counts = []
    for rank in range(2):
        steps = json.loads((tmp_path / f"rank-{rank}.json").read_text())["steps"]
        counts.append(len(steps))
        mine = [number for step in steps for number in step]
        assert mine == epochs[0][rank::2] + epochs[1][rank::2]
    assert counts == [114, 114]

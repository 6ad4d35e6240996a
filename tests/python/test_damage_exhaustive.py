"""No damage of any byte or file gives wrong data, an untyped error, a panic or a dead process.

The cases run in processes of their own under hard limits, two at a time; see `damage_worker`. Run
with `-s` to see how many there were.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from damage_worker import COMPRESSIONS, SAMPLED_FLIPS

MIB = 1024 * 1024
SECONDS_MAX = 600
SMALL = [("small", compression) for compression in COMPRESSIONS]
LARGE = [("large", compression) for compression in ("none", "zstd", "zstd buffer")]
WORKER = Path(__file__).with_name("damage_worker.py")


def run(task, directory):
    directory.mkdir()
    done = subprocess.run(
        [sys.executable, WORKER, *task, directory],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    # A caught panic says so in the standard error.
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr}"
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    directory = tmp_path_factory.mktemp("damage")
    with ThreadPoolExecutor(2) as pool:
        tasks = [*SMALL, *LARGE]
        yield {task: pool.submit(run, task, directory / " ".join(task)) for task in tasks}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("task", SMALL, ids=" ".join)
def test_every_damage_of_a_small_cache_is_refused_or_harmless(outcomes, task):
    outcome = outcomes[task].result()
    print(f"\n{' '.join(task)}: {outcome}")
    cases = outcome["cases"]
    # One flip a byte at least, and every shorter length of every file.
    assert cases["flips"] > outcome["bytes"]
    assert cases["truncations"] == outcome["bytes"]
    kinds = "extensions,missing files,exchanged files,foreign files,numbers"
    assert all(cases[kind] > 0 for kind in [*kinds.split(","), "numbers under a right digest"])
    assert outcome["grown_bytes"] < 48 * MIB


@pytest.mark.parametrize("task", LARGE, ids=" ".join)
def test_what_is_not_damaged_reads_on(outcomes, task):
    outcome = outcomes[task].result()
    print(f"\n{' '.join(task)}: {outcome}")
    assert outcome["cases"] == {"sampled flips over many blocks": SAMPLED_FLIPS}
    # A thread may keep 64 MiB of decompressed batches.
    assert outcome["grown_bytes"] < 96 * MIB

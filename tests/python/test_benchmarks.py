"""The benchmark suite runs from its one command, and notices an engine that does less work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import measured

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import measure, report  # noqa: E402
from benchmarks.engines import STORES, CannotError, Reader  # noqa: E402
from benchmarks.targets import TARGETS  # noqa: E402
from benchmarks.workloads import Workload  # noqa: E402

ENGINES = ("mmap floor", "DatasetRT", "DatasetRT Arrow source")


def test_the_command_measures_every_task_of_every_mode(tmp_path):
    options = ["--quick", "--workloads", "tiny", "large", "--engines", *ENGINES]
    record, printed = measured("benchmarks", tmp_path, *options)
    assert record["failures"] == {}
    for results in record["results"].values():
        for label in ("mmap floor", "DatasetRT", "DatasetRT zero_copy", "DatasetRT pread"):
            for task in report.RATES:
                assert results[label][task][0] > 0, (label, task)
        assert results["DatasetRT batches"]["weighted"][0] > 0
        assert results["DatasetRT"]["write, durable"][0] > 0
        assert results["DatasetRT"]["disk bytes per payload byte"][0] > 1
        for label in ("DatasetRT", "DatasetRT Arrow source"):
            assert results[label]["write"][0] > 0
            assert results[label]["write, plain"][0] > 0
    assert "| weighted |" in printed


def test_a_failing_engine_costs_its_own_figures_only(tmp_path):
    output = tmp_path / "result.json"
    script = """
        import sys
        from benchmarks import __main__ as suite
        from benchmarks.engines import Store
        broken = Store("broken", "no_such_module", is_peer=False)
        suite.STORES = (broken, *[store for store in suite.STORES if store.name == "mmap floor"])
        sys.exit(suite.main())
    """
    arguments = ["--quick", "--workloads", "tiny", "--cache", tmp_path, "--output", output]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(map(str.strip, script.splitlines())), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    record = json.loads(output.read_text())
    assert "no_such_module" in record["failures"]["broken, tiny"]
    assert record["results"]["tiny"]["mmap floor"]["weighted"][0] > 0


def test_the_command_for_scale_measures_every_step(tmp_path):
    sizes = ["--rows", "1000", "2000", "--caches", "3", "--shards", "5", "--draws"]
    options = [*sizes, "--repetitions", "1"]
    record, printed = measured("benchmarks.scale", tmp_path, *options, seconds=120)
    assert list(record["rows"]) == ["1000", "2000"]
    for values in record["rows"].values():
        assert all(value > 0 for name, value in values["table"].items() if "memory" not in name)
    assert record["many"]["5 shards of a row"]["descriptors"] > 0
    # Whole blocks of 64 KiB for a few payloads.
    assert record["many"]["subset"]["100"] > 10
    assert "| update_metadata, and of memory pass |" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_every_single_step_runs():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "benchmarks/micro.py", "--benchmark-disable", "-q"],
        cwd=ROOT,
        env={**os.environ, "MICRO_ROWS": "2000"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout


@pytest.fixture(scope="module")
def workload():
    return Workload("tiny", 50)


def check_all(workload, samples):
    rows = range(workload.count)
    measure.checksum(iter(samples), workload, rows, bytes)
    measure.timed_pass(lambda: iter(samples), workload, rows, 10)


def test_the_samples_as_written_pass(workload):
    check_all(workload, list(workload.samples()))


CHEATS = {
    "a sample is missing": lambda samples: samples[:-1],
    "two samples are exchanged": lambda samples: [samples[1], samples[0], *samples[2:]],
    "a byte differs": lambda samples: [(samples[0][0][:-1] + b"?", samples[0][1]), *samples[1:]],
    "a payload is a view": lambda samples: [(memoryview(data), row) for data, row in samples],
    "a column is missing": lambda samples: [
        (data, {"label": row["label"], "score": row["score"]}) for data, row in samples
    ],
    "a value has another type": lambda samples: [
        (data, {**row, "label": float(row["label"])}) for data, row in samples
    ],
    "metadata is lazy": lambda samples: [(data, tuple(row.items())) for data, row in samples],
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_an_engine_that_does_less_is_caught(workload, cheat):
    samples = CHEATS[cheat](list(workload.samples()))
    with pytest.raises((measure.WrongDataError, TypeError)):
        check_all(workload, samples)


def test_a_timed_pass_notices_payloads_that_were_not_made(workload):
    samples = list(workload.samples())
    samples[10] = (b"", samples[10][1])
    with pytest.raises(measure.WrongDataError, match="50 samples hold 4900 bytes"):
        measure.timed_pass(lambda: iter(samples), workload, range(50), 10)


def test_an_engine_without_a_sampler_reads_the_drawn_rows(workload):
    class Rows(Reader):
        def __init__(self):
            pass

        def get(self, row):
            return row

    reader = Rows()
    reader.set_weights(workload)
    fresh = Workload(workload.name, workload.count)
    epochs = [list(fresh.draw()), list(fresh.draw())]
    assert [list(reader.weighted()), list(reader.weighted())] == epochs
    assert epochs[0] != epochs[1]
    with pytest.raises(CannotError):
        reader.sequential()


def test_every_engine_has_a_module_and_every_peer_its_pins():
    for store in STORES:
        assert (ROOT / f"benchmarks/engines/{store.module}.py").exists()
        if store.is_peer:
            pins = (ROOT / f"benchmarks/requirements/{store.module}.txt").read_text()
            assert all("==" in line for line in pins.splitlines())


def test_the_report_says_where_a_peer_is_ahead():
    results = {
        "mmap floor": {"random": [100.0]},
        "DatasetRT": {"random": [50.0, 60.0, 90.0], "sequential": [10.0]},
        "LMDB": {"random": [80.0], "sequential": [5.0]},
        "bagz": {"random": "no access by row"},
    }
    record = {"results": {"tiny": results}}
    assert report.ratio(results, "random") == (0.6, 0.75, "LMDB")
    (line,) = report.losses(record)
    assert "LMDB is ahead" in line
    assert "random, one" in line
    assert report.cannot(record) == ["- bagz, random, one: no access by row."]


def test_missed_targets_are_bold():
    ours = {"weighted": [90.0, 110.0], "weighted, first epoch": [50.0], "write": [100.0]}
    floor = {"weighted": [50.0, 60.0], "write": [400.0]}
    plain = {"write, plain": [110.0]}
    results = {"mmap floor": floor, "DatasetRT": ours | plain}
    lines = report.targets_table({"results": {"small": results, "image": {}}}).splitlines()
    found = {line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1:] for line in lines[2:]}
    assert len(found) == len(TARGETS)
    assert found["weighted epoch, of the floor"] == ["1.82 (≥ 1.00)", "- |"]
    assert found["first weighted epoch, times slower than later ones"][0] == "**2.00 (≤ 1.35)**"
    # The plain file was slower than the floor engine.
    assert found["writing, of the slower of floor and plain file"][0] == "0.91 (≥ 0.80)"
    assert found["one random sample, of LMDB"][0] == "-"

"""The command that measures workers runs, whether PyTorch is there or not."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_command_measures_workers(tmp_path):
    output = tmp_path / "result.json"
    command = [sys.executable, "-m", "benchmarks.workers", "--count", "0.002", "--rows", "60000"]
    command += ["--loaders", "1", "--methods", "fork"]
    parts = ["--seconds", "0.05", "--repetitions", "1", "--cache", tmp_path, "--output", output]
    done = subprocess.run(
        [*command, *parts], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(output.read_text())["results"]
    for name in ("image, zstd", "small, lz4", "small, uncompressed"):
        assert all(values["samples/s"][0] > 0 for values in results[name].values())
    assert "| 1 worker on one CPU |" in done.stdout
    if importlib.util.find_spec("torch") is None:
        assert "PyTorch is not importable" in done.stdout
        return
    loaders = results["DataLoader, fork"]
    assert len(loaders) == 3
    assert all(values["private"][0] > 0 for values in loaders.values())
    assert "| nothing read before | 1 |" in done.stdout

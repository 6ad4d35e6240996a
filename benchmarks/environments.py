"""A virtual environment for each peer, made when first asked for and kept in the cache directory.

Pins are in `requirements/NAME.txt`; a changed file makes the environment anew.
"""

import shutil
import subprocess
import sys
from pathlib import Path

# Bytes to have free before installing; PyTorch, which LitData needs, unpacks to 5 GB.
SPACE = {"litdata": 10 << 30}
SPACE_DEFAULT = 2 << 30

REQUIREMENTS = Path(__file__).parent / "requirements"


def python_of(name, cache):
    """The interpreter of a peer's environment."""
    pins = REQUIREMENTS / f"{name}.txt"
    directory = cache / "environments" / name
    stamp = directory / "installed.txt"
    python = directory / "bin" / "python"
    if stamp.exists() and stamp.read_text() == pins.read_text():
        return python
    free = shutil.disk_usage(cache).free
    needed = SPACE.get(name, SPACE_DEFAULT)
    if free < needed:
        raise RuntimeError(f"{needed >> 30} GiB of free disk are needed, {free >> 30} are there")
    print(f"installing {name}: {directory}", flush=True)
    shutil.rmtree(directory, ignore_errors=True)
    run([sys.executable, "-m", "venv", directory])
    run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", pins])
    stamp.write_text(pins.read_text())
    return python


def run(command):
    # PyTorch takes the longest.
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(f"{command[0]} failed: {lines[-1]}")


def versions(name):
    """The pinned version of the package that the peer is named after."""
    lines = (REQUIREMENTS / f"{name}.txt").read_text().splitlines()
    wanted = {"lance": "pylance"}.get(name, name)
    return next(line for line in lines if line.lower().startswith(f"{wanted}=="))

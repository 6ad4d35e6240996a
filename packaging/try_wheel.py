"""Installs a wheel where nothing else is, and uses it as someone new would.

    python packaging/try_wheel.py dist/dataset_rt-*.whl

The README's blocks run against the installed package in an empty directory, with sockets refused;
the command line says what it needs before its extra is installed, and works after.
"""

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# Runs before the README: what it leaves to the reader, and what no import may do.
BEFORE = """\
import logging, sys, threading

def refuse_sockets(event, arguments):
    if event.startswith("socket."):
        raise RuntimeError(f"{event}{arguments}: nothing here needs a network")

sys.addaudithook(refuse_sockets)
threads, handlers = threading.active_count(), list(logging.getLogger().handlers)
import dataset_rt
from importlib.metadata import distribution
installed = distribution("dataset-rt")
assert threading.active_count() == threads, threading.enumerate()
assert logging.getLogger().handlers == handlers and not logging.getLogger("dataset_rt").handlers
assert installed.version == dataset_rt.__version__, (installed.version, dataset_rt.__version__)
names = {path.name for path in installed.files}
assert {"LICENSE", "THIRD_PARTY_LICENSES", "py.typed", "_native.pyi"} <= names, names
assert any("sboms" in path.parts for path in installed.files)

def load_my_images():
    for i in range(60):
        yield f"image-{i}", bytes([i]) * (i + 1), i % 4

decode_image, trained = len, []
def train(image, label):
    trained.append(label)
"""
AFTER = """
assert len(trained) == 60, len(trained)
print(f"README: {len(trained)} samples from dataset_rt {dataset_rt.__version__}")
"""


def run(*command: object, **options: object) -> subprocess.CompletedProcess:
    """Run a command that must succeed, within ten minutes."""
    return subprocess.run([str(part) for part in command], check=True, timeout=600, **options)


def main() -> None:
    """Install, use, report."""
    (wheel,) = (Path(argument).resolve() for argument in sys.argv[1:])
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        venv.create(directory / "venv", with_pip=True)
        python = directory / "venv" / "bin" / "python"
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, wheel)
        empty = directory / "empty"
        empty.mkdir()
        program = BEFORE + "".join(BLOCK.findall((ROOT / "README.md").read_text())) + AFTER
        # Isolated: neither this directory nor the user's own packages are importable.
        run(python, "-I", "-W", "error", "-c", program, cwd=empty)

        script = python.with_name("dataset-rt")
        bare = subprocess.run([script, "--version"], capture_output=True, text=True, check=False)
        assert bare.returncode == 1, bare
        assert "pip install typer" in bare.stderr, bare
        run(*pip, f"{wheel}[cli]")
        run(script, "--version")
        (cache,) = empty.glob("**/manifest.json")
        for arguments in (
            ("inspect",), ("stats",), ("verify",), ("sample", "--balance", "label"),
            ("report", "-o", empty / "report.html"),
        ):  # fmt: skip
            command, *options = arguments
            run(script, command, cache.parent, *options, stdout=subprocess.DEVNULL)
    print(f"{wheel.name} works in an empty environment")


if __name__ == "__main__":
    main()

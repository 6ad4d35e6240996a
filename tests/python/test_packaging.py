"""What a package promises: one version, extras that name what they need, and no network."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import dataset_rt as drt

ROOT = Path(__file__).resolve().parents[2]

# Everything but a fork server, which talks over a socket of its own.
WHOLE_WAY = """
import sys
def refuse(event, arguments):
    if event.startswith("socket."):
        raise RuntimeError(f"{event}{arguments}")
sys.addaudithook(refuse)

import pickle
import dataset_rt as drt

class Words:
    name = "words"
    def __iter__(self):
        for number in range(100):
            yield drt.CacheInput(bytes([number]), {"number": number})

with drt.DatasetRuntime() as runtime:
    runtime.write_cache(Words(), sys.argv[1])
    dataset = runtime.cached_dataset(
        sys.argv[1] + "/words", reader_config=drt.ReaderConfig(seed=1)
    )
    dataset.update_metadata(dataset.get_metadata().head(50))
    print(len(list(pickle.loads(pickle.dumps(dataset)))))
drt.verify_cache(sys.argv[1] + "/words", level="deep")
"""


def test_the_version_stands_in_one_place_and_the_citation_agrees():
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dynamic"] == ["version"]
    assert drt.__version__ == workspace["version"]
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited
    assert cited[1] == drt.__version__


def test_the_release_notes_are_of_this_version():
    assert (ROOT / f"docs/releases/{drt.__version__}.md").is_file()


def test_importing_writing_and_reading_open_no_socket(tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", WHOLE_WAY, tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout == "50\n"


def test_an_import_starts_no_thread_and_handles_no_log():
    program = (
        "import logging, threading, dataset_rt\n"
        "from dataset_rt import DatasetRuntime\n"
        "print(threading.active_count(), logging.getLogger().handlers,"
        " logging.getLogger('dataset_rt').handlers)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout == "1 [] []\n"

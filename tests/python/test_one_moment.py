"""Checkpoints that guides and examples teach are of one moment, wherever a kill comes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from example_tools import ROOT
from pages import blocks_of, markdown_pages

SAVES = re.compile(r"\b(?:torch\.save|joblib\.dump|np\.savez?)\(")
# `train(directory)` goes on with the checkpoint there, if there is one, and returns the model.
COMPARED = """
import pathlib, sys
sys.path.insert(0, {tests!r})
from moments import copies_before_writes

models = []
pathlib.Path("whole").mkdir()
for copy in copies_before_writes("whole", lambda: models.append(train("whole"))):
    models.append(train(copy))
print(len(models), len(models[0]), len(set(models)))
"""


def compared(script, directory):
    """Run a script that has `train`: number of models, bytes of one, number of different ones."""
    file = directory / "compare.py"
    file.write_text(script + COMPARED.format(tests=str(Path(__file__).parent)))
    done = subprocess.run(
        [sys.executable, file],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [int(number) for number in done.stdout.split("\n")[-2].split()]


def test_the_example_of_hard_examples_resumes_from_a_kill_between_any_two_writes(tmp_path):
    pytest.importorskip("sklearn", reason="the examples need it")
    script = f"""
import runpy
import dataset_rt as drt
scope = runpy.run_path({str(ROOT / "examples/hard_examples.py")!r})
with drt.DatasetRuntime() as runtime:
    runtime.from_cache_sources(scope["Digits"](), "caches", reader_config=drt.ReaderConfig(seed=0))

def train(directory):
    run = pathlib.Path(directory, "run.joblib")
    model = scope["train"](pathlib.Path("caches/digits"), run, until=2, mining=True)
    return b"".join(part.tobytes() for part in model.coefs_)
"""
    # The whole run, and one for each of two writes in each of two epochs.
    models, size, different = compared(script, tmp_path)
    assert (models, different) == (5, 1)
    assert size > 5000


def test_the_guide_to_hard_examples_resumes_from_a_kill_between_any_two_writes(tmp_path):
    blocks = blocks_of("docs/guides/hard-examples.md")
    (last,) = (number for number, block in enumerate(blocks) if "def train(" in block)
    taught = "\n".join(blocks[: last + 1])
    script = f"""
import pathlib
{taught[: taught.index(chr(10) + 'train("hard-stopped.npz"')]}

the_guides_loop = train
def train(directory):
    the_guides_loop(pathlib.Path(directory, "run.npz"), 3)
    return weights.tobytes()
"""
    models, size, different = compared(script, tmp_path)
    assert (models, size, different) == (7, 64 * 10 * 4, 1)


def test_no_page_and_no_example_writes_over_its_checkpoint():
    places = [block for page in markdown_pages() for block in blocks_of(page)]
    places += [file.read_text() for file in ROOT.glob("examples/*.py")]
    saving = [text for text in places if SAVES.search(text)]
    assert len(saving) >= 5
    for text in saving:
        replaced = text.count("os.replace(") + text.count(".replace(checkpoint)")
        assert replaced >= len(SAVES.findall(text)), text

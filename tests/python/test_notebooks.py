"""Notebooks run from top to bottom in a real kernel, and show what they say they show."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted(Path(__file__).resolve().parents[2].glob("examples/*.ipynb"))
SECONDS = 120


def text_of(output):
    """An output as text; how long a write took is nothing to compare."""
    text = output.get("text") or output["data"]["text/plain"]
    return re.sub(r"(samples, done in) .*", r"\1", text)


def kinds_of(output):
    return sorted(output.get("data", {"text": ""}))


def shown(notebook):
    """What each code cell prints, shows and returns: kinds of outputs, and their text."""
    return {
        cell["source"]: [(kinds_of(output), text_of(output)) for output in cell["outputs"]]
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_and_its_outputs_are_those_it_shows(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    expected = shown(notebook)
    assert any(expected.values())
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=SECONDS, resources=resources).execute()
    assert shown(notebook) == expected

"""Notebooks run from top to bottom in a real kernel, and show what they say they show."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted(Path(__file__).resolve().parents[2].glob("examples/*.ipynb"))
SECONDS = 120


def shown(notebook):
    """What each code cell prints and returns, as text."""
    return {
        cell["source"]: [
            output.get("text") or output["data"]["text/plain"] for output in cell["outputs"]
        ]
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

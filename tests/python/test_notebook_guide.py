"""The guide for notebooks: every block runs, and its pictures are of what it says."""

import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from cli_tools import call

import dataset_rt

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/guides/notebooks.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_every_block_runs(tmp_path, monkeypatch):
    alt = pytest.importorskip("altair", reason="needs the extra `plot`")
    pytest.importorskip("vl_convert", reason="see requirements/dev.in")
    pytest.importorskip("pandas", reason="see requirements/dev.in")
    monkeypatch.chdir(tmp_path)
    scope = {}
    for number, block in enumerate(BLOCK.findall(GUIDE.read_text())):
        exec(compile(block, f"notebooks.md, block {number}", "exec"), scope)
    assert scope["results"][0].status == "written"
    assert (tmp_path / "draws.json").stat().st_size < 20_000
    assert "<svg" in (tmp_path / "draws.svg").read_text()
    # Whatever draws is in it.
    page = (tmp_path / "draws.html").read_text()
    assert not re.search(r"<(script|link)[^>]*(src|href)=", page)
    alt.renderers.enable("default")
    assert scope["labels"] != sorted(scope["labels"])
    assert scope["bytes_by_label"].height == 10
    assert scope["darkest"].height > 0
    assert scope["frame"]["ink"].is_monotonic_increasing
    assert scope["digits"].size == (384, 128)
    assert len(set(scope["digits"].tobytes())) > 9
    sizes = scope["largest"]["payload_bytes"].to_list()
    assert sizes == sorted(scope["sized"]["payload_bytes"], reverse=True)[:10]
    assert 0 < scope["first"].height == scope["hashes"]["key"].n_unique()
    assert "runtime closed" in scope["dataset"]._repr_html_()
    assert dataset_rt.verify_cache("caches/digits", level="deep")
    commands = re.findall(r"^dataset-rt (.*)$", GUIDE.read_text(), re.MULTILINE)
    assert [call(*shlex.split(command)).code for command in commands] == [0]
    assert (tmp_path / "report.html").exists()


def test_pictures_are_small_and_each_has_its_place():
    pictures = re.findall(r"\(\.\./pictures/([^)]+)\)", GUIDE.read_text())
    assert len(pictures) == len(set(pictures)) == 6
    for name in pictures:
        content = (ROOT / "docs/pictures" / name).read_bytes()
        assert len(content) < 150_000
        if name.endswith(".svg"):
            # Either the ground of the page shows, or both of its schemes are there.
            assert b'fill="none"' in content or b"prefers-color-scheme:dark" in content


def test_what_the_guide_says_of_pandas_is_true(runtime, tmp_path):
    pytest.importorskip("pandas", reason="see requirements/dev.in")
    stored = {"payload": [b"a", b"b", b"c"], "age": [1, None, 3], "heat": [0.5, 1.5, np.nan]}
    table = pa.table(stored)
    runtime.write_cache(dataset_rt.ArrowSource("ages", table), tmp_path)
    dataset = dataset_rt.open_dataset(tmp_path / "ages")
    table = dataset.get_metadata()
    frame = table.to_pandas()
    with pytest.raises(dataset_rt.InvalidInputError, match="age"):
        dataset.update_metadata(frame)
    whole = frame.astype({"age": "Int64"})
    with pytest.raises(dataset_rt.InvalidInputError, match=r'"heat".*found null; expected NaN'):
        dataset.update_metadata(whole)
    dataset.update_metadata(whole.iloc[:2])
    assert dataset.get_metadata().equals(table[:2])
    kept = table.to_pandas(use_pyarrow_extension_array=True).iloc[::-1]
    dataset.update_metadata(kept)
    assert dataset.get_metadata().equals(table[::-1])

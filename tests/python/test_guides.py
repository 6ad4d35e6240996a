"""The written guides do what they say: blocks run in order, printed texts are those shown."""

import contextlib
import doctest
import importlib.util
import io
import re
from pathlib import Path

import pytest
from pages import ROOT, run_block

PAGES = [
    "docs/guides/balancing.md",
    "docs/guides/hard-examples.md",
    "docs/guides/subsets.md",
    "docs/guides/resume.md",
    "docs/guides/clusters.md",
    "docs/guides/records.md",
]
FENCED = re.compile(r"^```(python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
IMPORTED = re.compile(r"^(?:import|from) (\w+)", re.MULTILINE)
FILE = re.compile(r"^\s*# (\w+\.py)\n")
# Not everybody who runs the tests has them.
OPTIONAL = {"datasets", "google", "lmdb", "msgpack", "safetensors", "torch", "webdataset"}


def is_missing(library):
    return library in OPTIONAL and importlib.util.find_spec(library) is None


def run_or_write(page, block, scope):
    """Run a block, or write it where it begins with a file's name; what it printed."""
    file = FILE.match(block)
    if file is not None:
        Path(file[1]).write_text(block)
        return ""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        run_block(page, block, scope)
    return printed.getvalue()


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    """A `text` block is what the Python block before it prints."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text()
    scope, left_out, printed, wrong = {"__name__": "__main__"}, set(), None, []
    for found in FENCED.finditer(text):
        language, block = found.groups()
        line = text.count("\n", 0, found.start(2))
        if language == "text":
            same = doctest.OutputChecker().check_output(block, printed or "", doctest.ELLIPSIS)
            if printed is not None and not same:
                wrong.append(f"line {line} shows\n{block}but this is printed\n{printed}")
            continue
        missing = {library for library in IMPORTED.findall(block) if is_missing(library)}
        left_out |= missing
        printed = None if missing else run_or_write(page, "\n" * line + block, scope)
    assert not wrong, "\n".join(wrong)
    if left_out:
        pytest.skip(f"all blocks ran but those that import {', '.join(sorted(left_out))}")

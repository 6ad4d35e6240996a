"""The written guides do what they say: blocks and commands run, printed texts are those shown."""

import contextlib
import doctest
import gc
import importlib.util
import io
import re
import shlex
from pathlib import Path

import pytest
from pages import ROOT, run_block
from typer.testing import CliRunner

from dataset_rt.cli.app import app

PAGES = [
    "docs/start.md",
    "docs/guides/balancing.md",
    "docs/guides/hard-examples.md",
    "docs/guides/subsets.md",
    "docs/guides/resume.md",
    "docs/guides/clusters.md",
    "docs/guides/records.md",
    "docs/guides/migrating.md",
    "docs/faq.md",
]
PART = re.compile(r"^##+ [^\n]*$|^```(python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
IMPORTED = re.compile(r"^\s*(?:import|from) (\w+)", re.MULTILINE)
# Not the one within a message, which names no cache.
COMMAND = re.compile(r"(?:^|`)dataset-rt ((?!repair --into)[^`#\n]+)", re.MULTILINE)
FILE = re.compile(r"^\s*# (\w+\.py)\n")
# Not everybody who runs the tests has them.
OPTIONAL = {"datasets", "google", "lmdb", "msgpack", "safetensors", "torch", "webdataset"}


def missing_in(block):
    """Which libraries that a block imports are not there."""
    named = OPTIONAL.intersection(IMPORTED.findall(block))
    return {library for library in named if importlib.util.find_spec(library) is None}


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


def is_shown(block, printed):
    """Long lines are broken on the page."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(block, printed, flags)


def run_guide(page):
    """Run what can be; return what is printed otherwise than shown, and libraries missed.

    A `text` block is what the block before it prints. From a block that needs a missing library on,
    the rest of its section is left out.
    """
    text = (ROOT / page).read_text()
    scope, missed, printed, wrong = {"__name__": "__main__"}, set(), None, []
    missing = set()
    for part in PART.finditer(text):
        language, block = part.groups()
        if language is None:
            missing = set()
        elif language == "python":
            missing |= missing_in(block)
            missed |= missing
            line = text.count("\n", 0, part.start(2))
            printed = None if missing else run_or_write(page, "\n" * line + block, scope)
        elif printed is not None and not is_shown(block, printed):
            wrong.append(f"shown:\n{block}printed:\n{printed}")
    return wrong, missed


@pytest.fixture(scope="module")
def one_directory(tmp_path_factory):
    """Where a reader tries page after page."""
    return tmp_path_factory.mktemp("pages")


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
# WebDataset leaves that to the interpreter.
@pytest.mark.filterwarnings("ignore:unclosed file")
@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs_and_prints_what_the_page_shows(page, one_directory, monkeypatch):
    monkeypatch.chdir(one_directory)
    for _ in range(2):  # as people do
        wrong, missed = run_guide(page)
        gc.collect()
        assert not wrong, "\n".join(wrong)
    for command in [] if missed else COMMAND.findall((ROOT / page).read_text()):
        done = CliRunner().invoke(app, shlex.split(command), catch_exceptions=False)
        assert done.exit_code == 0, (command, done.output)
    if missed:
        pytest.skip(f"all ran but what needs {', '.join(sorted(missed))}, see make torch")


def test_the_questions_quote_the_benchmarks_as_they_are():
    measured = (ROOT / "docs/benchmarks.md").read_text()
    quoted = " ".join((ROOT / "docs/faq.md").read_text().split())

    def beside_the_best_peer(figure):
        (row,) = re.findall(rf"^\| {figure} \| (\d\S+, .* of .*) \|$", measured, re.MULTILINE)
        ratios = [float(ratio) for ratio in re.findall(r"([\d.]+) of [A-Za-z]", row)]
        return f"{min(ratios):.1f} {{}} {max(ratios):.1f} times"

    assert beside_the_best_peer("weighted").format("and") in quoted
    assert beside_the_best_peer("sequential").format("to") in quoted
    assert beside_the_best_peer("random, one").format("to") in quoted

    # Sizes: the first row of the engine in each second table, tiny to large.
    sizes = re.findall(r"^\| DatasetRT \| [\d.]+ ms \| ([\d.]+) \|", measured, re.MULTILINE)
    tiny, small, image, _ = (f"{(float(size) - 1) * 100:.1f}" for size in sizes)
    assert f"{image} % for images" in quoted
    assert f"{small} % for 4 KiB" in quoted
    assert f"{float(tiny):.0f} % for payloads of 100 bytes" in quoted
    for ahead in ("small, random, one: bagz", "tiny, random, one: bagz", "image, write: bagz"):
        assert f"- {ahead} is ahead" in measured

"""Python blocks of documents run; files and tests that documents name exist."""

import ast
import doctest
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import numbered, written
from pages import (
    ROOT,
    blocks_of,
    markdown_pages,
    pages_run_by_others,
    run_block,
    run_page,
)
from typer.testing import CliRunner

from dataset_rt import open_cache
from dataset_rt.cli.app import app

# Pages that tests of this file arrange for. Those of other files are in their `PAGES`.
ARRANGED = {
    "docs/command-line.md",
    "docs/preprocessing.md",
    "docs/sources.md",
    "docs/training.md",
}
CLAIMED = pages_run_by_others(Path(__file__).name)
PLAIN = [
    page
    for page in markdown_pages()
    if blocks_of(page) and page not in ARRANGED and page not in CLAIMED
]
FILE = re.compile(r"^\s*# (\w+\.py)\n")


def load_my_images():
    """Stand-in for the reader's own images: unbalanced on purpose."""
    for i in range(60):
        yield f"image-{i}", bytes([i]) * (i + 1), i % 4 if i < 20 else 3


@pytest.mark.parametrize("page", PLAIN)
def test_every_block_runs(page, runtime, tmp_path, monkeypatch):
    cache = written(runtime, tmp_path / "elsewhere", numbered(50))
    monkeypatch.chdir(tmp_path)
    trained = []
    scope = {
        "cache": cache,
        "load_my_images": load_my_images,
        "decode_image": len,
        "train": lambda image, label: trained.append((image, label)),
    }
    run_page(page, scope)
    if page == "README.md":
        assert len(trained) == 60


def test_no_two_pages_make_caches_of_one_name():
    """Readers try page after page in one directory. The one on migrating has one of its own."""
    makers = {}
    for page in markdown_pages():
        text = "\n".join(blocks_of(page))
        names = re.findall(r"^    name = \"(.+?)\"|\w+Source\(\s*\"([^/\"]+)\"", text, re.MULTILINE)
        for name in {a or b for a, b in names} if page != "docs/guides/migrating.md" else ():
            makers.setdefault(name, []).append(page)
    assert len(makers) > 20
    assert {name: pages for name, pages in makers.items() if len(pages) > 1} == {}


def test_pages_that_are_run_elsewhere_exist():
    assert {page for page in CLAIMED if not (ROOT / page).exists()} == set()
    assert {page: modules for page, modules in CLAIMED.items() if len(modules) > 1} == {}


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_the_training_guide_runs(tmp_path, monkeypatch):
    for module in ("torch", "grain"):
        pytest.importorskip(module, reason="see make torch")
    monkeypatch.chdir(tmp_path)
    # What torchrun tells the only process of a job.
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    launcher = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    assert run_page("docs/training.md", {}) > 10


@pytest.mark.parametrize("with_libraries", [False, True], ids=["plain", "libraries"])
def test_the_guide_to_sources_runs(tmp_path, monkeypatch, with_libraries):
    libraries = ("datasets", "array_record")
    if with_libraries:
        for module in libraries:
            pytest.importorskip(module, reason="see make torch")
    monkeypatch.chdir(tmp_path)
    blocks = blocks_of("docs/sources.md")
    ours = [b for b in blocks if with_libraries or not any(f" {m}" in b for m in libraries)]
    assert len(ours) >= len(blocks) - 2 * (not with_libraries)
    scope = {}
    for block in ours:
        run_block("docs/sources.md", block, scope)
    scope["runtime"].close()
    if not with_libraries:
        text = (ROOT / "docs/sources.md").read_text()
        (commands,) = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        for command in commands.splitlines():
            done = CliRunner().invoke(app, shlex.split(command)[1:], catch_exceptions=False)
            assert done.exit_code == 0, (command, done.output)


def test_the_scripts_of_the_page_on_preprocessing_run(tmp_path):
    """Its processes import files: a block that begins with a file's name is that file."""
    for block in blocks_of("docs/preprocessing.md"):
        name = FILE.match(block)
        if name is None:
            run_block("docs/preprocessing.md", block, {})
            continue
        (tmp_path / name[1]).write_text(block)
        subprocess.run([sys.executable, name[1]], cwd=tmp_path, timeout=60, check=True)
    assert open_cache(tmp_path / "caches/pictures").num_samples == 200
    assert open_cache(tmp_path / "splits/valid").num_samples == 100


def test_the_command_line_prints_what_its_document_says(tmp_path, monkeypatch):
    pytest.importorskip("typer", reason="the command line needs the extra `cli`")
    from cli_tools import call

    monkeypatch.chdir(tmp_path)
    checker, scope, commands = doctest.OutputChecker(), {}, 0
    text = (ROOT / "docs/command-line.md").read_text()
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if language == "python":
            exec(compile(block, "command-line.md", "exec"), scope)
            continue
        command, _, expected = block.partition("\n")
        found = call(*shlex.split(command.removeprefix("$ dataset-rt ")), columns=80)
        assert checker.check_output(expected, found.out, doctest.ELLIPSIS), found
        commands += 1
    assert commands > 5


# What most readers have with the library; libraries by their names in an installation where these
# differ; and calls that need one without importing it.
EVERYWHERE = {"dataset_rt", "numpy", "polars", "pyarrow"}
INSTALLED_AS = {"PIL": "pillow", "google": "protobuf", "sklearn": "scikit-learn"}
CALLS = {
    "ArrayRecordSource": "array_record",
    "HuggingFaceSource": "datasets",
    "payload_tensor": "torch",
    "payload_tensors": "torch",
    "plot": "plot",
    "to_pandas": "pandas",
    "to_torch_dataloader": "torch",
    "to_torch_iterable_dataset": "torch",
}


def needs_of(page):
    """What the blocks of a page need besides the library, as one would install it."""
    found = set()
    for block in blocks_of(page):
        for statement in ast.walk(ast.parse(block)):
            if isinstance(statement, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in statement.names)
            elif isinstance(statement, ast.ImportFrom):
                found.add(statement.module.partition(".")[0])
            elif isinstance(statement, ast.Name | ast.Attribute):
                name = statement.id if isinstance(statement, ast.Name) else statement.attr
                found.update({CALLS[name]} if name in CALLS else ())
    own_files = {name[1].removesuffix(".py") for name in map(FILE.match, blocks_of(page)) if name}
    found -= EVERYWHERE | own_files | sys.stdlib_module_names
    return {INSTALLED_AS.get(name, name) for name in found}


@pytest.mark.parametrize("page", [page for page in markdown_pages() if needs_of(page)])
def test_what_a_page_needs_is_named_above_its_first_block(page):
    above = (ROOT / page).read_text().partition("```python")[0].lower()
    assert {need for need in needs_of(page) if need not in above} == set()


def test_every_markdown_file_names_existing_files():
    broken = []
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
            if "://" not in target and not (document.parent / target).exists():
                broken.append(f"{document.relative_to(ROOT)} -> {target}")
    assert broken == []


def test_nobody_is_told_to_install_a_package_of_this_name_from_an_index():
    # There is none of ours: somebody else's may have the name.
    texts = [*map(ROOT.joinpath, markdown_pages()), *ROOT.glob("python/**/*.py")]
    texts += [*ROOT.glob("examples/*"), *ROOT.glob("website/**/*.py")]
    wrong = [
        (path.name, command)
        for path in texts
        if path.is_file()
        for command in re.findall(r"(?:pip|uv|pipx)\b[^\n]*install[^\n]*", path.read_text())
        if re.search(r"(?<![./\w-])dataset[-_]rt\b(?!-)", command)
    ]
    assert wrong == []


def test_every_test_that_a_document_names_exists():
    missing = []
    for document in ROOT.glob("docs/**/*.md"):
        text = document.read_text()
        for name, test in re.findall(r"\b(test_\w+\.py)(?:::(test_\w+))?", text):
            file = ROOT / "tests/python" / name
            if not file.exists() or (test and f"def {test}(" not in file.read_text()):
                missing.append(f"{document.name}: {name}::{test}")
        for path in re.findall(r"`((?:crates|fuzz|tests)/[^`:]+)`", text):
            if not (ROOT / path).exists():
                missing.append(f"{document.name}: {path}")
    assert missing == []

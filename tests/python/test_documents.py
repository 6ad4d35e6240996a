"""Python blocks of documents run; files and tests that documents name exist."""

import re
import socket
from pathlib import Path

import pytest
from conftest import numbered, written

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / name
    for name in (
        "README.md",
        "docs/guide.md",
        "docs/determinism.md",
        "docs/repair.md",
        "docs/tools.md",
    )
]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def load_my_images():
    """Stand-in for the reader's own images: unbalanced on purpose."""
    for i in range(60):
        yield f"image-{i}", bytes([i]) * (i + 1), i % 4 if i < 20 else 3


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_block_runs(document, runtime, tmp_path, monkeypatch):
    cache = written(runtime, tmp_path / "elsewhere", numbered(50))
    monkeypatch.chdir(tmp_path)
    trained = []
    scope = {
        "cache": cache,
        "load_my_images": load_my_images,
        "decode_image": len,
        "train": lambda image, label: trained.append((image, label)),
    }
    blocks = BLOCK.findall(document.read_text())
    assert blocks
    for number, block in enumerate(blocks):
        exec(compile(block, f"{document.name}, block {number}", "exec"), scope)
    if document.name == "README.md":
        assert len(trained) == 60


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
    scope = {}
    blocks = BLOCK.findall((ROOT / "docs/training.md").read_text())
    assert len(blocks) > 10
    for number, block in enumerate(blocks):
        exec(compile(block, f"training.md, block {number}", "exec"), scope)


def test_every_markdown_file_names_existing_files():
    broken = []
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
            if "://" not in target and not (document.parent / target).exists():
                broken.append(f"{document.relative_to(ROOT)} -> {target}")
    assert broken == []


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

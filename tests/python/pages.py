"""Pages of the documentation, and their blocks of Python; knows no page's needs.

Every page with such blocks is run by `test_documents.py`, in the scope that it has for all of them.
A page that needs more is run by a test of its own, whose module says so:

    PAGES = ["docs/guides/resume.md"]

    @pytest.mark.parametrize("page", PAGES)
    def test_the_page_runs(page, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        run_page(page, {"decode": bytes.decode})
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Whatever somebody may take for Python: indented, of another name, or with options.
LIKE_PYTHON = re.compile(r"^[ \t>]*(?:`{3,}|~{3,})[ \t{.]*(?i:py)", re.MULTILINE)


def markdown_pages():
    """Every page that readers see, by its path in the repository."""
    return sorted(
        path.relative_to(ROOT).as_posix()
        for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    )


def blocks_of(page):
    """The blocks of Python of a page. Each begins on its own line, for messages that name it."""
    text = (ROOT / page).read_text()
    found = list(BLOCK.finditer(text))
    assert len(found) == len(LIKE_PYTHON.findall(text)), (
        f"{page}: a block of Python begins with ```python at the start of its line"
    )
    return ["\n" * text.count("\n", 0, block.start(1)) + block[1] for block in found]


def run_page(page, scope):
    """Run every block of a page, in order and in one scope; return how many there were."""
    blocks = blocks_of(page)
    assert blocks, f"{page} has no block of Python"
    for block in blocks:
        run_block(page, block, scope)
    return len(blocks)


def run_block(page, block, scope):
    """Run one block. A traceback names the page and its line."""
    exec(compile(block, ROOT / page, "exec"), scope)


def pages_run_by_others(module_of_everything):
    """Which test modules say that they run which pages, by their `PAGES`."""
    claims = {}
    for module in sorted(Path(__file__).parent.glob("test_*.py")):
        if module.name == module_of_everything:
            continue
        for statement in ast.parse(module.read_text()).body:
            if isinstance(statement, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == "PAGES"
                for target in statement.targets
            ):
                for page in ast.literal_eval(statement.value):
                    claims.setdefault(page, []).append(module.name)
    return claims

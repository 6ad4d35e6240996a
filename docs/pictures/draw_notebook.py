"""Draws the pictures of docs/guides/notebooks.md: below a block, what its last line shows.

All become SVG. A card stays the HTML that it is, so that it follows light and dark pages and has
letters as large as theirs; a real browser says how high it is: `BROWSER` names it.
"""

import ast
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import vl_convert

PICTURES = Path(__file__).resolve().parent
DOCUMENT = PICTURES.parent / "guides/notebooks.md"
PARTS = re.compile(
    r"^```python\n(.*?)^```$|^!\[[^\]]*\]\(\.\./pictures/([^)]+)\)$", re.DOTALL | re.M
)
BROWSER = os.environ.get("BROWSER", "chromium-headless-shell")
WIDTH = 460
STYLE = (
    "<style>body{margin:0}.drt.drt{font-size:14.5px;color:#24292f}"
    "@media (prefers-color-scheme:dark){.drt.drt{color:#dfe3e8}}</style>"
)
# A page says what a chart cannot know: whether it is dark.
CHART_STYLE = (
    "<style>text{fill:#57606a}@media (prefers-color-scheme:dark){text{fill:#c3c9d0}}</style>"
)
MEASURE = (
    "<script>document.title = Math.ceil("
    "document.querySelector('.drt').getBoundingClientRect().height) + 8</script>"
)


def result_of(block: str, scope: dict[str, Any]) -> Any:
    """Run a block as a cell: the value of its last line if that is an expression."""
    tree = ast.parse(block)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, DOCUMENT.name, "exec"), scope)  # noqa: S102 - our own document
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), DOCUMENT.name, "eval"), scope)  # noqa: S307


def draw(shown: Any, path: Path) -> None:
    """Write the picture of a chart or of a card."""
    if hasattr(shown, "to_json") and not hasattr(shown, "_repr_html_"):
        chart = vl_convert.vegalite_to_svg(shown.to_json())
        path.write_text(chart.replace("><", f">{CHART_STYLE}<", 1) + "\n")
        return
    if path.suffix == ".png":
        shown.save(path, optimize=True)
        return
    card = shown._repr_html_()
    page = Path("card.html").resolve()
    page.write_text(f"<!doctype html><meta charset=utf-8>{STYLE}{card}{MEASURE}")
    done = subprocess.run(  # noqa: S603 - the browser of whoever draws
        [BROWSER, "--no-sandbox", f"--window-size={WIDTH},2000", "--dump-dom", page.as_uri()],
        check=True,
        capture_output=True,
        text=True,
    )
    (height,) = re.findall("<title>([0-9]+)</title>", done.stdout)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}">'
        f'<foreignObject width="100%" height="100%"><div xmlns="http://www.w3.org/1999/xhtml">'
        f"{STYLE}{card}</div></foreignObject></svg>\n"
    )


def main() -> None:
    """Run every block in a temporary directory, and draw what stands above a picture."""
    scope: dict[str, Any] = {}
    shown = None
    for block, picture in PARTS.findall(DOCUMENT.read_text()):
        if block:
            shown = result_of(block, scope)
        else:
            draw(shown, PICTURES / picture)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        main()

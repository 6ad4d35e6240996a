"""Draws the pictures of docs/guides/notebooks.md: below a block, what its last line shows.

Charts become SVG. Cards are shown by a real browser: `BROWSER` names it, by default Chromium.
"""

import ast
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import vl_convert
from PIL import Image, ImageChops

PICTURES = Path(__file__).resolve().parent
DOCUMENT = PICTURES.parent / "guides/notebooks.md"
PARTS = re.compile(
    r"^```python\n(.*?)^```$|^!\[[^\]]*\]\(\.\./pictures/([^)]+)\)$", re.DOTALL | re.M
)
BROWSER = os.environ.get("BROWSER", "chromium-headless-shell")
PAGE = (
    '<!doctype html><meta charset="utf-8"><body style="margin:16px;background:#fff;color:#1f2328">'
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
    if path.suffix == ".svg":
        path.write_text(vl_convert.vegalite_to_svg(shown.to_json()) + "\n")
        return
    page = Path("card.html").resolve()
    page.write_text(PAGE + shown._repr_html_())
    subprocess.run(  # noqa: S603 - the browser of whoever draws
        [
            *(
                BROWSER,
                "--no-sandbox",
                "--hide-scrollbars",
                "--blink-settings=preferredColorScheme=1",
            ),
            *("--force-device-scale-factor=2", "--window-size=560,1200"),
            *(f"--screenshot={path}", page.as_uri()),
        ],
        check=True,
        capture_output=True,
    )
    with Image.open(path) as whole:
        picture = whole.convert("RGB")
    left, top, right, bottom = ImageChops.invert(picture).getbbox() or (0, 0, 1, 1)
    picture.crop((0, 0, right + left, bottom + top)).save(path, optimize=True)


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

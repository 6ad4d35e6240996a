"""Draws the terminal of docs/command-line.md: what the program prints for that page's caches."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURES = Path(__file__).resolve().parent
DOCUMENT = PICTURES.parent / "command-line.md"
COMMAND = ["verify", "caches/pets", "old-disk/pets"]
PICTURE = PICTURES / "verify.svg"
COLUMNS = 80


def shown(command: list[str]) -> Text:
    """Return what a terminal of `COLUMNS` columns shows."""
    colours = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    done = subprocess.run(  # noqa: S603 - the commands of this file
        [sys.executable, "-m", "dataset_rt.cli", *command],
        stdout=subprocess.PIPE,
        env={**os.environ, **colours},
        text=True,
        check=False,
    )
    prompt = Text().append("$ dataset-rt " + " ".join(command) + "\n", style="bold")
    return prompt.append_text(Text.from_ansi(done.stdout))


def drawn(text: Text) -> str:
    """Return the picture of a terminal, without fonts from anywhere."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere)
        console.print(text)
    svg = console.export_svg(title="")
    svg = re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL)
    # Ids are drawn from the contents, so equal output gives equal files.
    return re.sub(r"[ \t]+$", "", svg.replace("Fira Code", "ui-monospace"), flags=re.MULTILINE)


def main() -> None:
    """Make the caches in a temporary directory, and draw the command."""
    scope: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.M):
        exec(compile(block, DOCUMENT.name, "exec"), scope)  # noqa: S102 - our own document
    PICTURE.write_text(drawn(shown(COMMAND)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        main()

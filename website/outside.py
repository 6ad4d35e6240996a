"""Pages made of files outside docs/: Markdown as it is, notebooks and sources shown."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LANGUAGES = {".py": "python", ".rs": "rust", ".json": "json", ".toml": "toml", ".sh": "sh"}
# What a notebook shows is one of these; the first that is there is taken.
PICTURES = {"image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpg"}


@dataclass
class OutsidePage:
    """The text of a page, and the pictures that belong to it by name."""

    markdown: str
    pictures: dict[str, bytes] = field(default_factory=dict)


def outside_page(root: Path, source: str) -> OutsidePage:
    """Make the page of one file of the repository."""
    path = root / source
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return OutsidePage(text)
    if path.suffix == ".ipynb":
        return _notebook(json.loads(text), path.name)
    language = LANGUAGES.get(path.suffix, "text")
    return OutsidePage(f"# `{source}`\n\n{_fenced(text, language)}\n")


def _fenced(text: str, language: str) -> str:
    return f"````{language}\n{text.rstrip()}\n````"


def _notebook(notebook: dict[str, Any], name: str) -> OutsidePage:
    page = OutsidePage("")
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
        elif cell["cell_type"] == "code":
            parts.append(_fenced(text, "python"))
            parts.extend(_output(output, page, name) for output in cell["outputs"])
    page.markdown = "\n\n".join(part for part in parts if part) + "\n"
    return page


def _output(output: dict[str, Any], page: OutsidePage, name: str) -> str:
    if output["output_type"] == "stream":
        return _fenced("".join(output["text"]), "text")
    if output["output_type"] == "error":
        return _fenced(f"{output['ename']}: {output['evalue']}", "text")
    data = output["data"]
    for kind, suffix in PICTURES.items():
        if kind in data:
            picture = f"{name}-{len(page.pictures)}.{suffix}"
            content = "".join(data[kind])
            page.pictures[picture] = (
                content.encode() if suffix == "svg" else base64.b64decode(content)
            )
            return f"![What the cell above shows]({picture})"
    if "text/html" in data:
        # No blank line may end the block of HTML for Markdown.
        lines = "".join(data["text/html"]).splitlines()
        inside = "\n".join(line for line in lines if line.strip())
        return f'<div class="notebook-output">\n{inside}\n</div>'
    return _fenced("".join(data.get("text/plain", "")), "text")

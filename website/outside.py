"""Pages made of files outside docs/: Markdown as it is; notebooks, programs: to see and to have."""

from __future__ import annotations

import base64
import json
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LANGUAGES = {".py": "python", ".rs": "rust", ".json": "json", ".toml": "toml", ".sh": "sh"}
COLUMNS = 100
# What a notebook shows is one of these; the first that is there is taken.
PICTURES = {"image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpg"}


@dataclass
class OutsidePage:
    """The text of a page, and the files beside it by name: pictures, and what is shown as it is."""

    markdown: str
    beside: dict[str, bytes] = field(default_factory=dict)


def outside_page(root: Path, source: str) -> OutsidePage:
    """Make the page of one file of the repository."""
    path = root / source
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return OutsidePage(text)
    if path.suffix == ".ipynb":
        page = _notebook(json.loads(text), path.name)
        title, _, rest = page.markdown.partition("\n")
        page.markdown = f"{title}\n\n{_download(path.name)}\n{rest}"
    else:
        language = LANGUAGES.get(path.suffix, "text")
        shown = _fenced(text, language)
        page = OutsidePage(f"# `{source}`\n\n{_download(path.name)}\n\n{shown}\n")
    page.beside[path.name] = text.encode()
    return page


def _download(name: str) -> str:
    return f'<a href="{name}" download>Download {name}</a>'


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


def _wrapped(text: str) -> str:
    """Break long lines, as notebooks do when they show them."""
    broken = (textwrap.wrap(line, COLUMNS, break_on_hyphens=False) for line in text.splitlines())
    return "\n".join("\n".join(lines) for lines in broken)


def _output(output: dict[str, Any], page: OutsidePage, name: str) -> str:
    if output["output_type"] == "stream":
        return _fenced(_wrapped("".join(output["text"])), "text")
    if output["output_type"] == "error":
        return _fenced(_wrapped(f"{output['ename']}: {output['evalue']}"), "text")
    data = output["data"]
    for kind, suffix in PICTURES.items():
        if kind in data:
            picture = f"{name}-{len(page.beside)}.{suffix}"
            content = "".join(data[kind])
            page.beside[picture] = (
                content.encode() if suffix == "svg" else base64.b64decode(content)
            )
            return f"![What the cell above shows]({picture})"
    if "text/html" in data:
        # No blank line may end the block of HTML for Markdown.
        lines = "".join(data["text/html"]).splitlines()
        inside = "\n".join(line for line in lines if line.strip())
        return f'<div class="notebook-output">\n{inside}\n</div>'
    return _fenced("".join(data.get("text/plain", "")), "text")

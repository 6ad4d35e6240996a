"""Runs the examples, and finds what the gallery says of them; knows no example's facts."""

import re
import runpy
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.stem for path in ROOT.glob("examples/*.py"))
GALLERY = ROOT / "docs/gallery.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Shares and scores. Everything else that is printed is the same on every machine.
PERCENT = re.compile(r"\d+\.\d+(?=%)")


def run_example(name, directory, monkeypatch, capsys):
    """Run an example in a directory, as its docstring says; return its names and what it prints."""
    path = ROOT / "examples" / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(path), str(directory)])
    capsys.readouterr()
    scope = runpy.run_path(str(path), run_name="__main__")
    return scope, capsys.readouterr().out


def sections():
    """The blocks of each section of the gallery, `(language, text)`, by the file it links."""
    found = {}
    for section in GALLERY.read_text().split("\n## ")[1:]:
        (name,) = re.findall(r"\]\(\.\./examples/(\w+)\.py\)", section)
        found[name] = BLOCK.findall(section)
    return found


def check_shown(name, printed, points=0.0):
    """The gallery shows a part of what was printed; percentages may be off by some points."""
    (shown,) = [text for language, text in sections()[name] if language == "text"]
    assert PERCENT.sub("#", shown) in PERCENT.sub("#", printed), (shown, printed)
    start = PERCENT.sub("#", printed).index(PERCENT.sub("#", shown))
    before = PERCENT.sub("#", printed)[:start].count("#")
    figures = [float(figure) for figure in PERCENT.findall(shown)]
    real = [float(figure) for figure in PERCENT.findall(printed)][before:][: len(figures)]
    off = [(a, b) for a, b in zip(figures, real, strict=True) if abs(a - b) > points + 1e-9]
    assert not off, f"(shown, real): {off}; {printed}"


def is_excerpt(block, path):
    """Whether the lines of a block stand in a file one after another, at any indentation."""
    lines = path.read_text().splitlines()
    wanted = block.rstrip().splitlines()
    return any(
        textwrap.dedent("\n".join(lines[i : i + len(wanted)])) == "\n".join(wanted)
        for i in range(len(lines))
    )


def percentages(line):
    """The percentages of a line, as numbers."""
    return [float(figure) for figure in PERCENT.findall(line)]

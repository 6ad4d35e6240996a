"""Checks the built site as browsers would read it; knows nothing of how it was made.

    python website/check.py target/site

MkDocs checks links of Markdown. Here are the rest: links and pictures of every page as built, their
anchors, ids that are there twice, pages that no navigation leads to, lists that became text, lines
of code that are cut off, and whatever a browser would fetch from elsewhere. Addresses of other
sites are not fetched.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What makes a browser fetch something without being asked to.
FETCHED = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}
NAVIGATION = {"md-nav__link", "md-tabs__link"}
# Hints that are no requests.
NOT_FETCHED = {"canonical", "next", "prev"}
FETCHED_BY_STYLE = re.compile(r"(?:url\(\s*[\"']?|@import\s+[\"'])(?:https?:)?//")
# As our sources are: so much is seen beside both lists on a screen of 1280 pixels.
CODE_COLUMNS = 100
LOST_LIST = re.compile(r"^\s*(?:[-*]|\d+\.) ", re.MULTILINE)


class Seen(HTMLParser):
    """One page: its ids, its links, what is fetched for it, and text that should be a list."""

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.in_navigation: list[str] = []
        self.problems: list[str] = []
        self._open: list[str] = []
        self._paragraph: list[str] | None = None
        self._code: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names."""
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.ids[found["id"]] += 1
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
            if "md-nav__link" in found.get("class", "") or "md-tabs__link" in found.get(
                "class", ""
            ):
                self.in_navigation.append(found["href"])
        if tag in FETCHED and FETCHED[tag] in found and found.get("rel") not in NOT_FETCHED:
            self.fetched.append(found[FETCHED[tag]])
        # Pictures for other screens, each with its size behind it.
        choices = found.get("srcset", "").split(",")
        self.fetched += [choice.split()[0] for choice in choices if choice.strip()]
        if tag == "img" and not found.get("alt"):
            self.problems.append(f"a picture without words: {found.get('src')}")
        if FETCHED_BY_STYLE.search(found.get("style", "")):
            self.problems.append(f"a style that fetches: {found['style']}")
        if tag == "p":
            self._paragraph = []
        if tag == "pre":
            self._code = []

    def handle_endtag(self, tag: str) -> None:
        """Look at the text of a paragraph, and at the lines of code."""
        if tag == "p" and self._paragraph is not None:
            text = "".join(self._paragraph)
            if LOST_LIST.search(text.partition("\n")[2]):
                self.problems.append(f"a list that became text: {text[:80]!r}")
            self._paragraph = None
        if tag == "pre" and self._code is not None:
            for line in "".join(self._code).splitlines():
                if len(line) > CODE_COLUMNS:
                    self.problems.append(
                        f"code of {len(line)} columns is cut off: {line.strip()!r}"
                    )
            self._code = None

    def handle_data(self, data: str) -> None:
        """Collect the text of a paragraph, and code."""
        for open_ in (self._paragraph, self._code):
            if open_ is not None:
                open_.append(data)


def problems_of(site: Path) -> list[str]:
    """Return what is wrong, a line each."""
    pages = {path: _seen(path) for path in sorted(site.rglob("*.html"))}
    found = []
    reachable = _reachable(site, pages)
    for path, seen in pages.items():
        where = path.relative_to(site)
        found += [f"{where}: {problem}" for problem in seen.problems]
        found += [
            f"{where}: id {name!r} is there {n} times" for name, n in seen.ids.items() if n > 1
        ]
        found += [
            f"{where}: fetched from elsewhere: {target}"
            for target in seen.fetched
            if _is_elsewhere(target)
        ]
        for target in {*seen.links, *seen.fetched}:
            if not _is_elsewhere(target):
                found += _dead(site, pages, path, target)
        if path not in reachable:
            found.append(f"{where}: no link leads there from the front page")
        # Files that are shown because a page links to them have no place of their own.
        if where.parts[0] != "files":
            front = pages[site / "index.html"].in_navigation
            if path not in {_file(site / "index.html", target) for target in front}:
                found.append(f"{where}: not in the navigation")
    for style in site.rglob("*.css"):
        if FETCHED_BY_STYLE.search(style.read_text(encoding="utf-8")):
            found.append(f"{style.relative_to(site)}: fetches from elsewhere")
    return found


def _seen(path: Path) -> Seen:
    seen = Seen()
    seen.feed(path.read_text(encoding="utf-8"))
    return seen


def _is_elsewhere(target: str) -> bool:
    parts = urlsplit(target)
    return bool(parts.netloc) or parts.scheme not in {"", "file"}


def _file(page: Path, target: str) -> Path:
    path = unquote(urlsplit(target).path)
    # A path from the root leads out of the site, which need not be at the root of its server.
    found = (page.parent / path).resolve() if path else page
    return found / "index.html" if found.is_dir() else found


def _dead(site: Path, pages: dict[Path, Seen], page: Path, target: str) -> list[str]:
    file = _file(page, target)
    where = page.relative_to(site)
    if not file.is_file() or not file.is_relative_to(site):
        return [f"{where}: dead link {target}"]
    anchor = unquote(urlsplit(target).fragment)
    if anchor and file in pages and anchor not in pages[file].ids:
        return [f"{where}: no such place on that page: {target}"]
    return []


def _reachable(site: Path, pages: dict[Path, Seen]) -> set[Path]:
    front = site / "index.html"
    found, pending = {front}, [front]
    while pending:
        page = pending.pop()
        for target in pages[page].links:
            file = page if _is_elsewhere(target) else _file(page, target)
            if file in pages and file not in found:
                found.add(file)
                pending.append(file)
    return found


def main() -> None:
    """Print what is wrong and exit with 1, or how much was looked at."""
    site = Path(sys.argv[1]).resolve()
    found = problems_of(site)
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        sys.exit(f"{len(found)} problems in {site}")
    print(f"{len(list(site.rglob('*.html')))} pages, every link and picture in place")


if __name__ == "__main__":
    main()

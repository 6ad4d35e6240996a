"""What the site adds to MkDocs: pages for files outside docs/, and decisions in the navigation.

Pages link to a changelog, to examples, to a notebook: on a code host these links open the file.
Here each becomes a page of its own, made of the file, and the links are turned to it. Nothing is
written down twice, and no link leaves the site. Knows nothing of how pages look.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

from outside import OutsidePage, outside_page

ROOT = Path(__file__).resolve().parents[1]
FENCED = re.compile(r"(^[ ]*(`{3,}|~{3,}).*?^[ ]*\2[ ]*$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<=\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=\))")
LONG_CODE = re.compile(r"(?<=<code>)(?<!</span><code>)[^<>\n]{25,}(?=</code>)")
OPTION = re.compile(r"(?<=<code)(?=>-[^<\n]{1,24}</code>)")
MARKS = re.compile(r"(?:::|[_/.,=(]+)(?=\w)")
# Who searches wants to do something; why it became so is the last answer.
BOOSTS = {"guides/": 2, "faq.md": 2, "start.md": 2, "decisions/": 0.2, "changelog.md": 0.2}
# Pages that have a place in the navigation.
NAMES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List every decision in the navigation, in the order of their numbers; make no 404 page.

    Its links would begin at the root of a server, where this site need not be.
    """
    config.theme.static_templates.discard("404.html")
    section = _section(config.nav, "Decisions")
    for path in sorted((ROOT / "docs/decisions").glob("[0-9]*.md")):
        section.append(f"decisions/{path.name}")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file outside docs/ that a page links to, and for those they link to."""
    texts = {
        posixpath.join("docs", file.src_uri): file.content_string
        for file in files.documentation_pages()
    }
    pending = [*texts, *NAMES]
    made: dict[str, OutsidePage] = {}
    while pending:
        source = pending.pop()
        if source not in texts:
            made[source] = outside_page(ROOT, source)
            texts[source] = made[source].markdown
        for link in _links(texts[source]):
            target = _resolved(source, link["target"])
            if target is None or target.startswith("docs/") or target in {*texts, *pending}:
                continue
            if (ROOT / target).is_file():
                pending.append(target)
    for source, page in made.items():
        files.append(File.generated(config, _page_of(source), content=page.markdown))
        for name, content in page.beside.items():
            place = posixpath.join(posixpath.dirname(_page_of(source)), name)
            # Included, though it be a program: `exclude_docs` speaks of docs/.
            files.append(
                File.generated(config, place, content=content, inclusion=InclusionLevel.INCLUDED)
            )
    _SOURCE_OF.clear()
    _SOURCE_OF.update({_page_of(source): source for source in made})
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links between docs/ and the rest of the repository to the pages made above.

    Pages that are alone below their tab need no list beside them, and some are better answers of
    the search than others.
    """
    here = page.file.src_uri
    if page.parent is None:
        # A list of pages would hold this one alone.
        page.meta["hide"] = ["navigation"]
    for begin, boost in BOOSTS.items():
        if here.startswith(begin):
            page.meta["search"] = {"boost": boost}
    source = _SOURCE_OF.get(here, posixpath.join("docs", here))

    def turned(link: re.Match[str]) -> str:
        target = _resolved(source, link["target"])
        if target is None:
            return link[0]
        if target in _SOURCE_OF.values():
            place = _page_of(target)
        elif target.startswith("docs/") and source != posixpath.join("docs", here):
            place = target.removeprefix("docs/")
            place = "index.md" if place == "README.md" else place
        else:
            return link[0]
        return posixpath.relpath(place, posixpath.dirname(here) or ".") + (link["anchor"] or "")

    parts = FENCED.split(markdown)
    # Of each fence the split yields the text before it, the fence, and its mark.
    for number in range(0, len(parts), 3):
        parts[number] = LINK.sub(turned, parts[number])
    return "".join(part for number, part in enumerate(parts) if number % 3 != 2)


def on_page_content(html: str, **_: object) -> str:
    """Let long names break behind their marks: without, they make columns of tables too wide.

    Options of commands stay whole, which browsers break behind their hyphens.
    """
    html = OPTION.sub(' class="option"', html)
    return LONG_CODE.sub(lambda code: MARKS.sub(r"\g<0><wbr>", code[0]), html)


_SOURCE_OF: dict[str, str] = {}


def _page_of(source: str) -> str:
    """Return the place in the site of a file outside docs/."""
    if source in NAMES:
        return NAMES[source]
    name = source.removesuffix(".md") if source.endswith(".md") else source
    # "index" in front of nothing: a README is not the index of the folder here.
    return f"files/{name.replace('README', 'readme')}.md"


def _resolved(source: str, target: str) -> str | None:
    """Return the file of the repository that a link means, `None` for other places."""
    if "://" in target or target.startswith(("mailto:", "/")):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def _links(markdown: str) -> list[re.Match[str]]:
    return [link for part in FENCED.split(markdown)[::3] for link in LINK.finditer(part)]


def _section(nav: object, title: str) -> list[object]:
    """Return the entries of the section of that title, wherever it is."""
    if isinstance(nav, list):
        for entry in nav:
            if isinstance(entry, dict):
                for name, below in entry.items():
                    if name == title and isinstance(below, list):
                        return below
                    try:
                        return _section(below, title)
                    except LookupError:
                        continue
    raise LookupError(title)

"""A real headless browser: what it makes of a page, what it asks for, what scripts say."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from typing import NamedTuple

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
WHY_NOT = f"no headless browser on PATH: {', '.join(NAMES)}"

_PROBE = """<script nonce="probe">
const shown = [...document.querySelectorAll("body *")];
const isIn = (e, which) => e.closest(which) !== null;
const seen = {
  title: document.title,
  width: innerWidth,
  scrollWidth: document.documentElement.scrollWidth,
  tooWide: shown.filter(e => e.getBoundingClientRect().right > innerWidth + 1)
    .filter(e => !isIn(e, ".drt-scroll") && !isIn(e, "pre.hex")).map(e => e.outerHTML.slice(0, 99)),
  // What a name is cut to, with its points, is meant to be cut.
  cut: shown.filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0)
    .filter(e => getComputedStyle(e).textOverflow !== "ellipsis" && !isIn(e, ".drt-scroll"))
    .filter(e => !isIn(e, "pre.hex")).map(e => e.outerHTML.slice(0, 99)),
  images: [...document.images].map(i => [i.complete, i.naturalWidth, i.naturalHeight]),
  background: getComputedStyle(document.body).backgroundColor,
};
const box = document.createElement("pre");
box.id = "probe";
box.textContent = JSON.stringify(seen);
document.body.append(box);
</script></body>"""


class Seen(NamedTuple):
    """What became of a page."""

    dom: str
    console: list
    requests: list


def opened(page, directory, width=1280, dark=False, extra=()):
    """Open a page and let it come to rest."""
    log = directory / "requests.json"
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            f"--user-data-dir={directory / 'profile'}",
            f"--window-size={width},1000",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            "--enable-logging=stderr",
            f"--log-net-log={log}",
            *extra,
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    console = re.findall(r"CONSOLE.*", done.stderr.decode(errors="replace"))
    requests = re.findall(r'"url":"((?!data:|file:)[^"]*)"', log.read_text())
    return Seen(done.stdout.decode(), console, sorted(set(requests)))


def probed(page, directory, **options):
    """Open a page with a script of the test in it, which tells what it finds.

    Only that script may run besides what the page allows itself.
    """
    text = page.read_text()
    policy = text.replace("default-src", "script-src 'nonce-probe'; default-src", 1)
    assert policy != text
    copy = directory / "probed.html"
    copy.write_text(policy.replace("</body>", _PROBE))
    seen = opened(copy, directory, **options)
    return json.loads(Page(seen.dom).text_of("probe")), seen


class Page(HTMLParser):
    """The elements and texts of a page, as a parser of HTML sees them."""

    def __init__(self, html):
        super().__init__()
        self.elements = []
        self.rows = []
        self._ids, self._cell, self._texts, self._open = {}, None, [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open.append(dict(attrs).get("id"))
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
            self._cell = True

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if self._open:
            self._open.pop()
        if tag in {"td", "th"}:
            self._cell = None

    def handle_data(self, data):
        self._texts.append(data)
        if self._open and self._open[-1]:
            self._ids[self._open[-1]] = data
        if self._cell:
            self.rows[-1][-1] += data

    @property
    def text(self):
        """All text, blanks taken together."""
        return " ".join(" ".join(self._texts).split())

    def text_of(self, element_id):
        """Text of the element of an id."""
        return self._ids[element_id]

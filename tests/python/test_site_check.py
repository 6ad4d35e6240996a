"""The check of the built site finds what it is for; the site itself is built by `make docs`."""

import importlib.util
import re
import shutil
import subprocess
from urllib.parse import quote

import pytest
from pages import ROOT

spec = importlib.util.spec_from_file_location("check", ROOT / "website/check.py")
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)

SITE = ROOT / "target/site"
BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
LINK = '<a class="md-nav__link" href="{}">there</a>'


@pytest.fixture
def site(tmp_path):
    """A front page whose navigation leads to one other page, with a picture."""
    (tmp_path / "index.html").write_text(LINK.format("other.html") + LINK.format("index.html"))
    (tmp_path / "other.html").write_text(
        '<h1 id="top">x</h1><a href="#top">up</a><a href="https://example.org/">elsewhere</a>'
        '<img src="p.png" alt="a picture"><p>Text.</p>'
    )
    (tmp_path / "p.png").write_bytes(b"")
    return tmp_path


def test_a_sound_site_has_no_problems(site):
    assert check.problems_of(site) == []


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<a href="gone.html">x</a>', "dead link gone.html"),
        ('<a href="../outside.html">x</a>', "dead link"),
        # Files have no root.
        ('<a href="/index.html">x</a>', "dead link /index.html"),
        ('<a href="index.html#gone">x</a>', "no such place"),
        ('<a href="#gone">x</a>', "no such place"),
        ('<img src="gone.png" alt="words">', "dead link gone.png"),
        ('<img src="p.png" srcset="p.png, gone.png 2x" alt="words">', "dead link gone.png"),
        ('<source srcset="https://example.org/x.png">', "fetched from elsewhere"),
        ('<img src="p.png">', "a picture without words"),
        ('<b id="top"></b>', "id 'top' is there 2 times"),
        (f"<pre><code>x\n<b>{'y' * 60}</b>{'z' * 41}\n</code></pre>", "101 columns"),
        ("<p>Text:\n- one\n- two</p>", "a list that became text"),
        ('<script src="https://example.org/x.js"></script>', "fetched from elsewhere"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "fetched from elsewhere"),
        ('<img src="https://example.org/x.png" alt="words">', "fetched from elsewhere"),
        ('<b style="background: url(https://example.org/x.png)"></b>', "a style that fetches"),
    ],
)
def test_each_fault_is_found(site, html, problem):
    page = site / "other.html"
    page.write_text(page.read_text() + html)
    (found,) = check.problems_of(site)
    assert found.startswith("other.html: ")
    assert problem in found


def test_pages_that_nobody_finds_are_found(site):
    # A page of errors, too: whoever makes one makes its links fit.
    for name in ("404.html", "lost.html"):
        (site / name).write_text("<p>Here.</p>")
    assert check.problems_of(site) == [
        f"{name}: {problem}"
        for name in ("404.html", "lost.html")
        for problem in ("no link leads there from the front page", "not in the navigation")
    ]
    (site / "404.html").unlink()
    (site / "files").mkdir()
    (site / "lost.html").rename(site / "files/shown.html")
    page = site / "other.html"
    page.write_text(page.read_text() + '<a href="files/shown.html">x</a>')
    assert check.problems_of(site) == []


def test_a_style_sheet_fetches_nothing(site):
    (site / "site.css").write_text("@font-face { src: url('https://example.org/font.woff2') }")
    assert check.problems_of(site) == ["site.css: fetches from elsewhere"]


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.skipif(not SITE.exists(), reason="the site is not built: see make docs")
@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("multinomial", "sampling.html"),
        ("privacy", "faq.html"),
        ("GDPR", "faq.html"),
        ("personal data", "faq.html"),
        ("S3", "faq.html"),
        ("NFS", "guides/clusters.html"),
        ("memory limit", "guides/clusters.html"),
        ("imbalance", "guides/balancing.html"),
        ("imbalanced", "guides/balancing.html"),
        ("class imbalance", "guides/balancing.html"),
        ("oversampling", "guides/balancing.html"),
        ("undersampling", "guides/balancing.html"),
        ("WeightedRandomSampler", "guides/balancing.html"),
        ("cross-validation", "guides/subsets.html"),
        ("k-fold", "guides/subsets.html"),
        ("stratified", "guides/subsets.html"),
        ("leakage", "guides/subsets.html"),
        ("train test split", "guides/subsets.html"),
        ("OHEM", "guides/hard-examples.html"),
        ("hard negative mining", "guides/hard-examples.html"),
        ("checkpoint", "guides/resume.html"),
        ("preemption", "guides/resume.html"),
        ("duplicates", "guides/notebooks.html"),
        ("jupyter", "guides/notebooks.html"),
        ("pandas", "guides/notebooks.html"),
        ("pickle", "guides/records.html"),
        ("multiprocessing", "preprocessing.html"),
        ("augmentation", "training.html"),
        ("bit rot", "repair.html"),
        ("corrupt", "repair.html"),
        ("reproducibility", "determinism.html"),
    ],
)
def test_the_search_answers_in_pages_that_are_opened_as_files(words, page, tmp_path):
    shown = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            f"--user-data-dir={tmp_path}",
            "--virtual-time-budget=8000",
            "--dump-dom",
            f"{(SITE / 'index.html').as_uri()}?q={quote(words)}",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    (answer,) = re.findall(r'"md-search-result__meta">([^<]*)<', shown)
    assert re.match(r"\d+ matching document", answer.strip()), answer
    # An article for each page, the best one first.
    best = re.findall(r'md-search-result__item"><a href="([^"?#]*)', shown)[:3]
    assert page in [found.rpartition("/site/")[2] for found in best]

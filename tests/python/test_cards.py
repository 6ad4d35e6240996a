"""What notebooks show of our objects: right numbers, hostile contents, and nothing ever raises."""

import re
import subprocess
import sys
from html.parser import HTMLParser

import browser_tools
import polars as pl
import pyarrow as pa
import pytest
from conftest import NEEDS_PYTORCH

import dataset_rt as drt
from dataset_rt import (
    ArrowSource,
    CacheSourcesDatasetError,
    DatasetRuntime,
    ReaderConfig,
    open_cache,
    open_dataset,
    verify_cache,
)
from dataset_rt.cards import weights
from dataset_rt.cards.progress import progress_card
from dataset_rt.progress import State

HOSTILE = "<script>alert('x')</script>\u202e\x1b[2J&\""


class Words(HTMLParser):
    """The texts of a fragment, one behind the other, without its style sheet."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.words, self.names, self.is_style = [], set(), False
        self.feed(html)

    def handle_starttag(self, name, attributes):
        self.names.add(name)
        self.is_style = name == "style"

    def handle_data(self, data):
        if not self.is_style:
            self.words.append(data)

    def handle_endtag(self, name):
        self.is_style = False


def words(shown):
    html = shown if isinstance(shown, str) else shown._repr_html_()
    assert isinstance(html, str)
    found = Words(html)
    assert "script" not in found.names
    return " | ".join(found.words)


def table(rows, *, key="label"):
    return pa.table(
        {
            "payload": pa.array([b"x" * (row % 7 + 1) for row in range(rows)], pa.binary()),
            key: pa.array([("cat", "dog")[row % 3 == 0] for row in range(rows)]),
        }
    )


@pytest.fixture
def caches(runtime, tmp_path):
    sources = [ArrowSource("pets", table(90)), ArrowSource("more", table(10), fingerprint="v2")]
    runtime.write_cache(sources, tmp_path)
    return [tmp_path / "pets", tmp_path / "more"]


def test_a_dataset_shows_its_rows_order_weights_and_columns(caches):
    dataset = open_dataset(caches, seed=77, shuffle=True)
    shown = words(dataset)
    payload = sum(len(sample.data) for sample in open_dataset(caches))
    assert "rows | 100 | samples per epoch | 100 | next epoch | 0" in shown
    assert f"payload | {payload} B | {payload / 100:.0f} B each" in shown
    assert "pets | 90 | " in shown
    assert "weights | all equal (1) | seed | 77 | stream position | 0" in shown
    assert "label | String" in shown
    assert "shuffled, multinomial" in shown
    table = dataset.get_metadata().head(30)
    weight = pl.int_range(pl.len()) / 4 + 0.5
    dataset.update_metadata(table.with_columns(weight=weight, hard=pl.lit(True)))
    dataset.set_epoch_len(12)
    list(dataset)
    shown = words(dataset)
    assert "rows | 30 | samples per epoch | 12 | by set_epoch_len | next epoch | 1" in shown
    assert "weights | 0.5 to 7.75, the largest 15.5 times the least" in shown
    assert "stream position | 12" in shown
    assert "hard | Boolean | extra" in shown


def test_a_share_says_whose_it_is(caches):
    share = open_dataset(caches).partition(1, 4, global_batch_size=32, drop_last=True)
    shown = words(share)
    assert "in table order | rank 1 of 4" in shown
    assert "rows | 100 | samples per epoch | 24" in shown
    assert "global batch | 32, a short one left out" in shown
    # Inside a global batch nothing can be saved, but all can be seen.
    next(iter(share))
    assert "stream position | 100" in words(share)


def test_a_table_that_is_too_large_is_not_looked_at(caches, monkeypatch):
    monkeypatch.setattr(weights, "ROWS_MAX", 99)
    dataset = open_dataset(caches)
    monkeypatch.setattr(type(dataset), "to_arrow", lambda *_: pytest.fail("looked"))
    assert "weights | not looked at: more than 99 rows" in words(dataset)
    assert "rows | > 99" in words(dataset)


def test_a_closed_runtime_is_said(caches):
    with DatasetRuntime() as runtime:
        dataset = runtime.cached_dataset(caches, reader_config=ReaderConfig(seed=1))
    shown = words(dataset)
    assert "runtime closed" in shown
    assert str(caches[1]) in shown
    assert "samples per epoch" in repr(dataset)
    assert repr(dataset.runtime) == "DatasetRuntime(closed)"


def test_a_cache_that_is_gone_is_said_by_its_dataset(caches):
    dataset = open_dataset(caches)
    caches[1].rename(caches[1].with_name("elsewhere"))
    shown = words(dataset)
    assert "more | ? | ? | cannot be opened | there is no cache at" in shown
    assert "pets | 90" in shown
    assert "rows | ? | samples per epoch | 100" in shown
    assert f"weights | {caches[1]}" in shown
    assert "metadata.arrow | stream position" in shown


def test_a_cache_shows_its_sizes_and_columns(caches):
    cache = open_cache(caches[1])
    files = [file for file in caches[1].rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files if file.name != "manifest.json")
    shown = words(cache)
    assert "samples | 10 | in 1 shard" in shown
    assert f"on disk | {size / 1000:.1f} kB | not compressed" in shown
    assert f"cache_id | {cache.cache_id} | fingerprint | v2" in shown
    assert "label | large_utf8" in shown
    assert "files there, not verified" in shown


def test_a_damaged_cache_is_said(caches):
    cache = open_cache(caches[0])
    shard = caches[0] / "shards/000000.arrow"
    length = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-1])
    (caches[0] / "index.bin").unlink()
    shown = words(cache)
    assert "damaged" in shown
    assert "index.bin: No such file or directory" in shown
    assert f"shards/000000.arrow: expected {length:,} bytes, found {length - 1:,}" in shown
    report = verify_cache(caches[0])
    shown = words(report)
    assert f"findings | {len(report.findings)} |" in shown
    assert "not ok | level quick" in shown
    for finding in report.findings:
        assert finding.rule in shown
        assert finding.found[:60] in shown


def test_a_sound_cache_is_reported_with_what_was_checked(caches):
    report = verify_cache(caches[0], "deep")
    shown = words(report)
    assert "ok | level deep" in shown
    assert f"files checked | {report.files_checked}" in shown
    assert "every value" in shown
    assert "payloads were not read" in words(verify_cache(caches[0]))


def test_hostile_names_and_values_are_text(runtime, tmp_path):
    name = "<img src=x onerror=alert(1)>"
    source = ArrowSource(name, table(3, key=HOSTILE), fingerprint=HOSTILE)
    loaded = runtime.from_cache_sources(source, tmp_path, reader_config=ReaderConfig(seed=1))
    cache = open_cache(tmp_path / name)
    for shown in (loaded, loaded.results[0], loaded.dataset, cache, verify_cache(cache.path)):
        assert "img" not in Words(shown._repr_html_()).names
        assert words(shown).isprintable()
    for shown in (loaded, cache):
        assert "<script>alert('x')</script>\\u202e\\x1b[2J&\"" in words(shown)


def test_many_columns_are_folded_and_none_is_lost(runtime, tmp_path):
    columns = {f"c{i}": pa.array([i]) for i in range(60)}
    wide = pa.table({"payload": pa.array([b"x"]), **columns})
    runtime.write_cache(ArrowSource("wide", wide), tmp_path)
    for shown in (open_cache(tmp_path / "wide"), open_dataset(tmp_path / "wide")):
        html = shown._repr_html_()
        assert "<details><summary>60 columns</summary>" in html
        assert "c59" in words(html)


def test_types_are_those_of_polars(runtime, tmp_path):
    moments = pa.array([0], pa.timestamp("us", tz="UTC"))
    table = pa.table({"payload": [b"x"], "at": moments, "day": pa.array([0], pa.date32())})
    runtime.write_cache(ArrowSource("typed", table), tmp_path)
    dataset = open_dataset(tmp_path / "typed")
    kept = dataset.get_metadata().with_columns(
        gap=pl.lit(1).cast(pl.Duration("ms")), tags=pl.lit(["a"])
    )
    dataset.update_metadata(kept)
    shown = words(dataset)
    for column in ("at | Datetime(us, UTC)", "day | Date", "gap | Duration(ms) | extra"):
        assert column in shown
    assert "tags | List(String) | extra" in shown


def test_outcomes_of_sources_are_shown(runtime, tmp_path):
    sources = [ArrowSource("good", table(9)), ArrowSource("bad", pa.table({"payload": [1]}))]
    found = runtime.from_cache_sources(sources, tmp_path, reader_config=ReaderConfig(seed=1))
    good, bad = found.results
    assert words(good) == f"source | cache | good | written | {good.path}"
    assert bad.message in words(bad)
    assert "good | written" in words(found)
    assert "rows | 9" in words(found)
    failed = runtime.from_cache_sources(sources[1], tmp_path, reader_config=ReaderConfig(seed=1))
    assert isinstance(failed, CacheSourcesDatasetError)
    assert "no dataset" in words(failed)


def test_whatever_is_wrong_is_said_instead_of_raised(caches):
    dataset = open_dataset(caches)
    dataset.__dict__["_native"] = None
    assert "cannot be shown | AttributeError: " in words(dataset)
    report = verify_cache(caches[0])
    object.__setattr__(report, "level", HOSTILE)
    assert "cannot be shown | KeyError" in words(report)


@NEEDS_PYTORCH[0]
def test_a_loader_says_what_it_delivers(caches):
    loader = open_dataset(caches, seed=3).to_torch_dataloader(batch_size=32, num_workers=0)
    shown = words(loader)
    assert "batches per epoch | 4 | of 32 samples | worker processes | 0" in shown
    assert "rows | 100" in shown
    assert repr(loader).startswith("DatasetLoader(4 batches per epoch, batch_size=32, ")


MEASURE = """<script>
const bar = document.querySelector(".drt-fill, .drt-first");
document.title = [document.documentElement.scrollWidth <= innerWidth,
  getComputedStyle(bar).backgroundColor, getComputedStyle(document.querySelector("td")).textAlign];
</script>"""


@pytest.mark.skipif(browser_tools.BROWSER is None, reason=browser_tools.WHY_NOT)
@pytest.mark.parametrize(
    ("is_dark", "colour"), [(False, "rgb(59, 111, 212)"), (True, "rgb(109, 158, 255)")]
)
def test_a_browser_runs_nothing_of_a_card_and_keeps_it_narrow(caches, tmp_path, is_dark, colour):
    runs = "<img src=x onerror=document.body.remove()><script>document.body.remove()</script>"
    source = ArrowSource("hostile", table(5, key=runs), fingerprint=runs * 9)
    with DatasetRuntime() as runtime:
        config = ReaderConfig(seed=1)
        loaded = runtime.from_cache_sources(source, tmp_path, reader_config=config)
        cards = [loaded, open_cache(tmp_path / "hostile"), verify_cache(caches[0], "deep")]
        shown = "".join(card._repr_html_() for card in cards)
    state = State("x" * 500, 5, 5, 1.0, 10, "running")
    page = tmp_path / "page.html"
    # JupyterLab's rules for all tables are there too.
    rules = "<style>.jp-RenderedHTMLCommon :is(th, td) {text-align: right}</style>"
    body = f"<body class=jp-RenderedHTMLCommon>{progress_card(state)}{shown}{MEASURE}"
    page.write_text(f"<!doctype html><meta charset=utf-8>{rules}{body}")
    seen = browser_tools.opened(page, tmp_path, width=320, dark=is_dark)
    assert re.search("<title>(.*)</title>", seen.dom)[1] == f"true,{colour},left"
    assert seen.requests == []


def test_nothing_is_imported_for_cards_before_one_is_shown():
    code = (
        "import sys, dataset_rt; from dataset_rt import open_cache, open_dataset, verify_cache\n"
        "print([m for m in sys.modules if m == 'altair' "
        "or m.startswith(('dataset_rt.html', 'dataset_rt.cards', 'dataset_rt.plotting'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert re.fullmatch(r"[\d.]+", drt.__version__)

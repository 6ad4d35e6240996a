"""What notebooks show of our objects: right numbers, hostile contents, and nothing ever raises."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import browser_tools
import polars as pl
import pyarrow as pa
import pytest
from conftest import NEEDS_PYTORCH, opened, put

import dataset_rt as drt
from dataset_rt import (
    ArrowSource,
    CacheSourcesDatasetError,
    DatasetRuntime,
    ReaderConfig,
    open_cache,
    open_dataset,
    repair_cache,
    salvage_cache,
    verify_cache,
    write_report,
)
from dataset_rt.cards import dataset as cards_dataset
from dataset_rt.cards import weights
from dataset_rt.cards.progress import progress_card
from dataset_rt.inspection import active_sizes
from dataset_rt.inspection.checks import MEANING, checked, shortened
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
    assert f"payload | {payload} B | {payload / 100:.0f} B on average" in shown
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


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "; in table order (shuffle=False) weights do nothing"),
        (
            {"shuffle": True, "sampling": "permutation"},
            '; sampling="permutation" reads each row once a cycle: weights do nothing',
        ),
        ({"shuffle": True}, ""),
        ({"shuffle": True, "sampling": "weighted_without_replacement"}, ""),
    ],
)
def test_weights_that_do_nothing_are_said_to(runtime, caches, options, says):
    dataset = opened(runtime, caches, **options)
    table = dataset.get_metadata()
    assert "do nothing" not in words(dataset)
    dataset.update_metadata(table.with_columns(weight=pl.int_range(pl.len()) % 4 + 1.0))
    for one in (dataset, dataset.partition(0, 2)):
        assert f"1 to 4, the largest 4 times the least{says} | " in words(one)


def test_a_share_without_a_global_batch_names_none(caches):
    shown = words(open_dataset(caches).partition(0, 3))
    assert "global batch" not in shown
    assert "share | one of every 3 samples" in shown
    shown = words(open_dataset(caches).partition(0, 3, drop_last=True))
    assert "share | one of every 3 samples, fewer at the end left out" in shown


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
    # What is wrong stands at the top, in red, and not among the weights.
    assert "in table order | its table cannot be read | " in shown
    assert "drt-badge drt-bad" in dataset._repr_html_().split("</div>")[0]
    assert f" | {caches[1]}" in shown.split(" | rows | ")[0]
    assert "weights | " not in shown


def test_a_cache_that_was_replaced_is_said_at_the_top_of_its_dataset(runtime, caches):
    dataset, cache = open_dataset(caches[1]), open_cache(caches[1])
    caches[1].rename(caches[1].with_name("old"))
    runtime.write_cache(ArrowSource("more", table(11)), caches[1].parent)
    head = words(dataset).split(" | rows | ")[0]
    assert "its table cannot be read" in head
    assert "the cache changed while open" in head
    shown = words(cache)
    assert shown.startswith("more | cache | replaced | another cache is at ")
    assert "damaged" not in shown


def test_a_cache_that_was_deleted_is_not_called_damaged(caches):
    cache = open_cache(caches[1])
    shutil.rmtree(caches[1])
    shown = words(cache)
    assert shown.startswith(f"more | cache | gone | there is no cache at {caches[1]}")
    assert f"cache_id | {cache.cache_id}" in shown
    for untrue in ("damaged", "on disk", "files there"):
        assert untrue not in shown


def test_a_cache_shows_its_sizes_and_columns(caches):
    cache = open_cache(caches[1])
    files = [file for file in caches[1].rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
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
    assert "damaged | level quick" in shown
    for finding in report.findings:
        assert finding.rule in shown
        assert shortened(finding.found)[:60] in shown
        assert MEANING[finding.rule] in shown
    assert "repair_cache(path, dry_run=True) says which samples are lost" in shown


def test_a_sound_cache_is_reported_with_what_was_checked(caches):
    report = verify_cache(caches[0], "deep")
    shown = words(report)
    assert "every byte and value verified | level deep" in shown
    assert f"files checked | {report.files_checked}" in shown
    assert "most bytes twice" in shown
    assert checked(report) in shown
    assert "drt-ok" in badges(report)


def badges(shown):
    return re.findall(r'class="drt-badge ([^"]*)"', shown._repr_html_())


def test_a_quick_check_does_not_look_like_a_proof(caches):
    shard = caches[0] / "shards/000000.arrow"
    content = bytearray(shard.read_bytes())
    content[content.index(b"xxxxxxx")] ^= 1
    put(shard, bytes(content))
    report = verify_cache(caches[0])
    assert report.ok
    assert set(badges(report)) == {"drt-plain"}
    shown = words(report)
    assert "structure ok, payloads not read | level quick" in shown
    assert 'verify_cache(path, "full") reads every byte' in shown
    assert words(verify_cache(caches[0], "full")).startswith("pets | verification | damaged")


def test_what_damage_left_out_is_not_said_to_be_checked(caches):
    (caches[0] / "metadata.arrow").unlink()
    report = verify_cache(caches[0], "deep")
    assert "rows and values were not compared" in words(report)
    assert "every row" not in words(report)
    assert "twice" not in words(report)


def test_payload_is_that_of_the_rows(caches, monkeypatch):
    dataset = open_dataset(caches)
    table = dataset.get_metadata()
    dataset.update_metadata(pl.concat([table.slice(6, 1), table.head(2), table.slice(6, 1)]))
    sizes = [7, 1, 2, 7]
    assert dataset.payload_sizes().to_list() == sizes
    assert f"payload | {sum(sizes)} B | 4 B on average" in words(dataset)
    monkeypatch.setattr(cards_dataset, "_SIZED_SAMPLES_MAX", 99)
    assert "payload of the caches | " in words(dataset)
    monkeypatch.undo()
    (caches[1] / "index.bin").unlink()
    assert "payload of the caches | " in words(dataset)


def test_a_table_of_two_caches_has_its_sizes_in_its_order(caches):
    dataset = open_dataset(caches[::-1])
    table = dataset.get_metadata().sample(fraction=1, shuffle=True, seed=2)
    dataset.update_metadata(table)
    rows = table.select("cache_id", "sample_id").rows()
    expected = [len(dataset.get_item(*row).data) for row in rows]
    sizes = dataset.payload_sizes()
    assert (sizes.name, sizes.dtype, sizes.to_list()) == ("payload_bytes", pl.UInt64, expected)


def test_sizes_of_what_is_no_longer_there_are_refused(runtime, caches):
    dataset = open_dataset(caches)
    (caches[1] / "index.bin").rename(caches[1] / "away")
    with pytest.raises(drt.CorruptError, match=r"index\.bin is missing"):
        dataset.payload_sizes()
    (caches[1] / "away").rename(caches[1] / "index.bin")
    caches[1].rename(caches[1].with_name("old"))
    runtime.write_cache(ArrowSource("more", table(11)), caches[1].parent)
    with pytest.raises(drt.ConflictError, match="more: the cache changed while open"):
        dataset.payload_sizes()


def test_an_index_that_cannot_be_read_is_named(caches, monkeypatch):
    def refuse(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(active_sizes, "raw_lengths", refuse)
    with pytest.raises(drt.FileUnavailableError, match=r"index of .*pets: .*Input") as raised:
        open_dataset(caches).payload_sizes()
    assert raised.value.errno == 5


def test_edited_columns_are_marked(caches):
    dataset = open_dataset(caches)
    assert "edited" not in words(dataset)
    table = dataset.get_metadata().with_columns(label=pl.lit("bird"), hard=pl.lit(1))
    dataset.update_metadata(table, edited=["label"])
    for one in (dataset, dataset.partition(0, 2)):
        shown = words(one)
        assert "label | String | edited | hard | Int32 | extra" in shown
        assert "a saved table comes back only with edited=['label']" in shown
    dataset.update_metadata(open_dataset(caches).get_metadata())
    assert "edited" not in words(dataset)


def test_a_directory_of_another_name_is_said_everywhere(caches):
    moved = caches[0].rename(caches[0].with_name("copy"))
    for shown in (open_cache(moved), open_dataset(moved), verify_cache(moved)):
        assert words(shown).startswith("pets (in copy) | ")
    assert "type, as stored" in words(open_cache(moved))
    assert "type in the table" in words(open_dataset(moved))


def test_a_damaged_copy_is_called_as_a_sound_one_is(caches):
    dataset = open_dataset(caches[0])
    copy = caches[0].with_name("nometa")
    shutil.copytree(caches[0], copy)
    (copy / "metadata.arrow").unlink()
    for shown in (verify_cache(copy), repair_cache(copy, dry_run=True)):
        assert words(shown).startswith("pets (in nometa) | ")
    (caches[0] / "metadata.arrow").unlink()
    assert words(dataset).startswith("pets | dataset | ")
    put(copy / "manifest.json", b"{}")
    assert words(verify_cache(copy)).startswith("nometa | verification")


def damaged(path):
    """A cache with a payload and its index damaged."""
    shard = path / "shards/000000.arrow"
    content = bytearray(shard.read_bytes())
    content[content.index(b"xxxxxxx")] ^= 1
    put(shard, bytes(content))
    put(path / "index.bin", b"damaged")
    return path


def test_repairs_are_shown(caches, tmp_path):
    whole = repair_cache(caches[1])
    assert words(whole).startswith("more | repair | nothing to repair | samples | 10 | lost | 0")
    put(caches[1] / "index.bin", b"damaged")
    looked = repair_cache(caches[1], dry_run=True)
    assert "more | repair | can be restored | looked only" in words(looked)
    assert "repair_cache(path) restores them" in words(looked)
    assert "more | repair | restored | samples" in words(repair_cache(caches[1]))
    lost = repair_cache(damaged(caches[0]))
    shown = words(lost)
    assert "pets | repair | beyond repair in place | samples | 90" in shown
    assert f"lost | {lost.samples_lost} | damaged files | {len(lost.files)}" in shown
    assert "lost sample_ids | " in shown
    assert "salvage_cache(path, into)" in shown or lost.samples_lost == 90
    for file in lost.files:
        assert f"{file.state} | {file.file} | " in shown
    assert not re.search(r"[0-9a-f]{20}", shown)


def test_salvages_are_shown(runtime, tmp_path):
    rows = pa.table({"payload": [bytes([65 + row]) * 70_000 for row in range(4)]})
    runtime.write_cache(ArrowSource("large", rows), tmp_path)
    shard = tmp_path / "large/shards/000000.arrow"
    put(shard, shard.read_bytes().replace(b"BB", b"??", 1))
    report = salvage_cache(tmp_path / "large", tmp_path / "new")
    shown = words(report)
    assert "large | salvage | new cache written" in shown
    assert f"samples kept | {report.samples_kept} | lost | {report.samples_lost}" in shown
    assert f"new cache | {report.new_path}" in shown
    assert "lost sample_ids | 0 to 1" in shown or "lost sample_ids | 1" in shown
    whole = salvage_cache(report.new_path, tmp_path / "third")
    assert "not needed: no sample is lost" in words(whole)


def test_written_reports_are_shown(caches, tmp_path):
    written = write_report(caches[0], tmp_path / "pets.html", level="quick")
    shown = words(written)
    assert shown.startswith("pets | report | structure ok, payloads not read | file | ")
    assert str(tmp_path / "pets.html") in shown
    written = write_report(damaged(caches[1]), tmp_path / "more.html")
    assert "more | report | damaged" in words(written)
    assert written.troubles[0][:40] in words(written)


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
    share = open_dataset(caches).partition(0, 3)
    shown = words(share.to_torch_dataloader(batch_size=8, num_workers=0))
    assert "of 8 samples, 24 on all ranks" in shown
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


def test_a_bar_that_is_done_looks_done():
    done = progress_card(State("x", 5, 5, 1.0, 10, "done"))
    running = progress_card(State("x", 5, 5, 1.0, 5, "running"))
    assert 'class="drt-bar drt-done" style="width:100%"' in done
    assert 'class="drt-bar drt-done"' not in running


def test_nothing_is_imported_for_cards_before_one_is_shown():
    code = (
        "import sys, dataset_rt; from dataset_rt import open_cache, open_dataset, verify_cache\n"
        "print([m for m in sys.modules if m == 'altair' "
        "or m.startswith(('dataset_rt.html', 'dataset_rt.cards', 'dataset_rt.plotting'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert re.fullmatch(r"[\d.]+", drt.__version__)

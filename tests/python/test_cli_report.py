"""`dataset-rt report`: its numbers are those of the data, and damage or a bad wish is said."""

import os
import shlex
import shutil
import signal
import subprocess
from collections import Counter

import polars as pl
import pytest

pytest.importorskip("typer", reason="the command line needs the extra `cli`")

import report_tools
from browser_tools import Page
from cli_tools import INTERRUPTED, PROGRAM, Terminal, call, spawn
from conftest import directory_digest, numbered, put, sealed, written

import dataset_rt as drt


def made(cache, directory, *arguments, code=0):
    """The page of a report, and its rows by their first cell."""
    out = directory / "report.html"
    done = call("report", cache, "-o", out, "--overwrite", *arguments)
    assert done.code == code, (done.out, done.err)
    page = Page(out.read_text())
    return page, {row[0]: row[1:] for row in page.rows if len(row) > 1}


def shares(page):
    """Of each class: rows, stored, due and drawn, as the table of shares has them."""
    begin = next(i for i, row in enumerate(page.rows) if row[-3:] == ["stored", "due", "drawn"])
    found = {}
    for row in page.rows[begin + 1 :]:
        if len(row) != 6:
            break
        found[row[0]] = (row[1], *row[3:])
    return found


def test_columns_agree_with_the_data(runtime, tmp_path):
    data = pl.DataFrame(report_tools.hard_values())
    page, rows = made(report_tools.table(runtime, tmp_path), tmp_path)
    days = data["day"]
    assert rows["day"] == [
        "date32", "0", str(days.n_unique()), str(days.min()), "", str(days.max())
    ]  # fmt: skip
    seen = data["seen"].drop_nulls()
    assert rows["seen"] == [
        "timestamp[us]", "25.0%", str(seen.n_unique()), f"{seen.min()}", "", f"{seen.max()}"
    ]  # fmt: skip
    ratio = data["ratio"].drop_nans()
    assert rows["ratio"][1:] == ["0", str(ratio.n_unique()), f"{ratio.min():.6g}", "", "inf"]
    assert rows["big"][3:] == [
        f"{data['big'].min():,}",
        f"{data['big'].mean():.6g}",
        f"{data['big'].max():,}",
    ]
    assert rows["nothing"] == ["null", "100.0%", "0", "", "", ""]
    assert rows["flag"][2] == "2"
    # Bars: values, rows and shares.
    flags = data["flag"].value_counts(sort=True).rows()
    for value, number in flags:
        assert rows[str(value).lower()][-1] == f"{number} \u00b7 {number / 400:.1%}"
    # Of all rows, the nulls among them.
    assert rows["a"][-1] == "200 \u00b7 50.0%"
    assert "1 infinite" in page.text
    assert "every value once" in page.text


def test_a_damaged_cache_gets_a_report_as_far_as_it_can_be_read(runtime, tmp_path):
    path = report_tools.pictures(runtime, tmp_path)
    shard = path / "shards/000001.arrow"
    content = bytearray(shard.read_bytes())
    content[20_000:60_000] = bytes(40_000)
    put(shard, bytes(content))
    before = directory_digest(path)
    page, rows = made(path, tmp_path, code=1)
    lost = drt.repair_cache(path, dry_run=True).lost
    number = sum(part.stop - part.start for part in lost)
    assert "damaged" in page.text
    assert "F03" in page.text
    assert "shards/000001.arrow" in page.text
    assert rows["lost"][0].startswith(f"{number} samples: {lost[0].start} to")
    assert f"dataset-rt repair {path} --dry-run" in page.text
    # Metadata is whole, and other pictures are.
    assert rows["label"][1:3] == ["0", "3"]
    assert "metadata unreadable" not in page.text
    assert 0 < sum(tag == "img" for tag, _ in page.elements) < 12
    assert "shards/000001.arrow is damaged in block" in page.text
    told = call("report", path, "-o", tmp_path / "report.html", "--overwrite").lines
    assert told[2].startswith(f"lost {number} samples: {lost[0].start} to")
    assert not any("is damaged in block" in line for line in told)
    assert f"dataset-rt report {path} -o FILE" in page.text
    assert directory_digest(path) == before


@pytest.mark.parametrize(
    "gone", ["index.bin", "metadata.arrow", "digests.bin", "shards/000000.arrow"]
)
def test_a_missing_file_costs_what_it_costs(gone, runtime, tmp_path):
    path = report_tools.pictures(runtime, tmp_path)
    (path / gone).unlink()
    page, rows = made(path, tmp_path, code=1)
    assert "F01" in page.text
    assert gone in page.text
    assert rows["label"][0] == "large_utf8"
    # Payloads have kinds where they can be read.
    assert gone == "index.bin" or rows["PNG"][0] == ""
    assert "Kinds could not be read" not in page.text
    if gone.startswith("shards"):
        lost = drt.repair_cache(path, dry_run=True).lost[0]
        assert f"of the {200 - lost.stop} rows that can be read" in page.text


@pytest.mark.parametrize("state", ["changed", "gone", "newer"])
def test_without_a_manifest_to_trust_the_report_says_so(state, cache, tmp_path):
    manifest = cache / "manifest.json"
    text = manifest.read_text()
    if state == "gone":
        manifest.unlink()
    elif state == "newer":
        put(manifest, sealed(text.replace('"format_version": 0', '"format_version": 99')).encode())
    else:
        put(manifest, text.replace("words", "swords").encode())
    page, _ = made(cache, tmp_path, code=1)
    assert "manifest.json" in page.text
    assert "Distributions" not in page.text


def test_levels_are_honest_about_what_they_read(cache, tmp_path):
    shard = cache / "shards/000000.arrow"
    content = bytearray(shard.read_bytes())
    assert "structure ok, payloads not read" in made(cache, tmp_path, "--level", "quick")[0].text
    assert "every byte verified" in made(cache, tmp_path)[0].text
    assert "every byte and value verified" in made(cache, tmp_path, "--level", "deep")[0].text
    content[-400] ^= 1
    put(shard, bytes(content))
    assert "every byte verified" not in made(cache, tmp_path, code=1)[0].text


def test_shares_are_those_of_a_dataset_with_these_settings(runtime, tmp_path):
    path = report_tools.pictures(runtime, tmp_path)
    page, _ = made(path, tmp_path, "--balance", "label", "--seed", 7, "--draws", 500)
    dataset = drt.open_dataset(path, seed=7, shuffle=True)
    table = dataset.get_metadata()
    rows = Counter(table["label"].to_list())
    weight = pl.Series([1 / rows[label] for label in table["label"]])
    dataset.update_metadata(table.with_columns(weight.alias("weight")))
    dataset.set_epoch_len(500)
    drawn = Counter(sample.metadata["label"] for sample in dataset)
    assert shares(page) == {
        label: (f"{rows[label]}", f"{rows[label] / 200:.1%}", "33.3%", f"{drawn[label] / 500:.1%}")
        for label in ("cat", "dog", "owl")
    }
    identities = Counter(sample.sample_id for sample in _again(path, weight))
    assert f"{len(identities)} of 200 rows, one up to {max(identities.values())} times" in page.text
    assert "due by weight" in page.text


@pytest.mark.parametrize("sampling", ["permutation", "weighted_without_replacement"])
def test_weights_ask_for_nothing_where_each_row_comes_once(runtime, tmp_path, sampling):
    path = report_tools.pictures(runtime, tmp_path)
    options = ("--balance", "label", "--sampling", sampling)
    page, _ = made(path, tmp_path, *options)
    for _, stored, due, drawn in shares(page).values():
        assert stored == due == drawn
    assert "due by rows" in page.text
    assert "all 200 rows, each once. Weights change no" in page.text
    page, _ = made(path, tmp_path, *options, "--draws", 50)
    assert "50 of 200 rows, each once, 150 never" in page.text
    assert ("due by" in page.text) is (sampling == "permutation")
    assert ("no share is due" in page.text) is (sampling != "permutation")


def _again(path, weight):
    dataset = drt.open_dataset(path, seed=7, shuffle=True)
    dataset.update_metadata(dataset.get_metadata().with_columns(weight.alias("weight")))
    dataset.set_epoch_len(500)
    return dataset


def test_weights_may_come_from_a_column_and_the_rest_of_many_classes_is_summed_up(
    runtime, tmp_path
):
    samples = [(b"", {"class_id": i % 40, "w": float(1 + i % 40)}) for i in range(400)]
    path = written(runtime, tmp_path, samples)
    page, _ = made(path, tmp_path, "--weight-by", "w")
    found = shares(page)
    assert len(found) == 25
    assert found["23"][:3] == ("10", "2.5%", f"{24 / 820:.1%}")
    assert found["16 others"][:3] == ("160", "40.0%", f"{sum(range(25, 41)) / 820:.1%}")


def test_without_a_label_none_is_made_up(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"x", {"key": f"k{i}", "f": i / 3}) for i in range(50)])
    page, _ = made(path, tmp_path)
    assert "No classes are shown: no column looks like a label" in page.text
    page, _ = made(path, tmp_path, "--by", "key")
    assert "26 others" in page.text


def test_the_label_is_found_by_name_before_others(runtime, tmp_path):
    samples = [
        (b"", {"split": "ab"[i % 2], "target": i % 5, "is_x": i % 3 == 0}) for i in range(99)
    ]
    page, _ = made(written(runtime, tmp_path, samples), tmp_path)
    assert set(shares(page)) == set("01234")
    assert "By target: its name is that of a label" in page.text


def test_the_same_is_made_every_time_and_on_stdout(runtime, tmp_path):
    path = report_tools.pictures(runtime, tmp_path)
    first, second = tmp_path / "1.html", tmp_path / "2.html"
    assert spawn("report", path, "-o", first).code == 0
    assert call("report", path, "-o", second).code == 0
    assert first.read_bytes() == second.read_bytes()
    piped = spawn("report", path, "-o", "-")
    assert piped.raw == first.read_bytes()
    assert drt.write_report(path, second, overwrite=True).size_bytes == len(piped.raw)
    assert second.read_bytes() == piped.raw
    assert call("report", path, "-o", "-", "--seed", 1).raw != piped.raw


def test_a_file_that_is_there_is_replaced_only_when_asked(cache, tmp_path):
    out = tmp_path / "report.html"
    out.write_text("mine")
    found = call("report", cache, "-o", out)
    assert found.code == 1
    assert "replace it with --overwrite" in found.err
    assert "=True" not in found.err
    assert out.read_text() == "mine"
    assert call("report", cache, "-o", out, "--overwrite").code == 0
    assert out.read_text().startswith("<!DOCTYPE html>")
    # The name that it had.
    assert [entry.name for entry in tmp_path.iterdir()] in (
        ["caches", "report.html"], ["report.html", "caches"]
    )  # fmt: skip


def test_nothing_is_written_into_the_cache(cache, tmp_path):
    before = directory_digest(cache)
    (tmp_path / "link").symlink_to(cache)
    for place in (cache / "r.html", cache / "shards/r.html", tmp_path / "link/new/r.html"):
        found = call("report", cache, "-o", place, "--overwrite")
        assert found.code == 1
        assert "lies in the cache" in found.err
    assert directory_digest(cache) == before
    assert not (cache / "new").exists()


def test_wrong_usage_and_nothing_there(cache, tmp_path):
    out = tmp_path / "deep/report.html"
    for arguments, code in (
        ([cache], 2),
        ([cache, "-o", "-", "--json"], 2),
        ([cache, "-o", out, "--balance", "label", "--weight-by", "number"], 2),
        ([cache, "-o", out, "--by", "nope"], 2),
        ([cache, "-o", out, "--columns", "nope"], 2),
        ([cache, "-o", out, "--samples", 61], 2),
        ([cache, "-o", out, "--draws", 0], 2),
        ([cache.parent / "word", "-o", out], 1),
        ([cache.parent, "-o", out], 1),
    ):
        found = call("report", *arguments)
        assert found.code == code, (arguments, found.err)
    assert not out.parent.exists()
    assert "did you mean" in call("report", cache.parent / "word", "-o", out).err
    found = call("report", cache, "-o", out, "--weight-by", "number")
    assert found.code == 1
    assert "weights from number: " in found.err
    assert "found 0.0; expected a finite number above 0" in found.err
    assert not out.exists()


def test_the_document_says_what_was_found(cache, tmp_path):
    out = tmp_path / "report.html"
    document = call("report", cache, "-o", out, "--json").json
    assert document == {
        "path": str(cache),
        "report": str(out),
        "size_bytes": out.stat().st_size,
        "ok": True,
        "level": "full",
        "findings": [],
        "troubles": [],
    }
    put(cache / "index.bin", b"")
    found = call("report", cache, "-o", out, "--json", "--overwrite")
    assert found.code == 1
    assert found.json["findings"][0]["file"] == "index.bin"
    assert found.json["troubles"]


def test_only_the_columns_asked_for_are_shown(cache, tmp_path):
    page, rows = made(cache, tmp_path, "--columns", "score")
    assert "number" not in rows
    assert "score" in rows
    assert "--columns score" in page.text


def test_control_c_leaves_no_file(runtime, tmp_path):
    path = written(runtime, tmp_path / "caches", numbered(1000))
    out = tmp_path / "out/report.html"
    terminal = Terminal("report", path, "-o", out, "--draws", 4_000_000_000)
    terminal.read(until=b"reading")
    os.killpg(terminal.process.pid, signal.SIGINT)
    assert terminal.finish() in INTERRUPTED
    assert b"Traceback" not in terminal.shown
    assert not out.parent.exists()


def test_a_reader_that_goes_away_is_no_error(cache):
    command = subprocess.Popen(
        [*PROGRAM, "report", str(cache), "-o", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    command.stdout.close()
    assert command.wait(60) == 1
    assert command.stderr.read() == b""
    command.stderr.close()


def test_a_report_is_small_whatever_the_cache_holds(runtime, tmp_path):
    samples = [
        (
            report_tools.picture(i, "JPEG", 400),
            {f"column {c:03} {'n' * 200}": f"{i} {'v' * 3_000}" for c in range(150)},
        )
        for i in range(60)
    ]
    path = written(runtime, tmp_path, samples, provenance={"p" * 300: "q" * 100_000})
    out = tmp_path / "report.html"
    assert call("report", path, "-o", out, "--samples", 60).code == 0
    assert out.stat().st_size < 2_000_000
    assert "120 columns of 150" in Page(out.read_text()).text


def test_write_report_says_what_is_wrong(cache, tmp_path):
    written_report = drt.write_report(cache, tmp_path / "new/report.html", level="deep")
    assert written_report.ok
    assert written_report.verification.level == "deep"
    assert written_report.path.stat().st_size == written_report.size_bytes
    for wrong in (
        {"level": "fast"},
        {"samples": 61},
        {"draws": 0},
        {"by": "nope"},
        {"balance": "label", "weight_by": "score"},
    ):
        with pytest.raises(drt.InvalidInputError):
            drt.write_report(cache, tmp_path / "other.html", **wrong)
    with pytest.raises(drt.ConflictError, match="replace it with overwrite=True"):
        drt.write_report(cache, written_report.path)
    shutil.rmtree(cache / "shards")
    found = drt.write_report(cache, written_report.path, overwrite=True)
    assert not found
    assert found.troubles


def test_every_class_is_among_the_samples_while_there_is_room(runtime, tmp_path):
    samples = [(b"x", {"label": i // 40 if i % 40 == 3 else 99}) for i in range(400)]
    path = written(runtime, tmp_path, samples)
    page, _ = made(path, tmp_path, "--samples", 12)
    assert all(f"label {value} " in page.text for value in (*range(10), 99))
    assert made(path, tmp_path, "--samples", 12)[0].text == page.text


def test_draws_of_lost_samples_are_counted(runtime, tmp_path):
    path = report_tools.pictures(runtime, tmp_path)
    shard = path / "shards/000001.arrow"
    content = bytearray(shard.read_bytes())
    content[20_000:60_000] = bytes(40_000)
    put(shard, bytes(content))
    lost = drt.repair_cache(path, dry_run=True).lost
    dataset = drt.open_dataset(path, seed=0, shuffle=True)
    gone = {i for part in lost for i in range(part.start, part.stop)}
    ids = [
        i for batch in dataset.iter_batches(50, columns=["sample_id"]) for i in batch[0].to_pylist()
    ]
    number = sum(i in gone for i in ids)
    assert number > 5
    page, rows = made(path, tmp_path, code=1)
    assert f"{number} of these draws are of lost samples, where reading raises" in page.text
    assert rows["unreadable"][1] == str(len(gone))


def test_every_payload_is_looked_at_where_every_byte_is_read(runtime, tmp_path):
    samples = [(b"\x89PNG\r\n\x1a\n", {}) for _ in range(5000)]
    samples[4321] = (b"404 not found", {})
    path = written(runtime, tmp_path, samples)
    page, rows = made(path, tmp_path)
    assert rows["UTF-8 text"] == ["", "1", "<0.1%"]
    assert "most PNG" in page.text
    assert "PNG in the 500 looked at" in made(path, tmp_path, "--level", "quick")[0].text


def test_paths_of_provenance_are_left_out_and_the_command_runs(runtime, tmp_path, monkeypatch):
    provenance = {"root": "/home/anna/photos", "paths": '["/home/anna/a.csv"]', "from": "a/b"}
    path = written(runtime, tmp_path, numbered(9), provenance=provenance)
    page, rows = made(path, tmp_path)
    assert "anna" not in page.text
    assert rows["from"] == ["a/b"]
    assert "Dataset cache words" in page.text
    moved = made(path.rename(tmp_path / "moved"), tmp_path)[0]
    assert "Dataset cache in moved words" in moved.text
    (tmp_path / "moved").rename(path)
    command = next(text for text in page.text.split("made by ") if text.startswith("dataset-rt"))
    words = shlex.split(command.partition(" dataset-rt 0")[0])[1:]
    monkeypatch.chdir(tmp_path)
    assert call(*words).code in {0, 1}
    assert call(*words, "--overwrite").code == 0

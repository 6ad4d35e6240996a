"""`dataset-rt verify`: what is broken, and exactly which samples are lost by it."""

import random

import pytest

pytest.importorskip("typer", reason="the command line needs the extra `cli`")

from cli_tools import call
from conftest import put, written

import dataset_rt as drt

LAYOUTS = {
    "none": drt.ShardCompression(),
    "zstd payload": drt.ShardCompression(algo="zstd"),
    "lz4 buffer": drt.ShardCompression(algo="lz4", scope="buffer"),
}


def samples():
    drawn = random.Random(5)
    return [(drawn.randbytes(drawn.randrange(4000)), {"i": i}) for i in range(900)]


def stored(runtime, directory, layout="none"):
    config = drt.WriterConfig(
        show_progress=False, max_shard_bytes=600_000, shard_compression=LAYOUTS[layout]
    )
    return written(runtime, directory, samples(), config=config)


def flip(file, *places):
    content = bytearray(file.read_bytes())
    for place in places:
        content[int(place * len(content))] ^= 1
    put(file, content)


def report_of(path, level="full"):
    (report,) = call("verify", path, "--level", level, "--json").json["reports"]
    return report


def members(ranges):
    return {i for begin, end in ranges for i in range(begin, end)}


def unreadable(path):
    """The samples that the library itself cannot read."""
    cache = drt.open_cache(path)
    lost = set()
    for i in range(cache.num_samples):
        try:
            cache.payload(i)
        except drt.CorruptError:
            lost.add(i)
    return lost


def test_a_sound_cache_is_ok_at_every_level(runtime, tmp_path):
    path = stored(runtime, tmp_path)
    for level in ("quick", "full", "deep"):
        found = call("verify", path, "--level", level)
        assert found.code == 0
        assert found.lines[0] == f"{path} ok"
        assert f"level {level}" in found.lines[1]
        assert ("payloads were not read" in found.lines[1]) == (level == "quick")
        assert report_of(path, level)["payloads_read"] == (level != "quick")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_lost_samples_are_those_that_cannot_be_read(runtime, tmp_path, layout):
    path = stored(runtime, tmp_path, layout)
    shards = sorted((path / "shards").iterdir())
    flip(shards[0], 0.2, 0.7)
    flip(shards[-1], 0.5)
    found = call("verify", path)
    assert found.code == 1
    assert "DAMAGED" in found.lines[0]
    assert sum(line.startswith("F03 shards/") for line in found.lines) == 2
    report = report_of(path)
    lost = unreadable(path)
    assert 0 < len(lost) < 900
    assert members(report["samples_lost"]) == lost
    (line,) = [line for line in found.lines if line.startswith("lost")]
    assert line.startswith(f"lost {len(lost)} samples: ")
    assert f"next dataset-rt repair {path} --dry-run says what they were" in found.lines
    assert f"dataset-rt repair {path} --into DIR --original-ids saves others" in found.lines


def test_a_missing_shard_costs_its_samples_beside_those_of_damaged_blocks(runtime, tmp_path):
    path = stored(runtime, tmp_path)
    rows = [shard["rows"] for shard in drt.open_cache(path).manifest["shards"]]
    flip(path / "shards/000000.arrow", 0.5)
    flipped = unreadable(path)
    (path / "shards/000001.arrow").unlink()
    lost = members(report_of(path)["samples_lost"])
    assert lost == flipped | {*range(rows[0], rows[0] + rows[1])}


def test_the_quick_level_reads_nothing_to_know_what_is_lost(runtime, tmp_path):
    path = stored(runtime, tmp_path)
    shard = path / "shards/000000.arrow"
    put(shard, shard.read_bytes()[:-100])
    report = report_of(path, "quick")
    assert [finding["rule"] for finding in report["findings"]] == ["F02"]
    assert report["samples_lost"] is None
    lines = call("verify", path, "--level", "quick").lines
    assert f"next dataset-rt verify {path} says which samples are lost" in lines


@pytest.mark.parametrize("name", ["metadata.arrow", "index.bin", "digests.bin"])
def test_damage_of_what_shards_hold_too_loses_nothing(runtime, tmp_path, name):
    path = stored(runtime, tmp_path)
    flip(path / name, 0.9)
    report = report_of(path)
    assert not report["ok"]
    assert (report["restorable"], report["samples_lost"]) == ([name], [])
    lines = call("verify", path).lines
    assert "lost no sample" in lines
    assert f"next dataset-rt repair {path} restores {name}" in lines


def test_without_a_manifest_nobody_knows_what_is_lost(runtime, tmp_path):
    path = stored(runtime, tmp_path)
    flip(path / "manifest.json", 0.5)
    report = report_of(path)
    assert report["samples_lost"] is None
    assert "manifest.json" in report["trouble"]
    assert any(line.startswith("lost unknown: ") for line in call("verify", path).lines)


def test_several_caches_are_checked_and_one_bad_one_decides(runtime, tmp_path):
    good = stored(runtime, tmp_path / "good")
    bad = stored(runtime, tmp_path / "bad")
    assert call("verify", good, good).code == 0
    flip(bad / "shards/000000.arrow", 0.5)
    found = call("verify", good, bad, good, "--json")
    assert found.code == 1
    assert [report["ok"] for report in found.json["reports"]] == [True, False, True]
    assert not found.json["ok"]


def test_samples_are_named_exactly_where_the_index_is_damaged_too(runtime, tmp_path):
    path = stored(runtime, tmp_path)
    flip(path / "shards/000000.arrow", 0.5)
    lost = unreadable(path)
    flip(path / "index.bin", 0.5)
    assert members(report_of(path)["samples_lost"]) == lost
    assert report_of(path)["restorable"] == ["index.bin"]


def test_each_cache_of_a_directory_is_checked(runtime, tmp_path):
    for name in ("one", "two", "bare"):
        written(runtime, tmp_path, samples()[:20], name=name)
    assert call("verify", tmp_path).lines[-1] == "3 caches: all ok"
    flip(tmp_path / "two/shards/000000.arrow", 0.5)
    (tmp_path / "bare/manifest.json").unlink()
    found = call("verify", tmp_path)
    assert (found.code, found.lines[-1]) == (1, "3 caches: 2 DAMAGED")
    assert "restore manifest.json from a copy, if there is one" in found.out
    reports = call("verify", tmp_path, "--json").json["reports"]
    assert {report["path"]: report["ok"] for report in reports} == {
        str(tmp_path / "bare"): False,
        str(tmp_path / "one"): True,
        str(tmp_path / "two"): False,
    }
    (empty := tmp_path / "one/more").mkdir()
    assert call("verify", empty).code == 1


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_every_line_stands_in_its_column_at_any_width(runtime, tmp_path, columns):
    path = stored(runtime, tmp_path)
    flip(path / "shards/000000.arrow", *(i / 30 for i in range(1, 30)))
    for command in (["verify"], ["repair", "--dry-run"]):
        lines = call(*command, path, columns=columns).out.splitlines()
        assert max(map(len, lines)) <= columns
        # What goes on in the next line is indented there.
        body = [line for line in lines[lines.index("") :] if line and line[:5] != "Lost "]
        assert all(line.startswith("  ") for line in body)


def test_an_unknown_level_is_wrong_usage(cache):
    found = call("verify", cache, "--level", "deeper")
    assert found.code == 2
    assert "deep" in found.err

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
        assert " ok " in found.lines[0]
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
    assert report["samples_in_doubt"] == []
    (line,) = [line for line in found.lines if line.startswith("lost")]
    assert line.startswith(f"lost {len(lost)} samples: ")


def test_a_missing_shard_costs_its_samples_and_leaves_others_in_doubt(runtime, tmp_path):
    path = stored(runtime, tmp_path)
    rows = [shard["rows"] for shard in drt.open_cache(path).manifest["shards"]]
    (path / "shards/000001.arrow").unlink()
    report = report_of(path, "quick")
    assert report["samples_lost"] == [[rows[0], rows[0] + rows[1]]]
    flip(path / "shards/000000.arrow", 0.5)
    report = report_of(path)
    assert report["samples_lost"] == [[rows[0], rows[0] + rows[1]]]
    assert report["samples_in_doubt"] == [[0, rows[0]]]
    assert any(line.startswith("in doubt up to") for line in call("verify", path).lines)


def test_a_shard_cut_short_is_in_doubt(runtime, tmp_path):
    path = stored(runtime, tmp_path)
    shard = path / "shards/000000.arrow"
    rows = drt.open_cache(path).manifest["shards"][0]["rows"]
    put(shard, shard.read_bytes()[:-100])
    report = report_of(path, "quick")
    assert [finding["rule"] for finding in report["findings"]] == ["F02"]
    assert report["samples_in_doubt"] == [[0, rows]]


@pytest.mark.parametrize("name", ["metadata.arrow", "index.bin", "digests.bin"])
def test_damage_of_what_shards_hold_too_loses_nothing(runtime, tmp_path, name):
    path = stored(runtime, tmp_path)
    flip(path / name, 0.9)
    report = report_of(path)
    assert not report["ok"]
    assert report["rebuildable"] == [name]
    assert report["samples_lost"] == []
    assert f"derived {name} can be rebuilt from the shards" in call("verify", path).lines


def test_several_caches_are_checked_and_one_bad_one_decides(runtime, tmp_path):
    good = stored(runtime, tmp_path / "good")
    bad = stored(runtime, tmp_path / "bad")
    assert call("verify", good, good).code == 0
    flip(bad / "shards/000000.arrow", 0.5)
    found = call("verify", good, bad, good, "--json")
    assert found.code == 1
    assert [report["ok"] for report in found.json["reports"]] == [True, False, True]
    assert not found.json["ok"]


def test_an_unknown_level_is_wrong_usage(cache):
    found = call("verify", cache, "--level", "deeper")
    assert found.code == 2
    assert "deep" in found.err

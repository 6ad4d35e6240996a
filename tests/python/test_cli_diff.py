"""`dataset-rt diff`: equal contents are equal however stored; others differ where they differ."""

import pytest

pytest.importorskip("typer", reason="the command line needs the extra `cli`")

from cli_tools import call
from conftest import numbered, put, written

import dataset_rt as drt

OTHER_LAYOUT = drt.WriterConfig(
    show_progress=False,
    max_shard_bytes=2000,
    shard_compression=drt.ShardCompression(algo="lz4", scope="buffer"),
)


def pair(runtime, tmp_path, ours, theirs, config=OTHER_LAYOUT):
    return (
        written(runtime, tmp_path / "a", ours),
        written(runtime, tmp_path / "b", theirs, config=config),
    )


def test_the_same_contents_are_equal_in_any_layout_and_nothing_is_read(runtime, tmp_path):
    a, b = pair(runtime, tmp_path, numbered(300), numbered(300))
    for shard in (b / "shards").iterdir():
        put(shard, bytes(shard.stat().st_size))
    found = call("diff", a, b)
    assert found.code == 0
    assert found.lines[0].startswith("same contents")
    document = call("diff", a, b, "--json").json
    assert document["equal"]
    assert document["a"]["shards"] < document["b"]["shards"]


def test_the_first_difference_is_named_with_both_values(runtime, tmp_path):
    theirs = numbered(300)
    theirs[123] = (theirs[123][0] + b"!", {**theirs[123][1], "label": "other"})
    theirs[200] = (theirs[200][0], {**theirs[200][1], "number": -1})
    a, b = pair(runtime, tmp_path, numbered(300), theirs)
    found = call("diff", a, b)
    assert found.code == 1
    assert "Samples 2 of 300 in both differ (0.7%)" in found.lines
    assert "First difference sample 123" in found.lines
    assert "label l4 other" in found.lines
    document = call("diff", a, b, "--json").json
    assert document["differing_by_column"] == {"number": 1, "label": 1, "score": 0, "payload": 1}
    first = document["first_difference"]
    assert (first["sample_id"], first["columns"]) == (123, ["label", "payload"])
    assert first["a"]["payload"]["size_bytes"] + 1 == first["b"]["payload"]["size_bytes"]
    assert first["payload_offset"] == len(numbered(300)[123][0])


def test_a_shorter_cache_is_compared_as_far_as_it_goes(runtime, tmp_path):
    a, b = pair(runtime, tmp_path, numbered(300), numbered(299))
    document = call("diff", a, b, "--json").json
    assert (document["samples_compared"], document["samples_differing"]) == (299, 0)
    assert document["first_difference"] is None
    assert "what both have is equal" in call("diff", a, b).lines


def test_columns_of_another_type_or_only_on_one_side_are_listed(runtime, tmp_path):
    a, b = pair(
        runtime,
        tmp_path,
        [(b"x", {"same": 1, "kind": 1, "ours": 1})],
        [(b"x", {"same": 1, "kind": "1", "theirs": 1})],
    )
    found = call("diff", a, b)
    assert found.code == 1
    assert "kind int64 large_utf8" in found.lines
    assert "ours int64 none" in found.lines
    assert "theirs none int64" in found.lines
    assert call("diff", a, b, "--json").json["samples_differing"] == 0


def test_numbers_that_are_none_are_equal_and_zeros_have_a_sign(runtime, tmp_path):
    a, b = pair(
        runtime,
        tmp_path,
        [(b"", {"x": float("nan")}), (b"", {"x": None}), (b"", {"x": 0.0}), (b"", {"x": 1.0})],
        [(b"", {"x": float("nan")}), (b"", {"x": None}), (b"", {"x": -0.0}), (b"", {"x": 1.0})],
    )
    document = call("diff", a, b, "--json").json
    assert not document["equal"]
    assert document["differing_by_column"]["x"] == 1
    assert document["first_difference"]["sample_id"] == 2


def test_a_null_is_not_a_value(runtime, tmp_path):
    a, b = pair(
        runtime,
        tmp_path,
        [(b"", {"x": 1, "s": ""}), (b"", {"x": None, "s": ""})],
        [(b"", {"x": 1, "s": ""}), (b"", {"x": 0, "s": None})],
    )
    document = call("diff", a, b, "--json").json
    assert document["differing_by_column"] == {"x": 1, "s": 1, "payload": 0}


def test_a_difference_far_behind_in_a_payload_has_its_offset(runtime, tmp_path):
    ours = b"a" * 200_000
    theirs = ours[:150_001] + b"b" + ours[150_002:]
    a, b = pair(runtime, tmp_path, [(ours, {})], [(theirs, {})])
    assert call("diff", a, b, "--json").json["first_difference"]["payload_offset"] == 150_001


def test_damage_is_an_error_not_a_difference(runtime, tmp_path):
    a, b = pair(runtime, tmp_path, numbered(300), numbered(301), config=drt.WriterConfig())
    shard = b / "shards/000000.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    put(shard, content)
    found = call("diff", a, b)
    assert found.code == 1
    assert found.out == ""
    assert "damaged" in found.err

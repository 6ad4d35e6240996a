"""`dataset-rt diff`: equal contents are equal however stored; others differ where they differ."""

import pyarrow as pa
import pytest

pytest.importorskip("typer", reason="the command line needs the extra `cli`")

from cli_tools import call
from conftest import numbered, put, written

import dataset_rt as drt
from dataset_rt.cli.comparison import compare

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


def damage(file, at=0.5):
    content = bytearray(file.read_bytes())
    content[int(len(content) * at)] ^= 1
    put(file, content)


def large(n=300):
    return [(b"%d " % i * 300, {"i": i}) for i in range(n)]


def test_samples_that_cannot_be_read_are_named_and_the_others_compared(runtime, tmp_path):
    theirs = large(301)
    theirs[2] = (b"other", {"i": 2})
    a, b = pair(runtime, tmp_path, large(), theirs, config=drt.WriterConfig())
    damage(b / "shards/000000.arrow")
    lost = drt.repair_cache(b, dry_run=True)
    assert 0 < lost.samples_lost < 300
    document = call("diff", a, b, "--json").json
    (begin, end), *_ = document["samples_unreadable"]["b"]
    assert (begin, end) == (lost.lost[0].start, lost.lost[-1].stop)
    assert document["samples_unreadable"]["a"] == []
    assert document["samples_compared"] == 300 - lost.samples_lost
    assert document["samples_differing"] == 1
    assert document["first_difference"]["sample_id"] == 2
    found = call("diff", a, b)
    assert (found.code, found.err) == (1, "")
    line = f"{lost.samples_lost} samples of B cannot be read: {begin} to {end - 1}"
    assert line in found.lines


@pytest.mark.parametrize("name", ["index.bin", "metadata.arrow", "shards/000000.arrow"])
def test_a_missing_file_costs_what_only_it_holds(runtime, tmp_path, name):
    a, b = pair(runtime, tmp_path, large(), large(), config=drt.WriterConfig(show_progress=False))
    (b / name).unlink()
    found = call("diff", a, b, "--json")
    lost = 300 if name.startswith("shards") else 0
    assert found.code == 1
    assert found.json["samples_compared"] == 300 - lost
    assert found.json["samples_differing"] == 0
    assert call("diff", a, b).lines[0] == "damaged the manifests name the same contents"


def test_a_salvaged_cache_is_compared_by_the_ids_that_its_samples_had(runtime, tmp_path):
    config = drt.WriterConfig(show_progress=False)
    whole, damaged = pair(runtime, tmp_path, large(), large(), config=config)
    damage(damaged / "shards/000000.arrow", 0.3)
    damage(damaged / "shards/000000.arrow", 0.7)
    report = drt.salvage_cache(damaged, tmp_path / "new", original_ids=True)
    for original in (whole, damaged):
        found = call("diff", original, report.new_path, "--original-ids")
        assert found.code == 0
        assert found.lines[0] == "every sample of B is in A, unchanged"
        assert f"{report.samples_lost} samples of A not compared" in found.lines
    assert call("diff", whole, report.new_path).code == 1
    changed = large()
    changed[report.lost[0].stop + 1] = (b"other", {"i": 7})
    other = written(runtime, tmp_path / "c", changed)
    document = call("diff", other, report.new_path, "--original-ids", "--json").json
    assert (document["equal"], document["samples_differing"]) == (False, 1)
    assert document["first_difference"]["sample_id"] == report.lost[0].stop + 1
    found = call("diff", whole, damaged, "--original-ids")
    assert (found.code, "no column 'original_sample_id'" in found.err) == (2, True)
    # What A cannot show proves nothing of B.
    every = [
        (payload, values | {"original_sample_id": i}) for i, (payload, values) in enumerate(large())
    ]
    copy = written(runtime, tmp_path / "d", every)
    assert call("diff", whole, copy, "--original-ids").code == 0
    found = call("diff", damaged, copy, "--original-ids")
    assert (found.code, found.lines[0]) == (1, "not every sample of B is in A, unchanged")
    for ids, reason in ((["1", "2"], "expected integers"), ([2, 2], "does not ascend")):
        odd = [(b"", {"i": 0, "original_sample_id": value}) for value in ids]
        found = call("diff", whole, written(runtime, tmp_path / reason, odd), "--original-ids")
        assert (found.code, reason in found.err) == (1, True)


def test_another_order_of_the_same_samples_is_said_to_be_that(runtime, tmp_path):
    samples = [(b"%d" % (i % 7), {"i": i, "x": None, "f": i / 3}) for i in range(200)]
    a, b = pair(runtime, tmp_path, samples, samples[::-1], drt.WriterConfig(show_progress=False))
    found = call("diff", a, b)
    assert (found.code, found.lines[0]) == (1, "the same samples in another order")
    assert call("diff", a, b, "--json").json["same_samples_in_another_order"]
    # The same values of every column, but not in the same samples; then zeros of another sign.
    mixed = [(samples[i ^ 1][0], samples[i][1]) for i in range(200)]
    signed = [*samples[1:], (b"0", {"i": 0, "x": None, "f": -0.0})]
    for name, others in (("mixed", mixed), ("signed", signed)):
        other = written(runtime, tmp_path / name, others)
        assert call("diff", a, other).lines[0] == "different contents"


def in_batches(table, rows, left_out=()):
    """Rows as a cache gives them, in batches of a chosen size."""
    start = 0
    for batch in table.to_batches(max_chunksize=rows):
        if start not in left_out:
            yield start, batch
        start += batch.num_rows


@pytest.mark.parametrize("sizes", [(7, 5), (5, 7), (1, 100), (100, 1), (10, 10)])
def test_batches_of_any_size_are_laid_side_by_side(sizes):
    ours = pa.table({"i": range(100), "payload": [b"%d" % i for i in range(100)]})
    theirs = ours.set_column(0, "i", pa.array([-1 if i in {33, 77} else i for i in range(100)]))
    done = []
    left, right = in_batches(ours, sizes[0]), in_batches(theirs, sizes[1])
    found = compare(left, right, ["i"], done.append)
    assert (found.compared, found.differing, done[-1]) == (100, 2, 100)
    assert found.first[:2] == (33, ["i"])


@pytest.mark.parametrize("sizes", [(10, 5), (5, 10), (10, 25), (25, 10)])
def test_samples_that_one_side_lacks_are_passed_over(sizes):
    table = pa.table({"i": range(100), "payload": [b"%d" % i for i in range(100)]})
    lacking = [{10, 50, 75}, {0, 25, 50}]
    sides = [in_batches(table, *side) for side in zip(sizes, lacking, strict=True)]
    found = compare(*sides, ["i"], lambda _: None)
    kept = [
        {i for start in range(0, 100, rows) if start not in out for i in range(start, start + rows)}
        for rows, out in zip(sizes, lacking, strict=True)
    ]
    assert (found.compared, found.differing) == (len(kept[0] & kept[1]), 0)


def test_a_date_beyond_every_calendar_is_said_as_a_count(runtime, tmp_path):
    paths = []
    for name, last in (("a", 2**31 - 1), ("b", 2**31 - 2)):
        days = pa.array([0, last], pa.int32()).cast(pa.date32())
        source = drt.ArrowSource(name, pa.table({"day": days, "payload": [b"x", b"y"]}))
        paths.append(runtime.write_cache(source, tmp_path)[0].path)
    found = call("diff", *paths)
    assert found.code == 1
    assert "1970-01-01 + 2,147,4" in found.out

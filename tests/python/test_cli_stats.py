"""`dataset-rt stats`: numbers that agree with the data, from bounded memory."""

import random
from datetime import UTC, datetime, timedelta
from math import isnan

import polars as pl
import pyarrow as pa
import pytest

pytest.importorskip("typer", reason="the command line needs the extra `cli`")

from cli_tools import call
from conftest import numbered, put, written

import dataset_rt as drt
from dataset_rt.inspection import column_stats, kinds
from dataset_rt.inspection.column_stats import ColumnStats

COMPRESSIONS = {
    "none": drt.ShardCompression(),
    "zstd payload": drt.ShardCompression(algo="zstd"),
    "zstd buffer": drt.ShardCompression(algo="zstd", scope="buffer"),
}


def stats_of(values, pieces=7, dtype=None):
    """Statistics of values that come in several batches."""
    series = pl.Series(values, dtype=dtype)
    found = ColumnStats("c", "any")
    step = max(1, len(values) // pieces)
    for begin in range(0, len(values), step):
        found.add(series[begin : begin + step])
    found.finish()
    return found


def test_columns_agree_with_the_data(runtime, tmp_path):
    found = call("stats", written(runtime, tmp_path, numbered(300)))
    assert found.code == 0
    assert "number int64 0 300 0 149.5 299" in found.lines
    assert "score float64 0 300 0 18.69 37.375" in found.lines
    assert "label large_utf8 0 7 l0 l6" in found.lines
    # 300 rows of 7 labels: six of 43, the last of 42.
    assert any(line.startswith("l0 43 14.3%") for line in found.lines)
    assert any(line.startswith("l4 43 14.3%") for line in found.lines)


def test_json_has_every_column_and_value(runtime, tmp_path):
    samples = [(b"", {"x": value, "t": None}) for value in (1.5, None, float("nan"), -1.5)]
    document = call("stats", written(runtime, tmp_path, samples), "--json").json
    x, t = document["columns"]
    assert (x["nulls"], x["nans"], x["distinct"]) == (1, 1, 2)
    assert (x["min"], x["max"], x["mean"]) == (-1.5, 1.5, 0.0)
    assert x["top"] == [{"value": -1.5, "count": 1}, {"value": 1.5, "count": 1}]
    assert (t["type"], t["nulls"], t["distinct"], t["min"]) == ("null", 4, 0, None)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_payload_sizes_are_those_of_the_payloads(runtime, tmp_path, compression):
    drawn = random.Random(1)
    sizes = [0, 1, 2, 3, 4, 7, 8, 1023, 1024, 65_535, 65_536]
    sizes += [drawn.randrange(3000) for _ in range(500)]
    drawn.shuffle(sizes)
    config = drt.WriterConfig(
        show_progress=False, max_shard_bytes=200_000, shard_compression=COMPRESSIONS[compression]
    )
    path = written(runtime, tmp_path, [(b"a" * size, {}) for size in sizes], config=config)
    found = call("stats", path, "--json").json["payload"]
    assert found["raw_bytes"] == sum(sizes)
    assert (found["min_bytes"], found["max_bytes"]) == (0, 65_536)
    assert found["mean_bytes"] == pytest.approx(sum(sizes) / len(sizes))
    for bucket in found["histogram"]:
        begin, end = bucket["begin_bytes"], bucket["end_bytes"]
        assert bucket["samples"] == sum(begin <= size < end for size in sizes)
    assert sum(bucket["samples"] for bucket in found["histogram"]) == len(sizes)
    if compression == "none":
        assert found["stored_bytes"] == sum(sizes)
    elif compression == "zstd payload":
        assert 0 < found["stored_bytes"] < sum(sizes) / 4
    else:
        assert found["stored_bytes"] is None


def test_an_index_that_contradicts_the_manifest_is_an_error(runtime, tmp_path):
    path = written(runtime, tmp_path, numbered(10))
    index = bytearray((path / "index.bin").read_bytes())
    index[64 + 16 * 3 + 12] ^= 1
    put(path / "index.bin", index)
    found = call("stats", path)
    assert found.code == 1
    assert "index.bin is damaged" in found.err
    assert "dataset-rt verify" in found.err


def test_no_payload_is_read_where_columns_are_named(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"x" * 5000, {"i": i}) for i in range(100)])
    shard = path / "shards/000000.arrow"
    put(shard, bytes(shard.stat().st_size))
    assert call("stats", path, "--columns", "i").code == 0
    found = call("stats", path)
    assert found.code == 1
    assert any(line.startswith("unreadable 100 100.0%") for line in found.lines)


def test_kinds_are_those_of_some_payloads_or_of_all(runtime, tmp_path):
    jpeg = b"\xff\xd8\xff\xe0" + bytes(100)
    samples = [(jpeg, {}) for _ in range(1200)]
    samples[7] = samples[900] = (b"", {})
    samples[34] = (b"404 not found", {})
    path = written(runtime, tmp_path, samples)
    found = call("stats", path, "--payloads")
    assert "2 payloads without any bytes: 7, 900" in found.lines
    assert found.lines[-3:] == ["JPEG 1,197 99.8%", "empty 2 0.2% 7, 900", "UTF-8 text 1 0.1% 34"]
    payload = call("stats", path, "--payloads", "--json").json["payload"]
    assert (payload["empty"], payload["first_empty"], payload["kinds_of"]) == (2, [7, 900], 1200)
    assert payload["kinds"][1] == {"kind": "empty", "samples": 2, "first": [7, 900]}
    some = call("stats", path, "--json").json["payload"]
    # Every kind of evenly spread ones, and what is known exactly is so all the same.
    assert (some["empty"], some["kinds_of"]) == (2, 500)
    assert sum(kind["samples"] for kind in some["kinds"]) == 500
    assert max(some["kinds"][0]["first"]) < 15


def test_large_payloads_are_looked_at_in_fewer_samples(runtime, tmp_path, monkeypatch):
    path = written(runtime, tmp_path, [(b"x" * 10_000, {}) for _ in range(100)])
    monkeypatch.setattr(kinds, "_BYTES_MAX", 200_000)
    assert call("stats", path, "--json").json["payload"]["kinds_of"] == 20


def test_a_damaged_payload_is_one_that_cannot_be_read(runtime, tmp_path):
    path = written(runtime, tmp_path, [(bytes([i]) * 100_000, {}) for i in range(6)])
    shard = path / "shards/000000.arrow"
    content = bytearray(shard.read_bytes())
    content[content.index(bytes([3]) * 100_000) + 70_000] ^= 1
    put(shard, content)
    for options in ([], ["--payloads"]):
        found = call("stats", path, "--json", *options)
        assert found.code == 1
        assert found.json["payload"]["kinds"][-1] == {
            "kind": "unreadable",
            "samples": 1,
            "first": [3],
        }


def test_batches_together_are_the_whole_column():
    drawn = random.Random(3)
    values = [drawn.choice([None, float("nan"), *range(20)]) for _ in range(5000)]
    found = stats_of(values, dtype=pl.Float64)
    kept = [value for value in values if value is not None and not isnan(value)]
    assert found.values == len(kept)
    assert found.mean == pytest.approx(sum(kept) / len(kept))
    assert found.distinct == len(set(kept))
    assert dict(found.top(100)) == {value: kept.count(value) for value in set(kept)}


def test_beyond_the_bound_distinct_values_are_only_said_to_be_many(monkeypatch):
    monkeypatch.setattr(column_stats, "DISTINCT_MAX", 50)
    assert stats_of(list(range(50)) * 3).distinct == 50
    many = stats_of(list(range(51)) * 3)
    assert many.distinct is None
    assert many.counts is None
    assert (many.min, many.max, many.rows) == (0, 50, 153)


def test_what_is_kept_of_many_values_stays_bounded(monkeypatch):
    monkeypatch.setattr(column_stats, "DISTINCT_MAX", 100)
    found = ColumnStats("c", "int64")
    for begin in range(0, 100_000, 100):
        found.add(pl.Series(range(begin, begin + 100)))
        assert sum(part.height for part in found._pending) <= 200
    assert found.rows == 100_000


def test_booleans_have_a_share_and_dates_a_range(runtime, tmp_path):
    samples = [(b"", {"ok": i % 4 == 0}) for i in range(8)]
    (ok,) = call("stats", written(runtime, tmp_path, samples), "--json").json["columns"]
    assert (ok["mean"], ok["min"], ok["max"], ok["distinct"]) == (0.25, False, True, 2)


def test_what_alternates_is_seen_as_it_is(runtime, tmp_path):
    """Steps of equal length would see one half of it only."""
    samples = [((b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n")[i % 2], {}) for i in range(2000)]
    payload = call("stats", written(runtime, tmp_path, samples), "--json").json["payload"]
    assert payload["kinds_of"] == 500
    assert all(200 < kind["samples"] < 300 for kind in payload["kinds"])


def test_what_is_not_all_is_not_said_to_be_all(runtime, tmp_path):
    samples = [(b"", {"flag": i == 7}) for i in range(5000)]
    found = call("stats", written(runtime, tmp_path, samples))
    assert any(line.startswith("false 4,999 >99.9%") for line in found.lines)
    assert any(line.startswith("true 1 <0.1%") for line in found.lines)


def test_lists_are_of_what_comes_again_and_again(runtime, tmp_path):
    samples = [
        (b"", {"six": i % 6 if i % 50 else 5, "id": f"k{i // 2}", "age": i % 100})
        for i in range(600)
    ]
    path = written(runtime, tmp_path, samples)
    found = call("stats", path)
    assert "others" not in found.out
    assert sum(line.split()[:1] == ["k0"] for line in found.lines) == 0
    assert "age 24 49 74" in found.lines
    # One value more takes no more room than saying that there is one.
    assert "others" not in call("stats", path, "--top", 5).out
    assert "2 others" in call("stats", path, "--top", 4).out
    age = call("stats", path, "--json").json["columns"][2]
    assert age["quartiles"] == [24, 49, 74]


def test_dates_beyond_every_calendar_are_said_as_counts(runtime, tmp_path):
    table = pa.table(
        {
            "day": pa.array([2**31 - 1, 0, -(2**31), None] * 9, pa.int32()).cast(pa.date32()),
            "seen": pa.array([2**63 - 1, 0, -(2**63), None] * 9, pa.int64()).cast(
                pa.timestamp("us", "UTC")
            ),
            "payload": pa.array([b"x"] * 36),
        }
    )
    (result,) = runtime.write_cache(drt.ArrowSource("far", table), tmp_path)
    day, seen = call("stats", result.path, "--json").json["columns"]
    assert (day["max"], day["distinct"]) == ("1970-01-01 + 2,147,483,647 days", 3)
    assert seen["min"] == "1970-01-01 - 9,223,372,036,854,775,808 us"
    assert "1970-01-01" in call("stats", result.path).out
    for command in (["head"], ["sample", "--by", "day"], ["cat", "--metadata"]):
        place = [0] if command[0] == "cat" else []
        found = call(command[0], result.path, *place, *command[1:])
        assert found.code == 0, found.err
        assert "1970-01-01" in found.out
    rows = call("head", result.path, "--json", "-n", 2).json["samples"]
    assert rows[0]["metadata"]["day"] == "1970-01-01 + 2,147,483,647 days"
    assert rows[1]["metadata"]["day"] == "1970-01-01"


def test_times_are_never_cut_to_the_same_in_a_narrow_terminal(runtime, tmp_path):
    begin = datetime(2024, 1, 1, 0, 7, tzinfo=UTC)
    samples = [
        (b"", {"taken_at_the_clinic": begin + timedelta(minutes=i), "is_old": i % 3 == 0})
        for i in range(1000)
    ]
    path = written(runtime, tmp_path, samples)
    wide = call("stats", path)
    assert "taken_at_the_clinic 2024-01-01 04:16:00 2024-01-01 08:26:00" in " ".join(wide.lines)
    for columns in (80, 100):
        narrow = call("stats", path, columns=columns)
        assert all(len(line) <= columns for line in narrow.out.splitlines())
        assert "\u2026" not in narrow.out
        names = [line for line in narrow.lines if line.startswith("taken_at_the_")]
        assert len(names) == 2
        words = narrow.out.split()
        for time in ("00:07:00", "16:46:00", "04:16:00", "08:26:00", "12:36:00"):
            assert time in words
    assert any(line.startswith("false 666 66.6%") for line in wide.lines)
    assert any(line.startswith("is_old bool 0 2 false 0.334 true") for line in wide.lines)


def test_means_of_whole_numbers_are_exact_and_nan_is_no_null(runtime, tmp_path):
    samples = [
        (b"", {"n": number, "x": value})
        for number, value in [(2**63 - 1, 1.0), (-(2**63), float("nan")), (7, 2.0), (2, None)]
    ]
    path = written(runtime, tmp_path, samples)
    n, x = call("stats", path, "--json").json["columns"]
    assert n["mean"] == 2.0
    assert (x["nulls"], x["nans"], x["mean"]) == (1, 1, 1.5)
    assert "x float64 25.0% + 25.0% NaN 2 1 1.5 2" in call("stats", path).lines

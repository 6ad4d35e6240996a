"""`--where` of exports: conditions as documented, what is told about others, payload lengths."""

import math
import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pytest
from cli_tools import call
from conftest import numbered, written
from source_tools import SMALL

import dataset_rt as drt

BERLIN = ZoneInfo("Europe/Berlin")


def run(*arguments):
    """A command line that must succeed."""
    done = call(*arguments)
    assert done.code == 0, done.err


def failure(*arguments):
    """The message of a command line that fails."""
    done = call(*arguments)
    assert (done.code, done.raw) == (1, b"")
    return done.err


@pytest.fixture
def words(runtime, tmp_path):
    """Two caches with equal columns."""
    first = written(runtime, tmp_path / "in", numbered(30), name="first")
    return first, written(runtime, tmp_path / "in", numbered(30, 30), name="second")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            "nothing = 1",
            r"no column 'nothing'; there are: cache_id, .*, score, .*, payload_bytes\n",
        ),
        ('label = "l3"', "texts take single quotes: 'l3'"),
        ("number >", "--where"),
        ("number > 1000", "no row fulfils it"),
        ("payload_bytes > 1000", "no row fulfils it"),
        ("number + 1", "--where"),
        ("read_csv('/etc/passwd')", "--where"),
        ("octet_length(payload) > 0", "payload_bytes is their length"),
        ("isnan(score)", "'NaN'::float"),
    ],
)
def test_conditions_that_are_none(words, tmp_path, where, message):
    found = failure("export", "parquet", *words, tmp_path / "x.parquet", "--where", where)
    assert re.search(message, found), found
    assert not (tmp_path / "x.parquet").exists()


@pytest.fixture
def readings(runtime, tmp_path):
    """A cache with dates, zones, nulls and NaN."""
    instants = [datetime(2024, 1, day, 23, 30, tzinfo=UTC) for day in (1, 2)]
    rows = [
        (instant.date(), instant.replace(tzinfo=None), instant.astimezone(BERLIN), price)
        for instant, price in zip(instants, (5.0, math.nan), strict=True)
    ]
    rows.append((None,) * 4)
    names = ("day", "naive", "taken", "price")
    samples = [(b"x" * i, dict(zip(names, row, strict=True))) for i, row in enumerate(rows)]
    schema = pa.schema(
        [
            *(("day", pa.date32()), ("naive", pa.timestamp("us"))),
            *(("taken", pa.timestamp("us", "Europe/Berlin")), ("price", pa.float64())),
        ]
    )
    return written(runtime, tmp_path, samples, name="readings", schema=schema)


@pytest.mark.parametrize(
    ("where", "taken"),
    [
        ("day >= DATE '2024-01-02'", [1]),
        ("naive < TIMESTAMP '2024-01-02 00:00:00'", [0]),
        ("taken::timestamp < '2024-01-02 00:00:00'", [0]),
        ("taken < DATE '2024-01-02'", [0]),
        ("EXTRACT(DAY FROM taken) = 2", [0]),
        ("price <> 5", [1]),
        ("price <> 5 OR price IS NULL", [1, 2]),
        ("price IS DISTINCT FROM 5", [1, 2]),
        ("price = 'NaN'::float", [1]),
        ("price > 1e300", [1]),
        ("payload_bytes < 2 AND sample_id >= 1", [1]),
    ],
)
def test_conditions_as_documented(readings, tmp_path, where, taken):
    run("export", "cache", readings, tmp_path, "--name", "x", "--where", where)
    assert [len(sample.data) for sample in drt.open_dataset(tmp_path / "x")] == taken


@pytest.mark.parametrize(
    ("where", "hint"),
    [
        ("day > '2024-01-02'", "day >= DATE '2024-01-31'"),
        ("naive > '2024-01-02'", "naive >= TIMESTAMP '2024-01-31 12:00:00'"),
        ("taken > '2024-01-02'", "taken::timestamp >= '2024-01-31 12:00:00'"),
    ],
)
def test_hints_on_conditions_work(readings, tmp_path, where, hint):
    message = failure("export", "parquet", readings, tmp_path / "x.parquet", "--where", where)
    assert hint in message
    hint = hint.replace("01-31", "01-02")
    run("export", "parquet", readings, tmp_path / "x.parquet", "--where", hint)


def test_lengths_are_those_before_compression(runtime, words, tmp_path):
    config = SMALL.model_copy(update={"shard_compression": drt.ShardCompression(algo="zstd")})
    samples = [(bytes(5000 + i % 3), {"number": i, "label": "", "score": 0.0}) for i in range(60)]
    packed = written(runtime, tmp_path, samples, name="packed", config=config)
    out = tmp_path / "x.parquet"
    where = "payload_bytes = 5001 OR payload_bytes = 28"
    run("export", "parquet", words[1], packed, words[0], out, "--where", where)
    found = pl.read_parquet(out)
    expected = [*range(30, 60, 4), *range(1, 60, 3), *range(2, 30, 4)]
    assert found["number"].to_list() == expected
    assert {len(payload) for payload in found["payload"]} == {28, 5001}


def test_lengths_of_a_damaged_index_are_refused(words, tmp_path):
    index = words[1] / "index.bin"
    data = bytearray(index.read_bytes())
    data[64 + 12] ^= 1
    index.write_bytes(data)
    message = failure("export", "parquet", *words, tmp_path / "x", "--where", "payload_bytes > 0")
    assert "index.bin" in message
    assert not (tmp_path / "x").exists()

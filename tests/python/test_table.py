"""The active table: what get_metadata shows, what update_metadata accepts, what samples carry."""

import decimal
import json
from datetime import UTC, date, datetime, timedelta

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from conftest import directory_digest, numbered, opened, written

import dataset_rt as drt


@pytest.fixture
def dataset(runtime, cache):
    return opened(runtime, cache)


def rows(samples):
    return [sample.sample_id for sample in samples]


def test_columns_stand_in_the_documented_order_and_types(dataset):
    assert dataset.get_metadata().schema == {
        "cache_id": pl.UInt64,
        "sample_id": pl.UInt64,
        "number": pl.Int64,
        "label": pl.String,
        "score": pl.Float64,
        "weight": pl.Float64,
    }


def test_the_untouched_table_has_the_stored_values_and_weight_one(dataset, cache):
    table = dataset.get_metadata()
    assert table.select("number", "label", "score").equals(drt.open_cache(cache).metadata())
    assert table["weight"].to_list() == [1.0] * 50
    assert table["cache_id"].unique().to_list() == [drt.open_cache(cache).cache_id]
    assert table["sample_id"].to_list() == list(range(50))


def addresses(table):
    return {
        name: table[name].to_numpy(allow_copy=False).ctypes.data
        for name in ("number", "score", "weight", "sample_id", "cache_id")
    }


def test_fixed_width_columns_share_their_memory_between_calls(dataset):
    first, second = dataset.get_metadata(), dataset.get_metadata()
    assert addresses(first) == addresses(second)


def test_stored_columns_share_the_mapped_file(dataset):
    found = addresses(dataset.get_metadata())
    with open("/proc/self/maps") as maps:
        areas = [line.split() for line in maps if line.rstrip().endswith("metadata.arrow")]
    ranges = [tuple(int(end, 16) for end in area[0].split("-")) for area in areas]
    for name in ("number", "score"):
        assert any(start <= found[name] < end for start, end in ranges), name


def test_the_table_of_several_caches_keeps_the_order_of_paths(runtime, tmp_path):
    paths = [written(runtime, tmp_path, numbered(5, s), name=f"c{s}") for s in (20, 0, 10)]
    table = opened(runtime, paths).get_metadata()
    assert table["number"].to_list() == [*range(20, 25), *range(5), *range(10, 15)]
    assert table["sample_id"].to_list() == [*range(5)] * 3


def test_a_table_outlives_its_dataset(tmp_path):
    with drt.DatasetRuntime(num_workers=1) as runtime:
        path = written(runtime, tmp_path, numbered(50))
        table = opened(runtime, path).get_metadata()
    assert table["number"].sum() == sum(range(50))


def test_rows_may_be_filtered(dataset):
    dataset.update_metadata(dataset.get_metadata().filter(pl.col("number") % 7 == 0))
    assert rows(dataset) == list(range(0, 50, 7))


def test_rows_may_be_reordered_and_repeated(dataset):
    table = dataset.get_metadata()
    dataset.update_metadata(pl.concat([table.reverse(), table.head(3)]))
    assert rows(dataset) == [*range(49, -1, -1), 0, 1, 2]
    assert dataset.get_metadata()["sample_id"].to_list() == rows(dataset)


def test_the_head_of_a_large_table_may_be_kept(runtime, tmp_path):
    dataset = opened(runtime, written(runtime, tmp_path, numbered(20_000)))
    dataset.update_metadata(dataset.get_metadata().head(100))
    assert rows(dataset) == list(range(100))


def test_filtered_rows_may_come_back_from_an_older_table(dataset):
    whole = dataset.get_metadata()
    dataset.update_metadata(whole.head(3))
    dataset.update_metadata(whole)
    assert rows(dataset) == list(range(50))


def test_columns_may_be_passed_in_any_order(dataset):
    table = dataset.get_metadata()
    dataset.update_metadata(table.select(reversed(table.columns)))
    assert list(dataset[0].metadata) == ["number", "label", "score"]


def test_weights_are_kept_and_never_delivered(dataset):
    dataset.update_metadata(dataset.get_metadata().with_columns(weight=pl.col("number") + 1.5))
    assert dataset.get_metadata()["weight"].to_list() == [i + 1.5 for i in range(50)]
    assert "weight" not in dataset[0].metadata


MOMENT = datetime(2020, 2, 29, 1, 2, 3, 4)
EXTRAS = {
    "int8": (pl.Int8, [1, None, -3]),
    "uint64": (pl.UInt64, [2**64 - 1, None, 0]),
    "float32": (pl.Float32, [0.5, None, -0.25]),
    "bool": (pl.Boolean, [True, None, False]),
    "string": (pl.String, ["a", None, "long " * 20]),
    "binary": (pl.Binary, [b"a", None, b""]),
    "date": (pl.Date, [date(2020, 2, 29), None, date(1900, 1, 1)]),
    "datetime": (pl.Datetime("us"), [MOMENT, None, MOMENT]),
    "datetime zoned": (pl.Datetime("us", "UTC"), [MOMENT.replace(tzinfo=UTC), None, None]),
    "duration": (pl.Duration("us"), [timedelta(days=-1, microseconds=3), None, timedelta(0)]),
    "time": (pl.Time, [MOMENT.time(), None, MOMENT.time()]),
    "decimal": (pl.Decimal(10, 2), [decimal.Decimal("1.50"), None, decimal.Decimal("-2.25")]),
    "categorical": (pl.Categorical, ["a", None, "a"]),
    "enum": (pl.Enum(["x", "y"]), ["y", None, "x"]),
    "list": (pl.List(pl.Int64), [[1, 2], None, []]),
    "list of lists": (pl.List(pl.List(pl.String)), [[["a"], []], None, [None]]),
    "array": (pl.Array(pl.Float64, 2), [[1.0, 2.0], None, [3.0, 4.0]]),
    "struct": (pl.Struct({"a": pl.Int64, "b": pl.String}), [{"a": 1, "b": None}, None, None]),
    "null": (pl.Null, [None, None, None]),
}


@pytest.mark.parametrize("kind", EXTRAS)
def test_extra_columns_of_every_type_are_delivered(dataset, kind):
    dtype, values = EXTRAS[kind]
    extra = pl.Series("extra", values, dtype=dtype)
    dataset.update_metadata(dataset.get_metadata().head(3).with_columns(extra))
    expected = extra.to_list()
    assert [sample.metadata["extra"] for sample in dataset] == expected
    assert [sample.metadata["number"] for sample in dataset] == [0, 1, 2]


@pytest.mark.parametrize("kind", EXTRAS)
def test_extra_columns_come_back_in_the_table(dataset, kind):
    dtype, values = EXTRAS[kind]
    table = dataset.get_metadata().head(3).with_columns(pl.Series("extra", values, dtype=dtype))
    dataset.update_metadata(table)
    found = dataset.get_metadata()
    assert found["extra"].to_list() == table["extra"].to_list()
    assert found.columns[-2:] == ["weight", "extra"]


def test_extra_columns_may_be_dropped_again(dataset):
    table = dataset.get_metadata()
    dataset.update_metadata(table.with_columns(extra=pl.lit(1)))
    dataset.update_metadata(table)
    assert "extra" not in dataset[0].metadata


def test_edited_values_are_delivered_and_shown(dataset):
    table = dataset.get_metadata().with_columns(label=pl.lit("new"))
    dataset.update_metadata(table, edited=["label"])
    assert {sample.metadata["label"] for sample in dataset} == {"new"}
    assert set(dataset.get_metadata()["label"]) == {"new"}


def test_get_item_gives_the_stored_values_alone(dataset):
    table = dataset.get_metadata().with_columns(label=pl.lit("new"), extra=pl.lit(1))
    dataset.update_metadata(table, edited=["label"])
    cache_id = dataset[0].cache_id
    assert dataset.get_item(cache_id, 1).metadata == numbered(2)[1][1]


def test_no_file_of_the_cache_changes(dataset, cache):
    before = directory_digest(cache)
    table = dataset.get_metadata().with_columns(label=pl.lit("x"), weight=pl.lit(2.0))
    dataset.update_metadata(table, edited=["label"])
    list(dataset)
    assert directory_digest(cache) == before


def test_a_table_saved_as_json_is_accepted_again(dataset):
    saved = json.loads(json.dumps(dataset.get_metadata().to_dicts()))
    frame = pl.DataFrame(saved).with_columns(pl.col("cache_id", "sample_id").cast(pl.Float64))
    dataset.update_metadata(frame.reverse())
    assert rows(dataset) == list(range(49, -1, -1))


def test_a_stored_column_of_none_alone_goes_out_and_in_again(runtime, tmp_path):
    dataset = opened(runtime, written(runtime, tmp_path, [(b"", {"v": None})] * 3))
    dataset.update_metadata(dataset.get_metadata().reverse())
    assert rows(dataset) == [2, 1, 0]


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt8, pl.Int32, pl.Int64, pl.UInt64, pl.Float64])
def test_identities_of_any_integral_type_are_accepted(dataset, dtype):
    table = dataset.get_metadata().with_columns(pl.col("sample_id").cast(dtype))
    dataset.update_metadata(table.reverse())
    assert rows(dataset) == list(range(49, -1, -1))
    assert dataset.get_metadata()["sample_id"].dtype == pl.UInt64


@pytest.mark.parametrize("dtype", [pl.Float32, pl.Int8, pl.UInt64, pl.Decimal(10, 2)], ids=str)
def test_weights_of_any_numeric_type_are_accepted(dataset, dtype):
    table = dataset.get_metadata().with_columns(weight=pl.lit(2).cast(dtype))
    dataset.update_metadata(table)
    assert set(dataset.get_metadata()["weight"]) == {2.0}


def test_tables_of_other_libraries_are_accepted(dataset):
    pandas = pytest.importorskip("pandas")
    duckdb = pytest.importorskip("duckdb")
    table = dataset.get_metadata()
    arrow = table.to_arrow()
    kept = "SELECT * FROM arrow WHERE number % 2 = 0 ORDER BY number DESC"
    assert pandas.__version__
    for other in (
        table.to_pandas()[lambda frame: frame["number"] % 2 == 0].iloc[::-1],
        arrow.filter(pa.array(np.arange(50) % 2 == 0))[::-1],
        arrow.to_batches()[0].filter(pa.array(np.arange(50) % 2 == 0))[::-1],
        duckdb.sql(kept),
    ):
        dataset.update_metadata(other)
        assert rows(dataset) == list(range(48, -1, -2)), type(other)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b""] * 50, pa.binary(0)),
        pa.array([[]] * 50, pa.list_(pa.int8(), 0)),
        pa.array([[b""]] * 50, pa.list_(pa.binary(0))),
        pa.array([{"a": b""}] * 50, pa.struct({"a": pa.binary(0)})),
    ],
    ids=lambda column: str(column.type),
)
def test_extra_columns_without_width_are_refused_at_once(dataset, column):
    table = dataset.get_metadata().to_arrow().append_column("extra", column)
    with pytest.raises(drt.UnsupportedError, match=r'column "extra" has type .*cast the column'):
        dataset.update_metadata(table)
    codes = pa.DictionaryArray.from_arrays(pa.array([0] * 50), pa.array([b""], pa.binary(0)))
    dataset.update_metadata(table.set_column(table.num_columns - 1, "extra", codes))
    assert {sample.metadata["extra"] for sample in dataset} == {b""}


def test_dates_come_back_from_pandas(runtime, tmp_path):
    pytest.importorskip("pandas")
    days = [date(1969, 12, 31), None, date(2024, 2, 29)]
    samples = [drt.CacheInput(b"x", {"day": day}) for day in days]
    dataset = opened(runtime, written(runtime, tmp_path / "days", samples))
    dataset.update_metadata(dataset.get_metadata().to_pandas().iloc[::-1])
    assert dataset.get_metadata()["day"].to_list() == days[::-1]
    assert dataset.get_metadata()["day"].dtype == pl.Date


def test_sliced_and_chunked_tables_are_accepted(dataset):
    arrow = dataset.get_metadata().to_arrow()
    dataset.update_metadata(pa.concat_tables([arrow.slice(40, 5), arrow.slice(3, 1), arrow[:0]]))
    assert rows(dataset) == [40, 41, 42, 43, 44, 3]

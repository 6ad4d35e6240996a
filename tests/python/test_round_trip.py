"""Whatever get_metadata shows goes back in unchanged, for every type a source can store."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pytest
from conftest import identities, opened, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dataset_rt as drt

BERLIN = ZoneInfo("Europe/Berlin")
MOMENT = datetime(2020, 2, 29, 1, 2, 3, 4)
INFERRED = {
    "bool": [True, None, False],
    "int": [-(2**63), None, 2**63 - 1],
    "float": [float("nan"), None, -0.0],
    "str": ["é", None, ""],
    "date": [date(1, 1, 1), None, date(9999, 12, 31)],
    "naive": [MOMENT, None, datetime.max],
    "utc": [MOMENT.replace(tzinfo=UTC), None, None],
    "zoned": [MOMENT.replace(tzinfo=BERLIN), None, None],
}
DECLARED = {
    "int8": (pa.int8(), [-128, None, 127]),
    "uint32": (pa.uint32(), [0, None, 2**32 - 1]),
    "float32": (pa.float32(), [0.5, None, -0.25]),
    "utf8": (pa.utf8(), ["a", None, ""]),
    "large utf8": (pa.large_utf8(), ["a", None, ""]),
    "timestamp s": (pa.timestamp("s"), [datetime(2020, 1, 1), None, datetime(1960, 1, 1)]),
    "timestamp ms": (pa.timestamp("ms"), [datetime(2020, 1, 1), None, datetime(1960, 1, 1)]),
    "timestamp ns": (pa.timestamp("ns"), [MOMENT, None, datetime(1960, 1, 1)]),
    "not null": (pa.field("v", pa.int64(), nullable=False), [1, 2, 3]),
}


def dataset_of(runtime, directory, values, **extra):
    path = written(runtime, directory, [(b"", {"v": value}) for value in values], **extra)
    return opened(runtime, path)


def check_round_trip(dataset):
    before = [repr(sample) for sample in dataset]
    table = dataset.get_metadata()
    for form in (table, table.to_arrow(), table.rechunk()):
        dataset.update_metadata(form)
        assert dataset.get_metadata().equals(table)
        assert [repr(sample) for sample in dataset] == before


@pytest.mark.parametrize("kind", INFERRED)
def test_an_inferred_column_goes_out_and_in_unchanged(runtime, tmp_path, kind):
    check_round_trip(dataset_of(runtime, tmp_path, INFERRED[kind]))


@pytest.mark.parametrize("kind", DECLARED)
def test_a_declared_column_goes_out_and_in_unchanged(runtime, tmp_path, kind):
    declared, values = DECLARED[kind]
    field = declared if isinstance(declared, pa.Field) else pa.field("v", declared)
    check_round_trip(dataset_of(runtime, tmp_path, values, schema=pa.schema([field])))


@pytest.mark.parametrize("kind", INFERRED)
def test_an_edited_column_takes_new_values_of_its_type(runtime, tmp_path, kind):
    dataset = dataset_of(runtime, tmp_path, INFERRED[kind])
    table = dataset.get_metadata()
    moved = table.with_columns(v=table["v"].reverse())
    dataset.update_metadata(moved, edited=["v"])
    shown = [repr(sample.metadata["v"]) for sample in dataset]
    assert shown == [repr(value) for value in moved["v"].to_list()]


@pytest.mark.parametrize("kind", INFERRED)
def test_a_null_in_an_edited_column_is_delivered_as_none(runtime, tmp_path, kind):
    dataset = dataset_of(runtime, tmp_path, INFERRED[kind])
    table = dataset.get_metadata()
    nothing = pl.Series("v", [None] * 3, dtype=table["v"].dtype)
    dataset.update_metadata(table.with_columns(nothing), edited=["v"])
    assert [sample.metadata["v"] for sample in dataset] == [None] * 3


def test_a_table_saved_to_disk_comes_back_in_every_common_format(runtime, cache, tmp_path):
    dataset = opened(runtime, cache)
    table = dataset.get_metadata().filter(pl.col("number") % 2 == 0)
    table.write_parquet(tmp_path / "t.parquet")
    table.write_ipc(tmp_path / "t.arrow")
    table.write_csv(tmp_path / "t.csv")
    table.write_ndjson(tmp_path / "t.ndjson")
    for back in (
        pl.read_parquet(tmp_path / "t.parquet"),
        pl.read_ipc(tmp_path / "t.arrow"),
        pl.read_csv(tmp_path / "t.csv"),
        pl.read_ndjson(tmp_path / "t.ndjson"),
    ):
        dataset.update_metadata(back)
        assert [sample.sample_id for sample in dataset] == list(range(0, 50, 2))


def test_a_join_keeps_the_table_acceptable(runtime, cache):
    dataset = opened(runtime, cache)
    labels = pl.DataFrame({"label": [f"l{i}" for i in range(7)], "price": range(7)})
    joined = dataset.get_metadata().join(labels, on="label", how="left")
    dataset.update_metadata(joined)
    assert {s.metadata["label"]: s.metadata["price"] for s in dataset} == {
        f"l{i}": i for i in range(7)
    }


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=st.lists(st.integers(0, 49), min_size=1, max_size=120))
def test_any_choice_of_rows_is_read_as_chosen(runtime, cache, rows):
    dataset = opened(runtime, cache)
    table = dataset.get_metadata()[rows]
    dataset.update_metadata(table)
    assert identities(dataset) == list(table.select("cache_id", "sample_id").iter_rows())
    assert dataset.get_metadata().equals(table)
    assert isinstance(dataset[0], drt.CachedSample)

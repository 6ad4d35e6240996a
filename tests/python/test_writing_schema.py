"""The stored schema: inferred from values, declared by the source, or brought by Arrow data."""

from datetime import datetime

import pyarrow as pa
import pytest
from conftest import QUIET, ListSource, opened, refusal, written

import dataset_rt as drt

SMALL_SHARDS = drt.WriterConfig(max_shard_bytes=1000, show_progress=False)


def stored(path):
    """Schema of the metadata as name -> (type, nullable)."""
    return {field.name: (field.type, field.nullable) for field in drt.open_cache(path).schema}


def declared(*fields):
    return pa.schema([pa.field(*field) for field in fields])


def test_columns_stand_in_the_order_of_the_first_samples_keys(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"", {"z": 1, "a": 2, "m": 3})])
    assert list(stored(path)) == ["z", "a", "m"]


def test_each_python_type_has_its_documented_arrow_type(runtime, tmp_path):
    moment = datetime(2020, 1, 1)
    sample = {"b": True, "i": 1, "f": 0.5, "s": "", "d": moment.date(), "t": moment}
    assert stored(written(runtime, tmp_path, [(b"", sample)])) == {
        "b": (pa.bool_(), True),
        "i": (pa.int64(), True),
        "f": (pa.float64(), True),
        "s": (pa.large_utf8(), True),
        "d": (pa.date32(), True),
        "t": (pa.timestamp("us"), True),
    }


def test_the_first_value_that_is_not_none_fixes_the_type(runtime, tmp_path):
    values = [None] * 100 + ["late"] + [None]
    path = written(runtime, tmp_path, [(b"", {"v": value}) for value in values])
    assert stored(path) == {"v": (pa.large_utf8(), True)}
    assert drt.open_cache(path).metadata()["v"].to_list() == values


def test_a_column_of_none_alone_is_arrow_null(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"", {"v": None, "w": 1})] * 3)
    assert stored(path)["v"][0] == pa.null()
    assert [sample.metadata for sample in opened(runtime, path)] == [{"v": None, "w": 1}] * 3


def test_a_column_still_untyped_when_a_shard_closes_asks_for_a_schema(runtime, tmp_path):
    samples = [(b"x" * 400, {"v": None})] * 50 + [(b"", {"v": 1})]
    (error,) = runtime.write_cache(
        ListSource("words", samples), tmp_path, writer_config=SMALL_SHARDS
    )
    assert isinstance(error.exception, drt.InvalidInputError)
    assert '"v"' in error.message
    assert "schema" in error.message


def test_a_late_type_after_many_shards_needs_only_a_declared_schema(runtime, tmp_path):
    samples = [(b"x" * 400, {"v": None})] * 50 + [(b"", {"v": 1})]
    schema = declared(("v", pa.int64()))
    path = written(runtime, tmp_path, samples, config=SMALL_SHARDS, schema=schema)
    assert stored(path) == {"v": (pa.int64(), True)}
    assert drt.open_cache(path).metadata()["v"].to_list() == [None] * 50 + [1]


def test_samples_may_have_no_metadata_at_all(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"a", {}), (b"b", {})])
    assert [sample.data for sample in opened(runtime, path)] == [b"a", b"b"]
    assert opened(runtime, path).get_metadata().columns == ["cache_id", "sample_id", "weight"]


INT_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}


@pytest.mark.parametrize("kind", INT_RANGES)
def test_a_declared_integer_holds_exactly_its_range(runtime, tmp_path, kind):
    lowest, highest = INT_RANGES[kind]
    schema = declared(("v", getattr(pa, kind)()))
    samples = [(b"", {"v": lowest}), (b"", {"v": highest})]
    path = written(runtime, tmp_path / "good", samples, schema=schema)
    assert stored(path)["v"][0] == getattr(pa, kind)()
    assert [sample.metadata["v"] for sample in opened(runtime, path)] == [lowest, highest]
    for outside in (lowest - 1, highest + 1):
        error = refusal(runtime, tmp_path / "bad", [(b"", {"v": outside})], schema=schema)
        assert str(outside) in error.message
        assert kind in error.message.lower()


def test_a_declared_float32_rounds_as_numpy_does(runtime, tmp_path):
    schema = declared(("v", pa.float32()))
    path = written(runtime, tmp_path, [(b"", {"v": 0.5})], schema=schema)
    assert stored(path)["v"][0] == pa.float32()
    assert opened(runtime, path)[0].metadata["v"] == 0.5


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_declared_timestamp_keeps_unit_and_zone(runtime, tmp_path, unit, zone):
    schema = declared(("v", pa.timestamp(unit, zone)))
    moment = datetime(2020, 1, 1, 12)
    if zone:
        moment = pa.scalar(moment, pa.timestamp("us", zone)).as_py()
    path = written(runtime, tmp_path, [(b"", {"v": moment})], schema=schema)
    assert stored(path)["v"][0] == pa.timestamp(unit, zone)
    assert opened(runtime, path)[0].metadata["v"] == moment


def test_a_moment_finer_than_its_declared_unit_is_refused(runtime, tmp_path):
    schema = declared(("v", pa.timestamp("s")))
    error = refusal(
        runtime, tmp_path, [(b"", {"v": datetime(2020, 1, 1, 0, 0, 0, 5)})], schema=schema
    )
    assert '"v"' in error.message


def test_none_in_a_column_declared_not_nullable_is_refused(runtime, tmp_path):
    schema = declared(("v", pa.int64(), False))
    error = refusal(runtime, tmp_path, [(b"", {"v": 1}), (b"", {"v": None})], schema=schema)
    assert all(part in error.message for part in ("sample 1", '"v"', "null"))


def test_a_column_declared_not_nullable_stays_so(runtime, tmp_path):
    schema = declared(("v", pa.int64(), False))
    path = written(runtime, tmp_path, [(b"", {"v": 1})], schema=schema)
    assert stored(path) == {"v": (pa.int64(), False)}


def test_declared_columns_keep_the_declared_order(runtime, tmp_path):
    schema = declared(("b", pa.int64()), ("a", pa.int64()))
    path = written(runtime, tmp_path, [(b"", {"a": 1, "b": 2})], schema=schema)
    assert list(stored(path)) == ["b", "a"]


@pytest.mark.parametrize("metadata", [{}, {"w": 1}, {"v": 1, "w": 2}])
def test_keys_other_than_the_declared_ones_are_refused(runtime, tmp_path, metadata):
    error = refusal(runtime, tmp_path, [(b"", metadata)], schema=declared(("v", pa.int64())))
    assert isinstance(error.exception, drt.InvalidInputError)


@pytest.mark.parametrize(
    "fields",
    [
        [("v", pa.int64()), ("v", pa.int64())],
        [("weight", pa.float64())],
        [("payload", pa.binary())],
        [("", pa.int64())],
    ],
    ids=["repeated", "weight", "payload", "empty"],
)
def test_a_declared_schema_that_cannot_be_stored_is_refused(runtime, tmp_path, fields):
    error = refusal(runtime, tmp_path, [(b"", {"v": 1})], schema=declared(*fields))
    assert isinstance(error.exception, drt.DatasetRTError)


@pytest.mark.parametrize("schema", [{"v": "int64"}, "v: int64"])
def test_a_schema_that_is_no_arrow_schema_is_refused(runtime, tmp_path, schema):
    error = refusal(runtime, tmp_path, [(b"", {"v": 1})], schema=schema)
    assert "schema" in error.message


def test_a_schema_of_none_means_inferred(runtime, tmp_path):
    assert stored(written(runtime, tmp_path, [(b"", {"v": 1})], schema=None))["v"][0] == pa.int64()


def test_the_first_failing_row_is_named_whatever_the_prefetch(runtime, tmp_path):
    samples = [(b"", {"v": i if i not in (700, 701) else "text"}) for i in range(1000)]
    for prefetch in (1, 7, 1000):
        config = QUIET.model_copy(update={"prefetch_size": prefetch})
        (error,) = runtime.write_cache(ListSource("words", samples), tmp_path, writer_config=config)
        assert "sample 700" in error.message

"""Payloads and metadata values come back as they went in, or are refused by name."""

import array
import math
import mmap
from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from conftest import ListSource, opened, refusal, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dataset_rt as drt

MIB = 1024 * 1024
I64_MIN, I64_MAX = -(2**63), 2**63 - 1

own_directory_each = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def mapped(content):
    area = mmap.mmap(-1, len(content))
    area.write(content)
    return area


BUFFERS = {
    "bytes": (b"abc", b"abc"),
    "bytearray": (bytearray(b"abc"), b"abc"),
    "memoryview": (memoryview(b"xabcx")[1:4], b"abc"),
    "float32 matrix": (np.arange(6, dtype="f4").reshape(2, 3), np.arange(6, dtype="f4").tobytes()),
    "zero-dimensional": (np.array(7, dtype="i2"), b"\7\0"),
    "empty": (np.zeros((0, 3)), b""),
    "bool": (np.array([True, False]), b"\1\0"),
    "structured": (np.zeros(2, dtype=[("a", "i1"), ("b", "i2")]), bytes(6)),
    "fields named like pointers": (np.zeros(2, dtype=[("Ozone", "i1"), ("z", "<i2")]), bytes(6)),
    "big-endian": (np.array([1], dtype=">i4"), b"\0\0\0\1"),
    "complex": (np.array([0j]), bytes(16)),
    "complex64": (np.array([0j], dtype="c8"), bytes(8)),
    "array.array": (array.array("H", [1, 2]), b"\1\0\2\0"),
    "mmap": (mapped(b"abc"), b"abc"),
    "pa.Buffer": (pa.py_buffer(b"abc"), b"abc"),
}


def stored_payloads(runtime, directory, payloads):
    path = written(runtime, directory, [(payload, {}) for payload in payloads])
    return [sample.data for sample in opened(runtime, path)]


def stored_values(runtime, directory, values, **extra):
    path = written(runtime, directory, [(b"", {"v": value}) for value in values], **extra)
    table = drt.open_cache(path).metadata()
    assert [sample.metadata["v"] for sample in opened(runtime, path)] == table["v"].to_list()
    return table["v"]


@pytest.mark.parametrize("kind", BUFFERS)
def test_every_contiguous_buffer_is_stored_byte_for_byte(runtime, tmp_path, kind):
    given_buffer, expected = BUFFERS[kind]
    assert stored_payloads(runtime, tmp_path, [given_buffer]) == [expected]


def test_a_datetime64_array_is_stored_byte_for_byte(runtime, tmp_path):
    # NumPy refuses the buffer protocol for this type, so only its raw view can be stored.
    times = np.array(["2020-01-01"], dtype="M8[s]")
    assert stored_payloads(runtime, tmp_path, [times.view("i8")]) == [times.tobytes()]


@pytest.mark.parametrize("size", [0, 1, 11, 12, 13, 63, 64, 65, 4095, 4096, 65537, 3 * MIB + 1])
def test_a_payload_of_any_size_comes_back_equal(runtime, tmp_path, size):
    payload = np.random.default_rng(size).bytes(size)
    assert stored_payloads(runtime, tmp_path, [b"before", payload, b""]) == [
        b"before",
        payload,
        b"",
    ]


@own_directory_each
@given(payloads=st.lists(st.binary(max_size=200), min_size=1, max_size=40))
def test_any_payloads_come_back_in_order(tmp_path_factory, payloads):
    with drt.DatasetRuntime(num_workers=2) as runtime:
        assert stored_payloads(runtime, tmp_path_factory.mktemp("c"), payloads) == payloads


def test_a_source_may_reuse_its_buffer(runtime, tmp_path):
    class Reusing(ListSource):
        def __iter__(self):
            area = np.zeros(1000, dtype="i4")
            for i in range(300):
                area[:] = i
                yield drt.CacheInput(area, {"i": i})

    (result,) = runtime.write_cache(Reusing("reusing", []), tmp_path)
    firsts = [np.frombuffer(s.data, "i4") for s in opened(runtime, result.path)]
    assert all((found == i).all() and len(found) == 1000 for i, found in enumerate(firsts))


def test_a_source_may_reuse_its_metadata_dict(runtime, tmp_path):
    class Reusing(ListSource):
        def __iter__(self):
            metadata = {"i": 0}
            for i in range(10):
                metadata["i"] = i
                yield drt.CacheInput(b"", metadata)

    (result,) = runtime.write_cache(Reusing("reusing", []), tmp_path)
    assert drt.open_cache(result.path).metadata()["i"].to_list() == list(range(10))


NO_BUFFERS = {
    "int": 5,
    "str": "text",
    "list": [1, 2],
    "None": None,
    "bool": True,
    "float": 1.5,
    "numpy integer": np.int64(5),
    "numpy float": np.float32(5),
    "numpy bool": np.bool_(True),
    "strided": np.arange(10)[::2],
    "fortran order": np.asfortranarray(np.ones((3, 2))),
    "object array": np.array([object()]),
    "strided memoryview": memoryview(b"abcdef")[::2],
}


@pytest.mark.parametrize("kind", NO_BUFFERS)
def test_what_is_no_contiguous_buffer_is_refused(runtime, tmp_path, kind):
    error = refusal(runtime, tmp_path, [(b"ok", {"i": 0}), (NO_BUFFERS[kind], {"i": 1})])
    assert isinstance(error.exception, drt.InvalidInputError)
    assert '"words"' in error.message
    assert "sample 1" in error.message


VALUES = {
    "bool": ([True, False, None], pl.Boolean),
    "int": ([I64_MIN, -1, 0, I64_MAX, None], pl.Int64),
    "float": ([0.0, -math.inf, math.inf, 5e-324, 1.7976931348623157e308, None], pl.Float64),
    "str": (["", "é", "e\u0301", "\0", "🎉", "x" * 100_000, None], pl.String),
    "date": ([date.min, date(1969, 12, 31), date(1970, 1, 1), date.max, None], pl.Date),
    "naive": (
        [datetime.min, datetime(1969, 12, 31, 23, 59, 59, 999999), datetime.max, None],
        pl.Datetime("us"),
    ),
    "utc": (
        [datetime(2020, 2, 29, 12, 30, 1, 7, tzinfo=UTC), None],
        pl.Datetime("us", "UTC"),
    ),
    "zone": (
        [
            datetime(2021, 10, 31, 2, 30, fold=0, tzinfo=ZoneInfo("Europe/Berlin")),
            datetime(2021, 10, 31, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        ],
        pl.Datetime("us", "Europe/Berlin"),
    ),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_come_back_equal_and_typed(runtime, tmp_path, kind):
    values, dtype = VALUES[kind]
    column = stored_values(runtime, tmp_path, values)
    assert column.dtype == dtype
    assert column.to_list() == values


def test_both_halves_of_a_repeated_hour_stay_apart(runtime, tmp_path):
    column = stored_values(runtime, tmp_path, VALUES["zone"][0])
    assert column.diff()[1] == timedelta(hours=1)


def test_a_fixed_offset_is_refused_with_advice(runtime, tmp_path):
    # Polars knows no offset zones: the table could never be shown.
    moment = datetime(2020, 1, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    (result,) = runtime.write_cache(ListSource("words", [(b"", {"v": moment})]), tmp_path)
    assert isinstance(result, drt.CacheWriteError)
    assert "astimezone" in result.message
    zero = moment.astimezone(timezone(timedelta(0)))
    path = written(runtime, tmp_path, [(b"", {"v": zero})])
    assert drt.open_cache(path).schema.field("v").type == pa.timestamp("us", "UTC")


def test_nan_and_negative_zero_keep_their_bits(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"", {"v": v}) for v in (math.nan, -0.0, None)])
    nan, zero, nothing = (sample.metadata["v"] for sample in opened(runtime, path))
    assert math.isnan(nan)
    assert math.copysign(1, zero) == -1
    assert nothing is None


NUMPY_SCALARS = [
    (np.bool_(True), True),
    (np.int8(-5), -5),
    (np.uint16(7), 7),
    (np.int64(I64_MIN), I64_MIN),
    (np.uint64(I64_MAX), I64_MAX),
    (np.float16(0.5), 0.5),
    (np.float32(0.1), float(np.float32(0.1))),
    (np.float64(0.1), 0.1),
    (np.str_("text"), "text"),
    (np.datetime64("2020-05-17"), date(2020, 5, 17)),
    (np.datetime64("2020-05-17T01:02:03.000004"), datetime(2020, 5, 17, 1, 2, 3, 4)),
]


@pytest.mark.parametrize(("scalar", "twin"), NUMPY_SCALARS, ids=lambda value: repr(value))
def test_numpy_scalars_count_as_their_python_twins(runtime, tmp_path, scalar, twin):
    (value,) = stored_values(runtime, tmp_path, [scalar])
    assert (type(value), value) == (type(twin), twin)


def test_subclasses_of_the_plain_types_count_as_them(runtime, tmp_path):
    class Label(str):
        __slots__ = ()

    assert stored_values(runtime, tmp_path, [Label("a"), "b"]).to_list() == ["a", "b"]


def test_pandas_timestamps_count_as_datetimes(runtime, tmp_path):
    pandas = pytest.importorskip("pandas")
    moment = pandas.Timestamp("2020-05-17 01:02:03.000004")
    (value,) = stored_values(runtime, tmp_path, [moment])
    assert value == datetime(2020, 5, 17, 1, 2, 3, 4)


COLUMNS = st.sampled_from(
    [
        st.booleans(),
        st.integers(I64_MIN, I64_MAX),
        st.floats(allow_nan=False),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
        st.dates(),
        st.datetimes(),
        st.datetimes(timezones=st.just(UTC)),
    ]
).flatmap(lambda cell: st.lists(st.none() | cell, min_size=1, max_size=30))


@own_directory_each
@given(values=COLUMNS)
def test_any_column_of_one_type_comes_back_equal(tmp_path_factory, values):
    with drt.DatasetRuntime(num_workers=1) as runtime:
        column = stored_values(runtime, tmp_path_factory.mktemp("c"), values)
    assert column.to_list() == values

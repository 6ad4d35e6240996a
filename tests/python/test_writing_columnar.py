"""Arrow data as samples: batches, tables and frames of many layouts store the values they show."""

import decimal
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from conftest import QUIET, ListSource, numbered, opened, written

import dataset_rt as drt


class Yielding(ListSource):
    """Yields its items as they are."""

    def __iter__(self):
        yield from self.samples


def written_items(runtime, directory, items, name="words"):
    (result,) = runtime.write_cache(Yielding(name, items), directory, writer_config=QUIET)
    assert isinstance(result, drt.CacheWriteSuccess), result
    return result.path


def written_arrow(runtime, directory, data, name="words", **extra):
    source = drt.ArrowSource(name, data, **extra)
    (result,) = runtime.write_cache(source, directory, writer_config=QUIET)
    assert isinstance(result, drt.CacheWriteSuccess), result
    return result.path


def batch_of(samples):
    payload = pa.array([payload for payload, _ in samples], pa.binary())
    columns = {key: [metadata[key] for _, metadata in samples] for key in samples[0][1]}
    return pa.record_batch({**columns, "payload": payload})


def test_batches_and_single_samples_make_the_same_cache(runtime, tmp_path):
    samples = numbered(100)
    by_row = written(runtime, tmp_path / "rows", samples)
    by_batch = written_items(runtime, tmp_path / "batches", [batch_of(samples)])
    rows, batches = drt.open_cache(by_row), drt.open_cache(by_batch)
    # Arrow's own small strings stay small: compare values, which is what identity covers.
    assert rows.metadata().equals(batches.metadata())
    assert [rows.payload(i).to_pybytes() for i in range(100)] == [
        batches.payload(i).to_pybytes() for i in range(100)
    ]


@pytest.mark.parametrize("position", ["first", "middle", "last"])
def test_the_payload_column_may_stand_anywhere(runtime, tmp_path, position):
    columns = {"a": [1], "b": [2]}
    order = {
        "first": ["payload", "a", "b"],
        "middle": ["a", "payload", "b"],
        "last": ["a", "b", "payload"],
    }[position]
    table = pa.table({**columns, "payload": [b"p"]}).select(order)
    path = written_arrow(runtime, tmp_path, table)
    assert list(opened(runtime, path))[0][:2] == (b"p", {"a": 1, "b": 2})


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)], ids=str
)
def test_every_binary_type_is_a_payload(runtime, tmp_path, kind):
    payloads = [b"abc", b"\0\1\2", b"xyz"]
    path = written_arrow(runtime, tmp_path, pa.table({"payload": pa.array(payloads, kind)}))
    cache = drt.open_cache(path)
    assert [cache.payload(i).to_pybytes() for i in range(3)] == payloads


COLUMNS = {
    "int8": pa.array([1, None, -3, 4], pa.int8()),
    "uint64": pa.array([1, None, 2**64 - 1, 4], pa.uint64()),
    "float32": pa.array([0.5, None, 2.5, float("inf")], pa.float32()),
    "bool": pa.array([True, None, False, True]),
    "utf8": pa.array(["a", None, "", "long " * 10]),
    "large utf8": pa.array(["a", None, "", "long " * 10], pa.large_utf8()),
    "utf8 view": pa.array(["a", None, "", "long " * 10], pa.string_view()),
    "dictionary": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    "date32": pa.array([1, None, 3, 4], pa.date32()),
    "timestamp ns": pa.array([1, None, 3, 4], pa.timestamp("ns", "Europe/Berlin")),
    "null": pa.nulls(4),
}


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("layout", ["whole", "sliced", "chunked"])
def test_columns_of_every_layout_show_the_same_values_when_stored(runtime, tmp_path, kind, layout):
    column = COLUMNS[kind]
    table = pa.table({"payload": [b"0", b"1", b"2", b"3"], "v": column})
    if layout == "sliced":
        table = table.slice(1, 3)
    elif layout == "chunked":
        table = pa.concat_tables([table.slice(0, 1), table.slice(1, 2), table.slice(3)])
    path = written_arrow(runtime, tmp_path, table)
    expected = pl.DataFrame(table)["v"]
    found = drt.open_cache(path).metadata()["v"]
    assert found.cast(pl.String).to_list() == expected.cast(pl.String).to_list()
    assert [sample.data for sample in opened(runtime, path)] == table["payload"].to_pylist()


NESTED = {
    "list": pa.array([[1, 2], None, [], [3]]),
    "struct": pa.array([{"a": 1}, None, {"a": 2}, {"a": None}]),
    "decimal": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-2.25"), None]),
    "duration": pa.array([timedelta(1), None, timedelta(2), timedelta(3)]),
    "binary": pa.array([b"a", None, b"", b"\xff"]),
    "time": pa.array([datetime(2020, 1, 1, 2).time(), None, None, None]),
}


@pytest.mark.parametrize("kind", NESTED)
def test_other_column_types_are_stored_as_they_are_or_refused_by_name(runtime, tmp_path, kind):
    table = pa.table({"payload": [b"0", b"1", b"2", b"3"], "v": NESTED[kind]})
    source = drt.ArrowSource("words", table)
    (result,) = runtime.write_cache(source, tmp_path, writer_config=QUIET)
    if isinstance(result, drt.CacheWriteError):
        assert isinstance(result.exception, drt.InvalidInputError | drt.UnsupportedError), result
        assert '"v"' in result.message
        return
    found = drt.open_cache(result.path).metadata()["v"]
    assert found.to_list() == pl.DataFrame(table)["v"].to_list()


def test_polars_frames_are_sources(runtime, tmp_path):
    frame = pl.DataFrame({"image": [b"a", b"b"], "label": ["x", None]})
    path = written_arrow(runtime, tmp_path, frame, payload="image")
    assert [tuple(s[:2]) for s in opened(runtime, path)] == [
        (b"a", {"label": "x"}),
        (b"b", {"label": None}),
    ]


def test_pandas_frames_are_sources_without_their_row_labels(runtime, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"payload": [b"a", b"b", b"c"], "label": [1, 2, 3]})
    path = written_arrow(runtime, tmp_path, frame[frame.label != 2])
    assert [s.metadata for s in opened(runtime, path)] == [{"label": 1}, {"label": 3}]


def test_a_reader_is_a_source(runtime, tmp_path):
    batches = [batch_of(numbered(10)), batch_of(numbered(10, start=10))]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    path = written_arrow(runtime, tmp_path, reader)
    assert drt.open_cache(path).metadata()["number"].to_list() == list(range(20))


def test_a_table_larger_than_one_slice_keeps_its_order(runtime, tmp_path):
    rows = 150_000
    table = pa.table({"payload": pa.array([b""] * rows), "i": np.arange(rows)})
    path = written_arrow(runtime, tmp_path, table)
    assert drt.open_cache(path).metadata()["i"].to_numpy().tolist() == list(range(rows))


def test_empty_batches_between_others_are_skipped(runtime, tmp_path):
    batch = batch_of(numbered(3))
    path = written_items(runtime, tmp_path, [batch.slice(0, 0), batch, batch.slice(0, 0)])
    assert drt.open_cache(path).num_samples == 3


def test_batches_and_single_samples_may_alternate(runtime, tmp_path):
    samples = numbered(20)
    items = [
        batch_of(samples[:5]),
        *(drt.CacheInput(*sample) for sample in samples[5:12]),
        batch_of(samples[12:]),
    ]
    path = written_items(runtime, tmp_path, items)
    assert drt.open_cache(path).metadata()["number"].to_list() == list(range(20))


BAD_BATCHES = {
    "null payload": pa.record_batch({"payload": pa.array([b"a", None]), "v": [1, 2]}),
    "no payload": pa.record_batch({"v": [1, 2]}),
    "text payload": pa.record_batch({"payload": ["a", "b"], "v": [1, 2]}),
    "reserved column": pa.record_batch({"payload": [b"a"], "weight": [1.0]}),
    "repeated column": pa.RecordBatch.from_arrays(
        [pa.array([b"a"]), pa.array([1]), pa.array([2])], names=["payload", "v", "v"]
    ),
}


@pytest.mark.parametrize("kind", BAD_BATCHES)
def test_a_batch_that_is_no_samples_is_refused(runtime, tmp_path, kind):
    source = Yielding("words", [BAD_BATCHES[kind]])
    (error,) = runtime.write_cache(source, tmp_path, writer_config=QUIET)
    assert isinstance(error.exception, drt.InvalidInputError), error
    assert '"words"' in error.message
    assert list(tmp_path.iterdir()) == []


def test_a_later_batch_of_another_schema_is_refused(runtime, tmp_path):
    first = pa.record_batch({"payload": [b"a"], "v": [1]})
    second = pa.record_batch({"payload": [b"a"], "v": ["text"]})
    (error,) = runtime.write_cache(
        Yielding("words", [first, second]), tmp_path, writer_config=QUIET
    )
    assert isinstance(error.exception, drt.InvalidInputError)
    assert all(part in error.message for part in ('"v"', "int64", "sample 1"))


def test_a_payload_column_that_is_missing_fails_at_construction():
    with pytest.raises(drt.InvalidInputError, match="image"):
        drt.ArrowSource("words", pa.table({"payload": [b"a"]}), payload="image")


def test_offsets_past_their_buffer_are_refused(runtime, tmp_path):
    offsets = bytearray(b"".join(n.to_bytes(8, "little") for n in (0, 1, 2)))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"ab")]
    payload = pa.Array.from_buffers(pa.large_binary(), 2, buffers)
    table = pa.table({"payload": payload, "v": [1, 2]})
    offsets[16:] = (10**12).to_bytes(8, "little")
    (result,) = runtime.write_cache(drt.ArrowSource("words", table), tmp_path)
    assert isinstance(result, drt.CacheWriteError)
    assert list(tmp_path.iterdir()) == []

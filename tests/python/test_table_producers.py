"""`update_metadata` from every Arrow producer acts as from Polars, or changes nothing."""

import nanoarrow
import polars as pl
import pyarrow as pa
import pytest
from conftest import numbered, opened, written
from test_arrow_producers import Capsule, Stream, with_wrong_offsets

import dataset_rt as drt

ROWS = 50


@pytest.fixture(scope="module")
def opened_once(tmp_path_factory):
    with drt.DatasetRuntime(num_workers=1) as runtime:
        path = written(runtime, tmp_path_factory.mktemp("caches"), numbered(ROWS))
        yield opened(runtime, path)


@pytest.fixture(scope="module")
def whole(opened_once):
    return opened_once.get_metadata()


@pytest.fixture
def dataset(opened_once, whole):
    yield opened_once
    opened_once.update_metadata(whole)


def to_duckdb(frame):
    duckdb = pytest.importorskip("duckdb")
    return duckdb.connect().from_arrow(frame.to_arrow())


def to_duckdb_reader(frame):
    return to_duckdb(frame).to_arrow_reader(7)


def to_pandas(frame):
    pytest.importorskip("pandas")
    return frame.to_pandas()


def to_nanoarrow(frame):
    return nanoarrow.ArrayStream(frame)


def to_batch(frame):
    table = frame.to_arrow()
    columns = [pa.concat_arrays(column.chunks) for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def in_chunks(table):
    return pa.Table.from_batches(table.to_batches(7), schema=table.schema)


PRODUCERS = {
    "polars": lambda frame: frame,
    "polars in chunks": lambda frame: pl.concat([frame[:7], frame[7:7], frame[7:]], rechunk=False),
    "table": lambda frame: frame.to_arrow(),
    "table in chunks": lambda frame: in_chunks(frame.to_arrow()),
    "batch": to_batch,
    "reader": lambda frame: frame.to_arrow().to_reader(7),
    "stream": lambda frame: Stream(frame.to_arrow()),
    "array": lambda frame: Capsule(to_batch(frame)),
    "pandas": to_pandas,
    "duckdb": to_duckdb,
    "duckdb reader": to_duckdb_reader,
    "nanoarrow": to_nanoarrow,
}
CHANGES = {
    "none": lambda frame: frame,
    "reversed": lambda frame: frame.reverse(),
    "filtered": lambda frame: frame.filter(pl.col("number") % 3 == 1),
    "repeated": lambda frame: pl.concat([frame, frame.head(5)]),
    "sliced": lambda frame: frame[13:29],
    "weighted": lambda frame: frame.with_columns(weight=pl.col("number") + 0.5),
    "extra": lambda frame: frame.with_columns(
        extra=pl.col("number") * 2, text=pl.col("label") + " and more than twelve bytes"
    ),
    "other order": lambda frame: frame.select(frame.columns[::-1]),
}


def state(dataset):
    return dataset.get_metadata(), list(dataset)


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_table_of_any_producer_acts_as_that_of_polars(dataset, whole, producer, change):
    frame = CHANGES[change](whole)
    dataset.update_metadata(frame)
    dataset.set_epoch(0)
    expected = state(dataset)
    dataset.update_metadata(whole)
    dataset.update_metadata(PRODUCERS[producer](frame))
    dataset.set_epoch(0)
    found = state(dataset)
    assert found[0].equals(expected[0])
    assert found[1] == expected[1]


MISTAKES = {
    "shifted": lambda frame: frame.with_columns(pl.col("number").shift(1, fill_value=0)),
    "unknown identity": lambda frame: frame.with_columns(pl.col("sample_id") + 1),
    "weight of zero": lambda frame: frame.with_columns(weight=0.0),
    "weight of nan": lambda frame: frame.with_columns(weight=float("nan")),
    "lost column": lambda frame: frame.drop("label"),
    "payload": lambda frame: frame.with_columns(payload=pl.lit(b"")),
    "no rows": lambda frame: frame.clear(),
    "other type": lambda frame: frame.with_columns(pl.col("number").cast(pl.String)),
    "swapped names": lambda frame: frame.rename({"score": "weight", "weight": "score"}),
}


@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_wrong_table_of_any_producer_changes_nothing(dataset, whole, producer):
    dataset.update_metadata(whole.reverse())
    for name, mistake in MISTAKES.items():
        with pytest.raises(drt.InvalidInputError):
            dataset.update_metadata(PRODUCERS[producer](mistake(whole)))
        assert dataset.get_metadata().equals(whole.reverse()), name
    assert [sample.sample_id for sample in dataset] == list(range(ROWS))[::-1]


def test_batches_of_a_reader_are_taken_by_their_names(dataset, whole):
    table = whole.with_columns(weight=3.0, extra=pl.lit(4.0)).to_arrow().combine_chunks()
    first = table.to_batches()[0]
    second = first.select(first.schema.names[::-1])
    reader = pa.RecordBatchReader.from_batches(first.schema, [first, second])
    with pytest.raises(drt.InvalidInputError, match="Schema"):
        dataset.update_metadata(reader)


def test_a_reader_that_raises_is_the_cause(dataset, whole):
    table = whole.to_arrow()

    def failing():
        yield from table.to_batches()
        raise KeyError("gone")

    with pytest.raises(drt.InvalidInputError, match="gone") as caught:
        dataset.update_metadata(pa.RecordBatchReader.from_batches(table.schema, failing()))
    assert isinstance(caught.value.__cause__, KeyError)


WRONG = {"falling": [0, 5, 3], "negative": [0, -4, 3], "past the end": [0, 1, 2**30]}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("column", ["label", "extra"])
@pytest.mark.parametrize("form", ["table", "batch", "reader"])
def test_wrong_offsets_are_refused_before_use(dataset, whole, case, column, form):
    text, spoil = with_wrong_offsets(pa.large_string(), WRONG[case])
    table = whole.head(2).to_arrow()
    if column in table.column_names:
        table = table.drop_columns([column])
    table = table.append_column(column, text)
    batch = pa.record_batch([c.chunk(0) for c in table.columns], schema=table.schema)
    spoil()
    before = dataset.get_metadata()
    data = {
        "table": table,
        "batch": batch,
        "reader": pa.RecordBatchReader.from_batches(table.schema, [batch]),
    }[form]
    with pytest.raises(drt.InvalidInputError):
        dataset.update_metadata(data, edited=["label"])
    assert dataset.get_metadata().equals(before)


def address(column):
    chunk = column.chunk(0)
    return chunk.buffers()[1].address + chunk.offset * chunk.type.bit_width // 8


@pytest.mark.parametrize("producer", ["polars", "table", "batch", "reader", "stream", "array"])
def test_fixed_width_columns_are_shared_with_their_producer(dataset, whole, producer):
    frame = whole.with_columns(weight=pl.col("score") + 1.0, extra=pl.col("number") * 2)
    table = frame.to_arrow()
    source = frame if producer == "polars" else table
    names = ("weight", "extra", "number", "cache_id", "sample_id")
    given = {name: address(pa.table(source).column(name)) for name in names}
    made = PRODUCERS[producer](frame) if producer == "polars" else from_table(producer, table)
    dataset.update_metadata(made)
    shown = dataset.get_metadata()
    found = {name: shown[name].to_numpy(allow_copy=False).ctypes.data for name in names}
    assert found == given


def from_table(producer, table):
    batch = table.to_batches()[0]
    return {
        "table": table,
        "batch": batch,
        "reader": table.to_reader(),
        "stream": Stream(table),
        "array": Capsule(batch),
    }[producer]


def chunk_addresses(frame, name):
    return [chunk.to_numpy(allow_copy=False).ctypes.data for chunk in frame[name].get_chunks()]


def test_frames_of_several_chunks_are_shared_too(dataset, whole):
    parts = [whole[:20], whole[20:]]
    frame = pl.concat(parts, rechunk=False).with_columns(extra=pl.col("number") * 2)
    names = ("extra", "number", "weight")
    given = {name: chunk_addresses(frame, name) for name in names}
    assert len(given["extra"]) == 2
    dataset.update_metadata(frame)
    shown = dataset.get_metadata()
    assert {name: chunk_addresses(shown, name) for name in names} == given

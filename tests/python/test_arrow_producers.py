"""Arrow data of every producer as a source: what arrives, in which order, and how far ahead."""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from conftest import QUIET, ListSource, opened

import dataset_rt as drt

ROWS = 10_000
KIB = bytes(1024)


class Capsule:
    """One batch behind the array interface, and nothing else."""

    def __init__(self, batch):
        self.batch = batch

    def __arrow_c_array__(self, requested_schema=None):
        return self.batch.__arrow_c_array__(requested_schema)


class Stream:
    """A table behind the stream interface, and nothing else."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def table_of(start=0, rows=ROWS):
    numbers = range(start, start + rows)
    return pa.table({"n": numbers, "payload": pa.array([str(i).encode() for i in numbers])})


def parquet_dataset(directory):
    (directory / "parts").mkdir()
    for part in range(4):
        table = table_of(part * ROWS // 4, ROWS // 4)
        pq.write_table(table, directory / "parts" / f"{part}.parquet", row_group_size=1000)
    return ds.dataset(directory / "parts")


def duckdb_relation(_):
    duckdb = pytest.importorskip("duckdb")
    made = duckdb.connect()
    return made.sql(f"SELECT range AS n, encode(range::TEXT) AS payload FROM range({ROWS})")


def pandas_frame(_):
    pytest.importorskip("pandas")
    return table_of().to_pandas()


PRODUCERS = {
    "table": lambda _: table_of(),
    "batch": lambda _: table_of().to_batches()[0],
    "capsule of a batch": lambda _: Capsule(table_of().to_batches()[0]),
    "capsule of a stream": lambda _: Stream(table_of()),
    "dataset": parquet_dataset,
    "scanner": lambda directory: parquet_dataset(directory).scanner(),
    "polars": lambda _: pl.DataFrame(table_of()),
    "polars in chunks": lambda _: pl.concat(
        [pl.DataFrame(table_of(0, 1)), pl.DataFrame(table_of(1, ROWS - 1))], rechunk=False
    ),
    "lazy polars": lambda directory: (
        parquet_dataset(directory) and pl.scan_parquet(directory / "parts/*.parquet")
    ),
    "pandas": pandas_frame,
    "duckdb": duckdb_relation,
}
ONCE = {
    "reader": lambda _: table_of().to_reader(1000),
    "duckdb reader": lambda _: duckdb_relation(_).to_arrow_reader(3000),
    "polars batches": lambda _: pl.LazyFrame(table_of()).collect_batches(),
}


def written(runtime, directory, data, name="words", **options):
    source = data if hasattr(data, "name") else drt.ArrowSource(name, data, **options)
    (result,) = runtime.write_cache(source, directory, writer_config=QUIET)
    assert isinstance(result, drt.CacheWriteSuccess), result
    return result.path


def refused(runtime, directory, source):
    (result,) = runtime.write_cache(source, directory, writer_config=QUIET)
    assert isinstance(result, drt.CacheWriteError), result
    assert list(directory.glob("*/manifest.json")) == []
    return result


def check(runtime, path, rows=ROWS):
    cache = drt.open_cache(path)
    assert cache.metadata()["n"].to_list() == list(range(rows))
    payloads = [cache.payload(i).to_pybytes() for i in range(0, rows, 97)]
    assert payloads == [str(i).encode() for i in range(0, rows, 97)]


@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_producer_is_a_source_that_can_be_read_again(runtime, tmp_path, producer):
    source = drt.ArrowSource("words", PRODUCERS[producer](tmp_path))
    for directory in ("first", "second"):
        check(runtime, written(runtime, tmp_path / directory, source))


@pytest.mark.parametrize("producer", ONCE)
def test_a_reader_is_a_source_once_and_says_so_later(runtime, tmp_path, producer):
    source = drt.ArrowSource("words", ONCE[producer](tmp_path))
    check(runtime, written(runtime, tmp_path / "first", source))
    error = refused(runtime, tmp_path / "second", source)
    assert isinstance(error.exception, drt.InvalidInputError)
    assert "was read before" in error.message


@pytest.mark.parametrize("producer", [*PRODUCERS, *ONCE])
def test_a_source_may_yield_whatever_is_a_source(runtime, tmp_path, producer):
    data = (PRODUCERS | ONCE)[producer](tmp_path)
    if not (hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")):
        pytest.skip("no Arrow interface: ArrowSource takes it, a source yields what it reads")

    class Yielding(ListSource):
        def __iter__(self):
            yield table_of(0, 5).to_batches()[0]
            yield data
            yield drt.CacheInput(b"end", {"n": -1})

    path = written(runtime, tmp_path / "caches", Yielding("words", []))
    numbers = drt.open_cache(path).metadata()["n"].to_list()
    assert numbers == [*range(5), *range(ROWS), -1]


def test_scanners_filter_and_project(runtime, tmp_path):
    dataset = parquet_dataset(tmp_path)
    scanner = dataset.scanner(
        columns={"label": ds.field("n") * 2, "payload": ds.field("payload")},
        filter=ds.field("n") >= ROWS - 10,
    )
    path = written(runtime, tmp_path / "caches", scanner)
    assert drt.open_cache(path).metadata()["label"].to_list() == [
        *range(2 * ROWS - 20, 2 * ROWS, 2)
    ]


def test_lazy_frames_filter_and_project(runtime, tmp_path):
    parquet_dataset(tmp_path)
    lazy = pl.scan_parquet(tmp_path / "parts/*.parquet").filter(pl.col("n") >= ROWS - 10)
    path = written(runtime, tmp_path / "caches", lazy.select("payload", label=pl.col("n") * 2))
    assert drt.open_cache(path).metadata()["label"].to_list() == [
        *range(2 * ROWS - 20, 2 * ROWS, 2)
    ]


class Counting:
    """Makes batches of 1 MiB and counts them."""

    schema = pa.schema({"n": pa.int64(), "payload": pa.binary()})

    def __init__(self, batches=64, rows=1024):
        self.made = 0
        self.batches = batches
        self.rows = rows

    def __iter__(self):
        for _ in range(self.batches):
            numbers = range(self.made * self.rows, (self.made + 1) * self.rows)
            self.made += 1
            yield pa.record_batch({"n": numbers, "payload": pa.array([KIB] * self.rows)})

    def reader(self):
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))


@pytest.mark.parametrize("wrapped", ["ArrowSource", "yielded", "yielded stream"])
def test_streams_are_never_read_further_than_asked(runtime, tmp_path, monkeypatch, wrapped):
    counting = Counting()
    reader = counting.reader()
    ahead = []

    def progress_of(taken):
        ahead.append(counting.made * counting.rows - taken)

    class Watched(ListSource):
        """Notes before each item how much more was made than was taken."""

        def __iter__(self):
            if wrapped == "ArrowSource":
                for batch in drt.ArrowSource("words", reader):
                    yield batch
                    progress_of(batch["n"][-1].as_py() + 1)
            else:
                yield reader if wrapped == "yielded" else Stream(reader)

    config = drt.WriterConfig(show_progress=False, max_shard_bytes=4 << 20, prefetch_size=2048)
    (result,) = runtime.write_cache(Watched("words", []), tmp_path, writer_config=config)
    assert isinstance(result, drt.CacheWriteSuccess), result
    assert drt.open_cache(result.path).num_samples == 64 * 1024
    assert counting.made == 64
    if ahead:
        assert max(ahead) == 0


@pytest.mark.parametrize("wrap", [lambda reader: reader, Stream], ids=["reader", "stream"])
def test_an_endless_stream_is_not_read_behind_its_fault(runtime, tmp_path, wrap):
    counting = Counting(batches=10**9, rows=8)
    nulls = pa.array([None] * 8, pa.binary())

    def faulty():
        for batch in counting:
            yield batch if counting.made < 50 else batch.set_column(1, "payload", nulls)

    reader = pa.RecordBatchReader.from_batches(counting.schema, faulty())
    error = refused(runtime, tmp_path, drt.ArrowSource("words", wrap(reader)))
    assert counting.made == 50
    assert "sample 392: payload is null" in error.message


def test_what_a_reader_raises_midway_is_the_cause(runtime, tmp_path):
    def failing():
        yield table_of(0, 5).to_batches()[0]
        raise KeyError("gone")

    reader = pa.RecordBatchReader.from_batches(table_of().schema, failing())
    error = refused(runtime, tmp_path / "reader", drt.ArrowSource("words", reader))
    assert isinstance(error.exception, KeyError)
    assert "KeyError: 'gone' (after 5 samples)" in error.message
    reader = pa.RecordBatchReader.from_batches(table_of().schema, failing())
    error = refused(runtime, tmp_path / "stream", drt.ArrowSource("words", Stream(reader)))
    assert "gone" in error.message
    assert "(after 5 samples)" in error.message


def test_columns_that_change_places_keep_their_names(runtime, tmp_path):
    schema = pa.schema({"a": pa.int64(), "b": pa.int64(), "payload": pa.binary()})
    batches = [
        pa.record_batch({"a": [1], "b": [2], "payload": [b"x"]}),
        pa.record_batch({"b": [20], "payload": [b"y"], "a": [10]}),
    ]
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    path = written(runtime, tmp_path, reader)
    assert drt.open_cache(path).metadata().rows() == [(1, 2), (10, 20)]


@pytest.mark.parametrize("as_stream", [False, True])
def test_a_batch_of_another_schema_is_refused(runtime, tmp_path, as_stream):
    schema = pa.schema({"a": pa.int64(), "payload": pa.binary()})
    batches = [
        pa.record_batch({"a": [1], "payload": [b"x"]}),
        pa.record_batch({"a": ["text"], "payload": [b"y"]}),
    ]
    reader = pa.RecordBatchReader.from_batches(schema, batches)
    data = Stream(reader) if as_stream else reader
    error = refused(runtime, tmp_path, drt.ArrowSource("words", data))
    assert isinstance(error.exception, pa.ArrowInvalid if as_stream else drt.InvalidInputError)
    assert as_stream or ('"a"' in error.message and "sample 1" in error.message)


def test_a_dictionary_may_differ_from_chunk_to_chunk(runtime, tmp_path):
    chunks = [
        pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), ["x", "y"]),
        pa.DictionaryArray.from_arrays(pa.array([2, 1, 0], pa.int8()), ["y", None, "x"]),
    ]
    table = pa.table({"v": pa.chunked_array(chunks), "payload": [b""] * 6})
    path = written(runtime, tmp_path, table)
    assert drt.open_cache(path).metadata()["v"].to_list() == ["x", None, "y", "x", None, "y"]


def test_categoricals_and_enums_are_stored_as_their_strings(runtime, tmp_path):
    values = ["b", None, "a", "b"]
    frame = pl.DataFrame(
        {
            "payload": [b""] * 4,
            "categorical": pl.Series(values, dtype=pl.Categorical),
            "enum": pl.Series(values, dtype=pl.Enum(["a", "b", "unused"])),
        }
    )
    dataset = opened(runtime, written(runtime, tmp_path, frame))
    shown = dataset.get_metadata()
    assert shown["categorical"].to_list() == shown["enum"].to_list() == values
    assert [sample.metadata["enum"] for sample in dataset] == values
    kinds = [pl.col("categorical").cast(pl.Categorical), pl.col("enum").cast(pl.Enum(["b", "a"]))]
    dataset.update_metadata(shown.with_columns(kinds))
    assert [sample.metadata["enum"] for sample in dataset] == values
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"payload": [b""] * 4, "v": pandas.Categorical(values)})
    path = written(runtime, tmp_path, frame, name="pandas")
    assert drt.open_cache(path).metadata()["v"].to_list() == values


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary_view(), pa.large_binary()], ids=str)
def test_a_batch_larger_than_a_group_is_split(runtime, tmp_path, kind):
    payloads = [bytes([i]) * (1 << 20) for i in range(24)]
    batch = pa.record_batch({"payload": pa.array(payloads, kind)})
    path = written(runtime, tmp_path, batch)
    (shard,) = drt.open_cache(path).shards()
    groups = shard.to_arrow().column("payload").chunks
    assert len(groups) >= 3
    assert [cell.as_buffer().size for group in groups for cell in group] == [1 << 20] * 24
    by_sample = [drt.CacheInput(payload, {}) for payload in payloads]
    other = written(runtime, tmp_path, ListSource("rows", by_sample))
    assert drt.open_cache(other).cache_id == drt.open_cache(path).cache_id


def test_a_column_named_twice_is_refused_wherever_it_comes_from(runtime, tmp_path):
    columns = [pa.array([1]), pa.array([2]), pa.array([b"x"])]
    table = pa.Table.from_arrays(columns, names=["v", "v", "payload"])
    for data in (table, table.to_reader(), table.to_batches()[0], Stream(table)):
        error = refused(runtime, tmp_path, drt.ArrowSource("words", data))
        assert '"v"' in error.message
        assert "twice" in error.message
    twice = pa.Table.from_arrays([columns[2], columns[2]], names=["payload", "payload"])
    with pytest.raises(drt.InvalidInputError, match="found 2"):
        drt.ArrowSource("words", twice)


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"payload": pa.array([], pa.binary())}),
        pa.schema({"payload": pa.binary()}).empty_table(),
        pa.RecordBatchReader.from_batches(pa.schema({"payload": pa.binary()}), []),
        pl.DataFrame(schema={"payload": pl.Binary}),
        pl.LazyFrame(schema={"payload": pl.Binary}),
    ],
    ids=["table", "no chunks", "reader", "polars", "lazy"],
)
def test_data_without_rows_is_refused(runtime, tmp_path, data):
    error = refused(runtime, tmp_path, drt.ArrowSource("words", data))
    assert "no samples" in error.message


def with_wrong_offsets(kind, offsets):
    """A column with these offsets, once its second part is called: pyarrow looks at new tables."""
    width = 8 if kind in (pa.large_binary(), pa.large_string()) else 4
    numbers = bytearray(width * len(offsets))
    buffers = [None, pa.py_buffer(numbers), pa.py_buffer(b"abcd")]

    def spoil():
        numbers[:] = b"".join(offset.to_bytes(width, "little", signed=True) for offset in offsets)

    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers), spoil


WRONG_OFFSETS = {
    "past the end": [0, 1, 9],
    "far past the end": [0, 1, 2**30],
    "falling": [0, 3, 1],
    "negative": [0, -4, 1],
    "negative start": [-4, 1, 2],
}


@pytest.mark.parametrize("case", WRONG_OFFSETS)
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string()], ids=str)
@pytest.mark.parametrize("column", ["payload", "v"])
def test_wrong_offsets_are_refused(runtime, tmp_path, case, kind, column):
    if column == "payload" and kind == pa.string():
        pytest.skip("text is no payload")
    wrong, spoil = with_wrong_offsets(kind, WRONG_OFFSETS[case])
    columns = {"payload": pa.array([b"a", b"b"]), "v": pa.array(["a", "b"])} | {column: wrong}
    table = pa.table(columns)
    batch = pa.record_batch(columns)
    spoil()
    for data in (table, batch, pa.RecordBatchReader.from_batches(table.schema, [batch])):
        error = refused(runtime, tmp_path, drt.ArrowSource("words", data))
        # pyarrow itself refuses to read some tables.
        assert isinstance(error.exception, (drt.InvalidInputError, pa.ArrowInvalid)), error
        assert '"words"' in error.message


def test_text_that_is_no_utf8_is_refused(runtime, tmp_path):
    for kind in (pa.binary(), pa.binary_view()):
        target = pa.string() if kind == pa.binary() else pa.string_view()
        text = pa.array([b"\xff\xfe more than twelve bytes"], kind)
        text = pa.Array.from_buffers(target, 1, text.buffers())
        table = pa.table({"payload": [b"x"], "v": text})
        for data in (table, Stream(table)):
            error = refused(runtime, tmp_path, drt.ArrowSource("words", data))
            assert isinstance(error.exception, drt.InvalidInputError), error


def with_wrong_words(kind, words):
    """Two values of a kind whose first buffer holds these 32-bit words, once spoiled."""
    numbers = bytearray(4 * len(words))
    if pa.types.is_run_end_encoded(kind):
        numbers[:] = np.array([1, 2], "<i4").tobytes()
        ends = pa.Array.from_buffers(pa.int32(), 2, [None, pa.py_buffer(numbers)])
        array = pa.RunEndEncodedArray.from_buffers(
            kind, 2, [None], children=[ends, pa.array(["a", "b"])]
        )
    elif pa.types.is_dictionary(kind):
        keys = pa.Array.from_buffers(pa.int32(), 2, [None, pa.py_buffer(numbers)])
        array = pa.DictionaryArray.from_arrays(keys, ["a"])
    else:
        buffers = [None, pa.py_buffer(numbers), pa.py_buffer(b"x" * 40)]
        array = pa.Array.from_buffers(kind, 2, buffers)

    def spoil():
        numbers[:] = np.array(words, "<i4").tobytes()

    return array, spoil


CODES = pa.dictionary(pa.int32(), pa.string())
RUNS = pa.run_end_encoded(pa.int32(), pa.string())
WRONG_WORDS = {
    "key past the values": (CODES, [0, 9]),
    "negative key": (CODES, [0, -9]),
    "falling runs": (RUNS, [2, 1]),
    "runs of nothing": (RUNS, [0, 2]),
    "runs too short": (RUNS, [1, 1]),
    "falling offsets": (pa.string(), [0, 3, 1]),
    "negative offsets": (pa.string(), [0, -4, 1]),
    "view of no buffer": (pa.string_view(), [20, 0, 7, 0, 0, 0, 0, 0]),
    "view past its buffer": (pa.string_view(), [20, 0, 0, 30, 0, 0, 0, 0]),
    "view of negative length": (pa.string_view(), [-20, 0, 0, 0, 0, 0, 0, 0]),
}


@pytest.mark.parametrize("case", WRONG_WORDS)
@pytest.mark.parametrize("wrap", [lambda batch: batch, Stream, Capsule], ids=["b", "stream", "c"])
def test_arrays_that_contradict_themselves_are_refused(runtime, tmp_path, case, wrap):
    column, spoil = with_wrong_words(*WRONG_WORDS[case])
    batch = pa.record_batch({"payload": pa.array([b"a", b"b"]), "v": column})
    spoil()
    error = refused(runtime, tmp_path, drt.ArrowSource("words", wrap(batch)))
    assert isinstance(error.exception, drt.InvalidInputError), error
    assert '"words", sample 0' in error.message

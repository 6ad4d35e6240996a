"""The dataset and the cache as Arrow tables that other libraries take by themselves."""

import ctypes
import sys
import threading

import duckdb
import nanoarrow
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from conftest import numbered, opened, put, run_script, written

import dataset_rt as drt

COMPRESSIONS = {
    "none": drt.ShardCompression(),
    "zstd": drt.ShardCompression(algo="zstd"),
    "lz4 buffer": drt.ShardCompression(algo="lz4", scope="buffer"),
}


@pytest.fixture(params=COMPRESSIONS)
def dataset(request, runtime, tmp_path):
    """Two caches, one table: reordered, with repeats, weights and an extra column."""
    config = drt.WriterConfig(
        show_progress=False, shard_compression=COMPRESSIONS[request.param], max_shard_bytes=500
    )
    paths = [
        written(runtime, tmp_path, numbered(60), "a", config),
        written(runtime, tmp_path, numbered(40, 500), "b", config),
    ]
    made = opened(runtime, paths, shuffle=True)
    table = made.get_metadata()
    table = pl.concat([table.reverse(), table.head(7)])
    made.update_metadata(
        table.with_columns(weight=pl.col("score") + 1, note=pl.lit("n") + "o" * 20)
    )
    return made


def expected(dataset):
    """Every row as a dict, from the table and one look-up a payload."""
    rows = dataset.get_metadata().to_dicts()
    for row in rows:
        row["payload"] = dataset.get_item(row["cache_id"], row["sample_id"]).data
    return rows


def test_every_library_sees_the_same_rows(dataset):
    rows = expected(dataset)
    names = list(rows[0])
    assert dataset.to_arrow().schema.field("payload").type == pa.binary_view()
    assert dataset.to_arrow().schema.names == names
    assert dataset.to_arrow().read_all().to_pylist() == rows
    for _ in range(2):
        assert pa.table(dataset).to_pylist() == rows
    assert pl.DataFrame(dataset).to_dicts() == rows
    assert pa.RecordBatchReader.from_stream(dataset).read_all().to_pylist() == rows
    assert pa.table(nanoarrow.ArrayStream(dataset)).to_pylist() == rows
    relation = duckdb.sql("select * from dataset")
    assert [dict(zip(names, row, strict=True)) for row in relation.fetchall()] == rows
    (counted,) = duckdb.sql(
        "select sum(octet_length(payload)) from dataset where number > 20"
    ).fetchall()
    assert counted == (sum(len(row["payload"]) for row in rows if row["number"] > 20),)
    frame = pd.DataFrame.from_arrow(dataset)
    assert frame["payload"].tolist() == [row["payload"] for row in rows]
    assert frame["number"].tolist() == [row["number"] for row in rows]
    assert dataset.epoch == 0, "a table moved the stream"


def test_columns_project_and_order(dataset):
    rows = expected(dataset)
    for columns in (["payload"], ["note", "sample_id"], ["payload", "weight", "number"], []):
        table = dataset.to_arrow(columns).read_all()
        assert table.column_names == columns
        assert table.to_pylist() == [{name: row[name] for name in columns} for row in rows]
        assert table.num_rows == 107
    with pytest.raises(drt.InvalidInputError, match="note"):
        dataset.to_arrow(["nothing"])
    with pytest.raises(drt.InvalidInputError, match="twice"):
        dataset.to_arrow(["note", "note"])


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("data", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_requested_forms_of_text_and_bytes(dataset, text, data):
    schema = pa.schema({"payload": data, "label": text, "number": pa.int64()})
    capsule = dataset.__arrow_c_stream__(schema.__arrow_c_schema__())
    reader = pa.RecordBatchReader._import_from_c_capsule(capsule)
    assert reader.schema.types == schema.types
    rows = [{name: row[name] for name in schema.names} for row in expected(dataset)]
    assert reader.read_all().to_pylist() == rows
    assert pa.table(dataset, schema=schema).to_pylist() == rows


def test_other_requests_are_refused_with_what_can_be_had(dataset):
    def ask(schema):
        dataset.__arrow_c_stream__(schema.__arrow_c_schema__())

    with pytest.raises(drt.InvalidInputError, match="LargeBinary"):
        ask(pa.schema({"payload": pa.string()}))
    with pytest.raises(drt.InvalidInputError, match="Int64"):
        ask(pa.schema({"number": pa.int32()}))
    with pytest.raises(drt.InvalidInputError, match="score"):
        ask(pa.schema({"nothing": pa.int32()}))
    with pytest.raises(drt.InvalidInputError, match="twice"):
        ask(pa.schema([("number", pa.int64()), ("number", pa.int64())]))
    with pytest.raises(drt.InvalidInputError, match="requested schema"):
        ask(pa.int64())


def test_the_schema_capsule_is_that_of_the_stream(dataset, cache):
    assert pa.schema(dataset) == dataset.to_arrow().schema
    opened_cache = drt.open_cache(cache)
    assert pa.schema(opened_cache) == opened_cache.to_arrow().schema


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_cache_is_a_table_too(runtime, tmp_path, compression):
    config = drt.WriterConfig(
        show_progress=False, shard_compression=COMPRESSIONS[compression], max_shard_bytes=500
    )
    samples = numbered(80)
    cache = drt.open_cache(written(runtime, tmp_path, samples, config=config))
    rows = [
        {"sample_id": i, **metadata, "payload": data} for i, (data, metadata) in enumerate(samples)
    ]
    assert pa.table(cache).to_pylist() == rows
    assert cache.to_arrow().schema.names == ["sample_id", "number", "label", "score", "payload"]
    assert pl.DataFrame(cache).to_dicts() == rows
    assert duckdb.sql("select count(*), max(number) from cache").fetchall() == [(80, 79)]
    assert cache.to_arrow(["label"]).read_all()["label"].to_pylist() == [r["label"] for r in rows]
    with pytest.raises(drt.InvalidInputError, match="sample_id"):
        cache.to_arrow(["weight"])
    with pytest.raises(drt.InvalidInputError, match="sample_id"):
        cache.__arrow_c_stream__(pa.schema({"cache_id": pa.uint64()}).__arrow_c_schema__())


def test_a_reader_is_a_snapshot(runtime, cache):
    dataset = opened(runtime, cache)
    reader = dataset.to_arrow()
    dataset.update_metadata(dataset.get_metadata().head(2))
    assert reader.read_all().num_rows == 50
    assert dataset.to_arrow().read_all().num_rows == 2


def test_batches_are_bounded_in_rows_and_bytes(runtime, tmp_path):
    small = opened(runtime, written(runtime, tmp_path, [(b"", {"n": 1})] * 150_000, "small"))
    sizes = [batch.num_rows for batch in small.to_arrow(["payload", "n"])]
    assert sum(sizes) == 150_000
    assert max(sizes) <= 65_536
    # Mean sizes say little here: most payloads are empty, some are large.
    uneven = [(bytes(3_000_000 if i >= 980 else 0), {"n": i}) for i in range(1000)]
    dataset = opened(runtime, written(runtime, tmp_path, uneven, "uneven"))
    seen = 0
    for batch in dataset.to_arrow():
        lengths = [len(payload) for payload in batch["payload"].to_pylist()]
        assert sum(lengths) <= 32 * 2**20
        assert batch["n"].to_pylist() == list(range(seen, seen + batch.num_rows))
        seen += batch.num_rows
    assert seen == 1000


def test_damage_is_an_error_of_the_stream_with_our_text(runtime, tmp_path):
    path = written(runtime, tmp_path, numbered(300))
    for shard in (path / "shards").iterdir():
        put(shard, bytes(byte ^ 0x55 for byte in shard.read_bytes()))
    dataset = opened(runtime, path)
    assert dataset.to_arrow(["number"]).read_all()["number"].to_pylist() == list(range(300))
    assert pa.table(dataset, schema=pa.schema({"number": pa.int64()})).num_rows == 300
    with pytest.raises(pa.ArrowException, match=r"sample_id 1 of .*shards/.*rebuild the cache"):
        dataset.to_arrow().read_all()
    with pytest.raises(pl.exceptions.PolarsError, match=r"rebuild the cache"):
        pl.DataFrame(dataset)
    with pytest.raises(duckdb.Error, match=r"rebuild the cache"):
        duckdb.sql("select max(octet_length(payload)) from dataset").fetchall()


def test_a_closed_runtime_is_refused_but_readers_go_on(cache):
    runtime = drt.DatasetRuntime(num_workers=2)
    dataset = opened(runtime, cache)
    reader = dataset.to_arrow()
    runtime.close()
    assert reader.read_all().num_rows == 50
    with pytest.raises(drt.InvalidInputError, match="closed"):
        dataset.to_arrow()


def test_a_stream_is_read_with_and_without_the_interpreter_lock(tmp_path):
    """Polars holds the lock while it reads, pyarrow does not, DuckDB reads on its own threads.

    Meanwhile another thread forks, whose hooks need both the lock and our gate.
    """
    run_script(
        """
        import os, sys, threading
        sys.path.insert(0, sys.argv[2])
        import duckdb, polars as pl, pyarrow as pa
        from conftest import opened, numbered, written
        import dataset_rt as drt

        with drt.DatasetRuntime(num_workers=2) as runtime:
            dataset = opened(runtime, written(runtime, sys.argv[1], numbered(3000)))
            done = threading.Event()
            forks = 0

            def fork():
                global forks
                while not done.is_set():
                    child = os.fork()
                    if child == 0:
                        os._exit(0)
                    os.waitpid(child, 0)
                    forks += 1

            thread = threading.Thread(target=fork)
            thread.start()
            for _ in range(60):
                assert pl.DataFrame(dataset).height == 3000
                assert pa.table(dataset).num_rows == 3000
            for _ in range(5):
                assert duckdb.sql("select count(payload) from dataset").fetchall() == [(3000,)]
            done.set()
            thread.join()
            assert forks > 5, forks
        """,
        tmp_path,
        __file__.rpartition("/")[0],
    )


def test_waiting_for_a_batch_lets_go_of_the_interpreter_lock(runtime, cache):
    """A consumer that calls with the lock held must not stop all of Python meanwhile."""
    dataset = opened(runtime, cache)
    dataset.update_metadata(pl.concat([dataset.get_metadata()] * 20_000))
    capsule = dataset.__arrow_c_stream__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    stream = pointer(capsule, b"arrow_array_stream")
    # Functions of this kind are called with the lock held; get_next is the second of the stream,
    # release lies behind eight words of an array.
    call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    get_next = call(ctypes.c_void_p.from_address(stream + 8).value)
    array = (ctypes.c_uint64 * 10)()
    ticks, done = [0], threading.Event()

    def tick():
        while not done.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    before = sys.getswitchinterval()
    thread.start()
    try:
        sys.setswitchinterval(60)
        start, rows = ticks[0], 0
        while get_next(stream, ctypes.addressof(array)) == 0 and array[8]:
            rows += array[0]
            ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(array[8])(ctypes.addressof(array))
        meanwhile = ticks[0] - start
    finally:
        sys.setswitchinterval(before)
        done.set()
        thread.join()
    assert rows == 1_000_000
    assert meanwhile > 0


def test_a_capsule_that_somebody_took_from_is_refused(runtime, tmp_path):
    path = written(runtime, tmp_path, numbered(5))
    script = """
        import sys
        import pyarrow as pa
        import dataset_rt as drt

        dataset = drt.open_dataset(sys.argv[1])

        def refused(call):
            try:
                call()
            except drt.InvalidInputError as error:
                assert "took it out before" in str(error), error
                return
            raise SystemExit("it was taken")

        wide = pa.schema([(f"column {i}", pa.string()) for i in range(300)])
        for _ in range(20):
            capsule = wide.__arrow_c_schema__()
            pa.Schema._import_from_c_capsule(capsule)
            refused(lambda: dataset.__arrow_c_stream__(capsule))
            refused(lambda: drt.open_cache(sys.argv[1]).__arrow_c_stream__(capsule))

        class Keeping:
            def __init__(self, batch):
                self.capsules = batch.__arrow_c_array__()
            def __arrow_c_array__(self, requested_schema=None):
                return self.capsules

        class Source:
            name = "kept"
            def __iter__(self):
                batch = Keeping(pa.record_batch({"payload": [b"a"], "n": [1]}))
                pa.record_batch(batch)
                yield batch

        with drt.DatasetRuntime(num_workers=1) as runtime:
            for _ in range(20):
                config = drt.WriterConfig(show_progress=False)
                (result,) = runtime.write_cache(Source(), sys.argv[2], writer_config=config)
                assert "took it out before" in result.message, result
        print("done")
    """
    assert run_script(script, path, tmp_path).split() == ["done"]

"""`scan()`: the same answers as the collected frame, reading no payload that a query can spare."""

import polars as pl
import pyarrow as pa
import pytest
from conftest import QUIET, numbered, opened, put, run_script, written
from polars.testing import assert_frame_equal

import dataset_rt as drt

N, PAYLOAD = pl.col("number"), pl.col("payload")
QUERIES = {
    "all": lambda f: f,
    "select": lambda f: f.select("payload", "label"),
    "metadata": lambda f: f.select("label", "number", "weight"),
    "filter": lambda f: f.filter(N % 7 == 3),
    "filter out": lambda f: f.filter(N > 10_000),
    "filter null": lambda f: f.filter(pl.lit(None, dtype=pl.Boolean)),
    "filter all": lambda f: f.filter(pl.lit(False)).select("payload"),
    "filter and select": lambda f: f.filter(N > 50, pl.col("label") == "l3").select("payload"),
    "filter by payload": lambda f: f.filter(PAYLOAD.bin.size() > 14).select("number"),
    "filter by both": lambda f: f.filter(PAYLOAD.bin.size() > 14, N > 60),
    "either": lambda f: f.filter((PAYLOAD.bin.size() > 28) | (N < 20)).select("score", "payload"),
    "head": lambda f: f.head(7),
    "head of metadata": lambda f: f.head(7).select("number"),
    "none": lambda f: f.head(0),
    "tail": lambda f: f.tail(5),
    "slice": lambda f: f.slice(20, 11),
    "slice from behind": lambda f: f.slice(-20, 11).select("payload"),
    "filter then head": lambda f: f.filter(N > 30).head(9),
    "head then filter": lambda f: f.head(40).filter(N > 30),
    "head then filter by payload": lambda f: f.head(40).filter(PAYLOAD.bin.size() == 14),
    "payload then head": lambda f: f.filter(PAYLOAD.bin.size() == 0).head(3),
    "with_columns": lambda f: f.with_columns(size=PAYLOAD.bin.size()).drop("payload"),
    "count": lambda f: f.select(pl.len()),
    "group_by": lambda f: f.group_by("label").agg(PAYLOAD.bin.size().sum(), N.max()).sort("label"),
    "sort": lambda f: f.sort("score", descending=True).head(4),
    "join": lambda f: f.join(f.filter(N < 9).select("number"), on="number").sort("number"),
    "unique": lambda f: f.unique("label", keep="first", maintain_order=True),
    "row index": lambda f: f.with_row_index("row").filter(pl.col("row") > 90),
    "concat": lambda f: pl.concat([f.head(3), f.tail(3)]),
    "row index alone": lambda f: f.with_row_index("row").select(pl.col("row").sum()),
    "rows alone": lambda f: f.join(f, how="cross").select(pl.len()),
    "rows of a filter alone": lambda f: f.filter(N > 9).with_row_index("row").select("row"),
    "side by side": lambda f: pl.concat(
        [f.with_row_index("row").select("row"), f], how="horizontal"
    ),
}


@pytest.fixture(params=["none", "zstd"])
def dataset(request, runtime, tmp_path):
    compression = drt.ShardCompression(algo=request.param)
    config = drt.WriterConfig(show_progress=False, shard_compression=compression)
    made = opened(runtime, written(runtime, tmp_path, numbered(100), config=config), shuffle=True)
    made.update_metadata(made.get_metadata().reverse().with_columns(weight=N + 0.5))
    return made


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_answers_as_on_the_collected_frame(dataset, query, engine):
    frame = pl.DataFrame(dataset)
    ask = QUERIES[query]
    answer = ask(dataset.scan()).collect(engine=engine)
    assert_frame_equal(answer, ask(frame.lazy()).collect())


def test_a_scan_is_a_snapshot(runtime, cache):
    dataset = opened(runtime, cache)
    scan = dataset.scan()
    dataset.update_metadata(dataset.get_metadata().head(2))
    for _ in range(2):
        assert scan.collect().height == 50
    assert dataset.scan().collect().height == 2
    assert dataset.epoch == 0


def test_the_schema_is_known_without_reading(dataset):
    schema = dataset.scan().collect_schema()
    assert schema == pl.DataFrame(dataset).schema
    assert schema["payload"] == pl.Binary


def test_metadata_queries_read_no_payload(runtime, tmp_path):
    path = written(runtime, tmp_path, numbered(300))
    for file in [*(path / "shards").iterdir(), path / "index.bin"]:
        put(file, bytes(byte ^ 0x55 for byte in file.read_bytes()))
    scan = opened(runtime, path).scan()
    assert scan.select("number").collect().height == 300
    assert scan.filter(N > 290).drop("payload").collect().height == 9
    assert scan.group_by("label").agg(N.sum()).collect().height == 7
    assert scan.filter(N > 1000).collect().height == 0, "no row survives, none is read"
    with pytest.raises(drt.CorruptError, match="dataset-rt repair"):
        scan.filter(N > 290).collect()


def test_payload_pages_of_other_rows_stay_untouched(tmp_path):
    """Of 200 payloads of 256 KiB each, a query for one touches its pages alone."""
    run_script(
        """
        import os, re, sys
        sys.path.insert(0, sys.argv[2])
        import polars as pl
        from conftest import opened, written
        import dataset_rt as drt

        with drt.DatasetRuntime(num_workers=1) as runtime:
            samples = [(os.urandom(2**18), {"number": i}) for i in range(200)]
            path = written(runtime, sys.argv[1], samples)

            def resident():
                text = open("/proc/self/smaps").read()
                parts = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", text)
                ours = [part for part in parts if str(path / "shards") in part]
                return sum(int(re.search(r"Rss: +(\\d+) kB", part)[1]) for part in ours)

            scan = opened(runtime, path, io="mmap").scan()
            scan.select("number").filter(pl.col("number") > 3).collect()
            assert resident() == 0
            answer = scan.filter(pl.col("number") == 77).collect()
            assert answer["payload"].to_list() == [samples[77][0]]
            # Its blocks of 64 KiB, and what the kernel maps around faults; the shard has 51,200.
            assert 256 <= resident() <= 8192, resident()
        """,
        tmp_path,
        __file__.rpartition("/")[0],
    )


@pytest.mark.parametrize("name", ["^n$", "^.*$", "*", "row", "row_", "'\"", "\u00e4"])
def test_a_column_of_any_name_is_scanned(runtime, tmp_path, name):
    dataset = opened(runtime, written(runtime, tmp_path, numbered(6)))
    extra = pl.Series(name, range(100, 106))
    dataset.update_metadata(dataset.get_metadata().with_columns(extra))
    frame = pl.DataFrame(dataset)
    assert_frame_equal(dataset.scan().collect(), frame)
    at = frame.columns.index(name)
    assert dataset.scan().select(pl.nth(at)).head(2).collect()[name].to_list() == [100, 101]
    assert dataset.scan().filter(N > 3).select("payload").collect().height == 2
    assert dataset.scan().head(3).collect()[name].to_list() == [100, 101, 102]


def test_a_null_keeps_no_row_however_many_there_are(runtime, tmp_path):
    table = pa.table({"payload": pa.repeat(b"x", 70_000), "n": range(70_000)})
    (result,) = runtime.write_cache(
        drt.ArrowSource("many", table, payload="payload"), tmp_path, writer_config=QUIET
    )
    query = opened(runtime, result.path).scan().filter(pl.lit(None, dtype=pl.Boolean))
    assert query.collect().height == 0
    assert query.select("payload").collect().height == 0

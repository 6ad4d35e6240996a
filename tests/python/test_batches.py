"""`iter_batches`: the samples of `__iter__` as Arrow batches, without copies, damage included."""

import gc
import threading

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from conftest import numbered, opened, put, run_script, written

import dataset_rt as drt

LAYOUTS = {
    "mapped": (drt.ShardCompression(), "mmap"),
    "read": (drt.ShardCompression(), "pread"),
    "lz4": (drt.ShardCompression(algo="lz4"), "auto"),
    "zstd": (drt.ShardCompression(algo="zstd", dictionary_bytes=1024), "pread"),
    "zstd buffer": (drt.ShardCompression(algo="zstd", scope="buffer"), "auto"),
}


def config(compression=None, **options):
    compression = compression or drt.ShardCompression()
    return drt.WriterConfig(show_progress=False, shard_compression=compression, **options)


def as_rows(batches):
    rows = pa.Table.from_batches(batches).to_pylist() if batches else []
    identity = {"cache_id", "sample_id", "payload", "weight"}
    return [
        (
            r["payload"],
            {k: v for k, v in r.items() if k not in identity},
            r["cache_id"],
            r["sample_id"],
        )
        for r in rows
    ]


def as_tuples(samples):
    return [(bytes(s.data), s.metadata, s.cache_id, s.sample_id) for s in samples]


def mappings(path):
    """Where files below `path` are mapped in this process."""
    found = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            if str(path) in line:
                start, end = line.split()[0].split("-")
                found.append((int(start, 16), int(end, 16)))
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_are_the_samples_of_iteration(runtime, tmp_path, layout, shuffle):
    compression, io = LAYOUTS[layout]
    first = written(runtime, tmp_path, numbered(90), "a", config(compression, max_shard_bytes=300))
    second = written(runtime, tmp_path, numbered(70, 1000), "b", config(compression))
    paths = [first, second]
    batched, iterated = (opened(runtime, paths, 3, shuffle, io=io) for _ in range(2))
    for batch_size in (1, 7, 64, 160, 10_000):
        batches = list(batched.iter_batches(batch_size))
        assert as_rows(batches) == as_tuples(iterated)
        sizes = [batch.num_rows for batch in batches]
        whole, rest = divmod(160, batch_size)
        assert sizes == [batch_size] * whole + [rest] * (rest > 0)
    assert batched.epoch == iterated.epoch == 5


def test_weights_and_extra_columns_of_an_edited_table(runtime, cache):
    dataset = opened(runtime, cache, shuffle=True)
    table = dataset.get_metadata().filter(pl.col("number") % 3 == 0)
    table = table.with_columns(weight=pl.col("number") + 0.5, note=pl.lit("a note of some length"))
    dataset.update_metadata(pl.concat([table, table]))
    expected = opened(runtime, cache, shuffle=True)
    expected.update_metadata(pl.concat([table, table]))
    batches = list(dataset.iter_batches(5))
    assert as_rows(batches) == as_tuples(expected)
    names = ["cache_id", "sample_id", "number", "label", "score", "weight", "note", "payload"]
    assert batches[0].schema.names == names
    assert batches[0].schema.field("payload").type == pa.binary_view()
    for row in pa.Table.from_batches(batches).to_pylist():
        assert row["weight"] == row["number"] + 0.5


def test_columns_project_and_order(runtime, cache):
    dataset = opened(runtime, cache)
    (batch,) = dataset.iter_batches(50, columns=["score", "payload", "cache_id"])
    assert batch.schema.names == ["score", "payload", "cache_id"]
    dataset.set_epoch(0)
    (bare,) = dataset.iter_batches(50, columns=[])
    assert (bare.num_rows, bare.num_columns) == (50, 0)
    dataset.set_epoch(0)
    for columns, text in ([["nothing"], "score"], [["label", "label"], "label"]):
        with pytest.raises(drt.InvalidInputError, match=text):
            dataset.iter_batches(4, columns=columns)
    with pytest.raises(TypeError):
        dataset.iter_batches(4, columns="label")
    for size in (0, -1):
        with pytest.raises(drt.InvalidInputError, match="batch_size"):
            dataset.iter_batches(size)
    with pytest.raises(TypeError):
        dataset.iter_batches(2.5)
    assert dataset.epoch == 0, "a refused call moved the stream"


def test_a_window_is_a_snapshot(runtime, cache):
    dataset = opened(runtime, cache)
    batches = dataset.iter_batches(10)
    first = next(batches)
    dataset.update_metadata(dataset.get_metadata().head(3))
    assert sum(b.num_rows for b in batches) + first.num_rows == 50
    assert [b.num_rows for b in dataset.iter_batches(10)] == [3]


def test_huge_batches_that_no_memory_holds_are_errors(runtime, cache):
    dataset = opened(runtime, cache)
    dataset.set_epoch_len(2**62)
    with pytest.raises(drt.ExhaustedError, match="ask for fewer"):
        next(dataset.iter_batches(2**61))


def test_payloads_lie_in_the_mapped_shard(runtime, tmp_path):
    samples = [(np.random.default_rng(i).bytes(20 + i), {"n": i}) for i in range(100)]
    path = written(runtime, tmp_path, samples)
    batch = next(opened(runtime, path, shuffle=True, io="mmap").iter_batches(100))
    places = mappings(path / "shards")
    (_, views, *buffers) = batch.column("payload").buffers()
    assert len(buffers) == 1
    for buffer in buffers:
        end = buffer.address + buffer.size
        assert any(start <= buffer.address and end <= stop for start, stop in places)
        assert not buffer.is_mutable
    views = np.frombuffer(views, dtype=np.int32).reshape(-1, 4)
    lengths = {i: 20 + i for i in range(100)}
    assert [int(v[0]) for v in views] == [lengths[i] for i in batch["sample_id"].to_pylist()]


def test_fixed_width_columns_of_the_table_lie_in_the_metadata_file(runtime, cache):
    dataset = opened(runtime, cache, io="mmap")
    frame = dataset.get_metadata()
    places = mappings(cache / "metadata.arrow")
    for name in ("number", "score"):
        (column,) = frame[name].to_arrow().buffers()[1:]
        assert any(s <= column.address and column.address + column.size <= e for s, e in places)


def test_views_outlive_everything_and_free_the_mapping(tmp_path):
    run_script(
        """
        import gc, sys
        import pyarrow as pa
        sys.path.insert(0, sys.argv[2])
        from conftest import opened, numbered, written
        from test_batches import mappings
        import dataset_rt as drt

        runtime = drt.DatasetRuntime(num_workers=2)
        path = written(runtime, sys.argv[1], numbered(400))
        dataset = opened(runtime, path, shuffle=True, io="mmap")
        batches = dataset.iter_batches(100)
        kept = next(batches).column("payload")
        expected = kept.to_pylist()
        read = dataset.to_arrow(["payload"])
        half = read.read_next_batch().column(0)
        runtime.close()
        del dataset, batches, runtime, read
        gc.collect()
        assert kept.to_pylist() == expected
        assert half.to_pylist()[3] == b"payload-000003" * 3
        assert mappings(path / "shards")
        slice = kept[5:6]
        del kept, half
        gc.collect()
        assert mappings(path / "shards"), "a slice of the views keeps the mapping"
        del slice
        gc.collect()
        assert not mappings(path / "shards")
        """,
        tmp_path,
        __file__.rpartition("/")[0],
    )


def test_threads_share_an_iterator(runtime, tmp_path):
    dataset = opened(runtime, written(runtime, tmp_path, numbered(2000)))
    batches = dataset.iter_batches(16, columns=["sample_id"])
    seen = []

    def take():
        seen.extend(i for batch in batches for i in batch["sample_id"].to_pylist())

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(2000))


def damage(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    put(path, bytes(content))


@pytest.mark.parametrize("batch_size", [1, 3, 10, 64, 200])
@pytest.mark.parametrize("layout", ["mapped", "zstd", "read"])
def test_only_damaged_samples_are_lost(runtime, tmp_path, layout, batch_size):
    compression, io = LAYOUTS[layout]
    # One block holds about one payload.
    rng = np.random.default_rng(0)
    samples = [(rng.bytes(70_000), {"n": i}) for i in range(40)]
    path = written(runtime, tmp_path, samples, config=config(compression))
    (shard,) = (path / "shards").iterdir()
    damage(shard, 10 * 70_000)
    damage(shard, 30 * 70_000)
    lost_alone = set()
    for i in range(40):
        try:
            opened(runtime, path, io=io)[i]
        except drt.CorruptError:
            lost_alone.add(i)
    assert 2 <= len(lost_alone) <= 6
    batches = opened(runtime, path, io=io).iter_batches(batch_size)
    delivered, lost, texts, last = [], [], [], -1
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            break
        except drt.CorruptError as error:
            last += 1
            lost.append(last)
            texts.append(str(error))
            continue
        for n, payload in zip(batch["n"].to_pylist(), batch["payload"].to_pylist(), strict=True):
            assert payload == samples[n][0]
            delivered.append(n)
        last = delivered[-1]
    assert set(lost) == lost_alone
    for n, text in zip(lost, texts, strict=True):
        assert f"sample_id {n} of cache_id" in text
    assert sorted(delivered + lost) == list(range(40))
    assert delivered == sorted(delivered)


def test_unasked_columns_are_not_read(runtime, tmp_path):
    path = written(runtime, tmp_path, numbered(300))
    for file in [*(path / "shards").iterdir(), path / "index.bin"]:
        content = bytes(byte ^ 0x55 for byte in file.read_bytes())
        put(file, content)
    dataset = opened(runtime, path, shuffle=True)
    batches = list(dataset.iter_batches(50, columns=["label", "weight", "sample_id"]))
    assert sum(batch.num_rows for batch in batches) == 300
    with pytest.raises(drt.CorruptError):
        next(dataset.iter_batches(50))


@pytest.mark.parametrize("change", ["overwritten", "cut short"])
def test_a_shard_changed_in_place_is_a_conflict(tmp_path, change):
    run_script(
        """
        import os, sys
        sys.path.insert(0, sys.argv[2])
        from conftest import opened, numbered, written
        import dataset_rt as drt

        with drt.DatasetRuntime(num_workers=1) as runtime:
            path = written(runtime, sys.argv[1], numbered(400))
            # One batch is loaded ahead.
            dataset = opened(runtime, path, io="mmap", prefetch_size=50)
            batches = dataset.iter_batches(50)
            next(batches)
            (shard,) = (path / "shards").iterdir()
            content = shard.read_bytes()
            if sys.argv[3] == "cut short":
                os.truncate(shard, 0)
            else:
                with shard.open("r+b") as file:
                    file.write(bytes(byte ^ 0x55 for byte in content))
            errors = 0
            for _ in range(60):
                try:
                    batch = next(batches)
                except StopIteration:
                    break
                except drt.ConflictError:
                    errors += 1
                else:
                    assert batch["number"][0].as_py() < 100, batch
            assert errors > 5
        """,
        tmp_path,
        __file__.rpartition("/")[0],
        change,
    )


def test_a_forked_child_refuses_an_inherited_iterator_and_makes_its_own(tmp_path):
    run_script(
        """
        import os, sys
        sys.path.insert(0, sys.argv[2])
        from conftest import opened, numbered, written
        import dataset_rt as drt

        runtime = drt.DatasetRuntime(num_workers=2)
        dataset = opened(runtime, written(runtime, sys.argv[1], numbered(500)))
        batches = dataset.iter_batches(20)
        first = next(batches)
        child = os.fork()
        if child == 0:
            try:
                next(batches)
            except drt.ConflictError:
                again = opened(runtime, dataset.cache_paths)
                rows = sum(batch.num_rows for batch in again.iter_batches(20))
                os._exit(0 if rows == 500 else 3)
            os._exit(4)
        assert os.waitpid(child, 0)[1] == 0
        assert sum(batch.num_rows for batch in batches) == 480
        """,
        tmp_path,
        __file__.rpartition("/")[0],
    )


def test_dropped_iterators_leave_nothing(runtime, cache):
    dataset = opened(runtime, cache, shuffle=True)
    for _ in range(2000):
        next(dataset.iter_batches(5))
    gc.collect()
    assert len(mappings(cache / "shards")) <= 1
    assert threading.active_count() < 10


def test_payloads_of_one_size_become_one_array_in_drawn_order(runtime, tmp_path):
    samples = [(np.full(32, i, "float32"), {"n": i}) for i in range(100)]
    path = written(runtime, tmp_path, samples)
    batch = next(opened(runtime, path, shuffle=True).iter_batches(64))
    found = drt.payload_arrays(batch, "float32", 32)
    assert found.shape == (64, 32)
    assert (found == batch["n"].to_numpy()[:, None]).all()
    whole = drt.payload_arrays(batch["payload"][:1], "float32", 32, copy=False)
    assert (whole == found[:1]).all()

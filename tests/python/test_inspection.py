"""open_cache, open_dataset and paths: what a cache shows of itself, and what is no cache."""

import os
import shutil

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from conftest import ListSource, numbered, opened, put, written

import dataset_rt as drt

COMPRESSIONS = {
    "none": drt.ShardCompression(),
    "lz4": drt.ShardCompression(algo="lz4"),
    "zstd buffer": drt.ShardCompression(algo="zstd", scope="buffer"),
    "zstd dictionary": drt.ShardCompression(algo="zstd", dictionary_bytes=1024),
}


def sharded(runtime, directory, compression="none", count=300, name="words"):
    config = drt.WriterConfig(
        max_shard_bytes=3000, show_progress=False, shard_compression=COMPRESSIONS[compression]
    )
    return written(runtime, directory, numbered(count), name=name, config=config)


def test_a_cache_tells_its_size_identity_and_schema(runtime, tmp_path):
    path = sharded(runtime, tmp_path)
    cache = drt.open_cache(path)
    assert cache.num_samples == 300
    assert cache.path == path
    assert cache.cache_id == opened(runtime, path)[0].cache_id
    assert cache.schema.names == ["number", "label", "score"]
    assert cache.manifest["samples_total"] == 300
    assert cache.manifest["cache_id"] == cache.cache_id


def test_opening_for_inspection_needs_no_runtime_and_no_threads(runtime, tmp_path):
    path = sharded(runtime, tmp_path)
    before = len(os.listdir("/proc/self/task"))
    cache = drt.open_cache(path)
    cache.payload(5)
    cache.shards()[0].to_arrow()
    assert len(os.listdir("/proc/self/task")) == before


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_metadata_and_payloads_are_what_was_written(runtime, tmp_path, compression):
    cache = drt.open_cache(sharded(runtime, tmp_path, compression))
    samples = numbered(300)
    assert cache.metadata().equals(pl.DataFrame([metadata for _, metadata in samples]))
    found = [cache.payload(i) for i in range(300)]
    assert all(isinstance(payload, pa.Buffer) for payload in found)
    assert [payload.to_pybytes() for payload in found] == [payload for payload, _ in samples]


@pytest.mark.parametrize("compression", ["none", "zstd buffer"])
def test_shards_together_are_the_whole_cache(runtime, tmp_path, compression):
    cache = drt.open_cache(sharded(runtime, tmp_path, compression))
    shards = cache.shards()
    assert [shard.index for shard in shards] == list(range(len(shards)))
    assert len(shards) > 2
    table = pa.concat_tables(shard.to_arrow() for shard in shards)
    assert table.column_names == ["sample_id", "number", "label", "score", "payload"]
    assert table["sample_id"].to_pylist() == list(range(300))
    assert table["payload"].to_pylist() == [payload for payload, _ in numbered(300)]
    assert pl.DataFrame(table.select(["number", "label", "score"])).equals(cache.metadata())


def test_an_uncompressed_payload_is_a_view_of_the_mapped_file(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"x" * 1_000_000, {})])
    cache = drt.open_cache(path)
    assert cache.payload(0).address == cache.payload(0).address


def test_a_payload_outlives_its_cache(runtime, tmp_path):
    payload = drt.open_cache(written(runtime, tmp_path, [(b"x" * 1000, {})])).payload(0)
    assert payload.to_pybytes() == b"x" * 1000


@pytest.mark.parametrize("row", [-1, 50, 2**64])
def test_a_payload_out_of_range_is_an_index_error(cache, row):
    with pytest.raises(IndexError, match="50"):
        drt.open_cache(cache).payload(row)


@pytest.mark.parametrize("row", [True, 1.0, "1", None])
def test_a_payload_row_is_an_integer(cache, row):
    with pytest.raises(TypeError):
        drt.open_cache(cache).payload(row)


def test_a_numpy_integer_is_a_row(cache):
    assert drt.open_cache(cache).payload(np.int32(1)).to_pybytes() == numbered(2)[1][0]


def test_the_shards_are_plain_arrow_files_for_other_tools(runtime, tmp_path):
    path = sharded(runtime, tmp_path)
    found = []
    for file in sorted((path / "shards").iterdir()):
        with pa.ipc.open_file(file) as reader:
            found += reader.read_all()["payload"].to_pylist()
    assert found == [payload for payload, _ in numbered(300)]


def test_open_dataset_reads_in_table_order_by_default(cache):
    assert [s.sample_id for s in drt.open_dataset(cache)] == list(range(50))


def test_open_dataset_passes_its_options_on(cache):
    dataset = drt.open_dataset(str(cache), seed=5, shuffle=True, zero_copy=True, prefetch_size=3)
    expected = drt.ReaderConfig(seed=5, shuffle=True, zero_copy=True, prefetch_size=3)
    assert dataset.reader_config == expected
    with pytest.raises(TypeError, match=r"takes no unknown: expected .* seed, shuffle"):
        drt.open_dataset(cache, unknown=1)


def open_every_way(runtime, path):
    return [
        lambda: drt.open_cache(path),
        lambda: opened(runtime, path),
        lambda: drt.open_dataset(path),
    ]


def look_every_way(runtime, path):
    return [*open_every_way(runtime, path), lambda: drt.verify_cache(path)]


def test_a_missing_path_is_not_found_and_named(runtime, tmp_path):
    for attempt in look_every_way(runtime, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="nowhere") as caught:
            attempt()
        assert isinstance(caught.value, drt.NotFoundError)


def test_an_empty_path_is_refused(runtime):
    for attempt in look_every_way(runtime, ""):
        with pytest.raises(drt.InvalidInputError, match="expected the directory of a cache"):
            attempt()


def test_an_unfinished_write_of_the_name_is_pointed_at(runtime, tmp_path):
    (failed,) = runtime.write_cache(
        ListSource("words", [*numbered(3000), (None, {})]),
        tmp_path,
        writer_config=drt.WriterConfig(show_progress=False, max_shard_bytes=1024),
    )
    assert isinstance(failed, drt.CacheWriteError)
    for attempt in look_every_way(runtime, tmp_path / "words"):
        with pytest.raises(drt.NotFoundError, match=r"unfinished write of it in .*words\.partial"):
            attempt()


def test_a_parent_directory_is_an_error_that_lists_its_caches(runtime, tmp_path):
    for name in ("first", "second"):
        written(runtime, tmp_path, numbered(3), name=name)
    for attempt in look_every_way(runtime, tmp_path):
        with pytest.raises(drt.NotFoundError) as caught:
            attempt()
        assert "first" in str(caught.value)
        assert "second" in str(caught.value)


def test_an_empty_directory_is_no_cache(runtime, tmp_path):
    for attempt in look_every_way(runtime, tmp_path):
        with pytest.raises(drt.NotFoundError, match=tmp_path.name):
            attempt()


def test_a_file_is_no_cache(runtime, tmp_path):
    (tmp_path / "file").write_text("")
    for attempt in open_every_way(runtime, tmp_path / "file"):
        with pytest.raises(drt.DatasetRTError, match="file"):
            attempt()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"{}", b"null"])
def test_a_broken_manifest_is_corrupt_and_named(runtime, cache, content):
    put(cache / "manifest.json", content)
    for attempt in open_every_way(runtime, cache):
        with pytest.raises(drt.CorruptError, match=r"manifest\.json"):
            attempt()


def test_different_schemas_are_an_error_with_the_difference(runtime, tmp_path):
    first = written(runtime, tmp_path, [(b"", {"same": 1, "x": 1})], name="first")
    second = written(runtime, tmp_path, [(b"", {"same": 1, "x": "text"})], name="second")
    with pytest.raises(drt.InvalidInputError) as caught:
        opened(runtime, [first, second])
    assert all(part in str(caught.value) for part in ('"x"', "first", "second"))


def test_the_same_cache_twice_is_an_error(runtime, cache):
    with pytest.raises(drt.InvalidInputError, match="words"):
        opened(runtime, [cache, cache])


def test_a_copy_of_a_cache_beside_it_is_an_error_with_both_paths(runtime, cache):
    copy = shutil.copytree(cache, cache.parent / "copy")
    with pytest.raises(drt.InvalidInputError) as caught:
        opened(runtime, [cache, copy])
    assert "words" in str(caught.value)
    assert "copy" in str(caught.value)


@pytest.mark.parametrize("paths", [[], None, 5, b"bytes", [None], {"a": 1}])
def test_what_is_no_path_is_refused(runtime, paths):
    with pytest.raises((TypeError, ValueError)):
        opened(runtime, paths)


def test_a_reader_config_of_another_kind_is_a_type_error(runtime, cache):
    with pytest.raises(TypeError, match="ReaderConfig"):
        runtime.cached_dataset(cache, reader_config={"seed": 1})


def test_validate_cache_refuses_a_flipped_byte_at_opening(runtime, tmp_path):
    path = sharded(runtime, tmp_path)
    shard = sorted((path / "shards").iterdir())[1]
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    put(shard, content)
    with pytest.raises(drt.CorruptError, match=shard.name):
        opened(runtime, path, validate_cache=True)


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_a_flipped_byte_is_corrupt_before_it_is_used_and_others_stay_readable(
    runtime, tmp_path, io
):
    path = sharded(runtime, tmp_path)
    shard = sorted((path / "shards").iterdir())[1]
    content = bytearray(shard.read_bytes())
    place = content.index(b"payload-", len(content) // 2)
    content[place] ^= 1
    put(shard, content)
    dataset = opened(runtime, path, io=io)
    expected = [payload for payload, _ in numbered(300)]
    failed = 0
    for i in range(300):
        try:
            assert dataset[i].data == expected[i]
        except drt.CorruptError as error:
            failed += 1
            assert shard.name in str(error)  # noqa: PT017 - every other row must succeed
    assert 0 < failed < 300

"""Samples come back in the promised order, whatever workers, prefetch, io or compression."""

import pickle
import shutil

import numpy as np
import pytest
from conftest import identities, numbered, opened, written

import dataset_rt as drt

COMPRESSIONS = {
    "none": drt.ShardCompression(),
    "lz4": drt.ShardCompression(algo="lz4"),
    "lz4 buffer": drt.ShardCompression(algo="lz4", scope="buffer"),
    "zstd": drt.ShardCompression(algo="zstd"),
    "zstd buffer": drt.ShardCompression(algo="zstd", scope="buffer"),
    "zstd dictionary": drt.ShardCompression(algo="zstd", dictionary_bytes=1024),
}


def expected_samples(count, start=0):
    return [tuple(sample) for sample in numbered(count, start)]


@pytest.mark.parametrize("io", ["auto", "mmap", "pread"])
@pytest.mark.parametrize("zero_copy", [False, True])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_way_of_storing_and_reading_gives_the_same_samples(
    runtime, tmp_path, compression, io, zero_copy
):
    config = drt.WriterConfig(
        show_progress=False, max_shard_bytes=2000, shard_compression=COMPRESSIONS[compression]
    )
    path = written(runtime, tmp_path, numbered(200), config=config)
    dataset = opened(runtime, path, io=io, zero_copy=zero_copy)
    assert [(bytes(s.data), s.metadata) for s in dataset] == expected_samples(200)


@pytest.mark.parametrize("options", [{"verify": False}, {"validate_cache": True}])
def test_checks_do_not_change_what_is_read(runtime, cache, options):
    assert [s[:2] for s in opened(runtime, cache, **options)] == expected_samples(50)


@pytest.mark.parametrize("prefetch", [1, 2, 3, 50, 1000])
@pytest.mark.parametrize("shuffle", [False, True])
def test_prefetch_changes_no_order(runtime, cache, prefetch, shuffle):
    plain = list(opened(runtime, cache, shuffle=shuffle))
    assert list(opened(runtime, cache, shuffle=shuffle, prefetch_size=prefetch)) == plain


@pytest.mark.parametrize("prefetch_bytes", [1, 100, 10_000])
def test_a_sample_larger_than_the_byte_budget_is_still_read(runtime, tmp_path, prefetch_bytes):
    samples = [(bytes([i]) * size, {}) for i, size in enumerate([5, 3_000_000, 0, 700, 9])]
    path = written(runtime, tmp_path, samples)
    dataset = opened(runtime, path, prefetch_bytes=prefetch_bytes)
    assert [s.data for s in dataset] == [payload for payload, _ in samples]


def test_several_caches_are_read_in_the_order_of_their_paths(runtime, tmp_path):
    paths = [
        written(runtime, tmp_path, numbered(5, start), name=f"c{start}") for start in (20, 0, 10)
    ]
    dataset = opened(runtime, paths)
    assert [s.metadata["number"] for s in dataset] == [
        *range(20, 25),
        *range(5),
        *range(10, 15),
    ]
    assert list(dataset.cache_paths) == paths


def test_identity_is_the_caches_id_and_the_row(runtime, cache):
    found = identities(opened(runtime, cache))
    assert found == [(drt.open_cache(cache).cache_id, row) for row in range(50)]


def test_a_sample_is_a_plain_tuple_with_four_names(runtime, cache):
    sample = next(iter(opened(runtime, cache)))
    assert isinstance(sample, tuple)
    assert type(sample) is drt.CachedSample
    data, metadata, cache_id, sample_id = sample
    assert sample == (data, metadata, cache_id, sample_id)
    match sample:
        case drt.CachedSample(data=found, sample_id=0):
            assert found is data
        case _:
            pytest.fail("the sample does not match its own class")


def test_samples_survive_pickling(runtime, cache):
    samples = list(opened(runtime, cache))
    assert pickle.loads(pickle.dumps(samples)) == samples


def test_a_copied_payload_is_bytes(runtime, cache):
    assert {type(s.data) for s in opened(runtime, cache)} == {bytes}


def test_metadata_of_two_samples_is_never_shared(runtime, cache):
    dataset = opened(runtime, cache)
    dataset[0].metadata["number"] = "changed"
    assert dataset[0].metadata["number"] == 0


def test_a_zero_copy_payload_is_a_read_only_view(runtime, cache):
    data = opened(runtime, cache, zero_copy=True)[3].data
    assert isinstance(data, memoryview)
    assert data.readonly
    assert data == numbered(4)[3][0]
    with pytest.raises(TypeError):
        data[0] = 1


def test_a_zero_copy_payload_outlives_dataset_runtime_and_file(tmp_path):
    with drt.DatasetRuntime(num_workers=2) as runtime:
        path = written(runtime, tmp_path, [(b"x" * 1_000_000, {})])
        dataset = opened(runtime, path, zero_copy=True)
        (sample,) = dataset
    del dataset, runtime
    shutil.rmtree(path)
    assert sample.data == b"x" * 1_000_000


def test_zero_copy_views_of_one_sample_share_their_memory(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"x" * 1_000_000, {})])
    dataset = opened(runtime, path, zero_copy=True)
    first, second = (np.frombuffer(dataset[0].data, "u1") for _ in range(2))
    assert first.ctypes.data == second.ctypes.data


def test_get_item_reads_one_physical_sample_and_moves_nothing(runtime, cache):
    dataset = opened(runtime, cache, shuffle=True)
    cache_id = drt.open_cache(cache).cache_id
    for row in (0, 49, 7):
        assert dataset.get_item(cache_id, row)[:2] == expected_samples(50)[row]
    assert dataset.epoch == 0


@pytest.mark.parametrize("identity", [(0, 50), (1, 0), (0, -1), (-1, 0), (0, 2**64), (2**70, 0)])
def test_get_item_of_an_unknown_identity_is_an_index_error(runtime, cache, identity):
    cache_id = drt.open_cache(cache).cache_id
    shift, row = identity
    with pytest.raises(IndexError) as caught:
        opened(runtime, cache).get_item(cache_id + shift if shift else cache_id, row)
    assert isinstance(caught.value, drt.SampleNotFoundError)


@pytest.mark.parametrize("shuffle", [False, True])
def test_positions_and_iteration_agree(runtime, cache, shuffle):
    dataset = opened(runtime, cache, shuffle=shuffle)
    dataset.set_epoch(3)
    by_position = [dataset[i] for i in range(len(dataset))]
    by_list = dataset.__getitems__(list(range(len(dataset))))
    assert by_position == by_list == list(dataset)


def test_getitems_takes_repeats_in_any_order(runtime, cache):
    dataset = opened(runtime, cache)
    assert [s.sample_id for s in dataset.__getitems__([9, 0, 9, 49])] == [9, 0, 9, 49]
    assert dataset.__getitems__([]) == []


@pytest.mark.parametrize("position", [-1, 50, 2**63, 2**64, -(2**64)])
def test_a_position_out_of_range_is_an_index_error(runtime, cache, position):
    dataset = opened(runtime, cache)
    with pytest.raises(IndexError, match="50"):
        dataset[position]
    with pytest.raises(IndexError, match="50"):
        dataset.__getitems__([0, position])


@pytest.mark.parametrize("position", [slice(0, 3), True, 1.0, "1", None, (0,)], ids=repr)
def test_a_position_that_is_no_integer_is_a_type_error(runtime, cache, position):
    with pytest.raises(TypeError):
        opened(runtime, cache)[position]


def test_numpy_integers_are_positions(runtime, cache):
    assert opened(runtime, cache)[np.int64(3)].sample_id == 3


def test_a_dataset_is_never_built_directly():
    with pytest.raises(TypeError, match="cached_dataset"):
        drt.CachedDataset()


def test_a_dataset_knows_what_it_was_made_with(runtime, cache):
    config = drt.ReaderConfig(seed=9, prefetch_size=3)
    dataset = runtime.cached_dataset(cache, reader_config=config)
    assert dataset.reader_config == config
    assert dataset.runtime is runtime
    assert dataset.runtime.num_workers == 2
    assert list(dataset.cache_paths) == [cache]


def test_a_sample_shows_the_beginning_of_a_long_payload():
    long = drt.CachedSample(b"x" * 1000, {"n": 1}, 7, 3)
    assert repr(long) == (
        "CachedSample(data=<1000 bytes: b'xxxxxxxxxxxxxxxx'...>, metadata={'n': 1}, cache_id=7, "
        "sample_id=3)"
    )
    assert "data=b'short'" in repr(drt.CachedSample(b"short", {}, 7, 3))

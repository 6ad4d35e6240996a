"""Sizes and numbers at the edges of their types: exact, or a clear error at write."""

import math
import shutil
import sys
from collections import Counter

import polars as pl
import pytest
from conftest import opened, written

import dataset_rt as drt

MIB = 1024 * 1024
COLUMNS = 1500
TINY = math.ulp(0.0)
LARGEST = sys.float_info.max


class Huge:
    """Payloads of 48 MiB, all different, that together pass 2 GiB."""

    name = "huge"
    count = 45

    def payload(self, i):
        payload = bytearray(48 * MIB)
        payload[:8] = payload[-8:] = i.to_bytes(8, "little")
        return payload

    def __iter__(self):
        for i in range(self.count):
            yield drt.CacheInput(self.payload(i), {"i": i})


@pytest.fixture
def huge_path(tmp_path):
    if shutil.disk_usage(tmp_path).free < 4096 * MIB:
        pytest.skip("not enough room for a shard of 2 GiB")
    yield tmp_path
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_payloads_of_one_shard_may_pass_two_gibibytes(runtime, huge_path, algo):
    source = Huge()
    config = drt.WriterConfig(
        show_progress=False,
        max_shard_bytes=4096 * MIB,
        prefetch_bytes=128 * MIB,
        shard_compression=drt.ShardCompression(algo=algo),
    )
    (result,) = runtime.write_cache(source, huge_path, writer_config=config)
    assert isinstance(result, drt.CacheWriteSuccess), result
    manifest = drt.open_cache(result.path).manifest
    (shard,) = manifest["shards"]
    assert manifest["payload_bytes_total"] == source.count * 48 * MIB > 2**31
    assert (shard["size_bytes"] > 2**31) == (algo == "none")
    dataset = opened(runtime, result.path, prefetch_bytes=128 * MIB)
    # The last ones lie beyond what 31 bits count.
    for i in (0, source.count // 2, source.count - 2, source.count - 1):
        assert dataset[i].data == source.payload(i), i
    seen = 0
    for batch in dataset.iter_batches(2, columns=["i", "payload"]):
        for i, payload in zip(batch["i"].to_pylist(), batch["payload"], strict=True):
            view = memoryview(payload.as_buffer())
            assert view[:8] == view[-8:] == i.to_bytes(8, "little")
            assert len(view) == 48 * MIB
            seen += 1
    assert seen == source.count
    assert drt.verify_cache(result.path, level="deep").ok


def test_many_columns_of_many_types_come_back(runtime, tmp_path):
    values = [lambda i: i, lambda i: i / 8, lambda i: f"v{i}", lambda i: i % 2 == 0, lambda _: None]
    samples = [
        (b"x", {f"c{c:04}": values[c % 5](c + row) for c in range(COLUMNS)}) for row in range(3)
    ]
    path = written(runtime, tmp_path, samples)
    dataset = opened(runtime, path)
    assert [sample.metadata for sample in dataset] == [metadata for _, metadata in samples]
    table = dataset.get_metadata()
    assert table.width == COLUMNS + 3
    assert table["c1498"].to_list() == [metadata["c1498"] for _, metadata in samples]
    dataset.update_metadata(table.with_columns(weight=pl.Series([1.0, 2.0, 3.0])))
    assert dataset.get_metadata()["weight"].to_list() == [1.0, 2.0, 3.0]
    assert drt.verify_cache(path, level="deep").ok


def drawn(runtime, cache, weights):
    dataset = opened(runtime, cache, seed=4, shuffle=True)
    dataset.update_metadata(dataset.get_metadata().with_columns(weight=pl.Series(weights)))
    dataset.set_epoch_len(2000)
    return [sample.sample_id for sample in dataset]


@pytest.mark.parametrize("unit", [TINY, 1e-310, 1.0, 1e307])
def test_weights_count_by_their_ratio_whatever_their_size(runtime, cache, unit):
    equal = Counter(drawn(runtime, cache, [unit] * 50))
    assert len(equal) == 50
    assert 10 < min(equal.values()) <= max(equal.values()) < 90  # 40 expected, five deviations
    uneven = drawn(runtime, cache, [3 * unit] * 25 + [unit] * 25)
    share = sum(row < 25 for row in uneven) / len(uneven)
    assert 0.7 < share < 0.8


def test_the_smallest_weight_beside_the_largest_is_not_drawn_by_chance(runtime, cache):
    assert set(drawn(runtime, cache, [LARGEST] * 25 + [TINY] * 25)) == set(range(25))

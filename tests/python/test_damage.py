"""Damage is refused where it lies, by every face, and nowhere else; see the exhaustive test too."""

import re
import shutil

import numpy as np
import pytest
from conftest import opened, put, written

import dataset_rt as drt

COMPRESSIONS = {
    "none": drt.ShardCompression(),
    "lz4": drt.ShardCompression(algo="lz4"),
    "lz4 buffer": drt.ShardCompression(algo="lz4", scope="buffer"),
    "zstd": drt.ShardCompression(algo="zstd"),
    "zstd buffer": drt.ShardCompression(algo="zstd", scope="buffer"),
    "zstd dictionary": drt.ShardCompression(algo="zstd", dictionary_bytes=1024),
}


def samples_of_many_blocks():
    """Payloads that make every shard many verification blocks long."""
    source = np.random.default_rng(3)
    return [
        (source.bytes(int(source.integers(0, 20_000))) + b"text" * 500, {"n": i, "s": f"row {i}"})
        for i in range(150)
    ]


SAMPLES = samples_of_many_blocks()


@pytest.fixture(scope="module", params=COMPRESSIONS)
def pristine(request, tmp_path_factory):
    config = drt.WriterConfig(
        max_shard_bytes=600_000,
        show_progress=False,
        shard_compression=COMPRESSIONS[request.param],
    )
    with drt.DatasetRuntime(num_workers=2) as runtime:
        return written(runtime, tmp_path_factory.mktemp("pristine"), SAMPLES, config=config)


@pytest.fixture
def broken(pristine, tmp_path):
    """A copy to be damaged."""
    return shutil.copytree(pristine, tmp_path / "broken")


def corrupt_rows(runtime, path, **options):
    """Read every row; return those that are refused as corrupt. All others must be right."""
    try:
        dataset = opened(runtime, path, **options)
    except drt.CorruptError:
        return list(range(len(SAMPLES)))
    refused = []
    for row, (payload, metadata) in enumerate(SAMPLES):
        try:
            sample = dataset[row]
        except drt.CorruptError:
            refused.append(row)
        else:
            assert (bytes(sample.data), sample.metadata) == (payload, metadata)
    return refused


def test_damage_in_one_block_leaves_the_rest_of_the_shard_readable(runtime, pristine, broken):
    shard = broken / "shards" / "000001.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    put(shard, content)
    refused = corrupt_rows(runtime, broken)
    in_one_shard = len(SAMPLES) / len(list((broken / "shards").iterdir()))
    assert 1 <= len(refused) <= in_one_shard + 10


@pytest.mark.parametrize("name", ["metadata.arrow"])
def test_damaged_metadata_is_refused_by_every_face(runtime, broken, name):
    content = bytearray((broken / name).read_bytes())
    place = content.index(b"row 77")
    content[place] ^= 1
    put(broken / name, content)
    for face in (
        lambda: drt.open_cache(broken).metadata(),
        lambda: opened(runtime, broken).get_metadata(),
        lambda: list(opened(runtime, broken)),
    ):
        with pytest.raises(drt.CorruptError, match=r"metadata\.arrow"):
            face()


def test_an_iterator_raises_in_the_place_of_the_damaged_sample(runtime, pristine, broken):
    shard = broken / "shards" / "000001.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    put(shard, content)
    first = corrupt_rows(runtime, broken)[0]
    iterator = iter(opened(runtime, broken, prefetch_size=500))
    taken = []
    with pytest.raises(drt.CorruptError, match=r"000001\.arrow"):
        taken.extend(sample.sample_id for sample in iterator)
    # extend() keeps what it took before the error.
    assert taken == list(range(first))


@pytest.mark.parametrize("face", ["payload", "shard"])
def test_inspection_refuses_the_damaged_shard_alone(broken, face):
    shard = broken / "shards" / "000001.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    put(shard, content)
    cache = drt.open_cache(broken)
    faces = {
        "payload": [lambda row=row: cache.payload(row) for row in range(len(SAMPLES))],
        "shard": [shard.to_arrow for shard in cache.shards()],
    }[face]
    refused = 0
    for attempt in faces:
        try:
            attempt()
        except drt.CorruptError:
            refused += 1
    assert 0 < refused < len(faces)


def test_damage_names_the_cache_and_the_sample(runtime, broken):
    shard = broken / "shards" / "000001.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    put(shard, content)
    lost = corrupt_rows(runtime, broken)[0]
    dataset = opened(runtime, broken)
    cache_id = dataset.get_metadata()["cache_id"][0]
    named = re.escape(f"sample_id {lost} of cache_id {cache_id} in {broken}")
    for face in (
        lambda: list(dataset),
        lambda: dataset[lost],
        lambda: dataset.get_item(cache_id, lost),
        lambda: dataset.__getitems__([lost, 0]),
        lambda: list(dataset.iter_batches(50)),
        lambda: dataset.scan().select("payload").collect(),
    ):
        with pytest.raises(drt.CorruptError, match=named):
            face()
    put(broken / "metadata.arrow", (broken / "metadata.arrow").read_bytes()[:-1] + b"?")
    with pytest.raises(drt.CorruptError, match=re.escape(str(broken))):
        opened(runtime, broken).get_metadata()

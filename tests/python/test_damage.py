"""A damaged cache gives right samples or a CorruptError: never wrong bytes, never a crash."""

import random
import shutil

import numpy as np
import pytest
from conftest import opened, put, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dataset_rt as drt

COMPRESSIONS = {
    "none": drt.ShardCompression(),
    "lz4": drt.ShardCompression(algo="lz4"),
    "lz4 buffer": drt.ShardCompression(algo="lz4", scope="buffer"),
    "zstd": drt.ShardCompression(algo="zstd"),
    "zstd buffer": drt.ShardCompression(algo="zstd", scope="buffer"),
    "zstd dictionary": drt.ShardCompression(algo="zstd", dictionary_bytes=1024),
}
MUCH = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


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


def files_of(path):
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


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


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_a_flipped_bit_anywhere_never_gives_wrong_samples(runtime, pristine, broken, io):
    @MUCH
    @given(name=st.sampled_from(files_of(pristine)), share=st.floats(0, 1), bit=st.integers(0, 7))
    def check(name, share, bit):
        content = bytearray((pristine / name).read_bytes())
        content[int(share * (len(content) - 1))] ^= 1 << bit
        put(broken / name, content)
        try:
            corrupt_rows(runtime, broken, io=io)
        finally:
            put(broken / name, (pristine / name).read_bytes())

    check()


def test_without_verification_a_flipped_bit_never_crashes(runtime, pristine, broken):
    @MUCH
    @given(name=st.sampled_from(files_of(pristine)), share=st.floats(0, 1), bit=st.integers(0, 7))
    def check(name, share, bit):
        content = bytearray((pristine / name).read_bytes())
        content[int(share * (len(content) - 1))] ^= 1 << bit
        put(broken / name, content)
        try:
            dataset = opened(runtime, broken, verify=False)
            dataset.get_metadata()
            list(dataset)
        except drt.DatasetRTError:
            pass
        finally:
            put(broken / name, (pristine / name).read_bytes())

    check()


def test_a_file_cut_anywhere_is_a_typed_error(runtime, pristine, broken):
    chooser = random.Random(1)
    for name in files_of(pristine):
        content = (pristine / name).read_bytes()
        for size in {0, 1, len(content) - 1, chooser.randrange(len(content))}:
            put(broken / name, content[:size])
            assert corrupt_rows(runtime, broken), (name, size)
        put(broken / name, content)


def test_a_missing_file_is_a_typed_error_that_names_it(runtime, pristine, broken):
    for name in files_of(pristine):
        (broken / name).unlink()
        with pytest.raises(drt.DatasetRTError, match=name.rsplit("/", 1)[-1].replace(".", r"\.")):
            list(opened(runtime, broken))
        put(broken / name, (pristine / name).read_bytes())


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

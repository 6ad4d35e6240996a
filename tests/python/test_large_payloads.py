"""Payloads that several threads copy into one `bytes` each: whole, alone, and never too late."""

import os
import random

import pytest
from conftest import opened, put, run_script, written

import dataset_rt as drt

MIB = 1 << 20
SOURCE = random.Random(5)
# Around a piece of the work, and around what one run of payloads holds.
SIZES = [MIB - 1, MIB, MIB + 1, 0, 1, 5 * MIB // 2, 16_384, 200_000, 9 * MIB, 0, 300_000, 3 * MIB]
SAMPLES = [(SOURCE.randbytes(size), {"row": row}) for row, size in enumerate(SIZES * 2)]


@pytest.fixture(scope="module", params=["none", "lz4"])
def cache(request, tmp_path_factory):
    compression = drt.ShardCompression(algo=request.param)
    config = drt.WriterConfig(
        show_progress=False, max_shard_bytes=20 * MIB, shard_compression=compression
    )
    with drt.DatasetRuntime(num_workers=2) as runtime:
        return written(runtime, tmp_path_factory.mktemp("large"), SAMPLES, config=config)


def assert_right(samples):
    for sample in samples:
        assert type(sample.data) is bytes
        assert sample.data == SAMPLES[sample.metadata["row"]][0], sample.metadata


@pytest.mark.parametrize("options", [{}, {"io": "pread"}, {"prefetch_bytes": MIB}], ids=str)
def test_every_face_delivers_every_byte(runtime, cache, options):
    dataset = opened(runtime, cache, **options)
    samples = list(dataset)
    assert [sample.metadata["row"] for sample in samples] == list(range(len(SAMPLES)))
    assert_right(samples)
    drawn = list(opened(runtime, cache, shuffle=True, **options))
    assert_right(drawn)
    assert len(drawn) == len(SAMPLES)
    rows = SOURCE.sample(range(len(SAMPLES)), len(SAMPLES))
    assert_right(dataset.__getitems__(rows))
    assert_right([dataset[8], dataset.get_item(samples[0].cache_id, 11)])


def test_nobody_writes_into_memory_that_was_given_up(runtime, cache):
    dataset = opened(runtime, cache, shuffle=True)
    for _ in range(150):
        samples = iter(dataset)
        next(samples)
        del samples
        # Whoever takes the memory of the objects that were being filled keeps what it writes.
        others = [bytearray(b"\x07") * size for size in SIZES]
        assert all(other.count(7) == size for other, size in zip(others, SIZES, strict=True))


def test_a_child_gives_up_what_its_parent_was_filling(cache):
    script = """
        import os, sys
        import dataset_rt as drt

        config = drt.ReaderConfig(seed=0, shuffle=True)
        runtime = drt.DatasetRuntime(num_workers=2)
        dataset = runtime.cached_dataset(sys.argv[1], reader_config=config)
        sizes = 0
        for _ in range(5):
            samples = iter(dataset)
            for sample in samples:
                sizes += len(sample.data)
                child = os.fork()
                if not child:
                    try:
                        next(samples)
                    except drt.ConflictError:
                        del samples
                        os._exit(0)
                    os._exit(1)
                assert os.waitpid(child, 0)[1] == 0
        print(sizes)
    """
    assert int(run_script(script, cache)) > 0


def test_one_damaged_payload_costs_itself_alone(runtime, tmp_path):
    samples = [(SOURCE.randbytes(256 << 10), {"row": row}) for row in range(40)]
    path = written(runtime, tmp_path, samples)
    (shard,) = (path / "shards").iterdir()
    content = bytearray(shard.read_bytes())
    place = content.index(samples[20][0])
    content[place + (128 << 10)] ^= 1
    put(shard, content)
    seen, samples_left = [], iter(opened(runtime, path))
    while True:
        try:
            seen.append(next(samples_left))
        except StopIteration:
            break
        except drt.CorruptError:
            seen.append(None)
    assert [row for row, sample in enumerate(seen) if sample is None] == [20]
    assert all(
        sample is None or sample.data == data
        for sample, (data, _) in zip(seen, samples, strict=True)
    )


def test_a_file_that_changes_is_noticed_before_the_next_payload(runtime, tmp_path):
    samples = [(SOURCE.randbytes(256 << 10), {"row": row}) for row in range(200)]
    path = written(runtime, tmp_path, samples)
    (shard,) = (path / "shards").iterdir()
    reading = iter(opened(runtime, path))
    for row in range(3):
        assert next(reading).data == samples[row][0]
    size = shard.stat().st_size
    with shard.open("r+b") as file:
        for start in range(0, size, MIB):
            file.write(os.urandom(min(MIB, size - start)))
    outcomes = []
    while True:
        try:
            sample = next(reading)
        except StopIteration:
            break
        except (drt.ConflictError, drt.CorruptError):
            outcomes.append(False)
        else:
            assert sample.data == samples[sample.metadata["row"]][0]
            outcomes.append(True)
    # What was copied before the change is delivered, nothing behind it: 8 MiB at most.
    assert len(outcomes) == 197
    assert outcomes.count(True) <= 32
    assert not any(outcomes[32:])

"""The same source makes the same bytes, and the same contents have the same identity."""

import math
from datetime import UTC, datetime

import numpy as np
import pytest
from conftest import directory_digest, numbered, run_script, written
from hypothesis import given, settings
from hypothesis import strategies as st

import dataset_rt as drt

COMPRESSIONS = {
    "none": drt.ShardCompression(),
    "lz4": drt.ShardCompression(algo="lz4"),
    "lz4 buffer": drt.ShardCompression(algo="lz4", scope="buffer"),
    "zstd": drt.ShardCompression(algo="zstd"),
    "zstd 19": drt.ShardCompression(algo="zstd", level=19),
    "zstd buffer": drt.ShardCompression(algo="zstd", scope="buffer"),
    "zstd dictionary": drt.ShardCompression(algo="zstd", dictionary_bytes=4096),
}


def samples_of_many_kinds(count=400):
    random = np.random.default_rng(5)
    return [
        (
            random.bytes(int(random.integers(0, 300))) + b"common text " * 5,
            {
                "i": i if i % 5 < 4 else None,
                "f": math.nan if i % 3 else i / 3,
                "s": "é" * (i % 9),
                "b": i % 2 == 0,
                "t": datetime(2020, 1, 1, tzinfo=UTC).replace(microsecond=i),
            },
        )
        for i in range(count)
    ]


def written_with(directory, samples, name="words", workers=2, **options):
    config = drt.WriterConfig(show_progress=False, **options)
    with drt.DatasetRuntime(num_workers=workers) as runtime:
        return written(runtime, directory, samples, name=name, config=config)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_files_are_identical_for_any_workers_and_prefetch(tmp_path, compression):
    digests = []
    for number, (workers, prefetch) in enumerate([(1, 1), (2, 7), (3, 256), (4, 1000)]):
        path = written_with(
            tmp_path / str(number),
            samples_of_many_kinds(),
            workers=workers,
            prefetch_size=prefetch,
            max_shard_bytes=20_000,
            shard_compression=COMPRESSIONS[compression],
        )
        digests.append(directory_digest(path))
    assert len(digests[0]) > 4
    assert digests == [digests[0]] * 4


def test_files_are_identical_in_another_process(tmp_path):
    script = """
        import sys
        import dataset_rt as drt
        class Words:
            name = "words"
            def __iter__(self):
                for i in range(300):
                    yield drt.CacheInput(b"x" * i, {"i": i, "s": str(i)})
        with drt.DatasetRuntime(num_workers=3) as runtime:
            config = drt.WriterConfig(show_progress=False)
            runtime.write_cache(Words(), sys.argv[1], writer_config=config)
    """
    run_script(script, tmp_path / "other")
    samples = [(b"x" * i, {"i": i, "s": str(i)}) for i in range(300)]
    here = written_with(tmp_path / "here", samples)
    assert directory_digest(here) == directory_digest(tmp_path / "other" / "words")


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("shard_bytes", [1, 5000, 2**28])
def test_identity_ignores_layout_name_and_place(tmp_path, compression, shard_bytes):
    samples = samples_of_many_kinds(40)
    plain = written_with(tmp_path / "plain", samples)
    other = written_with(
        tmp_path / "other",
        samples,
        name="another name",
        max_shard_bytes=shard_bytes,
        shard_compression=COMPRESSIONS[compression],
    )
    assert drt.open_cache(plain).cache_id == drt.open_cache(other).cache_id


def cache_id(directory, samples):
    return drt.open_cache(written_with(directory, samples, workers=1)).cache_id


CHANGES = {
    "payload byte": lambda s: [(b"X", s[0][1]), *s[1:]],
    "payload boundary": lambda s: [(s[0][0] + s[1][0][:1], s[0][1]), (s[1][0][1:], s[1][1])],
    "int cell": lambda s: [(s[0][0], {**s[0][1], "i": 7}), s[1]],
    "str cell": lambda s: [(s[0][0], {**s[0][1], "s": "other"}), s[1]],
    "sign of zero": lambda s: [(s[0][0], {**s[0][1], "f": -0.0}), s[1]],
    "null for a value": lambda s: [(s[0][0], {**s[0][1], "s": None}), s[1]],
    "empty for null": lambda s: [s[0], (s[1][0], {**s[1][1], "s": ""})],
    "text boundary": lambda s: [(s[0][0], {**s[0][1], "s": "text2"}), s[1]],
    "order of rows": lambda s: [s[1], s[0]],
    "column name": lambda s: [(p, {**dict(m), "i2": m["i"]}) for p, m in s],
    "one row more": lambda s: [*s, s[0]],
    "one row less": lambda s: s[:1],
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_of_contents_changes_the_identity(tmp_path, change):
    samples = [(b"abc", {"i": 1, "f": 0.0, "s": "text"}), (b"def", {"i": 2, "f": 1.0, "s": None})]
    changed = CHANGES[change](samples)
    assert cache_id(tmp_path / "a", samples) != cache_id(tmp_path / "b", changed)


def test_a_renamed_column_changes_the_identity(tmp_path):
    first = cache_id(tmp_path / "a", [(b"", {"x": 1})])
    assert first != cache_id(tmp_path / "b", [(b"", {"y": 1})])


@settings(max_examples=20, deadline=None)
@given(
    payloads=st.lists(st.binary(max_size=20), min_size=1, max_size=6),
    position=st.integers(0, 5),
    change=st.binary(max_size=20),
)
def test_a_changed_payload_always_changes_the_identity(
    tmp_path_factory, payloads, position, change
):
    position %= len(payloads)
    changed = [*payloads[:position], change, *payloads[position + 1 :]]
    directory = tmp_path_factory.mktemp("c")
    ids = {
        cache_id(directory / str(number), [(payload, {}) for payload in version])
        for number, version in enumerate([payloads, changed])
    }
    assert len(ids) == (1 if change == payloads[position] else 2)


def test_identity_survives_json_and_float64(tmp_path):
    ids = [cache_id(tmp_path / str(i), numbered(i + 1)) for i in range(20)]
    assert all(0 <= found < 2**53 and int(float(found)) == found for found in ids)
    assert len(set(ids)) == 20


def test_a_moved_and_touched_cache_keeps_its_identity(tmp_path):
    path = written_with(tmp_path, numbered(5))
    before = drt.open_cache(path).cache_id
    moved = path.rename(tmp_path / "moved")
    for file in moved.rglob("*"):
        file.touch()
    (moved / "note.txt").write_text("an extra file is ignored")
    assert drt.open_cache(moved).cache_id == before


def test_no_clock_host_or_user_enters_the_files(tmp_path):
    first = written_with(tmp_path / "a", numbered(5))
    second = written_with(tmp_path / "b", numbered(5))
    assert directory_digest(first) == directory_digest(second)

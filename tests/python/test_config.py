"""Configs refuse what they do not know and what cannot work; needs no cache."""

import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import BaseModel, ValidationError

from dataset_rt import ReaderConfig, ShardCompression, WriterConfig, WriterProfilerConfig

MIB = 1024 * 1024


def refused(build, field):
    """Return the message of the refusal, which must be about `field` ("" for the whole)."""
    with pytest.raises(ValidationError) as caught:
        build()
    (error,) = caught.value.errors()
    found = ".".join(str(place) for place in error["loc"])
    assert found.split(".")[0] == field, error
    return error["msg"]


def test_defaults_are_the_documented_ones():
    writer = WriterConfig()
    assert writer.model_dump() == {
        "prefetch_size": 256,
        "prefetch_bytes": None,
        "max_shard_bytes": 256 * MIB,
        "shard_compression": {
            "algo": "none",
            "level": None,
            "scope": "payload",
            "dictionary_bytes": 0,
        },
        "show_progress": True,
        "validate_cache": False,
        "on_stale": "error",
        "resume": True,
        "lock_timeout": None,
        "profiler": {"enabled": False, "path": Path("dataset_rt_profile.json")},
        "num_processes": 1,
        "process_timeout": None,
    }
    assert ReaderConfig(seed=3).model_dump() == {
        "seed": 3,
        "shuffle": True,
        "prefetch_size": 256,
        "prefetch_bytes": None,
        "sampling": "multinomial",
        "validate_cache": False,
        "verify": True,
        "io": "auto",
        "zero_copy": False,
    }


@pytest.mark.parametrize(
    "config",
    [ReaderConfig(seed=1), WriterConfig(), ShardCompression(), WriterProfilerConfig()],
    ids=lambda config: type(config).__name__,
)
def test_configs_are_frozen_comparable_and_refuse_unknown_fields(config: BaseModel):
    field = next(iter(type(config).model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(config, field, getattr(config, field))
    assert config == type(config)(**dict(config))
    assert hash(config) == hash(type(config)(**dict(config)))
    assert "not permitted" in refused(lambda: type(config)(**dict(config), sede=1), "sede")


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
def test_every_u64_is_a_seed(seed):
    assert ReaderConfig(seed=seed).seed == seed
    assert json.loads(ReaderConfig(seed=seed).model_dump_json())["seed"] == seed


@pytest.mark.parametrize("seed", [-1, 2**64, True, False, np.True_, 1.0, "1", b"1", None, [1]])
def test_anything_but_a_u64_is_no_seed(seed):
    refused(lambda: ReaderConfig(seed=seed), "seed")


def test_a_seed_must_be_given():
    assert "required" in refused(ReaderConfig, "seed")


def test_a_numpy_integer_becomes_a_plain_int():
    config = ReaderConfig(seed=np.uint64(2**64 - 1), prefetch_size=np.int32(7))
    assert (config.seed, config.prefetch_size) == (2**64 - 1, 7)
    assert type(config.seed) is int
    assert type(config.prefetch_size) is int


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "256", 2**63])
@pytest.mark.parametrize("field", ["prefetch_size", "prefetch_bytes"])
def test_counts_are_positive_integers(field, value):
    refused(lambda: ReaderConfig(seed=0, **{field: value}), field)
    refused(lambda: WriterConfig(**{field: value}), field)


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "1", None])
def test_max_shard_bytes_is_a_positive_integer(value):
    refused(lambda: WriterConfig(max_shard_bytes=value), "max_shard_bytes")


def test_the_smallest_counts_are_accepted():
    config = WriterConfig(prefetch_size=1, prefetch_bytes=1, max_shard_bytes=1)
    assert (config.prefetch_size, config.prefetch_bytes, config.max_shard_bytes) == (1, 1, 1)


@pytest.mark.parametrize("flag", ["shuffle", "validate_cache", "verify", "zero_copy"])
@pytest.mark.parametrize("value", [0, 1, "yes", None])
def test_reader_flags_are_booleans(flag, value):
    refused(lambda: ReaderConfig(seed=0, **{flag: value}), flag)


@pytest.mark.parametrize("flag", ["show_progress", "validate_cache"])
@pytest.mark.parametrize("value", [0, 1, "yes", None])
def test_writer_flags_are_booleans(flag, value):
    refused(lambda: WriterConfig(**{flag: value}), flag)


def test_choices_are_closed_lists():
    refused(lambda: ReaderConfig(seed=0, sampling="uniform"), "sampling")
    refused(lambda: ReaderConfig(seed=0, io="direct"), "io")
    refused(lambda: WriterConfig(on_stale="ignore"), "on_stale")
    refused(lambda: ShardCompression(algo="gzip"), "algo")
    refused(lambda: ShardCompression(scope="shard"), "scope")


@pytest.mark.parametrize("level", [1, 3, 22, None])
def test_zstd_takes_levels_1_to_22(level):
    assert ShardCompression(algo="zstd", level=level).level == level


@pytest.mark.parametrize("level", [0, -5, 23, True, 3.0, "3"])
def test_zstd_refuses_other_levels(level):
    refused(lambda: ShardCompression(algo="zstd", level=level), "level")


@pytest.mark.parametrize("algo", ["lz4", "none"])
def test_algorithms_without_levels_refuse_one(algo):
    assert ShardCompression(algo=algo).level is None
    message = refused(lambda: ShardCompression(algo=algo, level=1), "")
    assert "level=1 needs algo='zstd'" in message
    assert repr(algo) in message


@pytest.mark.parametrize("size", [0, 256, 16 * 1024, MIB])
def test_a_dictionary_may_have_256_bytes_to_1_mib(size):
    assert ShardCompression(algo="zstd", dictionary_bytes=size).dictionary_bytes == size


@pytest.mark.parametrize("size", [1, 255, MIB + 1])
def test_a_dictionary_of_another_size_is_refused(size):
    message = refused(lambda: ShardCompression(algo="zstd", dictionary_bytes=size), "")
    assert str(size) in message
    assert str(MIB) in message


@pytest.mark.parametrize(
    ("algo", "scope"), [("none", "payload"), ("lz4", "payload"), ("zstd", "buffer")]
)
def test_a_dictionary_needs_zstd_and_payload_scope(algo, scope):
    message = refused(
        lambda: ShardCompression(algo=algo, scope=scope, dictionary_bytes=16 * 1024), ""
    )
    assert "needs algo='zstd' and scope='payload'" in message


@pytest.mark.parametrize("seconds", [0, 1, 2.5, None])
def test_lock_timeout_is_a_number_of_seconds(seconds):
    assert WriterConfig(lock_timeout=seconds).lock_timeout == seconds


@pytest.mark.parametrize("seconds", [-0.1, float("inf"), float("nan"), True, "1"])
def test_lock_timeout_refuses_what_is_no_duration(seconds):
    refused(lambda: WriterConfig(lock_timeout=seconds), "lock_timeout")


def test_the_profile_path_may_be_text_or_path():
    assert WriterProfilerConfig(path="out/profile.json").path == Path("out/profile.json")
    assert WriterProfilerConfig(path=Path("profile.json")).path == Path("profile.json")
    refused(lambda: WriterProfilerConfig(path=3), "path")
    assert "must name a file" in refused(lambda: WriterProfilerConfig(path=""), "path")


def test_nested_configs_may_be_given_as_dicts():
    config = WriterConfig(shard_compression={"algo": "lz4"}, profiler={"enabled": True})
    assert config.shard_compression == ShardCompression(algo="lz4")
    assert config.profiler.enabled
    refused(lambda: WriterConfig(shard_compression="lz4"), "shard_compression")
    refused(lambda: WriterConfig(shard_compression={"algorithm": "lz4"}), "shard_compression")


def test_configs_survive_json():
    writer = WriterConfig(
        shard_compression=ShardCompression(algo="zstd", level=5, dictionary_bytes=4096),
        on_stale="rewrite",
        lock_timeout=1.5,
    )
    assert WriterConfig.model_validate_json(writer.model_dump_json()) == writer
    reader = ReaderConfig(seed=2**64 - 1, shuffle=False, io="pread")
    assert ReaderConfig.model_validate_json(reader.model_dump_json()) == reader

"""from_cache_sources: reuse without touching the source, staleness, and what it returns."""

import json

import pyarrow as pa
import pytest
from conftest import ListSource, directory_digest, numbered, put, written

import dataset_rt as drt

READER = drt.ReaderConfig(seed=0, shuffle=False)


def load(runtime, sources, directory, **options):
    return runtime.from_cache_sources(
        sources,
        directory,
        reader_config=READER,
        writer_config=drt.WriterConfig(show_progress=False, **options),
    )


def loaded(runtime, sources, directory, **options):
    result = load(runtime, sources, directory, **options)
    assert isinstance(result, drt.CacheSourcesDatasetSuccess), result
    return result


class Untouchable(ListSource):
    """A source that must not be read."""

    def __iter__(self):
        raise AssertionError("the source was touched")


def test_missing_caches_are_written_then_reused_without_touching_the_source(runtime, tmp_path):
    first = loaded(runtime, ListSource("a", numbered(5)), tmp_path)
    second = loaded(runtime, Untouchable("a", []), tmp_path)
    assert [first.results[0].status, second.results[0].status] == ["written", "reused"]
    assert list(first.dataset) == list(second.dataset)


def test_a_reused_cache_counts_its_samples(runtime, tmp_path):
    loaded(runtime, ListSource("a", numbered(5)), tmp_path)
    assert loaded(runtime, Untouchable("a", []), tmp_path).results[0].samples_reused == 5


def test_only_missing_sources_are_written(runtime, tmp_path):
    loaded(runtime, ListSource("a", numbered(5)), tmp_path)
    sources = [Untouchable("a", []), ListSource("b", numbered(5, start=5))]
    result = loaded(runtime, sources, tmp_path)
    assert [found.status for found in result.results] == ["reused", "written"]
    assert len(result.dataset) == 10


def test_one_failed_source_leaves_a_dataset_of_the_others(runtime, tmp_path):
    result = loaded(runtime, [ListSource("a", []), ListSource("b", numbered(5))], tmp_path)
    assert [type(found).__name__ for found in result.results] == [
        "CacheWriteError",
        "CacheWriteSuccess",
    ]
    assert len(result.dataset) == 5


def test_when_every_source_failed_the_message_names_them(runtime, tmp_path):
    result = load(runtime, [ListSource("first", []), ListSource("second", [])], tmp_path)
    assert isinstance(result, drt.CacheSourcesDatasetError)
    assert "first" in result.message
    assert "second" in result.message
    assert len(result.results) == 2


def test_caches_that_form_no_dataset_are_an_error_with_every_result(runtime, tmp_path):
    sources = [ListSource("a", [(b"", {"x": 1})]), ListSource("b", [(b"", {"y": 1})])]
    result = load(runtime, sources, tmp_path)
    assert isinstance(result, drt.CacheSourcesDatasetError)
    assert [found.status for found in result.results] == ["written", "written"]
    assert '"x"' in result.message
    assert '"y"' in result.message


STALE = [("v1", "v2"), (None, "v2"), ("v1", None)]


@pytest.mark.parametrize(("stored", "asked"), STALE)
def test_another_fingerprint_is_an_error_with_both_values(runtime, tmp_path, stored, asked):
    path = written(runtime, tmp_path, numbered(5), name="a", fingerprint=stored)
    before = directory_digest(path)
    result = load(runtime, Untouchable("a", [], fingerprint=asked), tmp_path)
    assert isinstance(result, drt.CacheSourcesDatasetError)
    message = result.results[0].message
    assert all(value in message for value in (stored, asked) if value)
    assert "on_stale" in message
    assert directory_digest(path) == before


@pytest.mark.parametrize(("stored", "asked"), STALE)
def test_on_stale_reuse_takes_the_cache_as_it_is(runtime, tmp_path, stored, asked):
    path = written(runtime, tmp_path, numbered(5), name="a", fingerprint=stored)
    before = directory_digest(path)
    source = Untouchable("a", [], fingerprint=asked)
    assert loaded(runtime, source, tmp_path, on_stale="reuse").results[0].status == "reused"
    assert directory_digest(path) == before


@pytest.mark.parametrize(("stored", "asked"), STALE)
def test_on_stale_rewrite_replaces_the_cache(runtime, tmp_path, stored, asked):
    written(runtime, tmp_path, numbered(5), name="a", fingerprint=stored)
    source = ListSource("a", numbered(8), fingerprint=asked)
    result = loaded(runtime, source, tmp_path, on_stale="rewrite")
    assert result.results[0].status == "written"
    assert len(result.dataset) == 8
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("on_stale", ["error", "rewrite", "reuse"])
def test_an_equal_fingerprint_is_reused(runtime, tmp_path, on_stale):
    written(runtime, tmp_path, numbered(5), name="a", fingerprint="v1")
    result = loaded(runtime, Untouchable("a", [], fingerprint="v1"), tmp_path, on_stale=on_stale)
    assert result.results[0].status == "reused"


def test_another_declared_schema_is_an_error_with_both_types(runtime, tmp_path):
    written(runtime, tmp_path, [(b"", {"v": 1})], name="a")
    schema = pa.schema([("v", pa.int32())])
    result = load(runtime, Untouchable("a", [], schema=schema), tmp_path)
    assert isinstance(result, drt.CacheSourcesDatasetError)
    message = result.results[0].message.lower()
    assert "int32" in message
    assert "int64" in message


def test_another_declared_schema_is_rewritten_when_asked(runtime, tmp_path):
    written(runtime, tmp_path, [(b"", {"v": 1})], name="a")
    source = ListSource("a", [(b"", {"v": 1})], schema=pa.schema([("v", pa.int32())]))
    result = loaded(runtime, source, tmp_path, on_stale="rewrite")
    assert drt.open_cache(result.results[0].path).schema.field("v").type == pa.int32()


def test_an_equal_declared_schema_is_reused(runtime, tmp_path):
    schema = pa.schema([("v", pa.int32())])
    written(runtime, tmp_path, [(b"", {"v": 1})], name="a", schema=schema)
    source = Untouchable("a", [], schema=schema)
    assert loaded(runtime, source, tmp_path).results[0].status == "reused"


def test_a_failed_rewrite_keeps_the_old_cache(runtime, tmp_path):
    path = written(runtime, tmp_path, numbered(5), name="a", fingerprint="v1")
    before = directory_digest(path)
    source = ListSource("a", [(b"", {"v": object()})], fingerprint="v2")
    assert isinstance(
        load(runtime, source, tmp_path, on_stale="rewrite"), drt.CacheSourcesDatasetError
    )
    assert directory_digest(path) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_an_open_dataset_survives_a_rewrite_or_says_conflict(runtime, tmp_path):
    old = loaded(runtime, ListSource("a", numbered(50), fingerprint="v1"), tmp_path).dataset
    expected = [sample.data for sample in old]
    source = ListSource("a", numbered(50, start=1000), fingerprint="v2")
    loaded(runtime, source, tmp_path, on_stale="rewrite")
    try:
        assert [sample.data for sample in old] == expected
    except drt.ConflictError as error:
        assert "open" in str(error)  # noqa: PT017 - both outcomes are promised


def manifest_of(path):
    (found,) = [file for file in path.iterdir() if file.name.startswith("manifest")]
    return found


def damaged(path, how):
    manifest = manifest_of(path)
    content = manifest.read_bytes()
    if how == "missing":
        manifest.unlink()
    else:
        put(manifest, {"empty": b"", "cut": content[:-20], "text": b"hello"}[how])


@pytest.mark.parametrize("on_stale", ["error", "rewrite", "reuse"])
@pytest.mark.parametrize("how", ["empty", "cut", "text", "missing"])
def test_a_corrupt_cache_is_an_error_and_never_rewritten(runtime, tmp_path, on_stale, how):
    path = written(runtime, tmp_path, numbered(5), name="a", fingerprint="v1")
    damaged(path, how)
    before = directory_digest(path)
    source = Untouchable("a", [], fingerprint="v2")
    result = load(runtime, source, tmp_path, on_stale=on_stale)
    assert isinstance(result, drt.CacheSourcesDatasetError), result
    assert directory_digest(path) == before


def test_validate_cache_finds_a_flipped_byte_before_reuse(runtime, tmp_path):
    path = written(runtime, tmp_path, numbered(500), name="a")
    shard = max(path.rglob("*.arrow"), key=lambda file: file.stat().st_size)
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    put(shard, content)
    result = load(runtime, Untouchable("a", []), tmp_path, validate_cache=True)
    assert isinstance(result, drt.CacheSourcesDatasetError)
    assert isinstance(result.results[0].exception, drt.CorruptError)
    assert shard.name in result.results[0].message


def test_bad_arguments_still_raise(runtime, tmp_path):
    with pytest.raises(ValueError, match="name"):
        load(runtime, [ListSource("a", []), ListSource("a", [])], tmp_path)
    with pytest.raises(TypeError):
        runtime.from_cache_sources(ListSource("a", []), tmp_path, reader_config={"seed": 1})


def test_the_manifest_is_json(runtime, tmp_path):
    path = written(runtime, tmp_path, numbered(5))
    assert json.loads(manifest_of(path).read_text()) == drt.open_cache(path).manifest

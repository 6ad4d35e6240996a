"""`dataset-rt inspect`, `head`, `cat` and `unfinished`: what is shown is what is stored."""

import datetime as dt
import json
import shutil

import pytest

pytest.importorskip("typer", reason="the command line needs the extra `cli`")

from cli_tools import call
from conftest import ListSource, directory_digest, numbered, put, sealed, written

import dataset_rt as drt

SMALL_SHARDS = drt.WriterConfig(show_progress=False, max_shard_bytes=1000)


@pytest.fixture
def sharded(runtime, tmp_path):
    return written(
        runtime,
        tmp_path / "caches",
        numbered(300),
        config=SMALL_SHARDS,
        fingerprint="v1",
        provenance={"made by": "a test"},
    )


def test_a_cache_is_told_at_a_glance(sharded):
    found = call("inspect", sharded)
    manifest = drt.open_cache(sharded).manifest
    shards = manifest["shards"]
    assert found.code == 0
    assert found.err == ""
    assert found.lines[0] == "words structure ok, contents not read"
    assert f"samples 300 in {len(shards)} shards" in found.lines
    assert "fingerprint v1" in found.lines
    assert "made by a test" in found.lines
    assert f"contents {manifest['content_blake3']}" in found.lines
    assert f"cache id {manifest['cache_id']}" in found.lines
    assert "label large_utf8" in found.lines
    first = shards[0]
    kilobytes = f"{first['size_bytes'] / 1000:.1f} kB"
    expected = f"0 to {first['rows'] - 1} {first['rows']} {kilobytes} {first['blake3'][:16]}"
    assert f"shards/000000.arrow {expected}" in found.lines


def test_inspect_as_json_is_the_manifest_and_what_lies_on_disk(sharded):
    found = call("inspect", sharded, "--json").json
    manifest = drt.open_cache(sharded).manifest
    assert found["status"] == "ok"
    assert found["findings"] == []
    assert found["samples"] == 300
    for name in ("cache_id", "content_blake3", "fingerprint", "columns", "compression"):
        assert found[name] == manifest[name]
    assert [shard["samples"] for shard in found["shards"]][0][0] == 0
    assert [shard["samples"] for shard in found["shards"]][-1][1] == 300
    on_disk = sum(file.stat().st_size for file in sharded.rglob("*") if file.is_file())
    assert found["size_bytes"] == on_disk


def test_many_shards_are_cut_short_but_damaged_ones_are_not(sharded):
    shards = sorted((sharded / "shards").iterdir())
    assert len(shards) > 10
    shards[9].unlink()
    found = call("inspect", sharded)
    assert found.code == 1
    shown = [line for line in found.lines if line.startswith("shards/")]
    assert len(shown) == 9
    assert shown[-1].endswith("missing")
    assert any("more: --all" in line for line in found.lines)
    everything = call("inspect", sharded, "--all").lines
    assert len([line for line in everything if line.startswith("shards/")]) == len(shards)


def test_a_damaged_manifest_still_tells_what_it_says(sharded):
    manifest = sharded / "manifest.json"
    put(manifest, manifest.read_bytes().replace(b'"v1"', b'"v2"'))
    found = call("inspect", sharded)
    assert found.code == 1
    assert found.lines[0] == "words DAMAGED"
    assert "fingerprint v2" in found.lines
    assert any("M02" in line and "manifest was changed" in line for line in found.lines)
    assert call("inspect", sharded, "--json").json["status"] == "damaged"


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b'{"shards": 5, "columns": [1]}'])
def test_a_manifest_that_says_nothing_is_damaged(sharded, content):
    put(sharded / "manifest.json", content)
    found = call("inspect", sharded)
    assert found.code == 1
    assert "DAMAGED" in found.lines[0]
    assert found.err == ""


def test_a_cache_whose_manifest_is_gone_is_a_damaged_one(sharded):
    (sharded / "manifest.json").unlink()
    found = call("inspect", sharded)
    assert (found.code, found.lines[0]) == (1, "words DAMAGED")
    assert any("F01 manifest.json" in line for line in found.lines)
    (listed,) = call("inspect", sharded.parent, "--json").json["caches"]
    assert (listed["name"], listed["status"]) == ("words", "damaged")


def test_a_newer_format_is_said_to_be_one(sharded):
    manifest = sharded / "manifest.json"
    text = manifest.read_text().replace('"format_version": 0', '"format_version": 7')
    put(manifest, sealed(text).encode())
    found = call("inspect", sharded)
    assert found.code == 1
    assert "of a format that this version does not read" in found.lines[0]
    assert call("inspect", sharded, "--json").json["status"] == "unsupported"


def test_a_directory_lists_its_caches_and_unfinished_writes(runtime, tmp_path):
    def failing():
        yield from numbered(100)
        raise ValueError("the disk of the source broke")

    written(runtime, tmp_path, numbered(3), name="first")
    broken = written(runtime, tmp_path, numbered(4), name="second")
    source = ListSource("third", failing())
    runtime.write_cache(source, tmp_path, writer_config=SMALL_SHARDS)
    (broken / "index.bin").unlink()
    found = call("inspect", tmp_path)
    assert found.code == 1
    rows = [line.split() for line in found.lines]
    assert any(row[:2] == ["first", "3"] and row[-1] == "ok" for row in rows)
    assert any(row[:2] == ["second", "4"] and row[-1] == "damaged" for row in rows)
    assert any(row[:1] == ["third"] and row[-1] == "interrupted" for row in rows)
    document = call("inspect", tmp_path, "--json").json
    assert [cache["samples"] for cache in document["caches"]] == [3, 4]
    assert [write["source_name"] for write in document["unfinished"]] == ["third"]


def test_unfinished_writes_are_listed_and_removed_by_name(runtime, tmp_path):
    def failing():
        yield from numbered(100)
        raise ValueError

    source = ListSource("third", failing())
    runtime.write_cache(source, tmp_path, writer_config=SMALL_SHARDS)
    (left,) = call("unfinished", tmp_path, "--json").json["unfinished"]
    assert left["source_name"] == "third"
    assert 0 < left["samples"] <= 100
    refused = call("unfinished", tmp_path, "--remove", "fourth")
    assert refused.code == 1
    assert f"no unfinished write of 'fourth' in {tmp_path}; there are: third" in refused.err
    assert call("unfinished", tmp_path, "--remove", "third").lines[0] == "removed third"
    assert call("unfinished", tmp_path, "--json").json["unfinished"] == []
    assert [file.name for file in tmp_path.iterdir()] == []


def test_a_missing_cache_is_an_error_with_the_name_that_was_meant(cache):
    for command in ("inspect", "head", "stats", "verify"):
        found = call(command, cache.parent / "word")
        assert found.code == 1
        assert found.out == ""
        assert found.err.startswith("dataset-rt: there is no cache at")
        assert f"did you mean {cache}?" in found.err
        assert "Traceback" not in found.err


def test_a_directory_inside_of_a_cache_names_the_cache(cache):
    assert f"{cache} is a cache itself" in call("inspect", cache / "shards").err


def test_an_empty_path_is_wrong_usage(cache):
    for arguments in (["inspect", ""], ["verify", cache, ""], ["diff", cache, ""]):
        found = call(*arguments)
        assert found.code == 2
        assert "the path is empty" in found.err


def test_head_shows_rows_with_their_payloads(runtime, tmp_path):
    path = written(
        runtime,
        tmp_path,
        [
            (b"\xff\xd8\xff\xe0 jpeg", {"label": "cat", "score": 0.5}),
            (b"plain words", {"label": None, "score": None}),
            (b"", {"label": "dog", "score": float("nan")}),
        ],
    )
    found = call("head", path)
    assert found.code == 0
    assert found.lines[2:] == [
        "sample label score payload kind begins with",
        "0 cat 0.5 9 B JPEG ffd8 ffe0 206a 7065",
        "1 null null 11 B UTF-8 text plain words",
        "2 dog nan 0 B empty",
    ]


def test_head_takes_a_part_of_rows_and_columns(sharded):
    found = call("head", sharded, "-n", 2, "--start", 210, "--columns", "label,number", "--json")
    assert [sample["sample_id"] for sample in found.json["samples"]] == [210, 211]
    assert found.json["samples"][0]["metadata"] == {"label": "l0", "number": 210}
    assert "payload" not in found.json["samples"][0]
    assert len(call("head", sharded, "-n", 10_000, "--json").json["samples"]) == 300


def test_head_refuses_columns_and_rows_that_are_not_there(sharded):
    found = call("head", sharded, "--columns", "labels")
    assert found.code == 2
    assert "no column 'labels'; there are: number, label, score, payload" in found.err
    assert call("head", sharded, "--start", 300).code == 2


def test_a_narrow_head_leaves_columns_out_and_names_them(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"x", {f"column{i}": i for i in range(50)})])
    found = call("head", path, columns=60)
    assert all(len(line) <= 60 for line in found.out.splitlines())
    assert any(line.startswith("sample column0 ") for line in found.lines)
    assert "more columns: column" in found.lines[-1]
    # Piped without a width, nothing is in the way.
    assert "column49" in call("head", path).lines[2]


def test_head_marks_a_damaged_payload_and_shows_the_others(runtime, tmp_path):
    path = written(runtime, tmp_path, [(bytes([i]) * 100_000, {"i": i}) for i in range(5)])
    shard = path / "shards/000000.arrow"
    content = bytearray(shard.read_bytes())
    content[content.index(bytes([3]) * 100_000) + 70_000] ^= 1
    put(shard, content)
    found = call("head", path)
    assert found.code == 1
    assert "3 3 unreadable" in found.lines
    assert f"next dataset-rt repair {path} --dry-run says which samples are lost" in found.lines
    assert any(line.startswith("1 1 100.0 kB") for line in found.lines)
    samples = call("head", path, "--json").json["samples"]
    assert "damaged" in samples[3]["payload"]["trouble"]
    assert samples[1]["payload"]["size_bytes"] == 100_000


def test_cat_writes_exactly_the_payload(cache):
    for i, (payload, _) in enumerate(numbered(4)):
        assert call("cat", cache, i) == (0, payload, "")


def test_cat_writes_to_a_file_and_never_over_one(cache, tmp_path):
    file = tmp_path / "payload.bin"
    assert call("cat", cache, 3, "-o", file).code == 0
    assert file.read_bytes() == numbered(4)[3][0]
    found = call("cat", cache, 1, "-o", file)
    assert found.code == 1
    assert f"{file}: expected nothing there" in found.err
    assert "--force" in found.err
    assert file.read_bytes() == numbered(4)[3][0]
    assert call("cat", cache, 1, "-o", file, "--force").code == 0
    assert file.read_bytes() == numbered(4)[1][0]
    before = directory_digest(cache)
    for name in ("shards/000000.arrow", "manifest.json", "new.bin", "new/deeper.bin"):
        found = call("cat", cache, 1, "-o", cache / name, "--force")
        assert found.code == 1
        assert "lies in the cache" in found.err
    assert directory_digest(cache) == before
    # A link is replaced, not what it leads to.
    (tmp_path / "link").symlink_to(cache / "shards/000000.arrow")
    assert call("cat", cache, 1, "-o", tmp_path / "link", "--force").code == 0
    assert directory_digest(cache) == before


def test_cat_prints_metadata_as_json(runtime, tmp_path):
    moment = dt.datetime(2024, 2, 29, 12, 0, 0, 5)
    values = {"t": moment, "d": moment.date(), "f": float("-inf"), "n": None, "i": 2**63 - 1}
    path = written(runtime, tmp_path, [(b"", values)])
    found = call("cat", path, 0, "--metadata").json["metadata"]
    assert found == {
        "t": "2024-02-29T12:00:00.000005",
        "d": "2024-02-29",
        "f": "-Infinity",
        "n": None,
        "i": 2**63 - 1,
    }


def test_cat_of_an_unknown_sample_says_which_there_are(cache):
    found = call("cat", cache, 50)
    assert found.code == 1
    assert "no sample 50" in found.err
    assert "0 to 49" in found.err


def test_every_json_document_is_ascii(runtime, tmp_path):
    path = written(runtime, tmp_path, [("ü".encode(), {"ä": "狐狸\x1b"})], name="größe")
    for command in ("inspect", "head", "stats", "verify"):
        found = call(command, path, "--json")
        assert found.raw.isascii()
        assert json.loads(found.out)


def test_files_that_the_format_does_not_know_change_nothing(cache):
    before = call("inspect", cache, "--json").json
    (cache / "notes.txt").write_text("mine")
    (cache / "shards" / "more.txt").write_text("mine")
    assert call("inspect", cache, "--json").json == before
    shutil.rmtree(cache)
    assert call("inspect", cache).code == 1


def test_the_files_named_are_all_that_lie_on_disk(cache):
    """The manifest among them: the parts add up."""
    document = call("inspect", cache, "--json").json
    assert document["size_bytes"] == sum(file.stat().st_size for file in cache.rglob("*.*"))
    manifest = (cache / "manifest.json").stat().st_size
    said = " ".join(call("inspect", cache).lines)
    assert f"manifest {manifest / 1000:.1f} kB" in said

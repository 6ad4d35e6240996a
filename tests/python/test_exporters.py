"""Exports: round trips keep the identity, nothing is overwritten, failures leave nothing."""

import errno
import json
import math
import os
import stat
import tarfile
from datetime import UTC, date, datetime

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import QUIET, directory_digest, numbered, opened, put, run_script, written

import dataset_rt as drt
from dataset_rt.exporters import materialize, to_parquet, to_webdataset
from dataset_rt.exporters.publishing import published_file
from dataset_rt.sources import ParquetSource, WebDatasetSource


def identity(path):
    return drt.open_cache(path).cache_id


def rich(count):
    """Samples with every inferred type, nulls, and odd values."""
    for i in range(count):
        yield (
            bytes([i % 256]) * (i % 900),
            {
                "flag": i % 2 == 0,
                "n": None if i % 5 == 0 else i,
                "f": math.nan if i == 3 else i / 7,
                "s": "ä" * (i % 3),
                "d": date(2020, 1, 1 + i % 28),
                "t": datetime(2020, 1, 1, microsecond=i),
                "z": datetime(2020, 1, 1, tzinfo=UTC),
            },
        )


@pytest.mark.parametrize(("algo", "shard_bytes"), [("none", 20_000), ("zstd", 2**28)])
def test_parquet_and_back_is_the_same_cache(runtime, tmp_path, algo, shard_bytes):
    config = drt.WriterConfig(
        show_progress=False,
        max_shard_bytes=shard_bytes,
        shard_compression=drt.ShardCompression(algo=algo),
    )
    samples = list(rich(500))
    if algo == "zstd":
        # More than one shard of nulls needs a declared type.
        samples = [(data, {**metadata, "nothing": None}) for data, metadata in samples]
    cache = written(runtime, tmp_path / "a", samples, config=config)
    file = to_parquet(cache, tmp_path / "out" / "words.parquet")
    back = runtime.write_cache(ParquetSource("back", file), tmp_path / "b", writer_config=QUIET)
    assert identity(back[0].path) == identity(cache)
    assert pl.read_parquet(file)["payload"][499] == bytes([499 % 256]) * 499
    assert os.listdir(tmp_path / "out") == ["words.parquet"]


def test_declared_types_survive_parquet(runtime, tmp_path):
    kinds = {
        "i8": pa.int8(),
        "u64": pa.uint64(),
        "f32": pa.float32(),
        "b": pa.large_binary(),
        "ns": pa.timestamp("ns", "Europe/Berlin"),
        "ms": pa.timestamp("ms"),
        "dic": pa.dictionary(pa.int32(), pa.string()),
    }
    values = {"i8": -1, "u64": 2**64 - 1, "f32": 0.1, "b": b"\0", "ns": 1, "ms": 2, "dic": "x"}
    table = pa.table({key: pa.array([values[key]] * 3, kind) for key, kind in kinds.items()})
    table = table.append_column("payload", pa.array([b"1", b"", b"3"]))
    (result,) = runtime.write_cache(
        drt.ArrowSource("a", table), tmp_path / "a", writer_config=QUIET
    )
    file = to_parquet(drt.open_cache(result.path), tmp_path / "a.parquet")
    back = runtime.write_cache(ParquetSource("b", file), tmp_path / "b", writer_config=QUIET)
    assert identity(back[0].path) == identity(result.path)


def test_webdataset_and_back_is_the_same_cache(runtime, tmp_path):
    samples = [
        (f"p{i}".encode() * i, {"label": i % 3, "score": i / 8, "who": f"ä{i}", "ok": i > 3})
        for i in range(200)
    ]
    cache = written(runtime, tmp_path / "a", samples)
    shards = to_webdataset(cache, tmp_path / "shards", extension="bin", max_shard_bytes=100_000)
    assert len(shards) > 3
    assert all(shard.stat().st_size <= 100_000 for shard in shards)
    source = WebDatasetSource(
        "b", tmp_path / "shards", payload="bin", columns=["label", "score", "who", "ok"]
    )
    back = runtime.write_cache(source, tmp_path / "b", writer_config=QUIET)
    assert identity(back[0].path) == identity(cache)


def test_webdataset_members_are_what_others_expect(runtime, tmp_path):
    cache = written(runtime, tmp_path / "a", [(b"x", {"y": 7, "d": date(2020, 1, 2)})])
    (shard,) = to_webdataset(cache, tmp_path / "s", extension=".jpg", cls="y")
    with tarfile.open(shard) as archive:
        found = {member.name: archive.extractfile(member).read() for member in archive}
    assert found.pop("000000000.jpg") == b"x"
    assert found.pop("000000000.cls") == b"7"
    assert json.loads(found.pop("000000000.json")) == {"d": "2020-01-02"}
    assert not found
    again = to_webdataset(cache, tmp_path / "again", extension="jpg", cls="y")
    assert again[0].read_bytes() == shard.read_bytes()


@pytest.mark.parametrize(
    ("kind", "beyond"),
    [
        (pa.date32(), 2**31 - 1),
        (pa.timestamp("ms"), -(2**50)),
        (pa.timestamp("us"), 2**60),
        (pa.timestamp("us", "UTC"), 2**60),
    ],
)
def test_dates_that_no_text_holds_are_named(runtime, tmp_path, kind, beyond):
    stored = pa.int32() if kind == pa.date32() else pa.int64()
    when = pa.array([0, None, beyond], stored).cast(kind)
    table = pa.table({"n": [1, 2, 3], "when": when, "payload": [b""] * 3})
    (result,) = runtime.write_cache(drt.ArrowSource("a", table), tmp_path, writer_config=QUIET)
    with pytest.raises(drt.InvalidInputError, match=r"row 2: column 'when': .*columns="):
        to_webdataset(result.path, tmp_path / "s")
    assert not (tmp_path / "s").exists()
    assert to_webdataset(result.path, tmp_path / "s", columns=["n"])


@pytest.mark.parametrize(
    "extension", ["", "..", ".", "a;b", "JPG", "a b", "-x", "a..b", "ä", "cls"]
)
def test_what_is_no_ending_is_refused(runtime, tmp_path, extension):
    cache = written(runtime, tmp_path / "a", [(b"x", {"y": 7})])
    with pytest.raises(drt.InvalidInputError, match="extension must be a lower-case ending"):
        to_webdataset(cache, tmp_path / "s", extension=extension)
    assert not (tmp_path / "s").exists()
    for plain in ("jpg", ".seg.png", "jpeg_2", "7z"):
        shards = to_webdataset(cache, tmp_path / plain, extension=plain)
        (sample,) = WebDatasetSource("b", shards, payload=plain)
        assert sample.data == b"x"


def test_imported_keys_are_exported_again(runtime, tmp_path):
    keys = ["a/b.c/x", "ä" * 90, "y" * 300, "a/b.c/x"]
    table = pa.table({"__key__": keys, "y": [1, 2, 3, 4], "payload": [b"1", b"2", b"3", b"4"]})
    (result,) = runtime.write_cache(drt.ArrowSource("a", table), tmp_path, writer_config=QUIET)
    shards = to_webdataset(result.path, tmp_path / "s", max_shard_bytes=20_000)
    assert all(shard.stat().st_size <= 20_000 for shard in shards)
    source = WebDatasetSource("b", shards, payload="bin")
    (back,) = runtime.write_cache(source, tmp_path, writer_config=QUIET)
    assert identity(back.path) == identity(result.path)


@pytest.mark.parametrize("keys", [["a", "a"], ["a.b", "c"], ["a", None], ["", "a"], ["a/", "b"]])
def test_what_is_no_key_is_named(runtime, tmp_path, keys):
    table = pa.table({"__key__": keys, "payload": [b"1", b"2"]})
    (result,) = runtime.write_cache(drt.ArrowSource("a", table), tmp_path, writer_config=QUIET)
    with pytest.raises(drt.InvalidInputError, match=r"row [01]: column '__key__'"):
        to_webdataset(result.path, tmp_path / "s")
    assert not (tmp_path / "s").exists()
    assert to_webdataset(result.path, tmp_path / "s", columns=[])


def test_the_library_reads_exported_shards(runtime, tmp_path):
    pytest.importorskip("webdataset", reason="webdataset is not importable: see make torch")
    cache = written(runtime, tmp_path / "a", numbered(100))
    shards = to_webdataset(cache, tmp_path / "s", extension="txt", max_shard_bytes=60_000)
    assert len(shards) > 1
    script = """
        import json, sys, webdataset
        dataset = webdataset.WebDataset(sys.argv[1:], shardshuffle=False).decode()
        print(json.dumps([[sample["txt"], sample["json"]] for sample in dataset]))
    """
    found = json.loads(run_script(script, *shards))
    assert found == [[payload.decode(), metadata] for payload, metadata in numbered(100)]


def test_duplicates_stay_samples_of_their_own(runtime, tmp_path):
    cache = written(runtime, tmp_path / "a", numbered(3))
    dataset = opened(runtime, cache)
    table = dataset.get_metadata()
    dataset.update_metadata(pl.concat([table[2:], table[2:], table[:1]]))
    to_webdataset(dataset, tmp_path / "s")
    found = list(WebDatasetSource("b", tmp_path / "s", payload="bin", columns=["number"]))
    assert [sample.metadata["number"] for sample in found] == [2, 2, 0]
    file = to_parquet(dataset, tmp_path / "a.parquet", columns=["number", "weight"])
    assert pl.read_parquet(file).to_dict(as_series=False) == {
        "number": [2, 2, 0],
        "weight": [1.0] * 3,
    }


def test_nothing_is_overwritten_without_being_told(cache, tmp_path):
    file = tmp_path / "a.parquet"
    put(file, b"mine")
    with pytest.raises(drt.ConflictError, match=r"a\.parquet: expected nothing there"):
        to_parquet(cache, file)
    assert file.read_bytes() == b"mine"
    to_parquet(cache, file, overwrite=True)
    assert pq.read_metadata(file).num_rows == 50
    folder = tmp_path / "folder"
    folder.mkdir()
    put(folder / "x", b"mine")
    with pytest.raises(drt.ConflictError, match="found a directory"):
        to_webdataset(cache, folder)
    with pytest.raises(drt.ConflictError, match="found a directory"):
        to_parquet(cache, folder, overwrite=True)
    assert os.listdir(folder) == ["x"]
    (tmp_path / "empty").mkdir()
    assert to_webdataset(cache, tmp_path / "empty")


# Of the shards, some are finished before the damaged sample comes.
SMALL = drt.WriterConfig(show_progress=False, max_shard_bytes=4096)


def damaged(cache):
    """Flip a byte of the last sample's payload."""
    shard = sorted(path for path in (cache / "shards").iterdir())[-1]
    data = bytearray(shard.read_bytes())
    place = data.rindex(b"payload-000399")
    data[place] ^= 1
    put(shard, data)


@pytest.mark.parametrize(
    "export",
    [
        lambda cache, out: to_parquet(cache, out / "x.parquet"),
        lambda cache, out: to_webdataset(cache, out / "x"),
        lambda cache, out: materialize(drt.open_dataset(cache), out, "x", writer_config=SMALL),
        lambda cache, out: materialize(
            drt.open_dataset(cache), out, "x", order="epoch", writer_config=SMALL
        ),
    ],
    ids=["parquet", "webdataset", "cache", "epoch"],
)
def test_a_damaged_cache_leaves_nothing(runtime, tmp_path, export):
    out = tmp_path / "out"
    out.mkdir()
    samples = [(f"payload-{i:06}".encode() * 100, {"number": i}) for i in range(400)]
    cache = written(runtime, tmp_path / "many", samples)
    damaged(cache)
    with pytest.raises(drt.CorruptError, match="sample"):
        export(cache, out)
    assert os.listdir(out) == []


def test_a_subset_with_edits_becomes_a_cache(runtime, cache, tmp_path):
    dataset = opened(runtime, cache)
    table = dataset.get_metadata()
    table = pl.concat([table[40:], table[:5], table[:1]])
    table = table.with_columns(
        pl.col("score") * 2, weight=pl.col("number") + 1.0, extra=pl.lit("new")
    )
    dataset.update_metadata(table, edited=["score"])
    path = materialize(
        dataset,
        tmp_path / "new",
        "subset",
        columns={"number": "number", "score": "score", "weight": "old_weight", "extra": "extra"},
        writer_config=QUIET,
    )
    made = drt.open_cache(path)
    assert drt.verify_cache(path, "deep").ok
    assert made.schema.names == ["number", "score", "old_weight", "extra"]
    expected = table.select("number", "score", pl.col("weight").alias("old_weight"), "extra")
    assert made.metadata().equals(expected)
    rows = table["sample_id"].to_list()
    assert [bytes(made.payload(i)) for i in range(16)] == [numbered(50)[row][0] for row in rows]
    assert json.loads(made.manifest["provenance"]["materialized_from"]) == [str(cache)]


def test_the_whole_table_becomes_the_same_cache(runtime, cache, tmp_path):
    path = materialize(opened(runtime, cache), tmp_path / "new", "copy", writer_config=QUIET)
    assert identity(path) == identity(cache)
    with pytest.raises(drt.ConflictError, match="; choose another name, or remove it"):
        materialize(opened(runtime, cache), tmp_path / "new", "copy", writer_config=QUIET)


def test_an_epoch_becomes_a_cache_and_the_stream_stays(runtime, cache, tmp_path):
    dataset = opened(runtime, cache, seed=3, shuffle=True)
    next(iter(dataset))
    dataset.set_epoch_len(70)
    position = dataset.state_dict()
    path = materialize(dataset, tmp_path / "new", "epoch", order="epoch", writer_config=QUIET)
    assert dataset.state_dict() == position
    expected = list(dataset)
    made = opened(runtime, path)
    assert [s.data for s in made] == [s.data for s in expected]
    assert [s.metadata for s in made] == [s.metadata for s in expected]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["weight"], "'weight' cannot be stored as 'weight'"),
        (["gone"], "names 'gone'"),
        (["number", "number"], "twice"),
        ({"number": "payload"}, "reserved"),
    ],
)
def test_columns_that_cannot_be_materialized(runtime, cache, tmp_path, columns, message):
    with pytest.raises(drt.InvalidInputError, match=message):
        materialize(opened(runtime, cache), tmp_path / "new", "x", columns=columns)
    assert not (tmp_path / "new").exists()


def test_columns_that_json_cannot_hold_are_named(runtime, tmp_path):
    table = pa.table({"b": pa.array([b"1"]), "payload": [b"x"]})
    (result,) = runtime.write_cache(drt.ArrowSource("a", table), tmp_path, writer_config=QUIET)
    with pytest.raises(drt.InvalidInputError, match="column 'b' has type large_binary"):
        to_webdataset(result.path, tmp_path / "s")
    with pytest.raises(drt.InvalidInputError, match="lower-case ending"):
        to_webdataset(result.path, tmp_path / "s", extension="json")


def test_what_is_there_already_names_the_way_that_fits(runtime, tmp_path):
    dataset = opened(runtime, written(runtime, tmp_path, numbered(3)))
    file = to_parquet(dataset, tmp_path / "out.parquet")
    way = "choose another place, or replace it with overwrite=True"
    with pytest.raises(drt.ConflictError, match=f"found a file; .*{way}"):
        to_parquet(dataset, file)
    with pytest.raises(drt.ConflictError, match=f"found a file; .*{way}"):
        drt.write_report(dataset.cache_paths[0], file)
    assert to_parquet(dataset, file, overwrite=True) == file
    # Directories are never replaced.
    shards = to_webdataset(dataset, tmp_path / "shards")[0].parent
    for export in (
        lambda: to_webdataset(dataset, shards),
        lambda: to_parquet(dataset, shards, overwrite=True),
    ):
        with pytest.raises(drt.ConflictError, match=r"found a directory; .*or remove it$"):
            export()
    materialize(dataset, tmp_path / "new", "again")
    with pytest.raises(drt.ConflictError, match=r"; choose another name, or remove it$"):
        materialize(dataset, tmp_path / "new", "again")


@pytest.mark.parametrize(
    "export",
    [
        lambda cache, out: to_parquet(cache, out, overwrite=True),
        lambda cache, out: drt.write_report(cache, out, overwrite=True),
    ],
    ids=["parquet", "report"],
)
def test_only_files_are_replaced(cache, tmp_path, export):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(drt.ConflictError, match=r"pipe: .*found a device, pipe or socket"):
        export(cache, pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    for link in ("dangling", "link"):
        (tmp_path / link).symlink_to(tmp_path / f"{link}-target")
    put(tmp_path / "link-target", b"mine")
    for link in ("dangling", "link"):
        export(cache, tmp_path / link)
        assert not (tmp_path / link).is_symlink()
    assert (tmp_path / "link-target").read_bytes() == b"mine"
    with pytest.raises(TypeError, match="overwrite must be True or False, found str: 'no'"):
        drt.write_report(cache, tmp_path / "r.html", overwrite="no")


@pytest.mark.parametrize("export", [to_parquet, to_webdataset, drt.write_report])
def test_a_place_that_cannot_be_written_is_named_and_left_as_it_was(cache, tmp_path, export):
    put(tmp_path / "file", b"mine")
    with pytest.raises(drt.FileUnavailableError, match=r"cannot write .*file/below/x: ") as caught:
        export(cache, tmp_path / "file" / "below" / "x")
    assert caught.value.errno == errno.ENOTDIR
    with pytest.raises(drt.InvalidInputError, match=r"a\\x00b"):
        export(cache, "a\0b")
    for inside in (cache / "x", cache / "new" / "x"):
        with pytest.raises(drt.InvalidInputError, match="lies in the cache"):
            export(cache, inside)
    assert sorted(os.listdir(cache)) == sorted(os.listdir(drt.open_cache(cache).path))
    assert not (cache / "new").exists()
    # Others have manifests and shards, too.
    put(tmp_path / "manifest.json", b"{}")
    (tmp_path / "shards").mkdir()
    assert export(cache, tmp_path / "deep" / "er" / "x")


@pytest.mark.parametrize(
    "export",
    [
        lambda cache, out: to_parquet(cache, out / "x"),
        lambda cache, out: to_webdataset(cache, out / "x"),
    ],
    ids=["parquet", "webdataset"],
)
def test_directories_made_for_a_failure_are_gone(runtime, tmp_path, export):
    cache = written(runtime, tmp_path, numbered(400), config=QUIET)
    damaged(cache)
    with pytest.raises(drt.CorruptError):
        export(cache, tmp_path / "new" / "er")
    assert not (tmp_path / "new").exists()


def test_a_published_cache_takes_nothing_in(runtime, cache, tmp_path):
    before = directory_digest(cache)
    dataset = opened(runtime, cache)
    reading = drt.ReaderConfig(seed=1)
    source = drt.ArrowSource("inner", pa.table({"payload": [b"x"]}))
    (tmp_path / "link").symlink_to(cache)
    for place in (cache, cache / "deeper", tmp_path / "link", tmp_path / "link" / "shards"):
        for put_there in (
            lambda place: dataset.save_state(place),
            lambda place: dataset.dump_config(place),
            lambda place: materialize(dataset, place, "inner"),
            lambda place: runtime.write_cache(source, place),
            lambda place: runtime.from_cache_sources(source, place, reader_config=reading),
            lambda place: drt.salvage_cache(cache, place, always=True),
            lambda place: to_webdataset(dataset, place / "x"),
        ):
            with pytest.raises(drt.InvalidInputError, match=r"is a cache|lies in the cache"):
                put_there(place)
    assert directory_digest(cache) == before


def test_nothing_is_renamed_but_by_materialize(runtime, cache, tmp_path):
    dataset = opened(runtime, cache)
    mapping = {"number": "n"}
    for take in (
        lambda: to_parquet(dataset, tmp_path / "x", columns=mapping),
        lambda: to_webdataset(dataset, tmp_path / "x", columns=mapping),
        lambda: dataset.iter_batches(2, columns=mapping),
        lambda: dataset.to_arrow(mapping),
    ):
        with pytest.raises(TypeError, match="found dict: nothing is renamed here"):
            take()
    new = drt.open_cache(materialize(dataset, tmp_path, "new", columns=mapping))
    assert new.metadata().columns[-1] == "n"
    digests = json.loads(new.manifest["provenance"]["materialized_from_content_blake3"])
    assert digests == [drt.open_cache(cache).manifest["content_blake3"]]


@pytest.mark.parametrize("export", [to_parquet, to_webdataset, drt.write_report])
def test_any_name_that_the_system_takes_will_do(cache, tmp_path, monkeypatch, export):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(drt.FileUnavailableError, match="cannot write"):
        export(cache, tmp_path / "loop" / "x")
    for name in ("x" * 255, os.fsdecode(b"\xff\xfe"), "new\nline"):
        assert export(cache, tmp_path / name)
        assert (tmp_path / name).exists()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    if export is to_webdataset:
        assert export(cache, ".")
        assert os.listdir(tmp_path / "empty")
    else:
        with pytest.raises(drt.ConflictError, match="found a directory"):
            export(cache, ".")


def test_a_failure_takes_no_directory_from_another_export(runtime, cache, tmp_path):
    reports = tmp_path / "new" / "reports"
    with published_file(reports / "a", overwrite=False) as aside:
        with pytest.raises(ZeroDivisionError), published_file(reports / "b", overwrite=False):
            1 / 0  # noqa: B018
        aside.write_bytes(b"a")
    assert os.listdir(reports) == ["a"]
    # Made by one that fails, and used by another meanwhile.
    failing = published_file(tmp_path / "c" / "d", overwrite=False)
    failing.__enter__()
    with published_file(tmp_path / "c" / "e", overwrite=False) as aside:
        assert not failing.__exit__(KeyError, KeyError(), None)
        aside.write_bytes(b"e")
    assert os.listdir(tmp_path / "c") == ["e"]


def test_a_damaged_cache_takes_nothing_in_either(cache, tmp_path):
    for name in ("index.bin", "manifest.json", "metadata.arrow"):
        (cache / name).unlink()
        with pytest.raises(drt.InvalidInputError, match="lies in the cache"):
            drt.write_report(cache, cache / "report.html")


def test_a_file_that_cannot_be_read_is_not_said_to_be_unwritable(tmp_path):
    missing, full = tmp_path / "elsewhere" / "read", tmp_path / "out" / "x"
    with pytest.raises(FileNotFoundError) as caught, published_file(full, overwrite=False):
        missing.read_bytes()
    assert caught.value.filename == str(missing)
    with pytest.raises(drt.FileExhaustedError, match=r"cannot write .*out/x: .*make room"):  # noqa: SIM117
        with published_file(full, overwrite=False):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not full.parent.exists()


def test_where_nobody_may_look_the_error_is_typed():
    # In a process that may be root, for whom everything is open, and gives that up.
    told = run_script(
        """
        import os, shutil, ssl, tempfile
        import pyarrow as pa
        import dataset_rt as drt
        from dataset_rt.exporters import to_parquet
        place = tempfile.mkdtemp()
        try:
            os.chmod(place, 0o755)
            config = drt.WriterConfig(show_progress=False)
            source = drt.ArrowSource("s", pa.table({"payload": [b"x"]}))
            (result,) = drt.DatasetRuntime(1).write_cache(source, place, writer_config=config)
            to_parquet(result.path, os.path.join(place, "imports everything"))
            for name, mode in (("shut", 0), ("readonly", 0o555)):
                os.mkdir(os.path.join(place, name), mode)
            child = os.fork()
            if child == 0:
                if os.geteuid() == 0:
                    os.setuid(65534)
                for name in ("shut/x", "shut/a/b/x", "readonly/x", "readonly/a/x"):
                    try:
                        to_parquet(result.path, os.path.join(place, name))
                    except drt.FileUnavailableError as error:
                        assert error.errno == 13, error
                        print(name, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
        finally:
            for name in ("shut", "readonly"):
                os.chmod(os.path.join(place, name), 0o755)
            shutil.rmtree(place)
        """
    )
    assert told.split() == ["shut/x", "shut/a/b/x", "readonly/x", "readonly/a/x"]

"""`dataset-rt import` and `export`: what a new user types, and what goes wrong for them."""

import json
import os
import re
import shlex
import subprocess
import sys

import polars as pl
import pytest
from cli_tools import spawn
from conftest import directory_digest, numbered, written
from source_tools import pets, put_tar
from typer.testing import CliRunner

import dataset_rt as drt
from dataset_rt.cli.app import app
from dataset_rt.cli.import_outcomes import what_is_kept
from dataset_rt.exporters import to_parquet


def run(*arguments):
    """Run one command line in this process; what it printed on stdout."""
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def usage_error(*arguments):
    """The message of a command line that is wrong."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == 2, result.output
    return " ".join(result.output.replace("│", " ").split())


def failure(*arguments):
    """The message of a command that fails."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == 1
    assert isinstance(result.exception, drt.DatasetRTError), result.exception
    return str(result.exception)


def document(*arguments):
    return json.loads(run(*arguments, "--json"))


@pytest.fixture
def photos(tmp_path):
    for label in ("cat", "dog"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for i in range(5):
            (tmp_path / "photos" / label / f"{i}.jpg").write_bytes(f"{label} {i}".encode())
    return tmp_path / "photos"


def test_a_folder_becomes_a_cache_and_is_reused(photos, tmp_path):
    printed = run("import", "images", photos, tmp_path / "caches")
    assert printed.startswith(f"written {tmp_path / 'caches' / 'photos'}\n  10 samples")
    assert f"next: dataset-rt inspect {tmp_path / 'caches' / 'photos'}" in printed
    again = document("import", "images", photos, tmp_path / "caches")
    assert again["status"] == "reused"
    assert again["num_samples"] == again["samples_reused"] == 10
    assert again["columns"] == ["path", "label", "label_id"]


def test_a_changed_folder_says_what_to_do(photos, tmp_path):
    run("import", "images", photos, tmp_path / "caches")
    (photos / "cat" / "new.jpg").write_bytes(b"new")
    message = failure("import", "images", photos, tmp_path / "caches")
    assert "the input files are others or have changed; the options are the same" in message
    ways = [message.index(way) for way in ("--name photos-2", "reuse", "--on-stale rewrite")]
    assert ways == sorted(ways)
    rewritten = document("import", "images", photos, tmp_path / "caches", "--on-stale", "rewrite")
    assert (rewritten["status"], rewritten["num_samples"]) == ("written", 11)


def test_errors_leave_without_traceback(tmp_path):
    def fails(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "dataset_rt.cli", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout == "" or "--json" in arguments
        assert "Traceback" not in done.stderr
        return done.returncode, done.stderr

    code, message = fails("import", "images", tmp_path / "gone", tmp_path / "caches", "--json")
    assert code == 1
    assert "expected a directory of images" in message
    assert not (tmp_path / "caches").exists()
    (tmp_path / "a.csv").write_text("text,label\nx,1\n")
    code, message = fails("import", "csv", tmp_path / "a.csv", tmp_path / "caches")
    assert code == 1
    for way in ("--payload 'text'", "--payload-files COLUMN", "--no-payload"):
        assert way in message
    assert "payload=" not in message
    put_tar(tmp_path / "a.tar", [("README", b"x"), ("0.jpg", b"x")])
    code, message = fails("import", "webdataset", tmp_path / "a.tar", tmp_path, "--payload", "jpg")
    assert code == 1
    assert "--ignore README" in message
    assert "--ignore ." in message
    assert "[" not in message


def test_tables_and_shards_become_caches(tmp_path):
    table = pl.DataFrame({"image": [b"a", b"bb"], "label": [1, 2], "boxes": [[1], [2]]})
    table.write_parquet(tmp_path / "train.parquet")
    made = document(
        *("import", "parquet", tmp_path / "train.parquet", tmp_path / "caches"),
        *("--payload", "image", "--columns", "label", "--compression", "zstd:3"),
    )
    cache = drt.open_cache(made["path"])
    assert (cache.path.name, cache.schema.names) == ("train", ["label"])
    assert bytes(cache.payload(1)) == b"bb"
    assert cache.manifest["compression"]["algo"] == "zstd"
    for name in ("a", "b"):
        (tmp_path / f"{name}.bin").write_bytes(name.encode())
    (tmp_path / "labels.tsv").write_text("file\tlabel\na.bin\t1\nb.bin\t2\n")
    made = document(
        *("import", "csv", tmp_path / "labels.tsv", tmp_path / "caches"),
        *("--payload-files", "file", "--delimiter", r"\t"),
    )
    assert bytes(drt.open_cache(made["path"]).payload(1)) == b"b"
    for i in range(2):
        put_tar(tmp_path / f"w-{i}.tar", pets(3, i * 3))
    made = document(
        *("import", "webdataset", f"{tmp_path}/w-{{0..1}}.tar", tmp_path / "caches"),
        *("--payload", "jpg", "--name", "pets", "--ignore", "cls"),
    )
    assert (made["num_samples"], made["columns"]) == (6, ["__key__", "score", "who"])


def test_wrong_usage_is_told(tmp_path, photos):
    where = (photos, tmp_path / "caches")
    assert "--transform-version" in usage_error("import", "images", *where, "--transform", "m:f")
    message = usage_error(
        "import", "images", *where, "--transform", "no_such:f", "--transform-version", "1"
    )
    assert "No module named 'no_such'" in message
    message = usage_error(
        "import", "images", *where, "--transform", "my/tf.py:f", "--transform-version", "1"
    )
    assert "write my.tf:f" in message
    for wrong in ("zstd:99", "zstd:0", "zstd:", "lz4:1", "brotli", ""):
        message = usage_error("import", "images", *where, "--compression", wrong)
        assert f"zstd:1 to zstd:22, found {wrong!r}" in message
    message = usage_error("import", "images", *where, "--on-stale", "explode")
    assert "Invalid value for '--on-stale'" in message
    assert "'error', 'rewrite'" in message
    assert "--name" in usage_error("import", "parquet", tmp_path / "*.parquet", tmp_path / "caches")
    both = ("--payload", "x", "--no-payload")
    assert "exclude" in usage_error("import", "csv", photos, tmp_path / "caches", *both)
    assert not (tmp_path / "caches").exists()


@pytest.fixture
def words(runtime, tmp_path):
    """Two caches with equal columns."""
    first = written(runtime, tmp_path / "in", numbered(30), name="first")
    return first, written(runtime, tmp_path / "in", numbered(30, 30), name="second")


def test_caches_become_one_parquet_file(words, tmp_path):
    out = tmp_path / "words.parquet"
    made = document(
        *("export", "parquet", *words, out, "--where", "label = 'l3' AND number > 20"),
        *("--limit", 3, "--columns", "number"),
    )
    assert made == {"num_samples": 3, "files": [str(out)]}
    found = pl.read_parquet(out)
    assert found["number"].to_list() == [24, 31, 38]
    assert found["payload"][1] == numbered(60)[31][0]
    assert "or replace it with --overwrite" in failure("export", "parquet", *words, out)
    run("export", "parquet", *words, out, "--overwrite")
    assert pl.read_parquet(out).height == 60


def test_caches_become_shards_and_other_caches(words, tmp_path):
    made = document("export", "webdataset", *words, tmp_path / "s", "--max-shard-bytes", 60_000)
    assert made["num_samples"] == 60
    assert len(made["files"]) > 1
    before = [directory_digest(path) for path in words]
    arguments = ("export", "cache", *words, tmp_path / "out")
    assert "--name" in usage_error(*arguments)
    printed = run(*arguments, "--name", "some", "--where", "number >= 50", "--columns", "number")
    assert f"next: dataset-rt inspect {tmp_path / 'out' / 'some'}" in printed
    cache = drt.open_cache(tmp_path / "out" / "some")
    assert cache.metadata()["number"].to_list() == list(range(50, 60))
    assert [directory_digest(path) for path in words] == before
    assert "another name with --name" in failure("export", "cache", words[0], tmp_path / "in")
    assert document("export", "cache", words[0], tmp_path / "o")["files"] == [f"{tmp_path}/o/first"]
    message = usage_error("export", "cache", words[0], tmp_path / "p", "--columns", "weight")
    assert "a cache cannot store 'weight'" in message


def test_what_was_exported_is_imported_again(words, tmp_path):
    run("export", "parquet", words[0], tmp_path / "first.parquet")
    made = document("import", "parquet", tmp_path / "first.parquet", tmp_path / "caches")
    assert made["cache_id"] == drt.open_cache(words[0]).cache_id


def test_nothing_is_written_into_a_cache(words, tmp_path):
    for path in words:
        os.chmod(path, 0o555)
    to_parquet(words[0], tmp_path / "x.parquet")
    run("export", "parquet", words[0], tmp_path / "y.parquet")
    assert (tmp_path / "y.parquet").read_bytes() == (tmp_path / "x.parquet").read_bytes()


def test_saved_datasets_of_hugging_face_become_caches(tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets is not importable: see make torch")
    datasets.disable_progress_bars()
    one = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 2]})
    datasets.DatasetDict({"train": one, "test": one.select([1])}).save_to_disk(tmp_path / "saved")
    arguments = ("import", "huggingface", tmp_path / "saved", tmp_path / "caches")
    assert "train, test" in usage_error(*arguments, "--payload", "text")
    made = document(*arguments, "--payload", "text", "--split", "test")
    assert (made["num_samples"], made["path"]) == (1, str(tmp_path / "caches" / "saved-test"))
    with pytest.raises(drt.InvalidInputError, match="dataset-rt import parquet"):
        run("import", "huggingface", tmp_path, tmp_path / "caches", "--payload", "text")


def test_a_transform_runs_in_processes(photos, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "shouting.py").write_text(
        "from dataset_rt import CacheInput\n"
        "def shout(sample):\n"
        "    return CacheInput(sample.data.upper(), {**sample.metadata, 'n': len(sample.data)})\n"
    )
    monkeypatch.chdir(tmp_path / "mine")
    command = ("--transform", "shouting:shout", "--transform-version", "1")
    one = document("import", "images", photos, tmp_path / "one", *command)
    two = document("import", "images", photos, tmp_path / "two", *command, "--processes", 2)
    assert one["columns"] == ["path", "label", "label_id", "n"]
    assert bytes(drt.open_cache(one["path"]).payload(0)) == b"CAT 0"
    assert directory_digest(one["path"]) == directory_digest(two["path"])


def test_a_failing_transform_names_the_file_in_the_shell(photos, tmp_path):
    (photos / "dog" / "3.jpg").write_bytes(b"bad")
    command = ("--transform", "source_tools:stumble", "--transform-version", "1")
    message = failure("import", "images", photos, tmp_path / "caches", *command)
    assert message == f"{photos}/dog/3.jpg: transform raised OSError: truncated (after 8 samples)"


@pytest.mark.parametrize("processes", [1, 2])
def test_a_transform_that_ends_the_program_is_a_failure(photos, tmp_path, monkeypatch, processes):
    (tmp_path / "leaving.py").write_text("import sys\ndef leave(sample):\n    sys.exit(0)\n")
    (tmp_path / "leaving_at_once.py").write_text("raise SystemExit(0)\n")
    monkeypatch.chdir(tmp_path)
    command = ("import", "images", photos, tmp_path / "caches", "--processes", processes)
    for function in ("leaving:leave", "leaving_at_once:leave"):
        options = ("--transform", function, "--transform-version", "1")
        assert "with SystemExit(0): let --transform raise" in failure(*command, *options)


def test_other_options_are_told_from_other_files(photos, tmp_path):
    run("import", "images", photos, tmp_path / "caches")
    message = failure("import", "images", photos, tmp_path / "caches", "--no-labels")
    assert "other options or another --transform-version; the input files are the same" in message
    message = failure("import", "images", photos, tmp_path / "caches", "--fingerprint", "mine")
    assert "something else (fingerprint image_folder-" in message


def test_an_import_says_what_is_empty_and_what_was_left_out(photos, tmp_path):
    (photos / "cat" / "0.jpg").write_bytes(b"")
    (photos / "cat" / "notes.txt").write_bytes(b"x")
    printed = run("import", "images", photos, tmp_path / "caches")
    assert "  1 payload is empty\n  left out: 1 file (1 .txt); --extensions" in printed
    made = document("import", "images", photos, tmp_path / "caches")
    assert (made["payloads_empty"], made["files_left_out"]) == (1, 1)
    table = pl.DataFrame(
        {"id": ["a", "b"], "tags": [[1], [2]], "big one": [1, 2], "weight": [1, 2]}
    )
    table.write_parquet(tmp_path / "t.parquet")
    arguments = ("import", "parquet", tmp_path / "t.parquet", tmp_path / "caches")
    message = failure(*arguments, "--no-payload")
    assert "leave it out with --columns 'id,big one', or make text or numbers of it" in message
    assert "in a --transform (" in message
    printed = run(*arguments, "--payload", "id", "--columns", "big one")
    assert "column 'id' is text: its UTF-8 bytes are the payload" in printed
    printed = run(*arguments, "--no-payload", "--columns", "", "--name", "none")
    assert "columns: none\n  all payloads are empty\n" in printed


def test_an_interrupted_import_says_what_is_kept(photos, tmp_path, monkeypatch):
    (tmp_path / "interrupting.py").write_text(
        "import os, signal\n"
        "def last(sample):\n"
        "    if sample.metadata['path'] == os.environ.get('LAST'):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return type(sample)(b'x' * 500, sample.metadata)\n"
    )
    for i in range(300):
        (photos / "cat" / f"{i:03}.jpg").write_bytes(b"x")
    command = ("import", "images", photos, tmp_path / "caches", "--max-shard-bytes", "4096")
    command += ("--transform", "interrupting:last", "--transform-version", "1")

    done = spawn(*command, environment={"LAST": "dog/4.jpg"}, cwd=tmp_path)
    assert (done.code, done.raw) == (130, b"")
    kept = re.search(r"interrupted: (\d+) samples kept; the same command goes on", done.err)
    assert kept is not None, done.err
    assert 0 < int(kept[1]) < 310
    monkeypatch.chdir(tmp_path)
    whole = f"{kept[1]} of 310 samples were there already"
    assert f"resumed {tmp_path}/caches/photos  {whole}" in run(*command)
    assert "no sample is kept" in what_is_kept(tmp_path / "caches", "photos")


def test_the_next_command_works(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exports = [
        ("parquet", "a.parquet", "--columns", "number"),
        ("parquet", "b.parquet", "--columns", "number,weight"),
        ("parquet", "c.parquet", "--columns", "number", "--no-payload"),
        ("webdataset", "d", "--columns", "number,sample_id", "--cls", "number"),
    ]
    columns = []
    for kind, *options in exports:
        printed = run("export", kind, words[0], *options)
        following = printed.split("next: dataset-rt ")[1]
        columns.append(document(*shlex.split(following))["columns"])
    assert columns == [["number"]] * 3 + [["__key__", "cls"]]
    assert drt.open_cache("CACHES_DIR/a").cache_id == drt.open_cache("CACHES_DIR/b").cache_id
    assert bytes(drt.open_cache("CACHES_DIR/a").payload(1)) == numbered(2)[1][0]

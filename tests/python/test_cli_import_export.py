"""`dataset-rt import` and `export`: what a new user types, and what goes wrong for them."""

import json
import os
import subprocess
import sys

import polars as pl
import pytest
from conftest import directory_digest, numbered, written
from source_tools import pets, put_tar
from typer.testing import CliRunner

import dataset_rt as drt
from dataset_rt.cli.app import app
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
    with pytest.raises(drt.DatasetRTError, match="--on-stale rewrite"):
        run("import", "images", photos, tmp_path / "caches")
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
    assert "level" in usage_error("import", "images", *where, "--compression", "zstd:99")
    assert "algo" in usage_error("import", "images", *where, "--compression", "brotli")
    assert "on_stale" in usage_error("import", "images", *where, "--on-stale", "explode")
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
        *("--limit", 3, "--columns", "number,payload"),
    )
    assert made == {"num_samples": 3, "files": [str(out)]}
    found = pl.read_parquet(out)
    assert found["number"].to_list() == [24, 31, 38]
    assert found["payload"][1] == numbered(60)[31][0]
    with pytest.raises(drt.ConflictError, match="nothing was written"):
        run("export", "parquet", *words, out)
    run("export", "parquet", *words, out, "--overwrite")
    assert pl.read_parquet(out).height == 60


def test_caches_become_shards_and_other_caches(words, tmp_path):
    made = document("export", "webdataset", *words, tmp_path / "s", "--max-shard-bytes", 60_000)
    assert made["num_samples"] == 60
    assert len(made["files"]) > 1
    before = [directory_digest(path) for path in words]
    printed = run("export", "cache", *words, tmp_path / "out" / "some", "--where", "number >= 50")
    assert f"next: dataset-rt inspect {tmp_path / 'out' / 'some'}" in printed
    cache = drt.open_cache(tmp_path / "out" / "some")
    assert cache.metadata()["number"].to_list() == list(range(50, 60))
    assert [directory_digest(path) for path in words] == before


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("nothing = 1", "nothing"),
        ("number >", "--where"),
        ("number > 1000", "no row fulfils it"),
        ("number + 1", "--where"),
        ("read_csv('/etc/passwd')", "--where"),
    ],
)
def test_conditions_that_are_none(words, tmp_path, where, message):
    with pytest.raises(drt.InvalidInputError, match=message):
        run("export", "parquet", *words, tmp_path / "x.parquet", "--where", where)
    assert not (tmp_path / "x.parquet").exists()


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

"""Derived files come back bit for bit or not at all; the command says what to do next."""

import csv
import json
import os
import shlex
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from cli_tools import call
from conftest import QUIET, ListSource, directory_digest, numbered, opened, run_script, written
from test_file_systems import run_with_mounts
from test_interrupts import Ticks

import dataset_rt as drt

DERIVED = ["index.bin", "metadata.arrow", "digests.bin"]


def flip(file, at):
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    # A new file in its place: readers still have the old one mapped.
    file.unlink()
    file.write_bytes(content)


@pytest.mark.parametrize("name", DERIVED)
def test_every_byte_of_a_derived_file_comes_back(cache, name):
    before = directory_digest(cache)
    size = (cache / name).stat().st_size
    for at in range(0, size, 11):
        flip(cache / name, at)
        report = drt.repair_cache(cache)
        assert report.ok
        assert [(file.file, file.state) for file in report.files] == [(name, "restored")]
        assert directory_digest(cache) == before
    (cache / name).unlink()
    with pytest.raises(drt.CorruptError, match=f"{name} is missing.*; many samples need it; what"):
        drt.open_cache(cache)
    dry = drt.repair_cache(cache, dry_run=True)
    assert not dry
    assert not (cache / name).exists()
    assert [(file.state, file.reason) for file in dry.files] == [("restorable", "it is missing")]
    assert drt.repair_cache(cache)
    assert drt.verify_cache(cache, level="deep")
    assert directory_digest(cache) == before


def test_all_derived_files_at_once_and_a_sound_cache_is_left_alone(cache):
    before = directory_digest(cache)
    for name in DERIVED:
        (cache / name).write_bytes(b"")
    assert len(drt.repair_cache(cache).files) == 3
    assert directory_digest(cache) == before
    times = {file: file.stat().st_mtime_ns for file in cache.rglob("*")}
    report = drt.repair_cache(cache)
    assert report.ok
    assert report.files == report.lost == ()
    assert {file: file.stat().st_mtime_ns for file in cache.rglob("*")} == times


def test_open_datasets_read_on(runtime, cache):
    dataset = opened(runtime, [cache])
    expected = list(dataset)
    for name in DERIVED:
        flip(cache / name, 3)
    assert drt.repair_cache(cache)
    dataset.set_epoch(0)
    assert list(dataset) == expected
    assert list(opened(runtime, [cache])) == expected


def test_what_no_other_file_holds_is_named_and_left(cache):
    flip(cache / "shards/000000.arrow", 700)
    (cache / "index.bin").unlink()
    damaged = directory_digest(cache)
    report = drt.repair_cache(cache)
    assert not report
    assert {file.file: file.state for file in report.files} == {
        "shards/000000.arrow": "lost",
        "index.bin": "lost",
    }
    assert report.samples_lost == 50
    assert directory_digest(cache) == damaged
    # The columns of all of them are known all the same.
    assert report.lost_metadata()["number"].to_list() == list(range(50))
    document = json.loads(report.to_json())
    assert document["samples_lost"] == 50
    assert document["lost"][0]["file"] == "shards/000000.arrow"
    assert "samples 0 to 49" in str(report)


def test_refusals(cache, tmp_path):
    with pytest.raises(TypeError):
        drt.repair_cache(3)
    with pytest.raises(drt.NotFoundError, match="no cache"):
        drt.repair_cache(tmp_path / "nowhere")
    flip(cache / "manifest.json", 100)
    with pytest.raises(drt.CorruptError, match="nothing proves"):
        drt.repair_cache(cache, dry_run=True)


def test_a_directory_in_the_place_of_a_file_is_an_obstacle(cache):
    (cache / "index.bin").unlink()
    (cache / "index.bin").mkdir()
    for dry_run in (True, False):
        (found,) = drt.repair_cache(cache, dry_run=dry_run).files
        assert (found.state, found.obstacle) == ("lost", "index.bin is a directory; move it away")


def test_nothing_is_written_where_the_mode_allows_nobody_to(cache):
    flip(cache / "index.bin", 80)
    damaged = (cache / "index.bin").read_bytes()
    cache.chmod(0o555)
    assert drt.repair_cache(cache, dry_run=True).files[0].state == "restorable"
    with pytest.raises(drt.UnavailableError, match="marked read-only, and nothing was written"):
        drt.repair_cache(cache)
    assert (cache / "index.bin").read_bytes() == damaged
    cache.chmod(0o755)
    assert drt.repair_cache(cache)


def test_a_reader_says_which_file_a_repair_may_restore(runtime, cache):
    for name in DERIVED[:2]:
        flip(cache / name, 80)
        with pytest.raises(drt.CorruptError, match=name + r" is damaged.*dataset-rt repair"):
            list(opened(runtime, [cache]))
        assert drt.repair_cache(cache)


def test_read_only_media_are_looked_at_and_a_repair_is_refused(tmp_path):
    script = """
    directory = Path(sys.argv[1], "caches")
    assert load(directory, Words()).status == "written"
    cache = directory / "words"
    (cache / "index.bin").write_bytes(b"damaged")
    before = files(directory)
    mount("--bind", directory, directory)
    mount("-o", "remount,bind,ro", directory)
    report = drt.repair_cache(cache, dry_run=True)
    assert [file.state for file in report.files] == ["restorable"]
    try:
        drt.repair_cache(cache)
    except drt.FileUnavailableError as error:
        assert error.errno == errno.EROFS
        assert "cannot restore index.bin" in str(error)
    else:
        raise AssertionError("it was restored")
    new = drt.salvage_cache(cache, Path(sys.argv[1], "new"), always=True)
    assert new.is_identical and drt.verify_cache(new.new_path, level="deep")
    assert files(directory) == before
    """
    run_with_mounts(script, tmp_path)


KILLS = """
import os, random, signal, sys, time
from pathlib import Path
import dataset_rt as drt
drt.repair_cache  # imported before the forks

# Imported once, not by every child.
repair_cache = drt.repair_cache
cache, names, rounds = Path(sys.argv[1]), ["index.bin", "metadata.arrow", "digests.bin"], 60
good = {name: (cache / name).read_bytes() for name in names}
bad = {name: content[:-1] + b"!" for name, content in good.items()}
chance, seen = random.Random(3), set()

def forked(work, seconds=None):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if work() else 1)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def damage():
    for name, content in bad.items():
        (cache / name).write_bytes(content)

damage()
start = time.monotonic()
assert forked(lambda: repair_cache(cache).ok) == 0
longest = time.monotonic() - start
for _ in range(rounds):
    damage()
    forked(lambda: repair_cache(cache).ok, chance.uniform(0, longest))
    found = {name: (cache / name).read_bytes() for name in names}
    assert all(content in (good[name], bad[name]) for name, content in found.items())
    seen.add(sum(content == good[name] for name, content in found.items()))
    assert forked(lambda: repair_cache(cache).ok) == 0
    assert {name: (cache / name).read_bytes() for name in names} == good
    assert not list(cache.glob(".*")), "a leftover"
assert len(seen) > 1, seen
"""


def test_a_repair_killed_at_any_moment_leaves_old_or_new(runtime, tmp_path):
    table = [(b"%06d" % i * 20, {"number": i, "text": f"row {i}"}) for i in range(9000)]
    run_script(KILLS, written(runtime, tmp_path, table))


def test_a_long_look_attends_to_signals(runtime, tmp_path):
    cache = written(runtime, tmp_path, [(b"x" * 2_000_000, {"n": i}) for i in range(60)])
    (cache / "index.bin").unlink()

    def look():
        while True:
            drt.repair_cache(cache, dry_run=True)

    def copy():
        while True:
            name = f"new {len(list(tmp_path.iterdir()))}"
            drt.salvage_cache(cache, tmp_path / name, always=True, writer_config=QUIET)

    for work in (look, copy):
        with Ticks(raises_at=2), pytest.raises(KeyboardInterrupt):
            work()
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert drt.repair_cache(cache)


def command(*arguments):
    """Run the command in this process: exit code and standard output."""
    done = call("repair", *arguments)
    return done.code, done.out


def test_the_command_leads_from_damage_to_a_whole_cache(runtime, tmp_path, monkeypatch):
    pytest.importorskip("typer")
    monkeypatch.chdir(tmp_path)
    samples = [(bytes([i]) * 5_000, {"number": i, "label": f"l{i}"}) for i in range(60)]
    cache = written(runtime, tmp_path / "caches", samples)
    (cache / "index.bin").unlink()
    code, text = command(cache, "--dry-run")
    assert (code, "restorable  index.bin  it is missing" in text) == (1, True)
    code, text = command(cache)
    assert (code, "restored  index.bin  before: it is missing" in text) == (0, True)
    assert command(cache)[0] == 0
    flip(cache / "shards/000000.arrow", 100_000)
    code, text = command(cache, "--lost", tmp_path / "lost.csv")
    assert code == 1
    # Which samples, what they were, and what to type next.
    assert "shards/000000.arrow: block 1" in text
    assert " l19" in text
    line = next(line for line in text.splitlines() if "--into" in line)
    arguments = shlex.split(line.split("dataset-rt repair ")[1].removesuffix("saves all others"))
    # Into the person's own directory, not beside the damaged cache.
    assert arguments == [str(cache), "--into", "salvaged", "--original-ids"]
    assert command(cache, "--into", cache / "shards")[0] == 1
    code, text = command(*arguments, "--json")
    assert code == 0
    document = json.loads(text)
    assert drt.verify_cache(document["new_path"], level="deep")
    with (tmp_path / "lost.csv").open() as file:
        lost = [int(row["sample_id"]) for row in csv.DictReader(file)]
    kept = drt.open_cache(document["new_path"]).metadata()["original_sample_id"].to_list()
    assert sorted(lost + kept) == list(range(60))
    # The list of the lost is a new file, and never one of the cache.
    (tmp_path / "mine").write_text("mine")
    before = directory_digest(cache)
    for file, says in (
        (tmp_path / "mine", "found a file"),
        (cache / "manifest.json", "lies in the cache"),
        (cache / "new" / "lost.csv", "lies in the cache"),
    ):
        for options in (["--dry-run"], ["--into", tmp_path / "other"]):
            refused = call("repair", cache, "--lost", file, *options)
            assert (refused.code, refused.out) == (1, "")
            assert says in refused.err
    assert (tmp_path / "mine").read_text() == "mine"
    assert directory_digest(cache) == before
    assert not (tmp_path / "other").exists()
    # What was done is said, also where the list cannot be written.
    nowhere = call("repair", cache, "--into", tmp_path / "other", "--lost", tmp_path / "mine" / "x")
    assert nowhere.code == 1
    assert "46 of 60 samples into" in nowhere.out
    assert "cannot write" in nowhere.err
    again = call("repair", *arguments)
    assert (again.code, again.out) == (1, "")
    assert "exists" in again.err
    assert command(cache, "--dry-run", "--into", tmp_path)[0] == 2
    assert command(cache, "--name", "other")[0] == 2


def test_the_command_says_on_stderr_what_failed(tmp_path):
    pytest.importorskip("typer")
    done = call("repair", tmp_path / "nowhere", "--json")
    assert done.code == 1
    assert "there is no cache at" in done.err
    assert done.json["error"]["kind"] == "NotFound"


def test_lost_samples_are_summed_up_by_what_they_share(runtime, tmp_path):
    samples = [
        (bytes(3_000), {"n": i, "patient": f"p{i // 500}", "score": i / 7, "note": None})
        for i in range(2_000)
    ]
    cache = written(runtime, tmp_path, samples)
    (cache / "shards/000000.arrow").unlink()
    found = call("repair", cache)
    assert found.code == 1
    assert found.lines[:2] == [f"{cache} DAMAGED", "every sample is lost"]
    assert "lost 2,000 samples: 0 to 1,999" in found.lines
    start = found.lines.index("Lost by column")
    assert found.lines[start + 1] == "patient p0 (500), p1 (500), p2 (500), p3 (500)"
    assert found.lines[start + 2] == ""
    start = found.lines.index(
        "Lost samples the first 10; --lost FILE writes all, with every column"
    )
    shown = [line.split()[:1] for line in found.lines[start + 2 :][:11]]
    assert shown == [*([str(i)] for i in range(10)), []]


def test_a_whole_copy_of_a_cache_that_must_stay_as_it_is_is_named(runtime, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = written(runtime, tmp_path / "caches", numbered(50))
    whole = call("repair", cache, "--into", "new")
    assert (whole.code, "no cache was written" in whole.lines[1]) == (0, True)
    (cache / "index.bin").unlink()
    # Neither whole nor salvaged: that is no success.
    found = call("repair", cache, "--into", "new")
    assert found.code == 1
    assert found.lines[:2] == [f"{cache} DAMAGED", "no sample is lost; no cache was written"]
    command = f"dataset-rt repair {cache} --into salvaged --always"
    assert command in found.out
    refused = drt.FileUnavailableError("cannot restore index.bin: read-only")
    with monkeypatch.context() as patched:
        patched.setattr("dataset_rt.repair.repair_cache", raising(refused))
        assert command in call("repair", cache).err
    assert call(*shlex.split(command)[1:]).code == 0
    assert drt.verify_cache("salvaged/words", level="deep").ok
    monkeypatch.chdir(cache)
    assert f"repair . --into {Path('..', 'salvaged')}" in call("repair", ".", "--dry-run").out


def raising(error):
    """A function that raises an error."""

    def fail(*_, **__):
        raise error

    return fail


def test_a_stale_cache_is_not_exchanged_while_it_is_repaired(runtime, tmp_path):
    cache = written(runtime, tmp_path, numbered(5), fingerprint="v1")
    held = """
    import fcntl, os, sys
    import dataset_rt as drt
    sys.path.insert(0, sys.argv[2])
    from conftest import ListSource, numbered
    descriptor = os.open(sys.argv[1], os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    config = drt.WriterConfig(show_progress=False, on_stale="rewrite")
    with drt.DatasetRuntime(num_workers=1) as runtime:
        built = runtime.from_cache_sources(
            ListSource("words", numbered(6), fingerprint="v2"), os.path.dirname(sys.argv[1]),
            reader_config=drt.ReaderConfig(seed=1), writer_config=config,
        )
    (result,) = built.results
    assert isinstance(result, drt.CacheWriteError), result
    assert isinstance(result.exception, drt.ConflictError), repr(result.exception)
    """
    run_script(held, cache, Path(__file__).parent)
    assert drt.open_cache(cache).num_samples == 5
    config = drt.WriterConfig(show_progress=False, on_stale="rewrite")
    source = ListSource("words", numbered(6), fingerprint="v2")
    reader = drt.ReaderConfig(seed=1)
    built = runtime.from_cache_sources(source, tmp_path, reader_config=reader, writer_config=config)
    assert built.results[0].status == "written"


def test_without_a_manifest_the_way_on_is_named_and_nothing_is_called_proof(
    runtime, tmp_path, monkeypatch
):
    pytest.importorskip("typer")
    monkeypatch.chdir(tmp_path)
    cache = written(runtime, tmp_path / "caches", numbered(30))
    (cache / "manifest.json").unlink()
    for words in (["head", cache], ["diff", cache, cache]):
        found = call(*words)
        assert found.code == 1
        assert "repair --into DIRECTORY --unproven" in found.err
        assert "did you mean" not in found.err
    code, text = command(cache, "--into", "new", "--unproven", "--original-ids")
    assert code == 0
    assert "dataset-rt verify" in text
    assert "diff" not in text


def test_lost_samples_of_any_date_and_place_are_listed(runtime, tmp_path, monkeypatch):
    pytest.importorskip("typer")
    place = tmp_path / os.fsdecode(b"caf\xe9")
    place.mkdir()
    days = pa.array([2**31 - 1, None, 0, -(2**31)] * 100, pa.int32()).cast(pa.date32())
    seconds = pa.array([2**63 - 1, 0, None, -(2**63) + 1] * 100).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"payload": [b"x" * 700] * 400, "day": days, "at": seconds})
    (result,) = runtime.write_cache(drt.ArrowSource("dated", table), place, writer_config=QUIET)
    flip(result.path / "shards/000000.arrow", 100_000)
    assert call("repair", result.path, "--dry-run", "--lost", tmp_path / "lost.csv").code == 1
    with (tmp_path / "lost.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 50
    days = {row["day"] for row in rows}
    assert len(days) == 4
    assert {"", "1970-01-01"} <= days
    salvaged = drt.salvage_cache(result.path, tmp_path / "new", writer_config=QUIET)
    provenance = drt.open_cache(salvaged.new_path).manifest["provenance"]
    assert provenance["salvaged_from"].endswith("caf\\udce9/dated")

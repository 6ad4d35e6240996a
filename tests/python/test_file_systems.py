"""Full, read-only and other people's file systems: what fails is said, the rest works."""

import functools
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from conftest import directory_digest, numbered, written

import dataset_rt as drt

SECONDS = 60

HEAD = """
import errno, json, os, shutil, subprocess, sys
from pathlib import Path
import dataset_rt as drt

class Words:
    def __init__(self, name="words", count=2000, fingerprint="v1"):
        self.name, self.count, self.fingerprint = name, count, fingerprint
    def __iter__(self):
        for i in range(self.count):
            yield drt.CacheInput(b"%06d" % i * 50, {"number": i})

runtime = drt.DatasetRuntime(num_workers=1)

def load(directory, source, **options):
    config = drt.WriterConfig(show_progress=False, max_shard_bytes=100_000, **options)
    return runtime.from_cache_sources(
        source, directory, reader_config=drt.ReaderConfig(seed=1), writer_config=config
    ).results[0]

def mount(*arguments):
    subprocess.run(["mount", *map(str, arguments)], check=True)

def files(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*") if path.is_file()
    }

def refused(result, error, code):
    assert isinstance(result, drt.CacheWriteError), result
    assert type(result.exception) is error, repr(result.exception)
    assert result.exception.errno == code, repr(result.exception)
"""


@functools.cache
def own_mounts():
    """The command that gives a process mounts of its own, ending with it; or why there is none."""
    tried = []
    for command in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        with tempfile.TemporaryDirectory() as directory:
            mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", directory]
            try:
                done = subprocess.run(
                    [*command, *mount], capture_output=True, text=True, timeout=SECONDS, check=False
                )
            except OSError as error:
                tried.append(str(error))
                continue
        if done.returncode == 0:
            return command, ""
        tried.append(done.stderr.strip())
    return None, f"no mounts here: {tried}"


def run_with_mounts(script, *arguments):
    """Run `script` after `HEAD` where it may mount, within a hard limit; return what it printed."""
    command, reason = own_mounts()
    if command is None:
        print(reason)
        pytest.skip(reason)
    return finished([*command, sys.executable, "-c", HEAD + textwrap.dedent(script)], *arguments)


def finished(command, *arguments):
    done = subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


FULL = """
disk, plain = Path(sys.argv[1], "disk"), Path(sys.argv[1], "plain")
disk.mkdir()
assert load(plain, Words()).status == "written"
expected = files(plain / "words")
pages = sum(-(-len(content) // 4096) for content in expected.values())
outcomes = []

def attempt(make_room):
    "Write into what there is, then again after making room; finished shards may stay in between."
    for resume in (False, True):
        before = files(disk)
        result = load(disk / "caches", Words(), on_stale="rewrite", resume=resume)
        if isinstance(result, drt.CacheWriteSuccess):
            break
        refused(result, drt.FileExhaustedError, errno.ENOSPC)
        assert str(disk) in result.message
        left = {name: content for name, content in files(disk).items() if ".partial" not in name}
        assert left == before
        assert (disk / "caches" / ".words.partial").exists() <= resume
    else:
        caches = disk / "caches"
        left = drt.unfinished_writes(caches) if caches.exists() else []
        stored = sum(write.samples for write in left)
        make_room()
        again = load(disk / "caches", Words(), on_stale="rewrite")
        assert again.samples_reused == stored, again
    outcomes.append(type(result).__name__)
    assert files(disk / "caches" / "words") == expected
    assert os.listdir(disk / "caches") == ["words"]
"""


def test_a_disk_that_fills_up_is_said_and_left_as_it_was(tmp_path):
    script = """
    mount("-t", "tmpfs", "-o", f"size={2 * pages * 4096}", "none", disk)
    ballast = disk / "ballast"
    total = os.statvfs(disk).f_bfree
    # From no room at all to more than enough, closest around the need.
    for room in [0, 1, 2, pages // 4, pages // 2, *range(pages - 12, pages + 13, 2)]:
        ballast.write_bytes(b"x" * 4096 * (total - room))
        attempt(ballast.unlink)
        ballast.unlink(missing_ok=True)
        shutil.rmtree(disk / "caches")
    print(json.dumps(outcomes))
    """
    outcomes = json.loads(run_with_mounts(FULL + textwrap.dedent(script), tmp_path))
    assert outcomes[:5] == ["CacheWriteError"] * 5
    assert outcomes[-1] == "CacheWriteSuccess"


def test_a_disk_that_fills_up_during_a_rewrite_keeps_the_old_cache(tmp_path):
    script = """
    mount("-t", "tmpfs", "-o", f"size={3 * pages * 4096}", "none", disk)
    ballast = disk / "ballast"
    for room in [2, pages // 2, pages - 8, pages - 4, pages, pages + 12]:
        assert load(disk / "caches", Words(count=500, fingerprint="v0")).status == "written"
        ballast.write_bytes(b"x" * 4096 * (os.statvfs(disk).f_bfree - room))
        attempt(ballast.unlink)
        ballast.unlink(missing_ok=True)
        shutil.rmtree(disk / "caches")
    print(json.dumps(outcomes))
    """
    outcomes = json.loads(run_with_mounts(FULL + textwrap.dedent(script), tmp_path))
    assert outcomes[:2] == ["CacheWriteError"] * 2
    assert outcomes[-1] == "CacheWriteSuccess"


def test_a_disk_without_room_for_another_name_is_full_too(tmp_path):
    script = """
    mount("-t", "tmpfs", "-o", "size=50m", "none", disk)
    for names in range(1, len(expected) + 8):
        mount("-o", f"remount,size=50m,nr_inodes={names}", disk)
        attempt(lambda: mount("-o", "remount,size=50m,nr_inodes=10000", disk))
        shutil.rmtree(disk / "caches")
    print(json.dumps(outcomes))
    """
    outcomes = json.loads(run_with_mounts(FULL + textwrap.dedent(script), tmp_path))
    assert set(outcomes) == {"CacheWriteError", "CacheWriteSuccess"}


# Everything that reads, and writes that must fail, below a directory that cannot be written.
USED = """
def used(directory, code):
    def state():
        return {
            str(path): (path.lstat().st_mtime_ns, path.lstat().st_size, path.lstat().st_mode)
            for path in [directory, *directory.rglob("*")]
        }
    before = state()
    path = directory / "words"
    dataset = drt.open_dataset(path)
    assert [sample.data for sample in dataset] == [b"%06d" % i * 50 for i in range(2000)]
    assert dataset.get_metadata()["number"].to_list() == list(range(2000))
    assert drt.verify_cache(path, level="deep").ok
    assert load(directory, Words(), validate_cache=True).status == "reused"
    refused(load(directory, Words("other")), drt.FileUnavailableError, code)
    stale = load(directory, Words(fingerprint="v2"), on_stale="rewrite")
    refused(stale, drt.FileUnavailableError, code)
    assert state() == before
    return drt.open_cache(path).manifest
"""


def test_read_only_media_are_read_and_not_written(tmp_path):
    script = """
    directory = Path(sys.argv[1], "caches")
    assert load(directory, Words()).status == "written"
    before = drt.open_cache(directory / "words").manifest
    mount("--bind", directory, directory)
    mount("-o", "remount,bind,ro", directory)
    assert used(directory, errno.EROFS) == before
    """
    run_with_mounts(USED + textwrap.dedent(script), tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_the_cache_of_another_user_is_read_and_not_written():
    script = """
    directory = Path(sys.argv[1], "caches")
    assert load(directory, Words()).status == "written"
    before = drt.open_cache(directory / "words").manifest
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    assert used(directory, errno.EACCES) == before
    """
    # Not below tmp_path, which is closed to others.
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        code = HEAD + USED + textwrap.dedent(script)
        finished([sys.executable, "-c", code], directory)


def test_modes_are_what_the_umask_leaves(tmp_path):
    script = """
    directory = Path(sys.argv[1])
    for umask in [0o002, 0o022, 0o077]:
        os.umask(umask)
        caches = directory / str(umask)
        assert load(caches, Words(count=10, fingerprint="v0")).status == "written"
        assert load(caches, Words(count=10), on_stale="rewrite").status == "written"
        for path in [caches, *caches.rglob("*")]:
            full = 0o777 if path.is_dir() else 0o666
            assert path.stat().st_mode & 0o777 == full & ~umask, (path, umask)
    """
    finished([sys.executable, "-c", HEAD + textwrap.dedent(script)], tmp_path)


def test_a_moved_directory_is_read_as_before(runtime, tmp_path):
    path = written(runtime, tmp_path / "here", numbered(50))
    before = drt.open_cache(path).manifest, directory_digest(path)
    samples = list(drt.open_dataset(path, seed=3, shuffle=True))
    moved = (tmp_path / "here").rename(tmp_path / "there") / path.name
    assert list(drt.open_dataset(moved, seed=3, shuffle=True)) == samples
    assert drt.verify_cache(moved, level="deep").ok
    assert (drt.open_cache(moved).manifest, directory_digest(moved)) == before
    assert [entry.name for entry in moved.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("directory", ["", ".", "caches", "caches/deep", "caches/../other"])
def test_a_relative_directory_is_below_the_working_directory(
    runtime, tmp_path, monkeypatch, directory
):
    monkeypatch.chdir(tmp_path)
    path = written(runtime, directory, numbered(3))
    assert drt.verify_cache(tmp_path / directory / path.name, level="deep").ok

"""Failures of the system and of the library itself arrive as typed errors, never as panics."""

import errno
import os
import subprocess
import sys

import pytest
from conftest import ListSource, numbered, opened, put, run_script, sealed

import dataset_rt as drt
from dataset_rt import _native


def raised_by(attempt):
    with pytest.raises(drt.DatasetRTError) as caught:
        attempt()
    return caught.value


@pytest.mark.parametrize("in_worker", [False, True])
def test_a_panic_arrives_as_an_internal_error(in_worker):
    error = raised_by(lambda: _native.panic_for_test(in_worker))
    assert type(error) is drt.InternalError
    assert isinstance(error, Exception)


def test_everything_works_on_after_a_panic(runtime, cache):
    for in_worker in (False, True):
        raised_by(lambda where=in_worker: _native.panic_for_test(where))
    assert len(list(opened(runtime, cache))) == 50


def test_a_panic_prints_one_line_whatever_the_environment_asks_for():
    script = """
        import os, sys
        os.environ["RUST_BACKTRACE"] = "full"
        os.dup2(1, 2)
        from dataset_rt import InternalError, _native
        try:
            _native.panic_for_test(True)
        except InternalError:
            print("caught")
    """
    line, caught = run_script(script).splitlines()
    assert line.startswith("dataset_rt panicked at")
    assert line.endswith("a test asked for this")
    assert caught == "caught"


def with_another_version(cache):
    text = (cache / "manifest.json").read_text()
    newer = text.replace('"format_version": 0', '"format_version": 41', 1)
    assert newer != text, "the manifest does not carry its version under this name"
    return newer


@pytest.mark.parametrize("validate_cache", [False, True])
def test_a_newer_format_is_unsupported_with_both_versions(runtime, cache, validate_cache):
    put(cache / "manifest.json", sealed(with_another_version(cache)).encode())
    for face in (
        lambda: drt.open_cache(cache),
        lambda: opened(runtime, cache, validate_cache=validate_cache),
    ):
        error = raised_by(face)
        assert type(error) is drt.UnsupportedError
        assert "version 41" in str(error)
        assert f"version {_native.FORMAT_VERSION};" in str(error)
    (finding,) = drt.verify_cache(cache).findings
    assert (finding.rule, finding.place) == ("M01", "format_version")
    assert "version 41" in finding.found


@pytest.mark.parametrize("validate_cache", [False, True])
def test_a_damaged_version_number_is_damage(runtime, cache, validate_cache):
    put(cache / "manifest.json", with_another_version(cache).encode())
    error = raised_by(lambda: opened(runtime, cache, validate_cache=validate_cache))
    assert type(error) is drt.CorruptError
    assert "manifest.json" in str(error)
    assert "digest differs" in str(error)
    (finding,) = drt.verify_cache(cache).findings
    assert finding.rule == "M02"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_keeps_its_errno(cache):
    (cache / "manifest.json").chmod(0)
    error = raised_by(lambda: drt.open_cache(cache))
    assert isinstance(error, OSError)
    assert error.errno == errno.EACCES


def test_a_full_disk_is_exhausted_and_leaves_nothing(tmp_path):
    # The size limit of a process makes every write beyond it fail, as a full disk does.
    script = """
        import pathlib, resource, signal, sys
        import dataset_rt as drt
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        class Large:
            name = "large"
            def __iter__(self):
                for i in range(100):
                    yield drt.CacheInput(b"x" * 100_000, {"i": i})
        config = drt.WriterConfig(show_progress=False)
        with drt.DatasetRuntime(num_workers=2) as runtime:
            (result,) = runtime.write_cache(Large(), sys.argv[1], writer_config=config)
        error = result.exception
        print(isinstance(error, drt.ExhaustedError), isinstance(error, OSError), bool(error.errno))
        print([path.name for path in pathlib.Path(sys.argv[1]).iterdir()])
    """
    assert run_script(script, tmp_path / "caches") == "True True True\n[]\n"


def test_too_many_open_files_is_a_typed_error(cache):
    script = """
        import os, resource, sys
        import dataset_rt as drt
        drt.open_cache  # imported at first use: Python needs files for that, too
        limit = os.dup(0)  # the lowest free descriptor: with this limit no file can be opened
        os.close(limit)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        try:
            drt.open_cache(sys.argv[1])
        except drt.ExhaustedError as error:
            print("exhausted", isinstance(error, OSError))
    """
    assert run_script(script, cache) == "exhausted True\n"


def test_a_held_lock_is_unavailable_once_the_time_is_over(tmp_path):
    holder = """
        import sys
        import dataset_rt as drt
        class Waiting:
            name = "words"
            def __iter__(self):
                yield drt.CacheInput(b"x", {"i": 0})
                print("holding", flush=True)
                sys.stdin.read()
        with drt.DatasetRuntime(num_workers=1) as runtime:
            config = drt.WriterConfig(show_progress=False)
            runtime.write_cache(Waiting(), sys.argv[1], writer_config=config)
    """
    code = "\n".join(line[8:] for line in holder.splitlines())
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"holding\n"
        config = drt.WriterConfig(show_progress=False, lock_timeout=0)
        with drt.DatasetRuntime(num_workers=1) as runtime:
            source = ListSource("words", numbered(1))
            (result,) = runtime.write_cache(source, tmp_path, writer_config=config)
        assert isinstance(result.exception, drt.UnavailableError), result
        assert source.times_iterated == 0
    finally:
        process.communicate(timeout=60)

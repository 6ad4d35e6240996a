"""Every row of the error reference, provoked for real: class, kind and what its message tells."""

import builtins
import copy
import pickle
import platform
import re
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import QUIET, ListSource, numbered, opened, put, sealed, written
from refusing_kernel import FSYNC_NUMBERS

import dataset_rt as drt
from dataset_rt import _native, errors

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| (\w+) \| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
TABLE = ROW.findall((ROOT / "docs/reference/errors.md").read_text())


def raised_by(attempt):
    with pytest.raises(drt.DatasetRTError) as caught:
        attempt()
    return caught.value


def raised_apart(script, *arguments):
    """The error that a fresh process raises, which may change what holds for a whole process."""
    code = f"""
import pickle, resource, signal, sys
import dataset_rt as drt
from conftest import QUIET, ListSource, numbered
try:
    {textwrap.indent(textwrap.dedent(script), " " * 4).strip()}
except drt.DatasetRTError as error:
    sys.stdout.buffer.write(pickle.dumps(error))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parent,
    )
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout)


def invalid_input(runtime, cache):
    table = opened(runtime, cache).get_metadata().with_columns(weight=-1.5)
    return raised_by(lambda: opened(runtime, cache).update_metadata(table))


def source_error(runtime, cache):
    # `write_cache` takes it apart: its message, and its cause as the exception of the result.
    source = ListSource("raising", [(b"a", {"n": 1}), None])
    config = QUIET._native_options()
    write = runtime._native.write_source
    return raised_by(lambda: write(source, "raising", str(cache.parent), config, False, None))


def failed_result(runtime, cache):
    source = ListSource("empty", [])
    config = drt.ReaderConfig(seed=0)
    result = runtime.from_cache_sources(
        source, cache.parent, reader_config=config, writer_config=QUIET
    )
    return raised_by(lambda: result.dataset)


def not_found(runtime, cache):
    return raised_by(lambda: drt.open_cache(cache / "nowhere"))


def sample_not_found(runtime, cache):
    return raised_by(lambda: drt.open_cache(cache).payload(50))


def unsupported(runtime, cache):
    text = (cache / "manifest.json").read_text()
    newer = text.replace('"format_version": 0', '"format_version": 41')
    put(cache / "manifest.json", sealed(newer).encode())
    return raised_by(lambda: drt.open_cache(cache))


def file_unsupported(runtime, cache):
    # The kernel itself answers as a file system does that cannot sync.
    script = """
        from refusing_kernel import refuse_fsync
        refuse_fsync()
        runtime = drt.DatasetRuntime(num_workers=1)
        source = ListSource("other", numbered(3))
        raise runtime.write_cache(source, sys.argv[1], writer_config=QUIET)[0].exception
    """
    return raised_apart(script, cache.parent)


def corrupt(runtime, cache):
    content = bytearray((cache / "index.bin").read_bytes())
    content[70] ^= 1
    put(cache / "index.bin", content)
    return raised_by(lambda: opened(runtime, cache)[3])


def conflict(runtime, cache):
    source = ListSource(cache.name, numbered(1))
    return runtime.write_cache(source, cache.parent, writer_config=QUIET)[0].exception


def file_conflict(runtime, cache):
    def samples():
        yield from numbered(3)
        (cache.parent / "other").mkdir()
        (cache.parent / "other" / "mine").touch()

    source = ListSource("other", samples())
    return runtime.write_cache(source, cache.parent, writer_config=QUIET)[0].exception


def unavailable(runtime, cache):
    config = drt.WriterConfig(show_progress=False, lock_timeout=0)

    def write_too():
        with drt.DatasetRuntime(num_workers=1) as second:
            source = ListSource("other", numbered(1))
            return second.write_cache(source, cache.parent, writer_config=config)

    def samples():
        with ThreadPoolExecutor(1) as pool:
            results.extend(pool.submit(write_too).result())
        yield from numbered(1)

    results = []
    runtime.write_cache(ListSource("other", samples()), cache.parent, writer_config=QUIET)
    return results[0].exception


def file_unavailable(runtime, cache):
    loop = cache.parent / "loop"
    loop.symlink_to(loop)
    return raised_by(lambda: drt.open_cache(loop))


def exhausted(runtime, cache):
    source = ListSource("other", numbered(1), provenance={"notes": "x" * (17 << 20)})
    return runtime.write_cache(source, cache.parent, writer_config=QUIET)[0].exception


def file_exhausted(runtime, cache):
    script = """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        runtime = drt.DatasetRuntime(num_workers=1)
        source = ListSource("other", [(bytes(30_000), {"n": 1})])
        raise runtime.write_cache(source, sys.argv[1], writer_config=QUIET)[0].exception
    """
    return raised_apart(script, cache.parent)


def internal(runtime, cache):
    return raised_by(lambda: _native.panic_for_test(True))


# Class -> how it comes about, and what its message tells: what, where, expected, found, advice.
EXAMPLES = {
    "InvalidInputError": (
        invalid_input,
        ['column "weight", row 0', "found -1.5", "expected a finite number above 0"],
    ),
    "SourceError": (source_error, ['source "raising"', "raised TypeError", "after 1 samples"]),
    "NotFoundError": (not_found, ["no cache at", "/words/nowhere", "check the path"]),
    "SampleNotFoundError": (sample_not_found, ["no sample 50", "/words", "0 <= i < 50"]),
    "UnsupportedError": (
        unsupported,
        ["/words", "has format version 41", "reads version 0", "upgrade dataset_rt or rebuild"],
    ),
    "FileUnsupportedError": (
        file_unsupported,
        ["cannot sync", "/caches", "Operation not supported", "use another file system"],
    ),
    "FailedResultError": (
        failed_result,
        ["CacheSourcesDatasetError has no 'dataset'", "what failed: no cache to load; ", "empty"],
    ),
    "CorruptError": (
        corrupt,
        [
            "index.bin is damaged in block 0",
            "expected",
            "repair_cache (dataset-rt repair) restores it",
        ],
    ),
    "ConflictError": (
        conflict,
        ["/words exists", "expected a new name", "remove it or use from_cache_sources"],
    ),
    "FileConflictError": (
        file_conflict,
        ["cannot publish", "/other", "exists", "choose another name or remove it"],
    ),
    "UnavailableError": (
        unavailable,
        ["another process is writing", "other", "waited", "retry when it has finished"],
    ),
    "FileUnavailableError": (
        file_unavailable,
        ["cannot open", "/loop", "Too many levels of symbolic links", "retry"],
    ),
    "ExhaustedError": (
        exhausted,
        ["manifest of", "expected at most 16777216", "use larger shards or less provenance"],
    ),
    "FileExhaustedError": (
        file_exhausted,
        ["cannot write", "000000.arrow", "File too large", "make room and retry"],
    ),
    "InternalError": (internal, ["a bug in dataset_rt", "please report it"]),
}
rows = pytest.mark.parametrize("row", TABLE, ids=lambda row: row[1])


def test_reference_classes_and_examples_are_one_list():
    listed = [name for _, name, *_ in TABLE]
    assert len(listed) == len(set(listed))
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.DatasetRTError)
    }
    assert set(listed) == classes - {"DatasetRTError"} == set(EXAMPLES)


def test_the_reference_lists_every_kind_of_the_core():
    core = (ROOT / "crates/storage/src/error.rs").read_text()
    assert {kind for kind, *_ in TABLE} == set(re.findall(r'=> "(\w+)",', core))


@rows
def test_each_row_is_reached_and_its_message_tells_all(runtime, tmp_path, row):
    kind, name, also, when, advice = row
    if name == "FileUnsupportedError" and platform.machine() not in FSYNC_NUMBERS:
        pytest.skip("the number of the system call is not known here")
    make, words = EXAMPLES[name]
    error = make(runtime, written(runtime, tmp_path / "caches", numbered(50)))
    assert type(error) is getattr(drt, name), error
    assert error.kind == kind
    assert all(isinstance(error, getattr(builtins, base)) for base in re.findall(r"\w+", also))
    assert when
    assert advice
    assert [word for word in words if word not in str(error)] == [], error
    # Errors of the operating system say which one.
    assert isinstance(getattr(error, "errno", None), int) == isinstance(error, OSError)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(twin), str(twin)) == (type(error), str(error))
        assert getattr(twin, "errno", None) == getattr(error, "errno", None)

"""Sources and fixtures every test of the built package shares; knows no rule under test."""

import hashlib
import importlib.util
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from plain_blake3 import blake3

import dataset_rt as drt

# Of whole files, as `pytestmark`.
NEEDS_PYTORCH = [
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None,
        reason="PyTorch is not importable: see make torch",
    ),
    # PyTorch's advice about machines with few CPUs, and Python's about forks of threads.
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
]

QUIET = drt.WriterConfig(show_progress=False)


class ListSource:
    """Samples held in a list; `extra` sets optional members such as `schema`."""

    def __init__(self, name, samples, **extra):
        self.name = name
        self.samples = samples
        self.times_iterated = 0
        for member, value in extra.items():
            setattr(self, member, value)

    def __iter__(self):
        self.times_iterated += 1
        for sample in self.samples:
            yield sample if isinstance(sample, drt.CacheInput) else drt.CacheInput(*sample)


def numbered(count, start=0):
    """`count` samples whose payload and metadata both tell their number."""
    return [
        (f"payload-{i:06}".encode() * (i % 4), {"number": i, "label": f"l{i % 7}", "score": i / 8})
        for i in range(start, start + count)
    ]


def written(runtime, directory, samples, name="words", config=QUIET, **extra):
    """Write one source that must succeed; return the cache directory."""
    (result,) = runtime.write_cache(
        ListSource(name, samples, **extra), directory, writer_config=config
    )
    assert isinstance(result, drt.CacheWriteSuccess), result
    return result.path


def opened(runtime, paths, seed=0, shuffle=False, **options):
    """Open caches, in table order unless the test asks for draws."""
    config = drt.ReaderConfig(seed=seed, shuffle=shuffle, **options)
    return runtime.cached_dataset(paths, reader_config=config)


def refusal(runtime, directory, samples, name="words", **extra):
    """Write one source that must fail and leave nothing; return the error result."""
    directory = Path(directory)
    (result,) = runtime.write_cache(
        ListSource(name, samples, **extra), directory, writer_config=QUIET
    )
    assert isinstance(result, drt.CacheWriteError), result
    assert not (directory / name).exists()
    leftovers = [path.name for path in directory.iterdir()] if directory.exists() else []
    assert leftovers == [], leftovers
    return result


def identities(samples):
    """The physical identity of each sample, in order."""
    return [(sample.cache_id, sample.sample_id) for sample in samples]


def directory_digest(path):
    """Name and digest of every file below a directory."""
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(Path(path).rglob("*"))
        if file.is_file()
    }


def sealed(text):
    """A manifest with the digest of its own that belongs to it."""
    end = '"\n}\n'
    blank = text[: -len(end) - 64] + "0" * 64 + end
    return blank[: -len(end) - 64] + blake3(blank.encode()) + end


def run_script(script, *arguments, seconds=60):
    """Run Python code in a fresh process under a hard time limit; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def measured(module, directory, *arguments, seconds=300):
    """Run a command of the benchmarks with its data in `directory`; its results, and its report."""
    output = directory / "result.json"
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments, "--cache", directory, "--output", output],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(output.read_text()), done.stdout


@pytest.fixture
def runtime():
    with drt.DatasetRuntime(num_workers=2) as made:
        yield made


@pytest.fixture
def cache(runtime, tmp_path):
    """A cache of 50 numbered samples."""
    return written(runtime, tmp_path / "caches", numbered(50))


def put(path, content):
    """Put another file at `path`. Never in place: abandoned readers may still have it mapped."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)

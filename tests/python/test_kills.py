"""Writers killed at any moment: the cache is absent or whole, and the next run succeeds."""

import json
from pathlib import Path

import pytest
from conftest import run_script

# One process imports everything; each writer is a fork of it, so that a round takes milliseconds.
# The process itself never uses the library: its children must begin unused.
ROUNDS = """
import json, os, random, shutil, signal, sys, time, traceback
from collections import Counter
from hashlib import sha256
from pathlib import Path
import dataset_rt as drt

root, replaces, rounds, seed = Path(sys.argv[1]), sys.argv[2] == "rewrite", *map(int, sys.argv[3:])
SAMPLES = [drt.CacheInput(b"%06d" % i * 150, {"number": i, "text": f"t{i}"}) for i in range(400)]
WRITER = drt.WriterConfig(show_progress=False, max_shard_bytes=60_000, on_stale="rewrite")
chance = random.Random(seed)

class Words:
    name = "words"
    def __init__(self, fingerprint, at_sample=lambda number: None):
        self.fingerprint, self.at_sample = fingerprint, at_sample
    def __iter__(self):
        for number, sample in enumerate(SAMPLES[: 300 if self.fingerprint == "v1" else 400]):
            self.at_sample(number)
            yield sample
        self.at_sample(len(SAMPLES))

def write(directory, source):
    with drt.DatasetRuntime(num_workers=2) as runtime:
        config = drt.ReaderConfig(seed=1)
        result = runtime.from_cache_sources(
            source, directory, reader_config=config, writer_config=WRITER
        )
        assert isinstance(result, drt.CacheSourcesDatasetSuccess), result.message

def forked(work):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid

def completed(work):
    assert os.waitpid(forked(work), 0)[1] == 0

def content(path):
    found = sha256()
    for file in sorted(path.rglob("*")):
        if file.is_file():
            found.update(str(file.relative_to(path)).encode() + file.read_bytes())
    return found.hexdigest()

def prepared(name, version):
    completed(lambda: write(root / name, Words(version)))
    return content(root / name / "words")

OLD, NEW = prepared("old", "v1"), prepared("new", "v2")

def fresh():
    directory = root / "caches"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    if replaces:
        shutil.copytree(root / "old" / "words", directory / "words")
    return directory

def started(directory, kill_at=None):
    # The child tells when it begins, when its source ends, and when it is done.
    receive, send = os.pipe()
    def at_sample(number):
        if number == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == len(SAMPLES):
            os.write(send, b"e")
    def work():
        os.write(send, b"b")
        write(directory, Words("v2", at_sample))
        os.write(send, b"d")
    pid = forked(work)
    os.close(send)
    return pid, receive

def timed():
    pid, receive = started(fresh())
    times = []
    while os.read(receive, 1):
        times.append(time.monotonic())
    os.close(receive)
    assert os.waitpid(pid, 0)[1] == 0
    return times[1] - times[0], times[2] - times[1]

writing, publishing = (max(seconds) for seconds in zip(*[timed() for _ in range(3)]))

def killed(directory, how):
    if how == "sample":
        pid, receive = started(directory, kill_at=chance.randrange(len(SAMPLES) + 1))
    else:
        pid, receive = started(directory)
        wait_for, seconds = {"time": (b"b", writing + publishing), "end": (b"e", publishing)}[how]
        while os.read(receive, 1) not in (wait_for, b""):
            pass
        time.sleep(chance.uniform(0, seconds))
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(receive)
    return os.waitstatus_to_exitcode(status)

def check(directory):
    path = directory / "words"
    assert {entry.name for entry in directory.iterdir()} <= {"words", ".words.partial"}
    found = "absent"
    if path.exists():
        found = {OLD: "old", NEW: "new"}[content(path)]
        assert drt.verify_cache(path, level="deep").ok
    assert found != ("absent" if replaces else "old")
    write(directory, Words("v2"))
    assert content(path) == NEW
    if found != "new":
        assert [entry.name for entry in directory.iterdir()] == ["words"]
    (root / "found").write_text(found)

found, codes = Counter(), Counter()
for number in range(rounds):
    directory = fresh()
    codes[killed(directory, ("sample", "time", "end")[number % 3])] += 1
    completed(lambda: check(directory))
    found[(root / "found").read_text()] += 1
print(json.dumps([found, codes]))
"""


@pytest.fixture
def fast(tmp_path_factory):
    """A directory in memory where there is one: a kill loses nothing that was written."""
    import tempfile

    memory = Path("/dev/shm")
    place = memory if memory.is_dir() else tmp_path_factory.mktemp("kills")
    with tempfile.TemporaryDirectory(dir=place) as directory:
        yield Path(directory)


@pytest.mark.parametrize(("mode", "before"), [("new", "absent"), ("rewrite", "old")])
def test_a_writer_killed_at_any_moment_leaves_a_whole_cache_or_none(fast, mode, before):
    found, codes = json.loads(run_script(ROUNDS, fast, mode, 100, 7, seconds=120))
    assert sum(found.values()) == 100
    assert set(found) == {before, "new"}, "the kills miss the step that publishes"
    assert set(codes) <= {"0", "-9"}, codes
    assert codes["-9"] >= 50, codes

"""Many processes and one cache: one writes, the others wait and reuse, readers see whole caches."""

import json
import textwrap
from collections import Counter

from conftest import run_script

SECONDS = 60

# One process imports everything and forks the writers, so that eight of them start at once. It
# never uses the library itself: its children must begin unused.
FORKED = """
import json, logging, os, signal, sys, time, traceback
from pathlib import Path
import dataset_rt as drt

directory, NAMES = Path(sys.argv[1]), ["a", "b", "c"]

class Numbers:
    def __init__(self, name, fingerprint, count=800):
        self.name, self.fingerprint, self.count = name, fingerprint, count
    def __iter__(self):
        for i in range(self.count):
            yield drt.CacheInput(b"%s %06d" % (self.fingerprint.encode(), i), {"i": i})

def load(sources, **options):
    config = drt.WriterConfig(show_progress=False, max_shard_bytes=8_000, **options)
    with drt.DatasetRuntime(num_workers=1) as runtime:
        return runtime.from_cache_sources(
            sources, directory, reader_config=drt.ReaderConfig(seed=1), writer_config=config
        ).results

def fork(work):
    "Run `work` in a child; give its number and a pipe with the lines that it tells."
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(receive)
        try:
            work(lambda found: os.write(send, json.dumps(found).encode() + b"\\n"))
        except BaseException:
            os.write(send, json.dumps(traceback.format_exc()).encode() + b"\\n")
        os._exit(0)
    os.close(send)
    return pid, os.fdopen(receive)

def collected(children):
    found = [[json.loads(line) for line in lines] for _, lines in children]
    for pid, lines in children:
        lines.close()
        os.waitpid(pid, 0)
    return found

def told(results):
    return [getattr(result, "status", None) or repr(result) for result in results]

def together(work, count=8):
    "Fork `count` children that begin `work` at one moment."
    barrier, start = os.pipe()
    def wait(tell):
        os.close(start)
        os.read(barrier, 1)
        work(tell)
    children = [fork(wait) for _ in range(count)]
    os.close(barrier)
    os.close(start)
    return children

class Endless(Numbers):
    def __iter__(self):
        yield from super().__iter__()
        self.tell("holding")
        signal.pause()

def hold(tell):
    source = Endless("a", "v1")
    source.tell = tell
    load(source)

def whole(name):
    return drt.verify_cache(directory / name, level="deep").ok
"""


def forked(script, *arguments):
    """Run `script` after `FORKED`; return what it printed as JSON."""
    return json.loads(run_script(FORKED + textwrap.dedent(script), *arguments, seconds=SECONDS))


def assert_each_is_written_once(outcomes, names):
    for number in range(names):
        statuses = Counter(outcome[number] for outcome in outcomes)
        assert statuses == {"written": 1, "reused": len(outcomes) - 1}, statuses


def test_eight_processes_write_each_cache_once_and_a_reader_sees_it_whole(tmp_path):
    script = """
    def read(tell):
        seen, is_last = set(), False
        while not is_last:
            # Once more when all are there.
            is_last = (directory / "stop").exists()
            for name in NAMES:
                try:
                    dataset = drt.open_dataset(directory / name)
                    seen.add((name, len([sample.data for sample in dataset])))
                except drt.NotFoundError:
                    pass
        tell(sorted(seen))

    reader = fork(read)
    work = lambda tell: tell(told(load([Numbers(name, "v1") for name in NAMES])))
    outcomes = [lines for [lines] in collected(together(work))]
    for name in NAMES:
        assert whole(name)
    (directory / "stop").touch()
    [[seen]] = collected([reader])
    (directory / "stop").unlink()
    print(json.dumps([outcomes, seen, sorted(os.listdir(directory))]))
    """
    outcomes, seen, left = forked(script, tmp_path)
    assert_each_is_written_once(outcomes, 3)
    assert left == ["a", "b", "c"]
    assert {tuple(found) for found in seen} == {("a", 800), ("b", 800), ("c", 800)}


def test_eight_processes_rewrite_a_stale_cache_once(tmp_path):
    script = """
    collected([fork(lambda tell: load([Numbers(name, "v1", 500) for name in NAMES]))])
    def work(tell):
        tell(told(load([Numbers(name, "v2") for name in NAMES], on_stale="rewrite")))
    outcomes = [lines for [lines] in collected(together(work))]
    fingerprints = {drt.open_cache(directory / name).manifest["fingerprint"] for name in NAMES}
    assert fingerprints == {"v2"} and all(map(whole, NAMES))
    print(json.dumps([outcomes, sorted(os.listdir(directory))]))
    """
    outcomes, left = forked(script, tmp_path)
    assert_each_is_written_once(outcomes, 3)
    assert left == ["a", "b", "c"]


def test_a_reader_during_rewrites_sees_the_old_or_the_new_cache(tmp_path):
    script = """
    def expected(version):
        return [b"%s %06d" % (version.encode(), i) for i in range(800)]

    def read(tell):
        begun = False
        seen = set()
        while not (directory / "stop").exists():
            try:
                data = [sample.data for sample in drt.open_dataset(directory / "a")]
            except drt.ConflictError:
                found = "changed"
            else:
                found = data[0].split()[0].decode()
                assert data == expected(found), "a mix"
            seen.add(found)
            if not begun:
                tell("begun")
                begun = True
        tell(sorted(seen))

    collected([fork(lambda tell: load([Numbers("a", "v0")]))])
    pid, lines = reader = fork(read)
    assert json.loads(lines.readline()) == "begun"
    for version in range(1, 30):
        work = lambda tell: tell(told(load([Numbers("a", f"v{version}")], on_stale="rewrite")))
        assert collected([fork(work)]) == [[["written"]]]
    (directory / "stop").touch()
    print(json.dumps(collected([reader])))
    """
    [[seen]] = forked(script, tmp_path)
    assert isinstance(seen, list), seen
    assert len(set(seen) - {"changed"}) > 1, seen


def test_when_a_writer_dies_one_of_those_that_wait_takes_over(tmp_path):
    script = """
    class Telling(logging.Handler):
        def emit(self, record):
            self.tell(record.getMessage())

    def wait(tell):
        handler = Telling()
        handler.tell = tell
        logger = logging.getLogger("dataset_rt")
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING)
        tell(told(load(Numbers("a", "v1"))))

    holder, lines = fork(hold)
    assert json.loads(lines.readline()) == "holding"
    waiting = [fork(wait) for _ in range(4)]
    messages = [json.loads(lines.readline()) for _, lines in waiting]
    assert not (directory / "a").exists()
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    outcomes = [lines[-1] for lines in collected(waiting)]
    print(json.dumps([outcomes, messages, whole("a"), os.listdir(directory)]))
    """
    outcomes, messages, is_whole, left = forked(script, tmp_path)
    assert_each_is_written_once(outcomes, 1)
    assert all("waiting" in message and ".a.partial" in message for message in messages)
    assert is_whole
    assert left == ["a"]


def test_a_dead_writers_child_does_not_hold_its_lock(tmp_path):
    script = """
    class Forking(Numbers):
        def __iter__(self):
            yield from super().__iter__()
            child = os.fork()
            if child == 0:
                signal.pause()
            self.tell(child)
            signal.pause()

    def hold(tell):
        source = Forking("a", "v1")
        source.tell = tell
        load(source)

    writer, lines = fork(hold)
    child = json.loads(lines.readline())
    try:
        # While the writer lives, the lock is its own.
        (refused,) = load(Numbers("a", "v1"), lock_timeout=0)
        assert type(refused.exception) is drt.UnavailableError, refused
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        print(json.dumps(told(load(Numbers("a", "v1"), lock_timeout=1))))
    finally:
        os.kill(child, signal.SIGKILL)
    """
    assert forked(script, tmp_path) == ["written"]


def test_a_lock_that_is_not_given_in_time_is_named(tmp_path):
    script = """
    holder, lines = fork(hold)
    assert json.loads(lines.readline()) == "holding"
    results = [load(Numbers("a", "v1"), lock_timeout=seconds)[0] for seconds in [0, 0.2]]
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    assert all(type(result.exception) is drt.UnavailableError for result in results), results
    print(json.dumps([result.message for result in results]))
    """
    for message in forked(script, tmp_path):
        assert str(tmp_path / ".a.partial") in message
        assert "lock_timeout" in message

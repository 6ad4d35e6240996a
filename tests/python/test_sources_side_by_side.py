"""Several sources written at a time, each by a process: results and caches of a serial write."""

import json
import logging
import os
import signal
import warnings

import pyarrow as pa
import pytest
import slow_sources as slow
from conftest import directory_digest
from slow_sources import At, Numbers, Plain

import dataset_rt as drt


def config(num_processes, **options):
    return drt.WriterConfig(num_processes=num_processes, show_progress=False, **options)


def write(runtime, directory, sources, num_processes=2, **options):
    return runtime.write_cache(sources, directory, writer_config=config(num_processes, **options))


def load(runtime, directory, sources, num_processes=2, **options):
    return runtime.from_cache_sources(
        sources,
        directory,
        reader_config=drt.ReaderConfig(seed=0),
        writer_config=config(num_processes, **options),
    )


def started(records):
    return sum(" started" in record.getMessage() for record in records)


def mixed():
    """Sources of every kind, in an order that is not that of their writing."""
    table = pa.table({"payload": [b"%d" % i for i in range(500)], "number": range(500)})
    return [
        Plain("one", 400, slow.skewed),
        Numbers("made", 300),
        Plain("two", 700),
        drt.ArrowSource("table", table, fingerprint="v1"),
        Plain("nothing", 0),
        Plain("breaks", 50, At(20, slow.fail, KeyError("gone"))),
        Plain("three", 1),
    ]


def test_results_caches_and_profile_are_those_of_one_process(runtime, tmp_path):
    path = tmp_path / "profile.json"
    profiler = drt.WriterProfilerConfig(enabled=True, path=path)
    options = {"max_shard_bytes": 5000, "profiler": profiler}
    serial = write(runtime, tmp_path / "1", mixed(), 1, **options)
    parallel = write(runtime, tmp_path / "n", mixed(), 3, **options)
    for one, other in zip(serial, parallel, strict=True):
        assert type(one) is type(other), (one, other)
        assert one.source_name == other.source_name
        if isinstance(one, drt.CacheWriteSuccess):
            assert other == one._replace(path=tmp_path / "n" / one.source_name)
        else:
            assert one.message.replace("/1/", "/n/") == other.message
            assert type(one.exception) is type(other.exception)
    assert "slow_sources.py" in parallel[5].exception.__notes__[0]
    assert directory_digest(tmp_path / "1") == directory_digest(tmp_path / "n")
    reports = json.loads(path.read_text())["sources"]
    assert [report["source"] for report in reports] == [source.name for source in mixed()]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["profile.json"]


def test_a_writer_that_dies_leaves_its_shards_for_the_next_run(runtime, tmp_path):
    sources = [
        Plain("dies", 600, At(450, slow.die, marker=tmp_path / "once")),
        Plain("lives", 600),
    ]
    died, lived = write(runtime, tmp_path / "2", sources, max_shard_bytes=2000)
    assert "was killed by SIGKILL while it was at work on sample 450" in died.message
    assert isinstance(died.exception, drt.UnavailableError)
    assert isinstance(lived, drt.CacheWriteSuccess)
    (unfinished,) = drt.unfinished_writes(tmp_path / "2")
    assert unfinished.samples > 0
    outcome = load(runtime, tmp_path / "2", sources, max_shard_bytes=2000)
    assert [result.status for result in outcome.results] == ["resumed", "reused"]
    write(runtime, tmp_path / "1", sources, 1, max_shard_bytes=2000)
    assert directory_digest(tmp_path / "1") == directory_digest(tmp_path / "2")


def test_without_resume_a_dead_writer_leaves_nothing(runtime, tmp_path):
    sources = [Plain("dies", 600, At(450, slow.die)), Plain("lives", 5)]
    write(runtime, tmp_path, sources, max_shard_bytes=2000, resume=False)
    assert [path.name for path in tmp_path.iterdir()] == ["lives"]


def test_a_source_that_hangs_is_ended_also_when_it_is_alone(runtime, tmp_path):
    (hung,) = write(
        runtime, tmp_path, Plain("s", 9, At(5, slow.die, signal.SIGCONT)), process_timeout=0.5
    )
    assert "took more than 0.5 s (process_timeout) for sample 5" in hung.message
    assert list(tmp_path.iterdir()) == []


def test_only_what_must_be_written_costs_a_process(runtime, tmp_path, caplog):
    caplog.set_level(logging.DEBUG, "dataset_rt")
    load(runtime, tmp_path, [Plain(name, 5 + i) for i, name in enumerate("abc")], 1)
    before = directory_digest(tmp_path)
    asked = [Plain(name, 5 + i) for i, name in enumerate("abc")]
    outcome = load(runtime, tmp_path, asked)
    assert [result.status for result in outcome.results] == ["reused"] * 3
    asked[1].fingerprint = "v2"
    outcome = load(runtime, tmp_path, asked)
    assert "is stale" in outcome.results[1].message
    assert [type(result).__name__[10:] for result in outcome.results] == [
        "Success",
        "Error",
        "Success",
    ]
    outcome = load(runtime, tmp_path, asked, on_stale="reuse")
    assert [result.status for result in outcome.results] == ["reused"] * 3
    assert directory_digest(tmp_path) == before
    # One that must be written needs no process of its own: this one has nothing else to do.
    outcome = load(runtime, tmp_path, asked, on_stale="rewrite")
    assert [result.status for result in outcome.results] == ["reused", "written", "reused"]
    assert started(caplog.records) == 0
    asked[0].fingerprint = asked[2].fingerprint = "v2"
    outcome = load(runtime, tmp_path, asked, on_stale="rewrite")
    assert [result.status for result in outcome.results] == ["written", "reused", "written"]
    assert started(caplog.records) == 2
    assert drt.open_cache(tmp_path / "a").manifest["fingerprint"] == "v2"
    # An existing name is an error of write_cache, as ever.
    for result in write(runtime, tmp_path, asked):
        assert isinstance(result.exception, drt.ConflictError)
    assert started(caplog.records) == 2


def test_processes_share_the_threads_and_take_one_source_after_another(runtime, tmp_path):
    sources = [Tells(f"s{i}") for i in range(6)]
    results = write(runtime, tmp_path, sources)
    told = [drt.open_cache(result.path).metadata().row(0) for result in results]
    pids = {pid for pid, _ in told}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert {workers for _, workers in told} == {1}


class Tells(Plain):
    """Says which process iterates it, and how many native threads write it."""

    def __init__(self, name):
        super().__init__(name, 1)

    def __iter__(self):
        import sys

        frame = sys._getframe()
        while "job" not in frame.f_locals:
            frame = frame.f_back
        slow.skewed(3)
        yield drt.CacheInput(
            b"", {"pid": os.getpid(), "workers": frame.f_locals["job"].num_workers}
        )


def test_a_source_that_cannot_be_pickled_is_an_error_of_its_own(runtime, tmp_path):
    locked, half = Plain("locked", 5), Plain("half", 5)
    half.value = slow.HalfPickled()
    with open(os.devnull) as locked.handle:
        refused, unloaded, written = write(runtime, tmp_path, [locked, half, Plain("lives", 5)])
    assert "source 'locked' cannot be sent to a worker process" in refused.message
    assert "keep open files" in refused.message
    assert isinstance(refused.exception, drt.InvalidInputError)
    assert "the source cannot be loaded in a worker process" in unloaded.message
    assert "not to be unpickled" in unloaded.message
    assert isinstance(written, drt.CacheWriteSuccess)


def test_what_ends_a_program_ends_the_call(runtime, tmp_path):
    begun, path = tmp_path / "begun", tmp_path / "profile.json"
    sources = [
        Plain("ends", 9, At(5, slow.end_when, begun)),
        Plain("slow", 9, At(5, slow.begin_and_wait, begun)),
    ]
    profiler = drt.WriterProfilerConfig(enabled=True, path=path)
    with pytest.raises(SystemExit) as raised:
        write(runtime, tmp_path, sources, profiler=profiler)
    assert raised.value.code == 3
    assert sorted(tmp_path.iterdir()) == [begun, path]
    reports = json.loads(path.read_text())["sources"]
    assert [(report["source"], report["outcome"]) for report in reports] == [
        ("ends", "failed"),
        ("slow", "failed"),
    ]


def test_sources_in_a_process_may_write_by_processes_themselves(runtime, tmp_path):
    sources = [slow.Nested("outer", tmp_path / "inner"), Plain("b", 9)]
    results = write(runtime, tmp_path, sources)
    assert [result.status for result in results] == ["written", "written"]
    assert drt.open_cache(tmp_path / "inner" / "a").num_samples == 50


def test_warnings_come_from_the_call(runtime, tmp_path):
    sources = [Long(name, 3) for name in "ab"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        write(runtime, tmp_path, sources)
    assert ["its length is 99" in str(warning.message) for warning in caught] == [True, True]
    assert {warning.filename for warning in caught} == {__file__}


class Long(Plain):
    def __len__(self):
        return 99


def test_a_wait_for_another_writer_is_logged_here(runtime, tmp_path, caplog):
    class Holds(Plain):
        def __iter__(self):
            (result, _) = write(
                runtime, tmp_path, [Plain("outer", 3), Plain("b", 3)], lock_timeout=0.3
            )
            assert "another process is writing" in result.message
            yield from super().__iter__()

    (result,) = write(runtime, tmp_path, Holds("outer", 3), 1)
    assert isinstance(result, drt.CacheWriteSuccess), result
    assert any("waiting for another process" in record.getMessage() for record in caplog.records)

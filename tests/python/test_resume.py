"""EarlyEndError writes go on: the same bytes as without the interruption, nothing mixed."""

import os
import signal
import subprocess
import sys

import pytest
from conftest import ListSource, directory_digest, numbered

import dataset_rt as drt

SMALL = {"show_progress": False, "max_shard_bytes": 20_000}
COUNT = 6_000


class EarlyEndError(Exception):
    pass


class Source(ListSource):
    """A list of samples that ends with an exception after `stop` of them."""

    def __init__(self, samples, stop=None, **extra):
        super().__init__("words", samples, **extra)
        self.stop = stop

    def __iter__(self):
        for number, sample in enumerate(super().__iter__()):
            if number == self.stop:
                raise EarlyEndError(f"at {number}")
            yield sample


class Seeking(Source):
    """The same, able to begin in the middle."""

    started_at = None

    def iter_from(self, start):
        self.started_at = start
        for sample in self.samples[start:]:
            yield drt.CacheInput(*sample)


def big(count, start=0):
    """Samples of which a dozen fill a shard."""
    return [(bytes([i % 251]) * 1_500, {"number": i}) for i in range(start, start + count)]


def write(runtime, directory, source, **options):
    config = drt.WriterConfig(**(SMALL | options))
    (result,) = runtime.write_cache(source, directory, writer_config=config)
    return result


def interrupted(runtime, directory, source, **options):
    result = write(runtime, directory, source, **options)
    assert isinstance(result, drt.CacheWriteError), result
    assert isinstance(result.exception, EarlyEndError)
    return result


def expected_files(runtime, tmp_path, samples, **extra):
    result = write(runtime, tmp_path / "uninterrupted", Source(samples, **extra))
    assert result.status == "written"
    return directory_digest(result.path)


@pytest.mark.parametrize("stop", [150, 299])
def test_a_source_that_can_seek_goes_on_behind_what_is_stored(runtime, tmp_path, stop):
    samples = big(300)
    expected = expected_files(runtime, tmp_path, samples, fingerprint="v1")
    interrupted(runtime, tmp_path, Seeking(samples, stop, fingerprint="v1"))
    (left,) = drt.unfinished_writes(tmp_path)
    assert left.source_name == "words"
    assert 0 < left.samples <= stop
    assert left.size_bytes >= left.samples * 1_500
    assert not left.is_running
    source = Seeking(samples, fingerprint="v1")
    result = write(runtime, tmp_path, source)
    assert result.status == "resumed"
    assert result.samples_reused == source.started_at == left.samples
    assert source.times_iterated == 0
    assert directory_digest(result.path) == expected
    assert drt.unfinished_writes(tmp_path) == []
    assert drt.verify_cache(result.path, level="deep")


@pytest.mark.parametrize(
    ("first", "second"),
    [(None, None), ("v1", None), (None, "v1"), ("v1", "v2")],
)
def test_without_an_equal_fingerprint_the_source_is_replayed(runtime, tmp_path, first, second):
    samples = big(300)
    expected = expected_files(runtime, tmp_path, samples, fingerprint=second)
    interrupted(runtime, tmp_path, Seeking(samples, 150, fingerprint=first))
    source = Seeking(samples, fingerprint=second)
    result = write(runtime, tmp_path, source)
    assert result.status == "resumed"
    assert 0 < result.samples_reused <= 150
    assert source.started_at is None
    assert source.times_iterated == 1
    assert directory_digest(result.path) == expected


def test_code_that_changed_between_the_runs_is_noticed(runtime, tmp_path):
    before = big(300)
    after = [*before[:80], *((data[:-1] + b"!", row) for data, row in before[80:])]
    expected = expected_files(runtime, tmp_path, after)
    interrupted(runtime, tmp_path, Source(before, 150))
    source = Source(after)
    with pytest.warns(UserWarning, match=r"samples of an interrupted write, from sample \d+ on"):
        result = write(runtime, tmp_path, source)
    assert 0 < result.samples_reused <= 80
    assert source.times_iterated == 1
    assert directory_digest(result.path) == expected


def test_a_listing_order_that_changed_is_noticed(runtime, tmp_path):
    before = big(300)
    after = list(reversed(before))
    expected = expected_files(runtime, tmp_path, after)
    interrupted(runtime, tmp_path, Source(before, 150))
    with pytest.warns(UserWarning, match="from sample 0 on"):
        result = write(runtime, tmp_path, Source(after))
    assert (result.status, result.samples_reused) == ("written", 0)
    assert directory_digest(result.path) == expected


def test_other_settings_drop_what_is_stored(runtime, tmp_path):
    samples = big(300)
    interrupted(runtime, tmp_path, Seeking(samples, 150, fingerprint="v1"))
    with pytest.warns(UserWarning, match="another max_shard_bytes"):
        result = write(
            runtime, tmp_path, Seeking(samples, fingerprint="v1"), max_shard_bytes=90_000
        )
    assert (result.status, result.samples_reused) == ("written", 0)


def test_an_inferred_schema_holds_for_the_samples_behind(runtime, tmp_path):
    samples = big(300)
    interrupted(runtime, tmp_path, Seeking(samples, 150, fingerprint="v1"))
    changed = [*samples[:150], *((data, {"number": "text"}) for data, _ in samples[150:])]
    result = write(runtime, tmp_path, Seeking(changed, fingerprint="v1"))
    assert isinstance(result, drt.CacheWriteError)
    assert "expected int64, found str" in result.message
    # What was stored before stays for a corrected source.
    assert write(runtime, tmp_path, Seeking(samples, fingerprint="v1")).status == "resumed"


def test_from_cache_sources_resumes_too_also_when_it_replaces_a_stale_cache(runtime, tmp_path):
    old, samples = big(20), big(300, start=7)
    write(runtime, tmp_path, Source(old, fingerprint="v1"))
    config = drt.WriterConfig(**SMALL, on_stale="rewrite")

    def build(source):
        return runtime.from_cache_sources(
            source, tmp_path, reader_config=drt.ReaderConfig(seed=0), writer_config=config
        )

    failed = build(Seeking(samples, 150, fingerprint="v2"))
    assert isinstance(failed, drt.CacheSourcesDatasetError)
    assert drt.open_cache(tmp_path / "words").num_samples == 20
    built = build(Seeking(samples, fingerprint="v2"))
    assert isinstance(built, drt.CacheSourcesDatasetSuccess)
    assert built.results[0].status == "resumed"
    assert len(built.dataset) == 300


def test_with_resume_off_nothing_stays(runtime, tmp_path):
    samples = big(300)
    interrupted(runtime, tmp_path, Source(samples, 150), resume=False)
    assert list(tmp_path.iterdir()) == []
    interrupted(runtime, tmp_path, Source(samples, 150))
    assert drt.unfinished_writes(tmp_path)
    result = write(runtime, tmp_path, Source(samples), resume=False)
    assert (result.status, result.samples_reused) == ("written", 0)


def test_what_is_left_can_be_removed_but_not_under_a_writer(runtime, tmp_path):
    interrupted(runtime, tmp_path, Source(big(300), 150))

    class Curious(Source):
        def __iter__(self):
            yield from super().__iter__()
            (running,) = drt.unfinished_writes(tmp_path)
            assert running.is_running
            with pytest.raises(drt.ConflictError, match="is being written"):
                drt.remove_unfinished_write(tmp_path, "words")
            raise EarlyEndError("done looking")

    interrupted(runtime, tmp_path, Curious(big(300)))
    drt.remove_unfinished_write(tmp_path, "words")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(drt.NotFoundError, match="no unfinished write"):
        drt.remove_unfinished_write(tmp_path, "words")


def test_arrow_batches_resume_at_a_row_in_the_middle_of_one(runtime, tmp_path):
    import pyarrow as pa

    table = pa.table(
        {"payload": [data for data, _ in big(300)], "number": pa.array(range(300), pa.int64())}
    )

    class Batches:
        name = "words"
        fingerprint = "v1"
        stop = 200

        def __iter__(self):
            return self.iter_from(0)

        def iter_from(self, start):
            for first in range(start, table.num_rows, 70):
                if first > self.stop:
                    raise EarlyEndError
                yield from table.slice(first, 70).to_batches()

    expected = expected_files(runtime, tmp_path, big(300), fingerprint="v1")
    interrupted(runtime, tmp_path, Batches())
    source = Batches()
    source.stop = 1_000
    result = write(runtime, tmp_path, source)
    assert result.samples_reused > 0
    assert directory_digest(result.path) == expected


KILLED = """
import os, signal, sys
import dataset_rt as drt

class Source:
    name, fingerprint = "words", "v1"

    def __iter__(self):
        for i in range(300):
            if i == 200:
                while not drt.unfinished_writes(sys.argv[1])[0].samples:
                    pass
                os.kill(os.getpid(), signal.SIGKILL)
            yield drt.CacheInput(bytes([i % 251]) * 1_500, {"number": i})

config = drt.WriterConfig(show_progress=False, max_shard_bytes=20_000)
drt.DatasetRuntime(num_workers=2).write_cache(Source(), sys.argv[1], writer_config=config)
"""


def test_a_killed_writer_is_resumed(runtime, tmp_path):
    expected = expected_files(runtime, tmp_path / "a", big(300), fingerprint="v1")
    target = tmp_path / "b"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(target)], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    source = Seeking(big(300), fingerprint="v1")
    result = write(runtime, target, source)
    assert result.samples_reused == source.started_at > 0
    assert directory_digest(result.path) == expected
    assert sorted(os.listdir(target)) == ["words"]


def test_small_samples_share_batches_and_resume_at_their_borders(runtime, tmp_path):
    samples = numbered(COUNT)
    expected = expected_files(runtime, tmp_path, samples, fingerprint="v1")
    interrupted(runtime, tmp_path, Seeking(samples, COUNT - 1, fingerprint="v1"))
    result = write(runtime, tmp_path, Seeking(samples, fingerprint="v1"))
    assert result.samples_reused > 0
    assert directory_digest(result.path) == expected


def test_a_column_that_gets_its_type_late_changes_no_border(runtime, tmp_path):
    sizes = [3000, 1500, 1000, 1585, 10, 3000, 3000, 10]
    samples = [(bytes(size), {"late": 7 if i >= 2 else None}) for i, size in enumerate(sizes)]
    small = {"max_shard_bytes": 4096}
    for stop in range(3, len(sizes)):
        directory = tmp_path / str(stop)
        whole = Source(samples, fingerprint="v1")
        expected = directory_digest(write(runtime, directory / "whole", whole, **small).path)
        interrupted(runtime, directory, Seeking(samples, stop, fingerprint="v1"), **small)
        result = write(runtime, directory, Seeking(samples, fingerprint="v1"), **small)
        assert directory_digest(result.path) == expected, stop


@pytest.mark.parametrize("iter_from", [True, False])
def test_a_child_of_the_source_that_fails_leaves_the_parents_write_alone(
    runtime, tmp_path, iter_from
):
    samples = big(300)

    class Forking(Seeking):
        def __iter__(self):
            self.fork()
            return super().__iter__()

        def iter_from(self, start):
            self.fork()
            return super().iter_from(start)

        def fork(self):
            child = os.fork()
            if child == 0:
                raise SystemExit
            os.waitpid(child, 0)

    interrupted(runtime, tmp_path, Seeking(samples, 150, fingerprint="v1"))
    pid = os.getpid()
    try:
        fingerprint = "v1" if iter_from else None
        result = write(runtime, tmp_path, Forking(samples, fingerprint=fingerprint))
    finally:
        if os.getpid() != pid:
            os._exit(0)
    assert result.status == "resumed"
    assert result.samples_reused > 0


def test_one_large_table_is_taken_in_slices(runtime, tmp_path):
    import pyarrow as pa

    rows = 200_000
    table = pa.table(
        {"payload": pa.array([b"x" * 10] * rows, pa.binary()), "number": pa.array(range(rows))}
    )

    class Whole:
        name = "whole"

        def __iter__(self):
            yield table

    class Pieces(Whole):
        def __iter__(self):
            yield from table.to_batches(max_chunksize=777)

    whole = write(runtime, tmp_path / "a", Whole(), max_shard_bytes=300_000)
    pieces = write(runtime, tmp_path / "b", Pieces(), max_shard_bytes=300_000)
    assert directory_digest(whole.path) == directory_digest(pieces.path)

"""What writing returns: one result per source, failures apart, names checked before any write."""

import copy
import json
import pickle
import unicodedata

import pyarrow as pa
import pytest
from conftest import QUIET, ListSource, directory_digest, numbered, opened, written

import dataset_rt as drt


class RaisingSource(ListSource):
    """Raises `error` after its samples."""

    def __init__(self, name, samples, error):
        super().__init__(name, samples)
        self.error = error

    def __iter__(self):
        yield from super().__iter__()
        raise self.error


def write(runtime, sources, directory, **options):
    config = drt.WriterConfig(show_progress=False, **options)
    return runtime.write_cache(sources, directory, writer_config=config)


def test_one_source_gives_a_list_of_one_result(runtime, tmp_path):
    assert write(runtime, ListSource("a", numbered(3)), tmp_path) == [
        drt.CacheWriteSuccess("a", tmp_path / "a", "written", 0)
    ]


def test_results_keep_the_order_of_the_sources(runtime, tmp_path):
    names = ["z", "a", "m"]
    results = write(runtime, [ListSource(name, numbered(2)) for name in names], tmp_path)
    assert [result.source_name for result in results] == names


def test_results_are_made_for_match(runtime, tmp_path):
    sources = [ListSource("a", numbered(2)), ListSource("b", [])]
    kinds = []
    for result in write(runtime, sources, tmp_path):
        match result:
            case drt.CacheWriteSuccess(source_name, path, status):
                kinds.append((source_name, path.name, status))
            case drt.CacheWriteError(source_name, message):
                kinds.append((source_name, bool(message)))
    assert kinds == [("a", "a", "written"), ("b", True)]


def test_a_failure_taken_for_a_success_says_what_failed(runtime, tmp_path):
    source = RaisingSource("broken", numbered(7), KeyError("lost"))
    (failed,) = write(runtime, source, tmp_path)
    with pytest.raises(drt.FailedResultError) as caught:
        failed.path  # noqa: B018 - what a reader of the guides writes
    assert str(caught.value) == (
        "a CacheWriteError has no 'path'; what failed: "
        "source \"broken\" raised KeyError: 'lost' (after 7 samples)"
    )
    none = runtime.from_cache_sources(source, tmp_path, reader_config=drt.ReaderConfig(seed=0))
    with pytest.raises(AttributeError, match="has no 'dataset'; what failed: no cache to load; "):
        none.dataset  # noqa: B018 - the same
    assert isinstance(caught.value.__cause__, KeyError)
    assert isinstance(caught.value, AttributeError)
    assert not hasattr(none, "dataset")
    assert not hasattr(failed, "status")
    assert copy.deepcopy(none).message == pickle.loads(pickle.dumps(none)).message == none.message


def test_a_failing_source_does_not_stop_the_others(runtime, tmp_path):
    sources = [
        ListSource("first", numbered(2)),
        RaisingSource("broken", numbered(7), KeyError("lost")),
        ListSource("last", numbered(2)),
    ]
    kinds = [type(result) for result in write(runtime, sources, tmp_path)]
    assert kinds == [drt.CacheWriteSuccess, drt.CacheWriteError, drt.CacheWriteSuccess]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "last"]


def test_a_raising_source_is_reported_with_type_text_and_count(runtime, tmp_path):
    error = ZeroDivisionError("the reason")
    (result,) = write(runtime, RaisingSource("broken", numbered(7), error), tmp_path)
    assert all(
        part in result.message for part in ("broken", "ZeroDivisionError", "the reason", "7")
    )


def test_the_exception_of_a_raising_source_is_its_own(runtime, tmp_path):
    error = ZeroDivisionError("the reason")
    (result,) = write(runtime, RaisingSource("broken", numbered(7), error), tmp_path)
    assert result.exception is error


def test_a_source_that_raises_in_iter_itself_is_reported(runtime, tmp_path):
    class Closed(ListSource):
        def __iter__(self):
            raise OSError("closed")

    (result,) = write(runtime, Closed("a", []), tmp_path)
    assert isinstance(result.exception, OSError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_interrupts_propagate_at_once_and_leave_nothing_of_their_source(runtime, tmp_path, error):
    later = ListSource("later", numbered(2))
    sources = [ListSource("first", numbered(2)), RaisingSource("b", numbered(7), error), later]
    with pytest.raises(type(error)):
        write(runtime, sources, tmp_path)
    assert later.times_iterated == 0
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


def test_a_runtime_writes_on_after_an_interrupt(runtime, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write(runtime, RaisingSource("a", numbered(7), KeyboardInterrupt()), tmp_path)
    assert len(opened(runtime, written(runtime, tmp_path, numbered(3), name="a"))) == 3


BAD_NAMES = [
    "",
    ".",
    "..",
    ".a",
    "a/b",
    "a\\b",
    "a\0b",
    "a\nb",
    "\x7f",
    "x" * 201,
    "é" * 101,
    "a\ud800",
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_a_bad_name_is_an_error_before_anything_is_written(runtime, tmp_path, name):
    good = ListSource("good", numbered(2))
    with pytest.raises(ValueError, match="name"):
        write(runtime, [good, ListSource(name, numbered(2))], tmp_path)
    assert good.times_iterated == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "pair", [("a", "a"), ("Straße", "STRASSE"), ("A", "a"), ("é", "e\u0301")], ids=ascii
)
def test_names_equal_when_case_folded_are_an_error_before_anything_is_written(
    runtime, tmp_path, pair
):
    with pytest.raises(ValueError, match="name"):
        write(runtime, [ListSource(name, numbered(2)) for name in pair], tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["a b", "a.b", "x" * 200, "🎉", "weight", "a..b", "-a", "cache_id"]
)
def test_unusual_but_safe_names_are_accepted(runtime, tmp_path, name):
    assert written(runtime, tmp_path, numbered(2), name=name) == tmp_path / name


def test_names_are_nfc_normalised(runtime, tmp_path):
    path = written(runtime, tmp_path, numbered(2), name="e\u0301")
    assert path.name == unicodedata.normalize("NFC", "e\u0301") == "é"


@pytest.mark.parametrize("bad", [[], {}, "text", 5, None, ListSource, [ListSource("a", []), 5]])
def test_what_is_no_source_is_an_error_before_anything_is_written(runtime, tmp_path, bad):
    with pytest.raises((TypeError, ValueError)):
        write(runtime, bad, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_cache_is_a_conflict_and_stays_untouched(runtime, tmp_path):
    path = written(runtime, tmp_path, numbered(3), name="a")
    before = directory_digest(path)
    again = ListSource("a", numbered(5))
    (result,) = write(runtime, again, tmp_path, on_stale="rewrite")
    assert isinstance(result.exception, drt.ConflictError)
    assert directory_digest(path) == before


def test_something_else_of_that_name_is_a_conflict_and_stays(runtime, tmp_path):
    (tmp_path / "a").write_text("mine")
    (result,) = write(runtime, ListSource("a", numbered(5)), tmp_path)
    assert isinstance(result.exception, drt.ConflictError)
    assert (tmp_path / "a").read_text() == "mine"


def test_missing_parent_directories_are_made(runtime, tmp_path):
    assert written(runtime, tmp_path / "x" / "y", numbered(1)).is_dir()


def test_a_directory_that_cannot_be_made_fails_the_source(runtime, tmp_path):
    (tmp_path / "file").write_text("")
    (result,) = write(runtime, ListSource("a", numbered(1)), tmp_path / "file" / "below")
    assert isinstance(result.exception, drt.DatasetRTError)


def test_a_closed_runtime_raises(tmp_path):
    runtime = drt.DatasetRuntime(num_workers=1)
    runtime.close()
    runtime.close()
    with pytest.raises(drt.InvalidInputError, match="closed"):
        write(runtime, ListSource("a", numbered(1)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_provenance_is_kept_and_changes_no_identity(runtime, tmp_path):
    plain = written(runtime, tmp_path, numbered(3), name="plain")
    told = written(runtime, tmp_path, numbered(3), name="told", provenance={"who": "me"})
    assert "me" in json.dumps(drt.open_cache(told).manifest)
    assert drt.open_cache(told).cache_id == drt.open_cache(plain).cache_id


@pytest.mark.parametrize("ending", ["success", "failure", "interrupt"])
def test_the_profiler_writes_stage_times_whatever_the_ending(runtime, tmp_path, ending):
    profile = tmp_path / "profile.json"
    config = drt.WriterConfig(
        show_progress=False, profiler=drt.WriterProfilerConfig(enabled=True, path=profile)
    )
    error = {"failure": ValueError("x"), "interrupt": KeyboardInterrupt()}.get(ending)
    source = RaisingSource("a", numbered(9), error) if error else ListSource("a", numbered(9))
    try:
        runtime.write_cache(source, tmp_path / "caches", writer_config=config)
    except KeyboardInterrupt:
        assert ending == "interrupt"
    assert isinstance(json.loads(profile.read_text()), dict)


def test_a_profile_that_cannot_be_written_is_said_before_anything_is(runtime, tmp_path):
    profiler = drt.WriterProfilerConfig(enabled=True, path=tmp_path / "no" / "profile.json")
    config = drt.WriterConfig(show_progress=False, profiler=profiler)
    with pytest.raises(drt.InvalidInputError, match="profile cannot be written"):
        runtime.write_cache(ListSource("a", numbered(3)), tmp_path, writer_config=config)
    assert list(tmp_path.iterdir()) == []


def test_a_profile_that_is_lost_later_is_a_warning(runtime, tmp_path):
    folder = tmp_path / "profiles"
    folder.mkdir()

    class Removing(ListSource):
        def __iter__(self):
            folder.rmdir()
            return super().__iter__()

    profiler = drt.WriterProfilerConfig(enabled=True, path=folder / "profile.json")
    config = drt.WriterConfig(show_progress=False, profiler=profiler)
    with pytest.warns(UserWarning, match="profile could not be written"):
        (result,) = runtime.write_cache(Removing("a", numbered(3)), tmp_path, writer_config=config)
    assert drt.open_cache(result.path).num_samples == 3


@pytest.mark.filterwarnings("error")
def test_warnings_made_exceptions_stop_no_source(runtime, tmp_path):
    class Short(ListSource):
        def __len__(self):
            return 5

    sources = [Short(name, numbered(3)) for name in "ab"]
    with pytest.raises(UserWarning, match="yielded 3"):
        runtime.write_cache(sources, tmp_path, writer_config=QUIET)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_without_a_profiler_no_profile_is_written(runtime, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(runtime, tmp_path / "caches", numbered(3))
    assert [path.name for path in tmp_path.iterdir()] == ["caches"]


def test_a_written_cache_is_readable_by_others_as_the_umask_says(runtime, tmp_path):
    path = written(runtime, tmp_path, numbered(3))
    plain = tmp_path / "plain"
    plain.write_text("")
    modes = {file.stat().st_mode & 0o777 for file in path.rglob("*") if file.is_file()}
    assert modes == {plain.stat().st_mode & 0o777}


def test_a_fingerprint_that_is_no_text_fails_its_source(runtime, tmp_path):
    (result,) = write(runtime, ListSource("a", numbered(1), fingerprint=5), tmp_path)
    assert isinstance(result, drt.CacheWriteError)
    assert "fingerprint" in result.message


def test_a_declared_empty_schema_takes_samples_without_metadata(runtime, tmp_path):
    path = written(runtime, tmp_path, [(b"a", {})], schema=pa.schema([]))
    assert drt.open_cache(path).num_samples == 1


def test_a_source_shorter_than_its_length_is_written_with_a_warning(runtime, tmp_path):
    class Short(ListSource):
        def __len__(self):
            return 5

    source = Short("words", [(b"", {"v": i}) for i in range(3)])
    with pytest.warns(UserWarning, match="yielded 3 samples, but its length is 5"):
        (result,) = runtime.write_cache(source, tmp_path)
    assert isinstance(result, drt.CacheWriteSuccess)


def test_the_profile_lists_every_source_of_a_call(runtime, tmp_path):
    path = tmp_path / "profile.json"
    profiler = drt.WriterProfilerConfig(enabled=True, path=path)
    config = drt.WriterConfig(show_progress=False, profiler=profiler)
    sources = [
        ListSource("one", [(b"abc", {"v": 1})]),
        ListSource("none", []),
        ListSource("two", [(b"", {"v": 1}), (b"d", {"v": 2})]),
    ]
    runtime.write_cache(sources, tmp_path / "caches", writer_config=config)
    reports = json.loads(path.read_text())["sources"]
    assert [(r["source"], r["outcome"], r["samples"]) for r in reports] == [
        ("one", "written", 1),
        ("none", "failed", 0),
        ("two", "written", 2),
    ]
    assert set(reports[0]["seconds"]) >= {"source", "encode", "commit", "publish"}

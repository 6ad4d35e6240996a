"""Values and names that some face cannot carry are refused, or raise a typed error by name."""

import datetime as dt

import pyarrow as pa
import pytest
from conftest import ListSource, opened, refusal, run_script, written

import dataset_rt as drt


def arrow_result(runtime, directory, column, name="v"):
    table = pa.table({name: column, "payload": pa.array([b"x"] * len(column), pa.large_binary())})
    (result,) = runtime.write_cache(drt.ArrowSource("words", table), directory)
    return result


def test_a_date_beyond_python_is_a_typed_error_at_its_sample_only(runtime, tmp_path):
    dates = pa.array([1, 3_000_000, 2], pa.date32())
    result = arrow_result(runtime, tmp_path, dates)
    assert isinstance(result, drt.CacheWriteSuccess), result
    samples = iter(opened(runtime, result.path))
    assert next(samples).metadata["v"] == dt.date(1970, 1, 2)
    with pytest.raises(drt.UnsupportedError, match='"v"'):
        next(samples)
    assert next(samples).metadata["v"] == dt.date(1970, 1, 3)
    with pytest.raises(drt.UnsupportedError, match='"v"'):
        opened(runtime, result.path)[1]


@pytest.mark.parametrize("name", ["a\0b", "\0"])
def test_a_name_with_nul_is_refused(runtime, tmp_path, name):
    error = refusal(runtime, tmp_path / "rows", [(b"", {name: 1})])
    assert "NUL" in error.message
    dataset = opened(runtime, written(runtime, tmp_path / "good", [(b"", {"v": 1})]))
    with pytest.raises(drt.InvalidInputError):
        dataset.update_metadata(dataset.get_metadata().with_columns(v2=1).rename({"v2": name}))


@pytest.mark.parametrize("zone", ["+05:30", "Nowhere/Land"])
def test_a_zone_that_polars_does_not_know_is_refused(runtime, tmp_path, zone):
    times = pa.array([0], pa.timestamp("us", zone))
    result = arrow_result(runtime, tmp_path, times)
    assert isinstance(result, drt.CacheWriteError)
    assert zone in result.message
    schema = pa.schema([("v", pa.timestamp("us", zone))])
    (result,) = runtime.write_cache(
        ListSource("other", [(b"", {"v": None})], schema=schema), tmp_path
    )
    assert isinstance(result, drt.CacheWriteError)


def test_seconds_that_milliseconds_cannot_hold_are_refused(runtime, tmp_path):
    result = arrow_result(runtime, tmp_path, pa.array([0, -(2**63)], pa.timestamp("s")))
    assert isinstance(result, drt.CacheWriteError)
    assert "sample 1" in result.message


def test_an_interrupt_while_dates_are_converted_ends_the_loop(tmp_path):
    # Converting dates runs Python code, where a signal handler may raise.
    code = f"""
        import datetime as dt, os, signal, threading
        import dataset_rt as drt

        class Dates:
            name = "dates"
            def __iter__(self):
                for i in range(5000):
                    yield drt.CacheInput(b"x", {{"d": dt.date(2000, 1, 1) + dt.timedelta(days=i)}})

        runtime = drt.DatasetRuntime(num_workers=1)
        (result,) = runtime.write_cache(Dates(), {str(tmp_path)!r})
        config = drt.ReaderConfig(seed=0, shuffle=False)
        dataset = runtime.cached_dataset(result.path, reader_config=config)
        dataset.set_epoch_len(10**12)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            for sample in dataset:
                pass
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert run_script(code).strip() == "interrupted"

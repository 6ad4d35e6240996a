"""Arrow types beyond the common ones: what is accepted can be shown again, all else is refused."""

from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from conftest import QUIET, numbered, opened, written

import dataset_rt as drt

ROWS = 10
INTERVAL = pa.scalar((1, 2, 3), pa.month_day_nano_interval())

COLUMNS = {
    "run-end encoded": pa.RunEndEncodedArray.from_arrays([ROWS], ["a"]),
    "uuid": pa.array([b"x" * 16] * ROWS, pa.uuid()),
    "dictionary of int": pa.array([5, 6] * 5).dictionary_encode(),
    "map": pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int64())),
    "sparse union": pa.UnionArray.from_sparse(
        pa.array([0] * ROWS, pa.int8()), [pa.array(range(ROWS))]
    ),
    "dense union": pa.UnionArray.from_dense(
        pa.array([0] * ROWS, pa.int8()), pa.array(range(ROWS), pa.int32()), [pa.array(range(ROWS))]
    ),
    "half float": pa.array(np.arange(ROWS, dtype="f2")),
    "fixed-size binary": pa.array([b"ab"] * ROWS, pa.binary(2)),
    "interval": pa.array([INTERVAL] * ROWS),
    "decimal32": pa.array([Decimal(1)] * ROWS, pa.decimal32(9, 2)),
    "decimal256": pa.array([1] * ROWS).cast(pa.decimal256(50, 2)),
    "list view": pa.array([[1]] * ROWS, pa.list_view(pa.int64())),
    "large list": pa.array([[1]] * ROWS, pa.large_list(pa.int64())),
    "fixed-size list": pa.array([[1, 2]] * ROWS, pa.list_(pa.int64(), 2)),
    "time32": pa.array([1] * ROWS, pa.time32("s")),
    "date64": pa.array([86_400_000] * ROWS, pa.date64()),
    "duration in seconds": pa.array([1] * ROWS, pa.duration("s")),
    "timestamp in seconds": pa.array([1] * ROWS, pa.timestamp("s")),
    "null": pa.nulls(ROWS),
    "struct of list": pa.array([{"a": [1], "b": None}] * ROWS),
}
FRAMES = {
    "Int128": pl.Series(range(ROWS), dtype=pl.Int128),
    "Object": pl.Series([object() for _ in range(ROWS)], dtype=pl.Object),
    "Null": pl.Series([None] * ROWS),
    "nested null": pl.Series([[None]] * ROWS),
}


@pytest.fixture
def dataset(runtime, tmp_path):
    return opened(runtime, written(runtime, tmp_path, numbered(ROWS)))


@pytest.mark.parametrize("kind", COLUMNS)
def test_an_extra_column_that_is_accepted_is_shown_and_delivered(dataset, kind):
    table = dataset.get_metadata().to_arrow().append_column("extra", COLUMNS[kind])
    try:
        dataset.update_metadata(table)
    except drt.DatasetRTError as error:
        assert '"extra"' in str(error)  # noqa: PT017 - refusing by name is the other good answer
        return
    assert dataset.get_metadata()["extra"].len() == ROWS
    dataset.update_metadata(dataset.get_metadata().reverse())
    assert [sample.sample_id for sample in dataset] == list(range(ROWS - 1, -1, -1))
    assert all("extra" in sample.metadata for sample in dataset)


@pytest.mark.parametrize("kind", FRAMES)
def test_polars_types_are_delivered_as_polars_shows_them_or_refused(dataset, kind):
    values = FRAMES[kind]
    try:
        dataset.update_metadata(dataset.get_metadata().with_columns(extra=values))
    except drt.DatasetRTError as error:
        assert '"extra"' in str(error)  # noqa: PT017 - refusing by name is the other good answer
        return
    assert [sample.metadata["extra"] for sample in dataset] == values.to_list()


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_stored_column_that_is_accepted_is_shown_and_delivered(runtime, tmp_path, kind):
    table = pa.table({"payload": pa.array([b"x"] * ROWS), "v": COLUMNS[kind]})
    source = drt.ArrowSource("words", table)
    (result,) = runtime.write_cache(source, tmp_path, writer_config=QUIET)
    if isinstance(result, drt.CacheWriteError):
        assert isinstance(result.exception, drt.DatasetRTError), result
        assert '"v"' in result.message
        return
    assert drt.open_cache(result.path).metadata()["v"].len() == ROWS
    dataset = opened(runtime, result.path)
    assert all("v" in sample.metadata for sample in dataset)
    dataset.update_metadata(dataset.get_metadata().reverse())
    assert drt.verify_cache(result.path, level="deep").ok


@pytest.mark.parametrize("kind", FRAMES)
def test_polars_frames_as_sources_are_stored_or_refused(runtime, tmp_path, kind):
    frame = pl.DataFrame({"payload": [b"x"] * ROWS}).with_columns(v=FRAMES[kind])
    (result,) = runtime.write_cache(drt.ArrowSource("words", frame), tmp_path, writer_config=QUIET)
    # Which library refuses, and in which words, is not promised: pyarrow sees the frame first.
    if isinstance(result, drt.CacheWriteSuccess):
        assert drt.open_cache(result.path).metadata()["v"].to_list() == FRAMES[kind].to_list()

"""Arrow columns of every stored type and layout, as sources: stored are the values they show."""

import functools
import itertools
import math

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import QUIET, opened

import dataset_rt as drt

ROWS = 67  # more than one bitmap byte, and no multiple of 8


def cycled(values):
    return [values[i % len(values)] for i in range(ROWS)]


def integers(kind):
    bits, is_signed = kind.bit_width, pa.types.is_signed_integer(kind)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    return pa.array(cycled([low, None, high, 1, 0, None, 7]), kind)


TEXTS = ["", "a", None, "exactly 12 b", "more than twelve bytes", "é🙂", "\0"]
BLOBS = [b"", b"a", None, b"exactly 12 b", b"more than twelve bytes", b"\xff\x00"]
ZONES = [None, "UTC", "Europe/Berlin", "America/New_York"]
INTEGERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
]


def run_end_encoded(values):
    ends = np.minimum(np.arange(1, (ROWS + 5) // 3 + 1) * 3, ROWS)
    kept = int(np.searchsorted(ends, ROWS)) + 1
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends[:kept], pa.int32()), values[:kept])


def columns():
    made = {str(kind): integers(kind) for kind in INTEGERS}
    reals = cycled([0.5, None, -0.0, math.inf, -math.inf, math.nan, 1e-40])
    made |= {str(kind): pa.array(reals, kind) for kind in (pa.float32(), pa.float64())}
    made["float16"] = pa.array(np.array([0.5, -2.0, 65504.0, 6e-8] * ROWS, "f2")[:ROWS])
    made["bool"] = pa.array(cycled([True, None, False, False, True]))
    made["bool without nulls"] = pa.array(cycled([True, False, False, True, True]))
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        made[str(kind)] = pa.array(cycled(TEXTS), kind)
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        made[f"metadata {kind}"] = pa.array(cycled(BLOBS), kind)
    made["fixed-size binary"] = pa.array(cycled([b"abc", None, b"\0\0\0"]), pa.binary(3))
    made["date32"] = pa.array(cycled([0, None, -719162, 2932896]), pa.date32())
    for unit in ("s", "ms", "us", "ns"):
        for zone in ZONES:
            stamps = cycled([0, None, -1, 10**9 + 1, 86_399])
            made[f"timestamp {unit} {zone}"] = pa.array(stamps, pa.timestamp(unit, zone))
    keys = pa.array(cycled([0, 1, None, 2, 1]), pa.int8())
    made["nulls in keys"] = pa.DictionaryArray.from_arrays(keys, ["x", "yy", "x"])
    made["nulls in values"] = pa.DictionaryArray.from_arrays(keys, ["x", None, "long " * 9])
    made["dictionary of int"] = pa.DictionaryArray.from_arrays(keys, [5, None, 7])
    made["dictionary of binary"] = pa.DictionaryArray.from_arrays(
        keys, pa.array([b"x", b"", b"long " * 9], pa.binary_view())
    )
    made["dictionary of stamps"] = pa.DictionaryArray.from_arrays(
        keys, pa.array([1, None, 3], pa.timestamp("us", "UTC"))
    )
    made["runs of text"] = run_end_encoded(pa.array(cycled(TEXTS)))
    made["runs of int"] = run_end_encoded(pa.array(cycled([1, None, 3])))
    made["null"] = pa.nulls(ROWS)
    made["all null int"] = pa.nulls(ROWS, pa.int32())
    made["all null text"] = pa.nulls(ROWS, pa.string())
    made["uuid"] = pa.array(cycled([b"x" * 16, None]), pa.uuid())
    made["bool8"] = pa.array(cycled([1, 0, None]), pa.int8()).cast(pa.bool8())
    return made


@functools.cache
def whole():
    return pa.table({**columns(), "payload": pa.array(cycled([b"", b"x", b"long " * 9]))})


def sliced(table):
    return table.slice(3, 41)


def chunked_unevenly(table):
    cuts = [0, 1, 1, 9, 9, 26, ROWS, ROWS]
    return pa.concat_tables(
        [table.slice(start, end - start) for start, end in itertools.pairwise(cuts)]
    )


def columns_chunked_apart(table):
    def chunks(number, column):
        cut = 1 + number * 5 % (ROWS - 1)
        return pa.chunked_array([column.chunk(0)[:cut], column.chunk(0)[cut:]])

    parts = [chunks(i, column) for i, column in enumerate(table.columns)]
    return pa.Table.from_arrays(parts, names=table.column_names)


def misaligned(array):
    """The same array, every buffer three bytes past an aligned address."""

    def moved(buffer):
        if buffer is None:
            return None
        raw = pa.allocate_buffer(buffer.size + 64)
        start = 3 + (-raw.address) % 64
        view = memoryview(raw).cast("B")
        view[start : start + buffer.size] = memoryview(buffer).cast("B")
        return raw.slice(start, buffer.size)

    if isinstance(array, pa.DictionaryArray):
        indices, values = misaligned(array.indices), misaligned(array.dictionary)
        return pa.DictionaryArray.from_arrays(indices, values)
    if isinstance(array, (pa.ExtensionArray, pa.RunEndEncodedArray, pa.NullArray)):
        return array
    moved_buffers = [moved(buffer) for buffer in array.buffers()]
    return pa.Array.from_buffers(array.type, len(array), moved_buffers, offset=array.offset)


def misaligned_table(table):
    arrays = [misaligned(column.chunk(0)) for column in table.columns]
    addresses = [b.address for array in arrays for b in array.buffers() if b is not None and b.size]
    assert sum(address % 8 == 3 for address in addresses) > 60
    return pa.Table.from_arrays(arrays, names=table.column_names)


LAYOUTS = {
    "whole": lambda table: table,
    "slice": sliced,
    "chunks": chunked_unevenly,
    "apart": columns_chunked_apart,
    "misaligned": misaligned_table,
    "one batch": lambda table: table.to_batches()[0],
    "slice of batch": lambda table: table.to_batches()[0].slice(11, 50),
    "reader": lambda table: chunked_unevenly(table).to_reader(),
}


def plain(column):  # noqa: PLR0911 - one form after another
    """Values that compare: instants as nanoseconds, floats as text, dictionaries decoded."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in plain(chunk)]
    if isinstance(column, pa.ExtensionArray):
        return plain(column.storage)
    if isinstance(column, pa.DictionaryArray):
        values = plain(column.dictionary)
        return [None if key is None else values[key] for key in column.indices.to_pylist()]
    if isinstance(column, pa.RunEndEncodedArray):
        return plain(pc.run_end_decode(column))
    if pa.types.is_timestamp(column.type):
        factor = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[column.type.unit]
        numbers = column.cast(pa.int64()).to_pylist()
        return [None if number is None else number * factor for number in numbers]
    if pa.types.is_date(column.type):
        return column.cast(pa.int32()).to_pylist()
    if pa.types.is_floating(column.type):
        return [repr(value if value is None else float(value)) for value in column.to_pylist()]
    return column.to_pylist()


def stored(runtime, directory, data, **options):
    source = drt.ArrowSource("words", data, **options)
    (result,) = runtime.write_cache(source, directory, writer_config=QUIET)
    assert isinstance(result, drt.CacheWriteSuccess), result
    return result.path


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_column_in_every_layout_is_stored_as_it_shows(runtime, tmp_path, layout):
    table = LAYOUTS[layout](whole())
    expected = table if isinstance(table, (pa.Table, pa.RecordBatch)) else chunked_unevenly(whole())
    path = stored(runtime, tmp_path, table)
    assert drt.verify_cache(path, level="deep").ok
    dataset = opened(runtime, path)
    shown = dataset.get_metadata()
    found = shown.to_arrow()
    for name in columns():
        assert plain(found[name]) == plain(expected[name]), name
    samples = list(dataset)
    assert [sample.data for sample in samples] == plain(expected["payload"])
    delivered = pl.DataFrame([sample.metadata for sample in samples], infer_schema_length=None)
    for name in columns():
        assert repr(delivered[name].to_list()) == repr(shown[name].to_list()), name
    dataset.update_metadata(shown.reverse())
    assert dataset[0].data == plain(expected["payload"])[-1]
    dataset.update_metadata(found)
    assert [sample.sample_id for sample in dataset] == list(range(len(samples)))

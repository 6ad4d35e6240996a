"""Payloads as NumPy arrays and PyTorch tensors: whose memory they show, and what is refused."""

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from conftest import opened, run_script, written

import dataset_rt as drt

WIDTH = 24  # bytes of one payload: three float64
LARGE = pa.large_binary()
TYPES = [pa.binary(), LARGE, pa.binary_view(), pa.binary(WIDTH)]


def numbers(rows):
    return np.arange(rows * 3, dtype=np.float64).reshape(rows, 3)


def payloads(rows=8, kind=LARGE):
    return pa.array([row.tobytes() for row in numbers(rows)], kind)


def views(places, *buffers, width=WIDTH):
    """A binary_view column: buffer number and offset of each row."""
    found = np.zeros((len(places), 4), np.int32)
    for row, (number, offset) in enumerate(places):
        found[row] = width, 0, number, offset
        if 0 <= number < len(buffers) and 0 <= offset <= len(buffers[number]) - 4:
            found[row, 1] = np.frombuffer(buffers[number], np.int32, 1, offset)[0]
    held = [None, pa.py_buffer(found), *map(pa.py_buffer, buffers)]
    return pa.Array.from_buffers(pa.binary_view(), len(places), held)


def address(array):
    return array.__array_interface__["data"][0]


def lies_in(array, buffer):
    buffer = pa.py_buffer(buffer)
    return buffer.address <= address(array) < buffer.address + buffer.size


# One payload


@pytest.mark.parametrize(
    "wrap", [bytes, bytearray, memoryview, pa.py_buffer, np.frombuffer], ids=lambda f: f.__name__
)
def test_a_buffer_is_shown_and_not_copied(wrap):
    data = numbers(2).tobytes()
    payload = wrap(data) if wrap is not np.frombuffer else np.frombuffer(data, np.int16)
    array = drt.payload_array(payload, "float64", (2, 3))
    assert (array == numbers(2)).all()
    assert lies_in(array, payload)
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_an_arrow_scalar_is_a_payload(kind):
    column = payloads(kind=kind)
    array = drt.payload_array(column[3], float)
    assert array.tolist() == numbers(8)[3].tolist()
    # The copy is pyarrow's, made with the scalar; a slice of the column is shown as it is.
    assert not lies_in(array, column.buffers()[-1])
    assert lies_in(drt.payload_arrays(column[3:4], float, 3)[0], column.buffers()[-1])


def test_without_a_shape_a_payload_is_one_dimension():
    assert drt.payload_array(b"abcd", "<u2").shape == (2,)
    assert drt.payload_array(b"", "<u2").shape == (0,)
    assert drt.payload_array(b"abcd", "u1", 4).shape == (4,)
    assert drt.payload_array(b"abcd", "u4", ()).shape == ()


def test_byte_order_and_records_are_numpy_s():
    assert drt.payload_array(b"\0\1\1\0", ">u2").tolist() == [1, 256]
    record = np.dtype([("x", "u1"), ("y", "<f4")])
    array = drt.payload_array(np.array([(7, 0.5)], record).tobytes(), record)
    assert (array["x"][0], array["y"][0]) == (7, 0.5)


def test_unaligned_payloads_are_right_and_say_so():
    data = b"\0" + numbers(1).tobytes()
    array = drt.payload_array(memoryview(data)[1:], np.float64)
    assert array.tolist() == numbers(1)[0].tolist()
    assert array.flags.aligned == (address(array) % 8 == 0)
    assert np.require(array, requirements="A").flags.aligned


@pytest.mark.parametrize(
    ("payload", "dtype", "shape", "message"),
    [
        (b"abc", "u2", None, "payload has 3 bytes; expected a multiple of 2, the size of uint16"),
        (b"abc", "u2", (2, 1), r"payload has 3 bytes; expected 4: shape \(2, 1\) of uint16"),
        (b"ab", "u2", (-1,), r"shape \(-1,\) has a negative size"),
        (pa.scalar(None, pa.binary()), "u1", None, "payload is null"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused(payload, dtype, shape, message):
    with pytest.raises(drt.InvalidInputError, match=message):
        drt.payload_array(payload, dtype, shape)


@pytest.mark.parametrize(
    ("payload", "dtype", "shape", "message"),
    [
        ("text", "u1", None, "payload is str"),
        (None, "u1", None, "payload is NoneType"),
        (pa.scalar("text"), "u1", None, "Arrow scalar of type string"),
        (memoryview(b"abcd")[::2], "u1", None, "gaps"),
        (b"abcd", object, None, "plain bytes"),
        (b"abcd", "S0", None, "plain bytes"),
        (b"abcd", None, None, "dtype is None"),
        (b"abcd", ("u1", (2,)), None, "plain bytes"),
        (b"abcd", "u1", 4.0, "shape must be an integer"),
        (b"abcd", "u1", True, "shape must be an integer"),
    ],
)
def test_what_is_no_payload_dtype_or_shape_is_a_type_error(payload, dtype, shape, message):
    with pytest.raises(TypeError, match=message):
        drt.payload_array(payload, dtype, shape)


# Many payloads


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("part", [slice(None), slice(2, 5), slice(3, 3)], ids=str)
def test_payloads_side_by_side_are_one_array_without_copying(kind, part):
    column = payloads(kind=kind)[part]
    array = drt.payload_arrays(column, "float64", (3, 1), copy=False)
    assert array.tolist() == numbers(8)[part].reshape(-1, 3, 1).tolist()
    assert not array.flags.writeable
    if len(column):
        assert lies_in(array, column.buffers()[-1])


@pytest.mark.parametrize("make", [pa.record_batch, pa.table])
def test_batches_and_tables_give_their_payload_column(make):
    batch = make({"label": pa.array(range(8)), "payload": payloads()})
    array = drt.payload_arrays(batch, float, 3, copy=False)
    assert (array == numbers(8)).all()


def test_views_evenly_spaced_are_not_copied():
    data = bytes(8) + b"".join(row.tobytes() + bytes(8) for row in numbers(5))
    for places in ([0, 1, 2, 3, 4], [1, 3], [4, 2, 0], [2, 2, 2], [3]):
        column = views([(0, 8 + 32 * row) for row in places], data)
        array = drt.payload_arrays(column, float, 3, copy=False)
        assert array.tolist() == numbers(5)[places].tolist()
        assert lies_in(array, data)


@pytest.mark.parametrize(("width", "inside"), [(1, True), (12, True), (13, False)])
def test_views_of_up_to_twelve_bytes_hold_them(width, inside):
    rows = [bytes([i]) * width for i in range(3)]
    column = pa.array(rows, pa.binary_view())[1:]
    array = drt.payload_arrays(column, "u1", width, copy=False)
    assert array.tobytes() == b"".join(rows[1:])
    assert lies_in(array, column.buffers()[1]) == inside


SCATTERED = [(1, 24), (0, 0), (1, 0), (0, 24), (0, 24)]


def scattered():
    rows = [row.tobytes() for row in numbers(4)]
    return views(SCATTERED, rows[0] + rows[1], rows[2] + rows[3])


def test_views_of_several_buffers_are_gathered_once():
    array = drt.payload_arrays(scattered(), float, 3)
    assert array.tolist() == numbers(4)[[3, 0, 2, 1, 1]].tolist()
    assert not array.flags.writeable
    with pytest.raises(drt.InvalidInputError, match="they lie in 2 buffers"):
        drt.payload_arrays(scattered(), float, 3, copy=False)


def test_gathering_goes_block_by_block_over_any_number_of_rows(monkeypatch):
    from dataset_rt import payload_layout

    monkeypatch.setattr(payload_layout, "_GATHER_BYTES", 2 * WIDTH)
    array = drt.payload_arrays(scattered(), float, 3)
    assert array.tolist() == numbers(4)[[3, 0, 2, 1, 1]].tolist()


def test_gathering_takes_the_memory_of_one_copy():
    rows, width = 4096, 4096
    rng = np.random.default_rng(2)
    halves = [rng.bytes(rows * width // 2) for _ in range(2)]
    places = [(int(row) % 2, int(row) // 2 * width) for row in rng.permutation(rows)]
    column = views(places, *halves, width=width)
    tracemalloc.start()
    try:
        array = drt.payload_arrays(column, "u1", width)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < array.nbytes * 1.2
    for row in (0, 1, 4095):
        half, offset = places[row]
        assert array[row].tobytes() == halves[half][offset : offset + width]


def test_views_in_drawn_order_are_gathered_once():
    order = np.random.default_rng(1).permutation(1000)
    column = views([(0, 24 * int(row)) for row in order], numbers(1000).tobytes())
    assert (drt.payload_arrays(column, float, 3) == numbers(1000)[order]).all()
    with pytest.raises(drt.InvalidInputError, match=r"rows 0 and 1 lie -?\d+ bytes apart"):
        drt.payload_arrays(column, float, 3, copy=False)


def test_chunks_are_gathered_once():
    table = pa.table({"payload": pa.chunked_array([payloads(3), payloads(0), payloads(2)])})
    array = drt.payload_arrays(table, float, 3)
    assert (array == np.concatenate([numbers(3), numbers(2)])).all()
    with pytest.raises(drt.InvalidInputError, match="they lie in 2 chunks"):
        drt.payload_arrays(table, float, 3, copy=False)


@pytest.mark.parametrize("column", [payloads(), scattered()], ids=["even", "scattered"])
def test_a_copy_asked_for_may_be_written(column):
    array = drt.payload_arrays(column, float, 3, copy=True)
    array[:] = 0
    assert drt.payload_arrays(column, float, 3).any()


def test_no_rows_and_no_bytes_are_arrays_too():
    for kind in (pa.binary(), pa.binary_view()):
        assert drt.payload_arrays(pa.array([], kind), float, 3, copy=False).shape == (0, 3)
        assert drt.payload_arrays(pa.array([b"", b""], kind), float, 0).shape == (2, 0)
    assert drt.payload_arrays(pa.chunked_array([], pa.binary()), float, 3).shape == (0, 3)


@pytest.mark.parametrize("kind", TYPES[:3], ids=str)
def test_a_row_of_another_size_is_named(kind):
    column = pa.chunked_array([payloads(3, kind), pa.array([bytes(24), b"x" * 23], kind)])
    message = r"payload of row 4 has 23 bytes; expected 24: shape \(3,\) of float64"
    with pytest.raises(drt.InvalidInputError, match=message):
        drt.payload_arrays(column, float, 3)
    with pytest.raises(drt.InvalidInputError, match="payload of row 0 has 24 bytes; expected 25"):
        drt.payload_arrays(payloads(3, pa.binary(24)), "u1", 25)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_null_is_named(kind):
    with pytest.raises(drt.InvalidInputError, match="payload of row 1 is null"):
        drt.payload_arrays(pa.array([bytes(24), None], kind), float, 3)


@pytest.mark.parametrize("place", [(0, 1), (0, -24), (1, 0), (-1, 0), (0, 2**31 - 1)], ids=str)
def test_a_view_outside_its_buffer_is_refused(place):
    column = views([(0, 0), place], bytes(24))
    with pytest.raises(drt.InvalidInputError, match="payload of row 1 lies outside its buffer"):
        drt.payload_arrays(column, float, 3)


@pytest.mark.parametrize("start", [1, -24, 2**40, 2**63 - 49])
def test_offsets_outside_their_buffer_are_refused(start):
    offsets = np.array([0, 24, 48], np.int64)
    held = [None, pa.py_buffer(offsets), pa.py_buffer(bytes(48))]
    column = pa.Array.from_buffers(pa.large_binary(), 2, held)
    with np.errstate(over="ignore"):
        offsets += start  # pyarrow looked at them already
    with pytest.raises(drt.InvalidInputError, match="lies outside its buffer"):
        drt.payload_arrays(column, float, 3)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (pa.array([1, 2]), "payloads are of type int64"),
        (pa.array(["a"]), "payloads are of type string"),
        ([b"ab"], "batch is list"),
        (b"ab", "batch is bytes"),
    ],
)
def test_what_holds_no_payloads_is_a_type_error(batch, message):
    with pytest.raises(TypeError, match=message):
        drt.payload_arrays(batch, "u1", 2)


@pytest.mark.parametrize("names", [["label"], ["payload", "payload"]])
def test_a_batch_has_one_column_of_payloads(names):
    batch = pa.record_batch([payloads()] * len(names), names=names)
    with pytest.raises(drt.InvalidInputError, match="expected exactly one called payload"):
        drt.payload_arrays(batch, float, 3)


# Life time


def test_arrays_keep_the_mapping_alive(tmp_path):
    expected = numbers(50)
    samples = [(row.tobytes(), {"n": i}) for i, row in enumerate(expected)]
    with drt.DatasetRuntime(num_workers=1) as runtime:
        path = written(runtime, tmp_path, samples)
        dataset = opened(runtime, path, zero_copy=True)
        first = drt.payload_array(dataset[7].data, float)
        whole = drt.payload_arrays(
            drt.open_cache(path).shards()[0].to_arrow(), float, 3, copy=False
        )
    del dataset, runtime
    gc.collect()
    shard = str(path / "shards/000000.arrow")
    assert shard in Path("/proc/self/maps").read_text()
    assert first.tolist() == expected[7].tolist()
    assert (whole == expected).all()
    del first, whole
    gc.collect()
    assert shard not in Path("/proc/self/maps").read_text()


# DLPack


def test_dlpack_carries_the_memory_and_that_it_is_read_only():
    array = drt.payload_arrays(payloads(), float, 3)
    taken = np.from_dlpack(array)
    assert address(taken) == address(array)
    assert not taken.flags.writeable


def test_dlpack_of_before_it_knew_read_only_is_refused_by_numpy():
    array = drt.payload_arrays(payloads(), float, 3)
    with pytest.raises(BufferError, match="readonly"):
        array.__dlpack__()


# Without the optional packages


@pytest.mark.parametrize(
    ("call", "module"),
    [
        ("payload_array(b'a', 'u1')", "numpy"),
        ("payload_arrays(pa.array([b'a']), 'u1', 1)", "numpy"),
        ("payload_tensor(b'a', None)", "torch"),
        ("payload_tensors(pa.array([b'a']), None, 1)", "torch"),
    ],
)
def test_a_missing_package_is_named(call, module):
    run_script(
        f"""
        import sys
        sys.modules["{module}"] = None
        import pyarrow as pa
        import dataset_rt as drt
        try:
            drt.{call}
        except ModuleNotFoundError as error:
            assert "needs {module}, which is not installed: pip install" in str(error), error
        else:
            raise SystemExit("no error")
        """
    )


def test_the_package_itself_needs_no_numpy():
    run_script(
        """
        import sys
        sys.modules["numpy"] = sys.modules["torch"] = None
        import dataset_rt
        """
    )


# PyTorch


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_a_tensor_owns_one_copy(torch):
    data = bytearray(numbers(2).tobytes())
    tensor = drt.payload_tensor(data, torch.float64, (2, 3))
    data[:] = bytes(48)
    assert tensor.tolist() == numbers(2).tolist()
    tensor[:] = 0
    assert drt.payload_tensor(b"", torch.float32, (0, 3)).shape == (0, 3)
    assert drt.payload_tensor(b"\x80\x3f", torch.bfloat16).tolist() == [1.0]


@pytest.mark.parametrize("column", [payloads(4), scattered()], ids=["even", "scattered"])
def test_tensors_own_one_copy(torch, column):
    tensor = drt.payload_tensors(column, torch.float64, 3)
    assert tensor.tolist() == drt.payload_arrays(column, float, 3).tolist()
    tensor[:] = 0
    assert drt.payload_arrays(column, float, 3).any()
    assert drt.payload_tensors(column[:0], torch.float64, 3).shape == (0, 3)


def test_a_tensor_that_does_not_fit_is_refused(torch):
    with pytest.raises(
        drt.InvalidInputError, match="payload has 3 bytes; expected a multiple of 4"
    ):
        drt.payload_tensor(b"abc", torch.float32)
    with pytest.raises(drt.InvalidInputError, match="payload of row 0 has 24 bytes; expected 16"):
        drt.payload_tensors(payloads(), torch.float64, 2)
    with pytest.raises(TypeError, match=r"dtype must be a torch\.dtype"):
        drt.payload_tensor(b"abc", "float32")


def test_torch_takes_writable_arrays_by_dlpack(torch):
    array = drt.payload_arrays(payloads(), float, 3, copy=True)
    tensor = torch.from_dlpack(array)
    assert tensor.data_ptr() == address(array)


def test_torch_drops_the_read_only_flag_as_documented(torch):
    array = drt.payload_arrays(payloads(), float, 3)
    assert torch.from_dlpack(array).data_ptr() == address(array)


@pytest.mark.parametrize("name", ["qint8", "quint8", "qint32", "quint4x2"])
def test_quantised_dtypes_are_refused(torch, name):
    dtype = getattr(torch, name)
    with pytest.raises(TypeError, match=r"no plain number: make the tensor as torch\.uint8"):
        drt.payload_tensor(b"abcd", dtype, 4)
    with pytest.raises(TypeError, match="no plain number"):
        drt.payload_tensors(pa.array([b"abcd"]), dtype, 4)


@pytest.mark.parametrize("shape", [(0, 2**62, 2**62), (0, 2**64), (1,) * 65])
def test_shapes_that_nothing_can_have_are_refused(shape):
    with pytest.raises(drt.InvalidInputError, match="is too large"):
        drt.payload_array(b"", "u1", shape)
    with pytest.raises(drt.InvalidInputError, match="is too large"):
        drt.payload_arrays(pa.array([b""]), "u1", shape)


def test_polars_frames_and_series_are_taken():
    frame = pl.DataFrame({"payload": [b"abcd", b"efgh"], "n": [1, 2]})
    expected = [[97, 98, 99, 100], [101, 102, 103, 104]]
    assert drt.payload_arrays(frame, "u1", 4).tolist() == expected
    assert drt.payload_arrays(frame["payload"], "u1", 4).tolist() == expected
    with pytest.raises(drt.InvalidInputError, match="exactly one called payload"):
        drt.payload_arrays(frame.drop("payload"), "u1", 4)

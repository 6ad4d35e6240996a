"""Payloads as NumPy arrays and PyTorch tensors; knows neither caches nor what the numbers mean.

payload_array    one payload   -> read-only array over the same bytes
payload_arrays   many payloads -> one read-only array, over the same bytes where they lie evenly
payload_tensor   one payload   -> tensor that owns a copy
payload_tensors  many payloads -> one tensor that owns a copy

PyTorch knows no read-only tensors, and a write into a mapped file ends the process: tensors copy.
NumPy and PyTorch are imported at the first call.
"""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl
import pyarrow as pa

from dataset_rt.arguments import to_integer
from dataset_rt.errors import InvalidInputError
from dataset_rt.samples import BytesLike

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from dataset_rt.payload_layout import Rows

_DIMS_MAX = 32
_ITEMS_MAX = 2**48

AnyShape: TypeAlias = int | tuple[int, ...] | list[int]
"""A shape as callers pass it; an integer is a shape of one dimension."""

AnyPayloads: TypeAlias = (
    pa.RecordBatch | pa.Table | pa.Array | pa.ChunkedArray | pl.DataFrame | pl.Series
)
"""Many payloads: a table with a column `payload`, or such a column."""


def payload_array(
    payload: BytesLike | pa.Scalar, dtype: npt.DTypeLike, shape: AnyShape | None = None
) -> npt.NDArray[Any]:
    """Return one payload as a read-only array over the same bytes; nothing is copied here.

    The array keeps the payload's memory alive, a mapped shard included, after dataset and runtime
    are gone. Memory may be unaligned for `dtype`, since payloads lie side by side in a shard: NumPy
    handles that, and `np.require(array, requirements="A")` copies where other code needs it.

    Args:
        payload: `CachedSample.data`, a `pa.Buffer` or any other C-contiguous buffer, or an Arrow
            scalar of a binary type. (pyarrow copies a value when it makes a scalar of it:
            `payload_arrays(column[i : i + 1], ...)[0]` does not.)
        dtype: What the bytes are, as NumPy writes it, byte order included; no objects.
        shape: Its product times the item size must be the payload's size. Without it the array
            has one dimension and as many items as the payload holds.

    Returns:
        The array, read-only.

    Raises:
        TypeError: `payload` is no buffer, or `dtype` or `shape` is none.
        InvalidInputError: The payload is null, or its size does not fit.
        ModuleNotFoundError: NumPy is not installed.

    Example:
        >>> payload_array(b"abcd", "uint8", (2, 2)).tolist()
        [[97, 98], [99, 100]]
    """
    numpy = _optional("numpy", "payload_array")
    kind = _numpy_dtype(numpy, dtype)
    data = _buffer(payload)
    dims = _dims_of(shape, data.nbytes, kind.itemsize, kind)
    return _read_only(numpy.ndarray(dims, kind, buffer=data))


def payload_arrays(
    batch: AnyPayloads,
    dtype: npt.DTypeLike,
    shape: AnyShape,
    *,
    copy: bool | None = None,
) -> npt.NDArray[Any]:
    """Return payloads of one size as one array of shape `(rows, *shape)`.

    Payloads of `binary`, `large_binary` and `fixed_size_binary` lie side by side, and those of
    `binary_view` may lie evenly spaced in one buffer: then the array lies over the same bytes,
    which it keeps alive, and may be unaligned, as in `payload_array`. Rows in drawn order, in
    several buffers or in several chunks are gathered instead.

    Args:
        batch: Rows with a column `payload`, or that column itself.
        dtype: What the bytes are, as NumPy writes it, byte order included; no objects.
        shape: Of one payload. Each payload must have exactly that many bytes.
        copy: `None` copies once where it must; `False` never copies, and raises where it must;
            `True` always copies.

    Returns:
        The array; it may be written with `copy=True` only.

    Raises:
        TypeError: `batch` is no Arrow data, its payloads are not binary, or `dtype` or `shape` is
            none.
        InvalidInputError: A payload is null or of another size; the message names its row. Or
            there is no column `payload`. Or `copy` is `False` and payloads do not lie evenly.
        ModuleNotFoundError: NumPy is not installed.

    Example:
        >>> payload_arrays(pa.array([b"ab", b"cd"]), "uint8", 2).tolist()
        [[97, 98], [99, 100]]
    """
    kind = _numpy_dtype(_optional("numpy", "payload_arrays"), dtype)
    dims = _dims(shape)
    row_bytes = math.prod(dims) * kind.itemsize
    rows = _layout(_payloads(batch), row_bytes, f"shape {dims} of {kind}")
    if copy is False and rows.scattered:
        raise InvalidInputError(
            f"payloads cannot be one array without copying: {rows.scattered}; "
            "pass copy=None to copy them once"
        )
    if copy or rows.scattered:
        found = _typed(rows.gather(), kind, dims)
        return found if copy else _read_only(found)
    return _read_only(_typed(rows.view(), kind, dims))


def payload_tensor(
    payload: BytesLike | pa.Scalar, dtype: torch.dtype, shape: AnyShape | None = None
) -> torch.Tensor:
    """Return one payload as a tensor that owns its memory: exactly one copy.

    Args:
        payload: As in `payload_array`.
        dtype: A `torch.dtype`; the bytes are in the machine's order.
        shape: As in `payload_array`.

    Returns:
        The tensor, on the CPU.

    Raises:
        TypeError: `payload` is no buffer, or `dtype` or `shape` is none.
        InvalidInputError: The payload is null, or its size does not fit.
        ModuleNotFoundError: PyTorch is not installed.
    """
    pytorch = _optional("torch", "payload_tensor")
    data = _buffer(payload)
    dims = _dims_of(shape, data.nbytes, _tensor_itemsize(pytorch, dtype), dtype)
    tensor: torch.Tensor
    if data.nbytes:
        tensor = pytorch.frombuffer(bytearray(data), dtype=dtype).reshape(dims)
    else:
        tensor = pytorch.empty(dims, dtype=dtype)
    return tensor


def payload_tensors(
    batch: AnyPayloads,
    dtype: torch.dtype,
    shape: AnyShape,
) -> torch.Tensor:
    """Return payloads of one size as one tensor of shape `(rows, *shape)`: exactly one copy.

    Args:
        batch: As in `payload_arrays`.
        dtype: A `torch.dtype`; the bytes are in the machine's order.
        shape: Of one payload.

    Returns:
        The tensor, on the CPU.

    Raises:
        TypeError: `batch` is no Arrow data, its payloads are not binary, or `dtype` or `shape` is
            none.
        InvalidInputError: A payload is null or of another size; the message names its row. Or
            there is no column `payload`.
        ModuleNotFoundError: PyTorch or NumPy is not installed.
    """
    pytorch = _optional("torch", "payload_tensors")
    _optional("numpy", "payload_tensors")
    dims = _dims(shape)
    row_bytes = math.prod(dims) * _tensor_itemsize(pytorch, dtype)
    rows = _layout(_payloads(batch), row_bytes, f"shape {dims} of {dtype}").gather()
    tensor: torch.Tensor
    if rows.size:
        tensor = pytorch.from_numpy(rows).view(dtype).reshape(len(rows), *dims)
    else:
        tensor = pytorch.empty((len(rows), *dims), dtype=dtype)
    return tensor


def _optional(module: str, caller: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ModuleNotFoundError(
            f"{caller} needs {module}, which is not installed: pip install {module}", name=module
        ) from error


def _layout(chunks: list[pa.Array], row_bytes: int, what: str) -> Rows:
    # The module imports NumPy, which the package does without.
    layout = importlib.import_module("dataset_rt.payload_layout")
    rows: Rows = layout.rows_of(chunks, row_bytes, what)
    return rows


def _numpy_dtype(numpy: Any, dtype: npt.DTypeLike) -> np.dtype[Any]:
    if dtype is None:
        raise TypeError("dtype is None: name one, for example 'float32'")
    found: np.dtype[Any] = numpy.dtype(dtype)
    if found.hasobject or found.subdtype or found.itemsize == 0:
        raise TypeError(f"dtype {found} is no fixed number of plain bytes: name one that is")
    return found


def _tensor_itemsize(pytorch: Any, dtype: Any) -> int:
    # Quantised ones are bytes and a scale, which bytes alone are not: PyTorch crashes on them.
    if isinstance(dtype, pytorch.dtype) and str(dtype).startswith(("torch.q", "torch.bits")):
        raise TypeError(f"dtype {dtype} is no plain number: make the tensor as torch.uint8")
    if not isinstance(dtype, pytorch.dtype):
        raise TypeError(f"dtype must be a torch.dtype, found {type(dtype).__name__}: {dtype!r}")
    return int(dtype.itemsize)


def _buffer(payload: object) -> memoryview:
    """The payload's bytes, with whatever keeps them alive."""
    if isinstance(payload, pa.Scalar):
        if not hasattr(payload, "as_buffer") or not _is_binary(payload.type):
            raise TypeError(f"payload is an Arrow scalar of type {payload.type}; pass a binary one")
        payload = payload.as_buffer()
        if payload is None:
            raise InvalidInputError("payload is null; a payload has bytes")
    try:
        view = memoryview(payload)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"payload is {type(payload).__name__}; pass bytes, a memoryview, a pyarrow.Buffer, "
            "another buffer or an Arrow binary scalar"
        ) from None
    if not view.c_contiguous:
        raise TypeError("payload is a buffer with gaps; pass a C-contiguous one")
    return view


def _payloads(batch: object) -> list[pa.Array]:
    """The chunks of the payload column."""
    if isinstance(batch, pl.DataFrame):
        batch = pa.table(batch)
    elif isinstance(batch, pl.Series):
        batch = pa.chunked_array(batch)
    if isinstance(batch, (pa.RecordBatch, pa.Table)):
        if batch.schema.names.count("payload") != 1:
            raise InvalidInputError(
                f"batch has columns {batch.schema.names}; expected exactly one called payload"
            )
        batch = batch.column("payload")
    chunks = batch.chunks if isinstance(batch, pa.ChunkedArray) else [batch]
    for chunk in chunks:
        if not isinstance(chunk, pa.Array):
            raise TypeError(
                f"batch is {type(chunk).__name__}; pass a pyarrow.RecordBatch, Table or Polars "
                "frame with a column payload, or an array or Series of payloads"
            )
        if not _is_binary(chunk.type):
            raise TypeError(f"payloads are of type {chunk.type}; pass a binary column")
    return chunks


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _dims(shape: object) -> tuple[int, ...]:
    found = shape if isinstance(shape, (tuple, list)) else [shape]
    dims = tuple(to_integer(size, "shape") for size in found)
    if any(size < 0 for size in dims):
        raise InvalidInputError(f"shape {dims} has a negative size; state every size")
    # What NumPy and PyTorch can count and hold, empty sizes aside.
    if len(dims) > _DIMS_MAX or math.prod(size or 1 for size in dims) > _ITEMS_MAX:
        raise InvalidInputError(
            f"shape {dims} is too large; expected at most {_DIMS_MAX} sizes and 2**48 items"
        )
    return dims


def _dims_of(shape: object, found: int, itemsize: int, kind: object) -> tuple[int, ...]:
    """The shape of one payload of `found` bytes."""
    if shape is None:
        if found % itemsize:
            raise InvalidInputError(
                f"payload has {found} bytes; expected a multiple of {itemsize}, the size of {kind}"
            )
        return (found // itemsize,)
    dims = _dims(shape)
    expected = math.prod(dims) * itemsize
    if found != expected:
        raise InvalidInputError(
            f"payload has {found} bytes; expected {expected}: shape {dims} of {kind}"
        )
    return dims


def _typed(rows: npt.NDArray[np.uint8], kind: np.dtype[Any], dims: tuple[int, ...]) -> Any:
    """The bytes of each row as items, over the same memory."""
    # No bytes are no items of any size; NumPy wants to hear that of one dimension.
    flat = rows if rows.size else rows.reshape(0)
    return flat.view(kind).reshape(len(rows), *dims)


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array

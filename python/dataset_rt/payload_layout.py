"""Where the payloads of an Arrow column lie in memory; needs NumPy, knows no dtype and no cache.

    binary, large_binary, fixed_size_binary   side by side                             Even
    binary_view, up to 12 bytes               inside the views, 16 bytes apart         Even
    binary_view, longer                       anywhere: evenly spaced in one buffer    Even
                                              anything else                            Scattered

Offsets of foreign columns are checked before any byte is touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataset_rt.errors import InvalidInputError

Bytes: TypeAlias = npt.NDArray[np.uint8]

# Binary views of at most this size hold their bytes themselves, behind the length.
_INLINE_MAX = 12
_VIEW_BYTES = 16
# Rows gathered at a time: what passes through the processor's cache on its way.
_GATHER_BYTES = 1 << 20


@dataclass(frozen=True)
class Even:
    """Payloads a constant step apart in one buffer."""

    buffer: Any
    start: int
    step: int
    rows: int
    row_bytes: int

    def view(self) -> Bytes:
        """The bytes of each row, not copied."""
        shape, steps = (self.rows, self.row_bytes), (self.step, 1)
        return np.ndarray(shape, np.uint8, self.buffer, self.start, steps)

    def copy_into(self, out: Bytes) -> None:
        """Write the bytes of each row."""
        out[:] = self.view()


@dataclass(frozen=True)
class Scattered:
    """Payloads at any places of several buffers."""

    buffers: list[pa.Buffer]
    buffer_of: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    row_bytes: int
    reason: str

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.starts)

    def copy_into(self, out: Bytes) -> None:
        """Write the bytes of each row."""
        at_once = max(1, _GATHER_BYTES // self.row_bytes)
        for first in range(0, self.rows, at_once):
            block = slice(first, first + at_once)
            buffer_of, starts, into = self.buffer_of[block], self.starts[block], out[block]
            for number in np.unique(buffer_of):
                buffer = self.buffers[number]
                places = buffer.size - self.row_bytes + 1
                windows = np.ndarray((places, self.row_bytes), np.uint8, buffer, 0, (1, 1))
                here = np.flatnonzero(buffer_of == number)
                into[here] = windows[starts[here]]


class Rows:
    """Payloads of one size, chunk after chunk.

    Attributes:
        scattered: Why they are not evenly spaced in one buffer; empty when they are.
    """

    def __init__(self, pieces: list[Even | Scattered], row_bytes: int) -> None:
        self._pieces = [piece for piece in pieces if piece.rows]
        self._shape = (sum(piece.rows for piece in pieces), row_bytes)
        self.scattered = ""
        if 0 in self._shape:
            return
        if len(self._pieces) > 1:
            self.scattered = f"they lie in {len(self._pieces)} chunks"
        elif isinstance(self._pieces[0], Scattered):
            self.scattered = self._pieces[0].reason

    def view(self) -> Bytes:
        """The bytes of each row, not copied; only where `scattered` is empty."""
        piece = None if 0 in self._shape else self._pieces[0]
        return piece.view() if isinstance(piece, Even) else self.gather()

    def gather(self) -> Bytes:
        """The bytes of each row, copied into memory of their own."""
        out = np.empty(self._shape, np.uint8)
        first = 0
        for piece in self._pieces if out.size else []:
            piece.copy_into(out[first : first + piece.rows])
            first += piece.rows
        return out


def rows_of(chunks: list[pa.Array], row_bytes: int, what: str) -> Rows:
    """Find the payloads of a binary column.

    Args:
        chunks: The column.
        row_bytes: Size that each payload must have.
        what: What has that size, for the message.

    Raises:
        InvalidInputError: A payload is null, of another size, or outside its buffer.
    """
    pieces: list[Even | Scattered] = []
    before = 0
    for chunk in chunks:
        if chunk.null_count:
            row = before + pc.index(chunk.is_null(), value=True).as_py()
            raise InvalidInputError(f"payload of row {row} is null; expected {row_bytes} bytes")
        pieces.append(_piece(chunk, row_bytes, what, before))
        before += len(chunk)
    return Rows(pieces, row_bytes)


def _piece(chunk: pa.Array, row_bytes: int, what: str, before: int) -> Even | Scattered:
    rows = len(chunk)
    buffers = chunk.buffers()
    if rows == 0:
        return Even(None, 0, row_bytes, 0, row_bytes)
    if pa.types.is_binary_view(chunk.type):
        return _viewed(chunk, row_bytes, what, before)
    if pa.types.is_fixed_size_binary(chunk.type):
        _check_sizes(np.array([chunk.type.byte_width]), row_bytes, what, before)
        start, data = chunk.offset * row_bytes, buffers[1]
    else:
        width = np.int64 if pa.types.is_large_binary(chunk.type) else np.int32
        offsets = np.frombuffer(buffers[1], width, chunk.offset + rows + 1)[chunk.offset :]
        _check_sizes(np.diff(offsets), row_bytes, what, before)
        start, data = int(offsets[0]), buffers[2]
    size = data.size if data is not None else 0
    # Steps are all equal by now, so the ends tell for every row.
    if start < 0 or start + rows * row_bytes > size:
        _refuse_outside(before)
    return Even(data, start, row_bytes, rows, row_bytes)


def _viewed(chunk: pa.Array, row_bytes: int, what: str, before: int) -> Even | Scattered:
    rows = len(chunk)
    _, views, *data = chunk.buffers()
    numbers = np.frombuffer(views, np.int32, 4 * (chunk.offset + rows)).reshape(-1, 4)
    numbers = numbers[chunk.offset :]
    _check_sizes(numbers[:, 0], row_bytes, what, before)
    if row_bytes <= _INLINE_MAX:
        return Even(views, chunk.offset * _VIEW_BYTES + 4, _VIEW_BYTES, rows, row_bytes)
    buffer_of, starts = numbers[:, 2], numbers[:, 3].astype(np.int64)
    sizes = np.array([buffer.size for buffer in data] or [0], np.int64)
    known = (buffer_of >= 0) & (buffer_of < len(data))
    inside = known & (starts >= 0) & (starts + row_bytes <= sizes[np.where(known, buffer_of, 0)])
    if not inside.all():
        _refuse_outside(before + int(np.argmin(inside)))
    if (buffer_of != buffer_of[0]).any():
        reason = f"they lie in {len(np.unique(buffer_of))} buffers"
        return Scattered(data, buffer_of, starts, row_bytes, reason)
    steps = np.diff(starts)
    step = int(steps[0]) if rows > 1 else row_bytes
    if (steps != step).any():
        odd = int(np.argmax(steps != step))
        reason = (
            f"rows {before} and {before + 1} lie {step} bytes apart, "
            f"rows {before + odd} and {before + odd + 1} lie {steps[odd]}"
        )
        return Scattered(data, buffer_of, starts, row_bytes, reason)
    return Even(data[buffer_of[0]], int(starts[0]), step, rows, row_bytes)


def _check_sizes(found: npt.NDArray[Any], row_bytes: int, what: str, before: int) -> None:
    wrong = found != row_bytes
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InvalidInputError(
            f"payload of row {before + row} has {found[row]} bytes; expected {row_bytes}: {what}"
        )


def _refuse_outside(row: int) -> None:
    raise InvalidInputError(
        f"payload of row {row} lies outside its buffer: the Arrow column is damaged"
    )

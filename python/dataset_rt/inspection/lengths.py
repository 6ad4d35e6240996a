"""Payload lengths of a whole cache from its index: 16 bytes a sample, no payload is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataset_rt.errors import CorruptError

if TYPE_CHECKING:
    import polars as pl

_INDEX = "index.bin"
_HEADER_BYTES = 64
_RECORD_BYTES = 16
_PIECE_RECORDS = 2**18
"""Records read at once: 4 MiB."""

_NAMED_MAX = 5


@dataclass(slots=True)
class Lengths:
    """Lengths of payloads before compression.

    Attributes:
        raw_bytes: Sum of all.
        stored_bytes: Sum of what is stored of them; `None` where the file compresses whole
            batches, so that no payload has stored bytes of its own.
        min: Shortest, in bytes.
        max: Longest, in bytes.
        buckets: Payloads by size: `b` counts those of `[2**(b - 1), 2**b)` bytes, 0 the empty.
        first_empty: The first samples whose payload is empty.
    """

    raw_bytes: int = 0
    stored_bytes: int | None = 0
    min: int = 2**63
    max: int = 0
    buckets: dict[int, int] = field(default_factory=dict)
    first_empty: list[int] = field(default_factory=list)

    @property
    def empty(self) -> int:
        """Payloads without any bytes."""
        return self.buckets.get(0, 0)


def lengths_of(path: Path, manifest: dict[str, Any]) -> Lengths:
    """Return the lengths of the payloads of a cache.

    The file's digest is not computed; that all lengths sum up to what the manifest, which has a
    digest of its own, says of the whole, is.

    Raises:
        CorruptError: They do not, or the file has another size.
        OSError: It cannot be read.
    """
    import polars as pl  # noqa: PLC0415 - slow to import

    is_batched = manifest["compression"]["scope"] == "buffer" and (
        manifest["compression"]["algo"] != "none"
    )
    found = Lengths(stored_bytes=None if is_batched else 0)
    seen = 0
    for raw, stored in length_pieces(path, manifest):
        _add(found, raw, stored, pl)
        if len(found.first_empty) < _NAMED_MAX:
            empty = (raw == 0).arg_true().head(_NAMED_MAX - len(found.first_empty))
            found.first_empty += [seen + row for row in empty]
        seen += len(raw)
    if found.raw_bytes != manifest["payload_bytes_total"]:
        expected = f"payloads of {manifest['payload_bytes_total']} bytes together"
        raise _damaged(path / _INDEX, expected, str(found.raw_bytes))
    return found


def length_pieces(path: Path, manifest: dict[str, Any]) -> Iterator[tuple[pl.Series, pl.Series]]:
    """Return lengths before compression and stored ones, in order, 4 MiB of the file at once.

    Raises:
        CorruptError: The file has fewer.
        OSError: It cannot be read.
    """
    import polars as pl  # noqa: PLC0415 - slow to import
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    file, samples = path / _INDEX, manifest["samples_total"]
    left = samples
    with file.open("rb") as opened:
        opened.seek(_HEADER_BYTES)
        while left:
            records = min(left, _PIECE_RECORDS)
            piece = opened.read(records * _RECORD_BYTES)
            if len(piece) != records * _RECORD_BYTES:
                raise _damaged(file, f"{_HEADER_BYTES + samples * _RECORD_BYTES} bytes", "fewer")
            words = pa.Array.from_buffers(pa.uint32(), records * 4, [None, pa.py_buffer(piece)])
            word = pl.Series(words)
            yield word.gather_every(4, 3), word.gather_every(4, 2)
            left -= records


def raw_lengths(path: Path, manifest: dict[str, Any]) -> Any:
    """Return the length of every payload before compression, a Polars series in order.

    Raises:
        CorruptError: They do not sum up to what the manifest says.
        OSError: The index cannot be read.
    """
    import polars as pl  # noqa: PLC0415 - slow to import
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    file = path / _INDEX
    records = file.read_bytes()[
        _HEADER_BYTES : _HEADER_BYTES + _RECORD_BYTES * manifest["samples_total"]
    ]
    words = pa.Array.from_buffers(pa.uint32(), len(records) // 4, [None, pa.py_buffer(records)])
    lengths = pl.Series(words).gather_every(4, 3).cast(pl.UInt64)
    expected = manifest["samples_total"], manifest["payload_bytes_total"]
    if (len(lengths), int(lengths.sum())) != expected:
        found = f"{len(lengths)} of {lengths.sum()} bytes"
        raise _damaged(file, f"{expected[0]} payloads of {expected[1]} bytes together", found)
    return lengths


def _add(found: Lengths, raw: Any, stored: Any, pl: Any) -> None:
    found.raw_bytes += int(raw.cast(pl.UInt64).sum())
    if found.stored_bytes is not None:
        found.stored_bytes += int(stored.cast(pl.UInt64).sum())
    found.min = min(found.min, int(raw.min()))
    found.max = max(found.max, int(raw.max()))
    # Bits that the length needs; exact, unlike a logarithm.
    bits = 32 - raw.bitwise_leading_zeros()
    for bucket, number in bits.value_counts().iter_rows():
        found.buckets[bucket] = found.buckets.get(bucket, 0) + number


def _damaged(file: Path, expected: str, found: str) -> CorruptError:
    return CorruptError(
        f"{file} is damaged: expected {expected}, found {found}; run `dataset-rt verify "
        f"{file.parent}`"
    )

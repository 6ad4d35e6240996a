"""Whether texts that were taken for numbers are these numbers; knows no file."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

# 00123 and 0x1A: codes that look like numbers.
_CODE = r"^\s*[+-]?0[0-9xX]"
# Shorter integers are below 2**53: float64 has them all.
_LONG_INTEGER = r"^\s*[+-]?[0-9]{16,}\s*$"
# No float64 has more digits before its point.
_DIGITS_MAX = 309


def is_guessed_number(kind: pa.DataType) -> bool:
    """Whether a type is one that CSV columns of numbers are guessed to have."""
    return bool(pt.is_int64(kind) or pt.is_float64(kind))


def first_lost(texts: pa.Array, kind: pa.DataType) -> int | None:
    """Return the index of the first text that is more than its number, `None` when none is.

    Args:
        texts: Cells as they are in the file.
        kind: What they become, int64 or float64.
    """
    codes = pc.match_substring_regex(texts, _CODE)
    found = [pc.index(codes, True).as_py()]
    if pt.is_float64(kind):
        for index in pc.indices_nonzero(pc.match_substring_regex(texts, _LONG_INTEGER)).to_pylist():
            text = texts[index].as_py()
            if len(text) > _DIGITS_MAX or int(float(text)) != int(text):
                found.append(index)
                break
    return min((index for index in found if index >= 0), default=None)

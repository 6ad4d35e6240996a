"""Values as text and as JSON: nothing that stands in a cache can drive a terminal from here.

Knows no stream and no table.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from dataset_rt.progress import cells

# Joiners of emoji and of scripts: without them letters and families fall apart, alone they do
# nothing. Other formatting characters turn the direction of what follows, so they are escaped.
_HARMLESS = "\u200c\u200d"

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")

VALUE_CELLS_MAX = 40
"""Terminal cells of one value in a table."""


def safe(text: str) -> str:
    """Return the text with everything escaped that is not printable: controls, escapes, bidi."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in _HARMLESS else _escaped(letter)
        for letter in text
    )


def safe_lines(text: str) -> str:
    """Return a message of several lines, each of them safe."""
    return "\n".join(safe(line) for line in text.split("\n"))


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def cut(text: str, cells_max: int = VALUE_CELLS_MAX) -> str:
    """Return the text, or as much as fits and `...`."""
    # Longer than this no text fits, and counting cells costs time.
    if len(text) <= cells_max * 4 and cells(text) <= cells_max:
        return text
    kept = text[: cells_max - 3]
    while cells(kept) > cells_max - 3:
        kept = kept[:-1]
    return kept + "..."


def cut_inside(text: str, cells_max: int) -> str:
    """Return the text made safe, or its beginning, `...` and its end, in which paths differ."""
    # No value is scanned beyond what can be shown.
    if len(text) <= 2 * cells_max and cells(whole := safe(text)) <= cells_max:
        return whole
    half = (cells_max - 3) // 2
    begin, end = safe(text[:cells_max])[: cells_max - 3 - half], safe(text[-cells_max:])[-half:]
    while cells(begin) > cells_max - 3 - half:
        begin = begin[:-1]
    while cells(end) > half:
        end = end[1:]
    return f"{begin}...{end}"


def count(number: int) -> str:
    """Return `12,345`."""
    return f"{number:,}"


def counted(number: int, noun: str) -> str:
    """Return `1 sample`, `2 samples`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(size_bytes: float) -> str:
    """Return `12.3 MB`: decimal units, three digits."""
    value = float(size_bytes)
    for unit in _UNITS:
        # 999.96 would be drawn as 1000.0.
        if abs(value) < 999.95 or unit == _UNITS[-1]:
            break
        value /= 1000
    return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"


def share(part: float) -> str:
    """Return `12.3%`; what is not all is never `100.0%`, what is not none never `0.0%`."""
    if 0.9995 <= part < 1:
        return ">99.9%"
    return "<0.1%" if 0 < part < 0.0005 else f"{part:.1%}"


def seconds(duration: float) -> str:
    """Return a duration with the digits that matter."""
    if duration < 0.00995:
        return f"{duration * 1e3:.1f} ms"
    if duration < 0.9995:
        return f"{duration * 1e3:.0f} ms"
    if duration < 60:
        return f"{duration:.1f} s"
    return f"{int(duration) // 60} min {int(duration) % 60} s"


def path_text(path: str | Path) -> str:
    """Return a path as it may be shown; bytes that are no UTF-8 come escaped."""
    return safe(str(path))


def value_text(value: Any, cells_max: int = VALUE_CELLS_MAX) -> str:
    """Return one value of a column, cut to `cells_max`."""
    if value is None:
        return "null"
    if isinstance(value, str):
        # No value is scanned beyond what can be shown.
        return cut(
            safe(value[: cells_max + 1]) + ("..." if len(value) > cells_max + 1 else ""), cells_max
        )
    if isinstance(value, bytes):
        return cut(repr(value[: cells_max + 1]), cells_max)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        return value.isoformat(" ")
    # As Arrow and JSON write them.
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return cut(safe(text), cells_max)


def json_value(value: Any) -> Any:
    """Return what JSON can hold.

    Floats that are no numbers become `"NaN"`, `"Infinity"` and `"-Infinity"`, dates and times
    ISO 8601, bytes base64.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {str(key): json_value(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(inner) for inner in value]
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, (Decimal, Path)) else value


def ranges_text(ranges: Iterable[tuple[int, int]], shown_max: int = 8) -> str:
    """Return half-open ranges of samples as people say them: `7, 12 to 20`."""
    named = [
        f"{begin:,}" if end - begin == 1 else f"{begin:,} to {end - 1:,}" for begin, end in ranges
    ]
    rest = len(named) - shown_max
    return ", ".join(named[:shown_max]) + (f" and {rest:,} more ranges" if rest > 0 else "")


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ordered ranges with neighbouring ones made one."""
    found: list[tuple[int, int]] = []
    for start, stop in ranges:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found

"""Pictures of payloads: pixels of five formats, small; nothing that could act is ever passed on.

With Pillow a picture is decoded, made small and written anew, so that of the payload nothing but
its pixels remains. Without it, small files are embedded as they are.
"""

from __future__ import annotations

import io
import struct
import warnings
from typing import Any

from dataset_rt.report.facts import Picture

MIME = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "GIF": "image/gif",
    "WebP": "image/webp",
    "BMP": "image/bmp",
}
"""Kinds of payloads that are shown. SVG is no picture but a document, and may act."""

SIDE_MAX = 192
"""Pixels of the longer side of what is embedded: sharp at 96 on dense screens."""

_PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
_PIXELS_MAX = 50_000_000
"""Of a picture that is decoded: as cameras make them, and 200 MB while it is looked at."""

_AS_IT_IS_BYTES_MAX = 64 * 1024
_AS_IT_IS_PIXELS_MAX = 4_000_000
"""Of a file that is embedded without Pillow: the browser of the reader decodes it."""


def picture_of(payload: memoryview, kind: str) -> Picture | str:
    """Return a small picture, or why there is none.

    Args:
        payload: Bytes of a file.
        kind: A key of `MIME`.
    """
    if len(payload) > _PAYLOAD_BYTES_MAX:
        return f"not decoded: more than {_PAYLOAD_BYTES_MAX:,} bytes"
    try:
        from PIL import Image  # noqa: PLC0415 - whoever lacks it gets files as they are
    except ImportError:
        return _as_it_is(payload, kind)
    try:
        with warnings.catch_warnings():
            # Of a payload that is odd in some way; it is shown or not, and that says it.
            warnings.simplefilter("ignore")
            return _made_small(Image, payload, kind)
    except Exception as error:  # noqa: BLE001 - decoders raise anything over foreign bytes
        return f"does not decode: {type(error).__name__}"


def _made_small(image_module: Any, payload: memoryview, kind: str) -> Picture | str:
    with image_module.open(io.BytesIO(payload), formats=(kind.upper(),)) as image:
        width, height = image.size
        if width * height > _PIXELS_MAX:
            return f"not decoded: {width} x {height} pixels"
        # JPEG decodes at an eighth of its size as fast as it is read.
        image.draft(None, (SIDE_MAX * 2, SIDE_MAX * 2))
        image.load()
        has_alpha = "A" in image.getbands() or "transparency" in image.info
        small = image.convert("RGBA" if has_alpha else "RGB")
        small.thumbnail((SIDE_MAX, SIDE_MAX), image_module.Resampling.LANCZOS)
    # A new one has no profile, comment or place where it was taken.
    bare = image_module.new(small.mode, small.size)
    bare.paste(small)
    is_photo = kind == "JPEG" or (not has_alpha and max(width, height) > SIDE_MAX)
    out = io.BytesIO()
    if is_photo:
        bare.save(out, "JPEG", quality=85)
    else:
        bare.save(out, "PNG", optimize=True)
    return Picture("image/jpeg" if is_photo else "image/png", out.getvalue(), width, height)


def _as_it_is(payload: memoryview, kind: str) -> Picture | str:
    if len(payload) > _AS_IT_IS_BYTES_MAX:
        return "not shown: larger files are made small with Pillow, which is not installed"
    content = bytes(payload)
    size = image_size(content, kind)
    if size is None or not 0 < size[0] * size[1] <= _AS_IT_IS_PIXELS_MAX:
        return "not shown: its header is not understood" if size is None else "not shown: too large"
    return Picture(MIME[kind], content, *size)


def image_size(content: bytes, kind: str) -> tuple[int, int] | None:
    """Return width and height as the header of a file says, or `None` if it does not."""
    try:
        if kind == "PNG":
            return struct.unpack_from(">II", content, 16)
        if kind == "GIF":
            return struct.unpack_from("<HH", content, 6)
        if kind == "BMP":
            width, height = struct.unpack_from("<ii", content, 18)
            return width, abs(height)
        return _webp_size(content) if kind == "WebP" else _jpeg_size(content)
    except struct.error:
        return None


def _webp_size(content: bytes) -> tuple[int, int] | None:
    chunk = content[12:16]
    if chunk == b"VP8X":
        width = int.from_bytes(content[24:27], "little") + 1
        return width, int.from_bytes(content[27:30], "little") + 1
    if chunk == b"VP8 ":
        width, height = struct.unpack_from("<HH", content, 26)
        return width & 0x3FFF, height & 0x3FFF
    if chunk == b"VP8L":
        (bits,) = struct.unpack_from("<I", content, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return None


def _jpeg_size(content: bytes) -> tuple[int, int] | None:
    place = 2
    while True:
        mark, marker, length = struct.unpack_from(">BBH", content, place)
        if mark != 0xFF or length < 2:
            return None
        # A frame begins: SOF0 to SOF15 but tables and arithmetic conditioning.
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            height, width = struct.unpack_from(">HH", content, place + 5)
            return width, height
        place += 2 + length

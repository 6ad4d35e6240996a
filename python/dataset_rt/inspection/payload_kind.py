"""What the first bytes of a payload look like; decodes nothing."""

from __future__ import annotations

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"\x89PNG\r\n\x1a\n", "PNG"),
    (0, b"GIF8", "GIF"),
    (8, b"WEBP", "WebP"),
    (8, b"WAVE", "WAV"),
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (4, b"ftypavif", "AVIF"),
    (4, b"ftyphei", "HEIC"),
    (4, b"ftyp", "MP4"),
    (0, b"\x1aE\xdf\xa3", "Matroska"),
    (0, b"fLaC", "FLAC"),
    (0, b"OggS", "Ogg"),
    (0, b"ID3", "MP3"),
    (0, b"\xff\xfb", "MP3"),
    (0, b"\x93NUMPY", "npy"),
    (0, b"PK\x03\x04", "zip"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (0, b"\x04\x22\x4d\x18", "lz4"),
    (0, b"%PDF-", "PDF"),
    (0, b"PAR1", "Parquet"),
    (0, b"ARROW1", "Arrow"),
    (0, b"\x89HDF\r\n\x1a\n", "HDF5"),
    (257, b"ustar", "tar"),
    # Pickles of protocol 2 to 5 begin with a mark and the protocol.
    (0, b"\x80\x02", "pickle"),
    (0, b"\x80\x03", "pickle"),
    (0, b"\x80\x04", "pickle"),
    (0, b"\x80\x05", "pickle"),
)

HEAD_BYTES = 512
"""Bytes that are looked at."""


def payload_kind(head: bytes, size_bytes: int) -> str:
    """Return a name for what a payload seems to be: `JPEG`, `npy`, `UTF-8 text`, `bytes`.

    Args:
        head: Its first bytes, `HEAD_BYTES` at most.
        size_bytes: Bytes of the whole payload.
    """
    if size_bytes == 0:
        return "empty"
    for offset, magic, name in _MAGIC:
        if head[offset : offset + len(magic)] == magic:
            return name
    # Two letters alone would make a picture of many a text; the size follows them.
    if head[:2] == b"BM" and int.from_bytes(head[2:6], "little") == size_bytes:
        return "BMP"
    return _text_kind(head, size_bytes) or "bytes"


def _text_kind(head: bytes, size_bytes: int) -> str | None:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The cut may fall into a character.
        if size_bytes <= len(head) or error.start < len(head) - 3 or error.start == 0:
            return None
        text = head[: error.start].decode("utf-8")
    if not all(letter.isprintable() or letter in "\t\r\n" for letter in text):
        return None
    if text.lstrip()[:1] in ("{", "["):
        return "JSON text"
    return "UTF-8 text"

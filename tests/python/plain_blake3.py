"""BLAKE3 from its specification, for crafting manifests and for checking ours; slow on purpose."""

import struct

_IV = (
    *(0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A),
    *(0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19),
)
_ORDER = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
_COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
_CHUNK_START, _CHUNK_END, _PARENT, _ROOT = 1, 2, 4, 8
_MASK = 0xFFFFFFFF


def _turned(word, bits):
    return (word >> bits | word << 32 - bits) & _MASK


def _compress(chaining, words, counter, length, flags):
    v = [*chaining, *_IV[:4], counter & _MASK, counter >> 32, length, flags]
    for _ in range(7):
        for i, (a, b, c, d) in enumerate(_COLUMNS + _DIAGONALS):
            v[a] = (v[a] + v[b] + words[2 * i]) & _MASK
            v[d] = _turned(v[d] ^ v[a], 16)
            v[c] = (v[c] + v[d]) & _MASK
            v[b] = _turned(v[b] ^ v[c], 12)
            v[a] = (v[a] + v[b] + words[2 * i + 1]) & _MASK
            v[d] = _turned(v[d] ^ v[a], 8)
            v[c] = (v[c] + v[d]) & _MASK
            v[b] = _turned(v[b] ^ v[c], 7)
        words = [words[i] for i in _ORDER]
    return [low ^ high for low, high in zip(v[:8], v[8:], strict=True)]


def _chunk(data, counter, root):
    blocks = [data[i : i + 64] for i in range(0, len(data), 64)] or [b""]
    chaining = _IV
    for number, block in enumerate(blocks):
        is_last = number + 1 == len(blocks)
        flags = (number == 0) * _CHUNK_START | is_last * (_CHUNK_END | root)
        words = struct.unpack("<16I", block.ljust(64, b"\0"))
        chaining = _compress(chaining, words, counter, len(block), flags)
    return chaining


def _tree(data, counter, root):
    if len(data) <= 1024:
        return _chunk(data, counter, root)
    left = 1 << ((len(data) - 1) // 1024).bit_length() - 1
    words = [
        *_tree(data[: left * 1024], counter, 0),
        *_tree(data[left * 1024 :], counter + left, 0),
    ]
    return _compress(_IV, words, 0, 64, _PARENT | root)


def blake3(data):
    """The digest of `data` as 64 hexadecimal digits."""
    return struct.pack("<8I", *_tree(bytes(data), 0, _ROOT)).hex()

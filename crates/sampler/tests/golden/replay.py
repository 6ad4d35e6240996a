"""Recompute a golden file from the specification alone, as a check on both; needs `blake3`.

Usage: python replay.py order-v0.txt. Knows nothing of the Rust crate: exact fractions and plain
lists follow the numbered rules of docs/sampling.md, slowly.
"""

import struct
import sys
from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate

from blake3 import blake3

CONTEXT = "DatasetRT order of rows v0: "
MODES = {"sequential": 0, "multinomial": 1}
PURPOSES = {"draw": 0, "seed": 1}
WORD = 0xFFFFFFFF


def philox(counter, key):
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & WORD, p0 >> 32 ^ c3 ^ k1, p0 & WORD
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


def table_digest(mode, runs):
    merged = []
    for cache, first, rows, weight in runs:
        last = merged[-1] if merged else None
        if last and last[0] == cache and last[3] == weight and last[1] + last[2] == first:
            last[2] += rows
        else:
            merged.append([cache, first, rows, weight])
    name = "table in table order" if mode == "sequential" else "table as a set"
    body = b"".join(struct.pack("<4Q", *run) for run in merged)
    return blake3(body, derive_key_context=CONTEXT + name).digest()


def stream_key(seed, mode, digest, purpose, version):
    material = struct.pack("<IBBHQQ", version, MODES[mode], PURPOSES[purpose], 0, seed, 0) + digest
    derived = blake3(material, derive_key_context=CONTEXT + "stream key").digest()
    words = struct.unpack("<4I", derived[:16])
    return words[:2], words[2:]


def bits(key, k):
    words = philox((k & WORD, k >> 32, *key[1]), key[0])
    return sum(word << 32 * i for i, word in enumerate(words))


def round_half_even(value):
    return round(value)  # of a Fraction: exact, halves to even


def thresholds(runs):
    """The row count, T_n and a look-up of rows, run by run so that 2**53 rows need no memory."""
    weights = [Fraction(struct.unpack("<d", struct.pack("<Q", run[3]))[0]) for run in runs]
    e = 0
    while max(weights) >= Fraction(2) ** e:
        e += 1
    while max(weights) < Fraction(2) ** (e - 1):
        e -= 1
    quanta = [round_half_even(w * Fraction(2) ** (62 - e)) for w in weights]
    sums = [0, *accumulate(q * run[2] for q, run in zip(quanta, runs))]
    starts = [0, *accumulate(run[2] for run in runs)]
    t = max(0, sums[-1].bit_length() - 64)

    def row_of(x):
        r = x * (sums[-1] >> t) >> 128
        # T_i > r is C_i >= (r + 1) * 2**t: the run first, then the row in it by division.
        wanted = (r + 1) << t
        run = bisect_right(sums, wanted - 1) - 1
        return starts[run] - (sums[run] - wanted) // quanta[run] - 1

    return row_of


def check(path):
    version, runs, row_of, checked = None, [], None, 0
    for number, line in enumerate(open(path), 1):
        word, *rest = line.split() or ["#"]
        found = rest
        if word == "version":
            version = int(rest[0])
        elif word == "table":
            runs, row_of = [], None
        elif word == "run":
            runs.append([*map(int, rest[:3]), int(rest[3], 16)])
        elif word == "digest":
            found = [rest[0], table_digest(rest[0], runs).hex()]
        elif word == "key":
            mode, purpose, seed = rest[0], rest[1], int(rest[2])
            key = stream_key(seed, mode, table_digest(mode, runs), purpose, version)
            found = [*rest[:3], *(f"{w:x}" for w in (*key[0], *key[1]))]
        elif word == "seeds":
            mode, seed, k0 = rest[0], int(rest[1]), int(rest[2])
            key = stream_key(seed, mode, table_digest(mode, runs), "seed", version)
            seeds = (bits(key, k0 + i) & (1 << 64) - 1 for i in range(len(rest) - 3))
            found = [*rest[:3], *(f"{s:x}" for s in seeds)]
        elif word in ("bits", "rows"):
            mode, seed, k0 = "multinomial", int(rest[0]), int(rest[1])
            key = stream_key(seed, mode, table_digest(mode, runs), "draw", version)
            if word == "bits":
                found = [*rest[:2], f"{bits(key, k0):x}"]
            else:
                row_of = row_of or thresholds(runs)
                rows = (row_of(bits(key, k0 + i)) for i in range(len(rest) - 2))
                found = [*rest[:2], *map(str, rows)]
        elif word != "#":
            raise SystemExit(f"{path}:{number}: unknown line {word!r}")
        if found != rest:
            raise SystemExit(f"{path}:{number}: expected {found}, found {rest}")
        checked += word in ("digest", "key", "seeds", "bits", "rows")
    print(f"{path}: {checked} lines follow the specification")


if __name__ == "__main__":
    check(sys.argv[1])

"""Recompute a golden file from the specification alone, as a check on both; needs `blake3`.

Usage: python replay.py order-v0.txt. Knows nothing of the Rust crate: exact fractions and plain
lists follow the numbered rules of docs/sampling.md, slowly.
"""

import struct
import sys
from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate
from math import isqrt

from blake3 import blake3

CONTEXT = "DatasetRT order of rows v0: "
MODES = {"sequential": 0, "multinomial": 1, "permutation": 2, "weighted_without_replacement": 3}
PURPOSES = {"draw": 0, "seed": 1}
WORD = 0xFFFFFFFF
CHECKED = {"digest", "key", "seeds", "bits", "rows", "cycle", "pass"}


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


def stream_key(seed, mode, digest, purpose, version, *, cycle=0):
    fields = (version, MODES[mode], PURPOSES[purpose], 0, seed, cycle)
    material = struct.pack("<IBBHQQ", *fields) + digest
    derived = blake3(material, derive_key_context=CONTEXT + "stream key").digest()
    words = struct.unpack("<4I", derived[:16])
    return words[:2], words[2:]


def bits(key, k):
    words = philox((k & WORD, k >> 32, *key[1]), key[0])
    return sum(word << 32 * i for i, word in enumerate(words))


def round_half_even(value):
    return round(value)  # of a Fraction: exact, halves to even


def weight_of(run):
    return Fraction(struct.unpack("<d", struct.pack("<Q", run[3]))[0])


def thresholds(runs):
    """The row count, T_n and a look-up of rows, run by run so that 2**53 rows need no memory."""
    weights = [weight_of(run) for run in runs]
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


def shuffled(key, n):
    order = list(range(n))
    for i in range(n - 1, 0, -1):
        j = bits(key, i) * (i + 1) >> 128
        order[i], order[j] = order[j], order[i]
    return order


def network(key, n):
    """A function from offset to row."""
    a = isqrt(n)
    a += a * a < n
    b = -(-n // a)

    def value_of(v):
        left, right = divmod(v, b)
        for t in range(0, 8, 2):
            left = (left + (bits(key, t * 2**32 + right) * a >> 128)) % a
            right = (right + (bits(key, (t + 1) * 2**32 + left) * b >> 128)) % b
        return left * b + right

    def row_of(offset):
        value = value_of(offset)
        while value >= n:
            value = value_of(value)
        return value

    return row_of


def exponential(x):
    x = max(x, 1)
    zeros = 128 - x.bit_length()
    m = x * 2**zeros // 2**64
    total = (zeros + 1) * 2**64
    for j in range(1, 65):
        d = m * m // 2**127
        m = m * m // 2 ** (63 + d)
        total -= d * 2 ** (64 - j)
    return total


def rounded_down(value):
    """The exponent and the integer of a positive fraction's first 64 binary digits."""
    g = value.numerator.bit_length() - value.denominator.bit_length() - 65
    while value >= Fraction(2) ** (g + 64):
        g += 1
    return g, int(value / Fraction(2) ** g)


def by_weight(key, runs):
    weights = [weight_of(run) for run in runs for _ in range(run[2])]
    keys = [
        (*rounded_down(exponential(bits(key, i)) / weight), i) for i, weight in enumerate(weights)
    ]
    return [i for _, _, i in sorted(keys)]


def cycle_of(mode, key, runs, n):
    """A function from offset to row."""
    if mode == "permutation" and n > 2**16:
        return network(key, n)
    return (shuffled(key, n) if mode == "permutation" else by_weight(key, runs)).__getitem__


def without_replacement(word, rest, runs, version):
    """The fields of a line about a cycle's key, or about rows across cycles."""
    mode, seed, number = rest[0], int(rest[1]), int(rest[2])
    digest, n = table_digest(mode, runs), sum(run[2] for run in runs)

    def key_of(cycle):
        return stream_key(seed, mode, digest, "draw", version, cycle=cycle)

    if word == "cycle":
        key = key_of(number)
        return [*rest[:3], *(f"{w:x}" for w in (*key[0], *key[1]))]
    rows_of, rows = {}, []
    for k in range(number, number + len(rest) - 3):
        cycle, offset = divmod(k, n)
        if cycle not in rows_of:
            rows_of[cycle] = cycle_of(mode, key_of(cycle), runs, n)
        rows.append(str(rows_of[cycle](offset)))
    return [*rest[:3], *rows]


def draw_key(rest, runs, version):
    """The key of multinomial draws under the seed that a line begins with."""
    digest = table_digest("multinomial", runs)
    return stream_key(int(rest[0]), "multinomial", digest, "draw", version)


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
        elif word == "bits":
            key = draw_key(rest, runs, version)
            found = [*rest[:2], f"{bits(key, int(rest[1])):x}"]
        elif word == "rows":
            key, k0 = draw_key(rest, runs, version), int(rest[1])
            row_of = row_of or thresholds(runs)
            rows = (row_of(bits(key, k0 + i)) for i in range(len(rest) - 2))
            found = [*rest[:2], *map(str, rows)]
        elif word in ("cycle", "pass"):
            found = without_replacement(word, rest, runs, version)
        elif word != "#":
            raise SystemExit(f"{path}:{number}: unknown line {word!r}")
        if found != rest:
            raise SystemExit(f"{path}:{number}: expected {found}, found {rest}")
        checked += word in CHECKED
    print(f"{path}: {checked} lines follow the specification")


if __name__ == "__main__":
    check(sys.argv[1])

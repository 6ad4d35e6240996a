"""Caches that reports are made of: pictures, a table of hard values, texts, hostile ones."""

import io
import random
from datetime import date, datetime, timedelta

import numpy as np
from conftest import written

import dataset_rt as drt

EVIL = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
SVG = f'<svg xmlns="http://www.w3.org/2000/svg" onload="document.title=1">{EVIL}</svg>'.encode()


def picture(number, form="PNG", side=32):
    """A picture that is not like another."""
    from PIL import Image

    draw = np.random.default_rng(number)
    out = io.BytesIO()
    pixels = draw.integers(0, 255, (side, side + 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(out, form)
    return out.getvalue()


def pictures(runtime, directory, name="pictures", rows=200):
    """Pictures of all formats with an unbalanced label."""
    forms = ("PNG", "JPEG", "GIF", "WebP", "BMP")
    draw = random.Random(1)
    samples = [
        (
            picture(i, forms[i % 5]),
            {"score": draw.random(), "label": draw.choices(["cat", "dog", "owl"], [12, 3, 1])[0]},
        )
        for i in range(rows)
    ]
    config = drt.WriterConfig(show_progress=False, max_shard_bytes=100_000)
    return written(runtime, directory, samples, name=name, config=config)


def hard_values(rows=400):
    """Columns of dates, nulls and extreme values, row by row."""
    draw = random.Random(2)
    return [
        {
            "day": date(2020, 1, 1) + timedelta(days=draw.randrange(900)),
            "seen": datetime(2023, 1, 1) + timedelta(seconds=draw.randrange(10**8))
            if i % 4
            else None,
            "amount": 1e15 if i == 7 else draw.lognormvariate(3, 1),
            "ratio": float("nan") if i % 10 == 0 else float("inf") if i == 3 else draw.gauss(0, 1),
            "huge": draw.choice([1.7e308, -1.7e308, 5e-324]),
            "wide": draw.uniform(-1, 1) * 1.7e308,
            "big": draw.randrange(-(2**63), 2**63),
            "flag": i % 3 == 0,
            "grade": [None, "a", "b", "a"][i % 4],
            "nothing": None,
            "same": "x",
            "key": f"k{i}",
        }
        for i in range(rows)
    ]


def table(runtime, directory):
    """Rows of hard values, payloads of random bytes."""
    draw = random.Random(3)
    samples = [(draw.randbytes(draw.randrange(1, 3000)), row) for row in hard_values()]
    return written(runtime, directory, samples, name="table")


def texts(runtime, directory):
    """Texts in several scripts."""
    words = ["plain", "gr\u00fc\u00dfe", "\u4f60\u597d", "\u05e9\u05dc\u05d5\u05dd", "a" * 200]
    samples = [
        ("\n".join(words[i % 5 :]).encode(), {"tokens": i, "lang": "de" if i % 3 else "en"})
        for i in range(60)
    ]
    return written(runtime, directory, samples, name="texts")


def hostile(runtime, directory):
    """Names, values and payloads that would run something, or break the page."""
    payloads = [
        SVG,
        b"GIF89a/*" + EVIL.encode(),
        b"\x89PNG\r\n\x1a\n" + EVIL.encode(),
        EVIL.encode(),
        b"\xff\xd8\xff" + EVIL.encode(),
        b"</pre></style></script>-->" + EVIL.encode(),
        b"",
    ]
    names = [EVIL, "'\"><style>*{display:none}</style>", "\u202eleft", "a" * 300, "</title>" + EVIL]
    samples = [
        (payloads[i % 7], dict.fromkeys(names, f"{EVIL}{i % 3}\u202e\x1b[31m'\""))
        for i in range(42)
    ]
    return written(
        runtime, directory, samples, name="h<b>\u2215i", fingerprint=EVIL, provenance={EVIL: EVIL}
    )


def many_columns(runtime, directory):
    """Sixty columns of all kinds."""
    draw = random.Random(4)
    kinds = (
        lambda: draw.gauss(0, 1),
        lambda: draw.randrange(10**6),
        lambda: draw.choice("abc"),
        lambda: date(2020, 1, 1) + timedelta(days=draw.randrange(400)),
    )
    samples = [
        (b"x" * i, {f"a_rather_long_name_{c:02}": kinds[c % 4]() for c in range(60)})
        for i in range(100)
    ]
    return written(runtime, directory, samples, name="columns")

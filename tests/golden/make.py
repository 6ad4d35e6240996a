"""The golden caches: what goes into them, and how they are made again.

Run `python tests/golden/make.py` only together with a decision record: golden data is added to,
never edited, once the format is frozen. `cells/` says as text what every Arrow tool must find.
"""

import datetime as dt
import json
import shutil
import struct
from pathlib import Path

import pyarrow as pa

from dataset_rt import CacheInput, DatasetRuntime, ShardCompression, WriterConfig

ROOT = Path(__file__).resolve().parent / "v0"
CELLS = Path(__file__).resolve().parent / "cells"
DICTIONARY = ShardCompression(algo="zstd", level=3, dictionary_bytes=512)
CONFIGS = {
    "plain": WriterConfig(),
    "small_shards": WriterConfig(max_shard_bytes=4000),
    "lz4_payload": WriterConfig(shard_compression=ShardCompression(algo="lz4")),
    "zstd_payload": WriterConfig(shard_compression=ShardCompression(algo="zstd", level=3)),
    "lz4_buffer": WriterConfig(shard_compression=ShardCompression(algo="lz4", scope="buffer")),
    "zstd_buffer": WriterConfig(
        shard_compression=ShardCompression(algo="zstd", level=3, scope="buffer")
    ),
}
SAMPLES = 40


class GoldenSource:
    """Every inferred type, nulls, empty payloads, text outside ASCII."""

    fingerprint = "golden-1"
    provenance = {"made by": "tests/golden/make.py"}
    types = pa.schema(
        {
            "flag": pa.bool_(),
            "label": pa.int64(),
            "score": pa.float64(),
            "text": pa.large_utf8(),
            "day": pa.date32(),
            "naive": pa.timestamp("us"),
            "zoned": pa.timestamp("us", "UTC"),
            "nothing": pa.null(),
        }
    )

    def __init__(self, name):
        self.name = name

    def __iter__(self):
        start = dt.datetime(2001, 2, 3, 4, 5, 6, 7, tzinfo=dt.UTC)
        for i in range(SAMPLES):
            yield CacheInput(
                bytes((i * 7 + k) % 251 for k in range(i * 5 % 97)),
                {
                    "flag": None if i % 5 == 0 else i % 2 == 0,
                    "label": i - 20,
                    "score": float("nan") if i == 3 else i / 8,
                    "text": None if i % 7 == 0 else f"väl-{i}-🙂",
                    "day": dt.date(1999, 12, 31) + dt.timedelta(days=i),
                    "naive": dt.datetime(2020, 1, 1) + dt.timedelta(microseconds=i),
                    "zoned": start + dt.timedelta(hours=i),
                    "nothing": None,
                },
            )


class RecordsSource:
    """Small payloads so alike that a dictionary can be trained on them."""

    types = pa.schema({"id": pa.int64()})

    def __init__(self, name):
        self.name = name

    def __iter__(self):
        for i in range(80):
            text = f'{{"id": {i}, "class": "kind-{i % 17}", "score": 0.{i * 7919 % 1000}}}'
            yield CacheInput(text.encode(), {"id": i})


class EmptySource:
    """No payload has a byte."""

    types = pa.schema({"label": pa.int64()})

    def __init__(self, name):
        self.name = name

    def __iter__(self):
        for i in range(6):
            yield CacheInput(b"", {"label": i})


class BareSource:
    """No columns."""

    types = pa.schema({})

    def __init__(self, name):
        self.name = name

    def __iter__(self):
        for i in range(9):
            yield CacheInput(bytes([i]) * 100 * i, {})


class EveryTypeSource:
    """Every stored type with its extremes and a null; columns that are not nullable; odd names."""

    values = {
        "null": (pa.null(), [None] * 4),
        "bool": (pa.bool_(), [True, None, False, True]),
        **{
            f"{sign}int{bits}": (
                pa.type_for_alias(f"{sign}int{bits}"),
                [-(2 ** (bits - 1)), None, 2 ** (bits - 1) - 1, 0]
                if not sign
                else [0, None, 2**bits - 1, 1],
            )
            for sign in ("", "u")
            for bits in (8, 16, 32, 64)
        },
        "float32": (pa.float32(), [-0.0, None, float("inf"), 2.0**-149]),
        "float64": (pa.float64(), [-0.0, None, float("nan"), 5e-324]),
        "text": (pa.large_utf8(), ["", None, "größe 🙂", "a\0b"]),
        "binary": (pa.large_binary(), [b"", None, b"\0\xff", bytes(range(256))]),
        "date32": (
            pa.date32(),
            [dt.date(1, 1, 1), None, dt.date(9999, 12, 31), dt.date(1970, 1, 1)],
        ),
        **{
            f"timestamp {unit}": (pa.timestamp(unit), [-(10**9), None, 0, 10**9 + 1])
            for unit in ("s", "ms", "us", "ns")
        },
        "zoned s": (pa.timestamp("s", "Europe/Berlin"), [-(10**9), None, 0, 10**9 + 1]),
        "zoned ns": (pa.timestamp("ns", "UTC"), [-(10**9), None, 0, 10**9 + 1]),
        "not null": (pa.int16(), [1, 2, 3, 4]),
        'Zeile "1",\n🙂': (pa.bool_(), [False, True, False, True]),
    }
    types = pa.schema([pa.field(key, kind, None in held) for key, (kind, held) in values.items()])

    def __init__(self, name):
        self.name = name
        self.schema = self.types

    def __iter__(self):
        yield pa.record_batch(
            [
                *(pa.array(held, kind) for kind, held in self.values.values()),
                pa.array([b"first", b"", b"third payload", b"\0"], pa.large_binary()),
            ],
            schema=self.types.append(pa.field("payload", pa.large_binary(), nullable=False)),
        )


CACHES = {
    **{name: (GoldenSource, config) for name, config in CONFIGS.items()},
    "zstd_dictionary": (RecordsSource, WriterConfig(shard_compression=DICTIONARY)),
    "empty_payloads": (EmptySource, WriterConfig()),
    "empty_payloads_zstd": (EmptySource, CONFIGS["zstd_payload"]),
    "no_columns": (BareSource, WriterConfig(max_shard_bytes=3000)),
    "every_type": (EveryTypeSource, WriterConfig()),
    "every_type_zstd_buffer": (EveryTypeSource, CONFIGS["zstd_buffer"]),
}


def batch_of(source):
    """What a source yields as one batch: its columns, then the payload."""
    items = list(source)
    if isinstance(items[0], pa.RecordBatch):
        return items[0]
    columns = [
        pa.array([item.metadata[field.name] for item in items], field.type)
        for field in source.types
    ]
    payload = pa.array([item.data for item in items], pa.large_binary())
    schema = source.types.append(pa.field("payload", pa.large_binary(), nullable=False))
    return pa.record_batch([*columns, payload], schema=schema)


def texts(array):
    """Each cell as text, `None` for null: what any Arrow library can render without a choice."""
    kind = array.type
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        array = array.cast(pa.int64() if pa.types.is_timestamp(kind) else pa.int32())
    values = array.to_pylist()
    if pa.types.is_boolean(kind):
        render = {True: "true", False: "false"}.get
    elif pa.types.is_floating(kind):
        form = ">d" if kind.bit_width == 64 else ">f"
        render = lambda value: struct.pack(form, value).hex()  # noqa: E731
    else:
        render = lambda value: value.hex() if isinstance(value, bytes) else str(value)  # noqa: E731
    return [None if value is None else render(value) for value in values]


def cells(source):
    """The cells of a source: one list of texts a column, in the order of a shard."""
    batch = batch_of(source)
    return {
        name: texts(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }


def write_cells(root):
    """One file a source: the caches that hold it, and what they hold."""
    root.mkdir(exist_ok=True)
    for kind in dict.fromkeys(kind for kind, _ in CACHES.values()):
        caches = [name for name, (other, _) in CACHES.items() if other is kind]
        content = {"caches": caches, "cells": cells(kind(caches[0]))}
        text = json.dumps(content, ensure_ascii=False, indent=0) + "\n"
        (root / f"{caches[0]}.json").write_text(text, encoding="utf-8")


def write(root):
    """All golden caches below `root`."""
    with DatasetRuntime(num_workers=1) as runtime:
        for name, (kind, config) in CACHES.items():
            (result,) = runtime.write_cache(kind(name), root, writer_config=config)
            assert result.status == "written", result


if __name__ == "__main__":
    shutil.rmtree(ROOT, ignore_errors=True)
    shutil.rmtree(CELLS, ignore_errors=True)
    write(ROOT)
    write_cells(CELLS)

"""The golden caches: what goes into them, and how they are made again.

Run `python tests/golden/make.py` only together with a decision record: golden data is added to,
never edited, once the format is frozen.
"""

import datetime as dt
import shutil
from pathlib import Path

from dataset_rt import CacheInput, DatasetRuntime, ShardCompression, WriterConfig

ROOT = Path(__file__).resolve().parent / "v0"
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


def write(root):
    """All golden caches below `root`."""
    with DatasetRuntime(num_workers=1) as runtime:
        for name, config in CONFIGS.items():
            (result,) = runtime.write_cache(GoldenSource(name), root, writer_config=config)
            assert result.status == "written", result


if __name__ == "__main__":
    shutil.rmtree(ROOT, ignore_errors=True)
    write(ROOT)

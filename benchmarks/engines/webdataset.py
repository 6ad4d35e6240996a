"""WebDataset: tar files, payload and metadata as two members of a sample; a stream, no rows."""

import json
from pathlib import Path

import webdataset

from benchmarks import engines


def write(directory, samples):
    pattern = str(directory / "samples-%06d.tar")
    with webdataset.ShardWriter(pattern, maxcount=1 << 30, maxsize=256 << 20, verbose=0) as writer:
        for row, (data, metadata) in enumerate(samples):
            writer.write(
                {"__key__": f"{row:09}", "bin": data, "json": json.dumps(metadata).encode()}
            )


def to_sample(members):
    return members["bin"], json.loads(members["json"])


class Reader(engines.Reader):
    def __init__(self, directory, workload, mode):
        self.shards = sorted(str(path) for path in Path(directory).glob("*.tar"))

    def sequential(self):
        stream = webdataset.WebDataset(self.shards, shardshuffle=False, empty_check=False)
        return map(to_sample, stream)

    def get(self, row):
        raise engines.CannotError("a stream of tar files: shuffled only within a buffer")

    def get_batch(self, rows):
        return self.get(rows[0])

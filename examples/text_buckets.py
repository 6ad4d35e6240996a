"""Texts of very different lengths: batches of similar lengths, with little padding.

What it shows: texts are tokenised once, and stored as raw `uint16` tokens with their length as a
metadata column. Before each epoch the table is put into an order of buckets: the rows are
shuffled, a pool of some batches at a time is sorted by length, and the batches are shuffled. With
`shuffle=False` the table's order is the order of the stream.

What to take away: any order that you can compute from the table is a reordered table; no payload
is touched for it. An epoch still shows each text once, in other company each time, and most of the
padding is gone. `save_state` keeps the table, so a resumed epoch has the order it had.

The texts are docstrings of scikit-learn: plain English, a line or several pages each.

Run it with `python examples/text_buckets.py [directory]`.
"""

from __future__ import annotations

import ast
import collections
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import sklearn

import dataset_rt as drt

PACKAGES = ("cluster", "decomposition", "ensemble", "linear_model", "metrics", "preprocessing")
TOKENS_MAX = 512  # of longer texts the beginning is kept
BATCH_SIZE = 16
POOL = 8  # batches that are sorted together: the more, the less padding and the less chance
EPOCHS = 3
SEED = 11
PADDING = 0  # the token that fills short rows

Tokens = npt.NDArray[np.uint16]


def read_docstrings() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each docstring, in a fixed order."""
    root = Path(sklearn.__file__).parent
    for package in PACKAGES:
        for file in sorted((root / package).glob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module):
                    text = ast.get_docstring(node)
                    if text:
                        yield f"{package}/{file.name}:{getattr(node, 'lineno', 0)}", text


class TokenisedDocstrings:
    """A source: each sample is the tokens of one text; the most frequent word is token 1."""

    name = "docstrings"
    fingerprint = f"words-{TOKENS_MAX}-scikit-learn-{sklearn.__version__}"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Yield the texts as they come; the tokens need all of them first."""
        texts = [(place, re.findall(r"\w+|[^\w\s]", text)) for place, text in read_docstrings()]
        counts = collections.Counter(word for _, words in texts for word in words)
        token = {word: rank for rank, (word, _) in enumerate(counts.most_common(65_535), 1)}
        for place, words in texts:
            tokens = np.array([token[word] for word in words[:TOKENS_MAX]], dtype=np.uint16)
            yield drt.CacheInput(tokens.tobytes(), {"place": place, "length": len(tokens)})


def shuffled(table: pl.DataFrame, epoch: int) -> pl.DataFrame:
    """Return the rows in a random order that depends on the epoch alone."""
    return table[np.random.default_rng([SEED, epoch]).permutation(table.height)]


def bucketed(table: pl.DataFrame, epoch: int) -> pl.DataFrame:
    """Return the rows in random order, but with rows of similar lengths in one batch."""
    table = shuffled(table, epoch)
    pool = np.arange(table.height) // (BATCH_SIZE * POOL)
    rows = np.lexsort((table["length"].to_numpy(), pool))
    batches = np.split(rows, range(BATCH_SIZE, len(rows), BATCH_SIZE))
    # The last batch may be short, and must stay the last.
    order = np.random.default_rng([SEED, epoch, 1]).permutation(len(batches) - 1)
    return table[np.concatenate([*(batches[number] for number in order), batches[-1]])]


def padded(batch: pa.RecordBatch) -> Tokens:
    """Return the tokens as `(rows, longest)`, short rows filled with `PADDING`."""
    lengths = batch["length"].to_numpy()
    tokens = np.full((len(lengths), lengths.max()), PADDING, dtype=np.uint16)
    everything = b"".join(batch["payload"].to_pylist())
    tokens[np.arange(tokens.shape[1]) < lengths[:, None]] = np.frombuffer(everything, np.uint16)
    return tokens


class Epoch(NamedTuple):
    """What one epoch of batches was made of."""

    tokens: int  # of the texts
    cells: int  # of the padded batches
    pairs: set[tuple[int, int]]  # texts that were in one batch


def read_epoch(dataset: drt.CachedDataset) -> Epoch:
    """Read one epoch as a model would, and count."""
    tokens, cells = 0, 0
    pairs: set[tuple[int, int]] = set()
    for batch in dataset.iter_batches(BATCH_SIZE, columns=["sample_id", "length", "payload"]):
        matrix = padded(batch)
        tokens += int(np.count_nonzero(matrix))
        cells += matrix.size
        pairs.update(itertools.combinations(sorted(batch["sample_id"].to_pylist()), 2))
    return Epoch(tokens, cells, pairs)


def main(output: Path) -> None:
    """Read some epochs in both orders, and print how much of them is padding."""
    with drt.DatasetRuntime() as runtime:
        config = drt.ReaderConfig(seed=SEED, shuffle=False)  # the order is the table's
        source = TokenisedDocstrings()
        match runtime.from_cache_sources(source, output / "caches", reader_config=config):
            case drt.CacheSourcesDatasetSuccess(dataset, _):
                table = dataset.get_metadata()
            case drt.CacheSourcesDatasetError(_, message):
                raise SystemExit(message)
        lengths = table["length"].to_numpy()
        print(f"{len(lengths)} texts of {lengths.min()} to {lengths.max()} tokens")
        for name, order in (("shuffled", shuffled), ("bucketed", bucketed)):
            before: set[tuple[int, int]] = set()
            for epoch in range(EPOCHS):
                dataset.update_metadata(order(table, epoch))
                tokens, cells, pairs = read_epoch(dataset)
                print(
                    f"{name}, epoch {epoch}:  {cells} cells, {1 - tokens / cells:.1%} padding,"
                    f" {len(pairs & before) / len(pairs):.1%} of batch-mates as before"
                )
                before = pairs


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("demo_output/text_buckets"))

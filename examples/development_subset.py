"""A development subset: a few percent of each class, in a cache of its own, for the same code.

What it shows: a twentieth of each class is chosen in the table, and written as a cache of its own.
It remembers which samples it is made of. One training function runs on either cache.

What to take away: filter the table for an experiment in one process; materialise the rows when
others shall have them, on a laptop or in a CI job: the small cache is independent of the large
one. The choice follows the order of samples, which is the same on any machine and release, so it
can be made again; nothing depends on a random generator of the day.

The samples are the handwritten digits that come with scikit-learn, every fourth one for testing.

Run it with `python examples/development_subset.py [directory]`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

import dataset_rt as drt
from dataset_rt.exporters import materialize

FRACTION = 0.05
BATCH_SIZE = 32
STEPS = 200  # of training, whatever the size
SEED = 13


class Digits:
    """A source: 8 x 8 pixels of 0 to 16 as bytes, with their label and part."""

    name = "digits"
    fingerprint = "digits-uint8-parts-1"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Yield the digits in scikit-learn's order."""
        digits = load_digits()
        for number, image in enumerate(digits.images.astype(np.uint8)):
            part = "test" if number % 4 == 0 else "train"
            yield drt.CacheInput(image, {"label": int(digits.target[number]), "part": part})


def choose(cache: Path) -> drt.CachedDataset:
    """Return a dataset of `FRACTION` of the training samples of each class, rounded up."""
    dataset = drt.open_dataset(cache, seed=SEED, shuffle=True, sampling="permutation")
    dataset.update_metadata(dataset.get_metadata().filter(part="train"))
    # One epoch of identities and labels: every row once, in an order that is always the same.
    batches = dataset.iter_batches(4096, columns=["cache_id", "sample_id", "label"])
    drawn = pl.DataFrame(pa.Table.from_batches(batches))
    place, size = pl.int_range(pl.len()).over("label"), pl.len().over("label")
    chosen = drawn.filter(place < (size * FRACTION).ceil())
    table = dataset.get_metadata().join(chosen, on=["cache_id", "sample_id"], how="semi")
    dataset.update_metadata(table)
    return dataset


def train(cache: Path) -> SGDClassifier:
    """Train a linear classifier on the training part of a cache: the large one or the small."""
    dataset = drt.open_dataset(cache, seed=SEED, shuffle=True)
    dataset.update_metadata(dataset.get_metadata().filter(part="train"))
    dataset.set_epoch_len(STEPS * BATCH_SIZE)
    model = SGDClassifier(loss="log_loss", random_state=SEED)
    for batch in dataset.iter_batches(BATCH_SIZE, columns=["label", "payload"]):
        pixels = drt.payload_arrays(batch, np.uint8, 64) / 16
        model.partial_fit(pixels, batch["label"].to_numpy(), classes=np.arange(10))
    return model


def score(model: SGDClassifier, cache: Path) -> float:
    """Return which part of the large cache's test samples is recognised."""
    test = drt.open_dataset(cache)
    test.update_metadata(test.get_metadata().filter(part="test"))
    (batch,) = test.iter_batches(len(test), columns=["label", "payload"])
    pixels = drt.payload_arrays(batch, np.uint8, 64) / 16
    return float(model.score(pixels, batch["label"].to_numpy()))


def main(output: Path) -> None:
    """Write the large cache and the small one where they are missing; train on both."""
    with drt.DatasetRuntime() as runtime:
        config = drt.ReaderConfig(seed=SEED)
        match runtime.from_cache_sources(Digits(), output / "caches", reader_config=config):
            case drt.CacheSourcesDatasetError(_, message):
                raise SystemExit(message)
            case drt.CacheSourcesDatasetSuccess(dataset, _):
                (large,) = dataset.cache_paths
    small = output / "caches/digits-dev"
    if not small.exists():
        columns = {"label": "label", "part": "part", "sample_id": "original_id"}
        materialize(choose(large), output / "caches", "digits-dev", columns=columns)

    for cache in (large, small):
        table = drt.open_cache(cache).metadata().filter(part="train")
        counts = np.bincount(table["label"])
        size = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
        print(
            f"{cache.name}: {table.height} training samples, {counts.min()} to {counts.max()} of"
            f" each class, {size / 1000:.0f} kB, {score(train(cache), large):.1%} right"
        )
    originals = drt.open_cache(small).metadata()["original_id"]
    print(f"made of the samples {originals.head(8).to_list()}, ...")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("demo_output/development_subset"))

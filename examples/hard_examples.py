"""Hard examples: the losses of each epoch are the weights of the next, across stops too.

What it shows: after each epoch a small network scores the training samples, and the losses become
the weights of the table (online hard example mining, OHEM). The same network, trained on equally
many samples with equal weights, is the control. Then the mined run is made again in two halves,
with everything but one file thrown away in the middle.

What to take away: losses go back by identity, in a join, because nobody can see that a loss lies
beside the wrong row. Network, weights and position are of one moment, so they are saved in one file
that is replaced in one step: a kill costs the epoch under way, and the resumed run ends with the
very same network. Mining helps the classes that were hard; check that it does not cost the others.

The samples are the handwritten digits that come with scikit-learn, every second one for testing.

Run it with `python examples/hard_examples.py [directory]`.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import joblib
import numpy as np
import numpy.typing as npt
import polars as pl
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import dataset_rt as drt

EPOCHS = 10
STOP = 5  # the epoch before which the run in two halves is interrupted
BATCH_SIZE = 32
FLOOR = 0.05  # added to each loss: what is easy today is still seen sometimes
SEED = 6
CLASSES = np.arange(10)

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


class Digits:
    """A source: 8 x 8 pixels of 0 to 16 as bytes, with their label."""

    name = "digits"
    fingerprint = "digits-uint8-1"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Yield the digits in scikit-learn's order."""
        digits = load_digits()
        for image, label in zip(digits.images.astype(np.uint8), digits.target, strict=True):
            yield drt.CacheInput(image, {"label": int(label)})


def open_part(cache: Path, *, test: bool, shuffle: bool = False) -> drt.CachedDataset:
    """Open the samples of one part, in table order or drawn by weight."""
    dataset = drt.open_dataset(cache, seed=SEED, shuffle=shuffle)
    is_test = pl.col("sample_id") % 2 == 0
    dataset.update_metadata(dataset.get_metadata().filter(is_test if test else ~is_test))
    return dataset


def read(dataset: drt.CachedDataset, size: int) -> Iterator[tuple[Floats, Labels]]:
    """Yield the batches of one epoch: pixels `(rows, 64)`, 0 to 1, and labels `(rows,)`."""
    for batch in dataset.iter_batches(size, columns=["label", "payload"]):
        yield drt.payload_arrays(batch, np.uint8, 64) / 16, batch["label"].to_numpy()


def losses_of(model: MLPClassifier, scored: drt.CachedDataset) -> pl.DataFrame:
    """Return the loss of each sample beside its identity and label; `scored` is in table order."""
    ((pixels, labels),) = read(scored, len(scored))
    likelihood = model.predict_proba(pixels)[np.arange(len(labels)), labels]
    table = scored.get_metadata().select("cache_id", "sample_id", "label")
    return table.with_columns(loss=-np.log(likelihood.clip(1e-9)))


def mine(dataset: drt.CachedDataset, losses: pl.DataFrame) -> None:
    """Make the loss of each sample its weight."""
    weights = losses.select("cache_id", "sample_id", weight=pl.col("loss") + FLOOR)
    table = dataset.get_metadata().drop("weight")
    dataset.update_metadata(table.join(weights, on=["cache_id", "sample_id"]))


def save(checkpoint: Path, model: MLPClassifier, dataset: drt.CachedDataset) -> None:
    """Save all that belongs to this moment, in one file: the old one stays, or the new one is."""
    table = io.BytesIO()
    dataset.get_metadata().write_ipc(table)
    content = {"model": model, "table": table.getvalue(), "state": dataset.state_dict()}
    aside = checkpoint.with_suffix(".new")
    with aside.open("wb") as file:
        joblib.dump(content, file)
        file.flush()
        os.fsync(file.fileno())  # for a power failure; a kill needs no more than the next line
    aside.replace(checkpoint)


def load(checkpoint: Path, dataset: drt.CachedDataset) -> MLPClassifier:
    """Give the dataset its table and its place; return the model."""
    content = joblib.load(checkpoint)
    dataset.update_metadata(pl.read_ipc(content["table"]))  # before the state, which names it
    dataset.load_state_dict(content["state"])
    return content["model"]


def train(cache: Path, checkpoint: Path, *, until: int, mining: bool) -> MLPClassifier:
    """Train until an epoch, from the beginning or from where the checkpoint was left."""
    model = MLPClassifier(hidden_layer_sizes=(16,), learning_rate_init=0.003, random_state=SEED)
    dataset = open_part(cache, test=False, shuffle=True)
    scored = open_part(cache, test=False)
    if checkpoint.exists():
        model = load(checkpoint, dataset)
    for _ in range(dataset.epoch, until):
        for pixels, labels in read(dataset, BATCH_SIZE):
            model.partial_fit(pixels, labels, classes=CLASSES)
        if mining:
            mine(dataset, losses_of(model, scored))
        save(checkpoint, model, dataset)
    return model


def hardest(losses: pl.DataFrame, count: int = 3) -> list[int]:
    """Return the classes with the largest mean loss."""
    means = losses.group_by("label").agg(pl.col("loss").mean()).sort("loss", descending=True)
    return sorted(means["label"].head(count).to_list())


def accuracies(model: MLPClassifier, test: drt.CachedDataset) -> Floats:
    """Return the part of each class that is recognised, `(10,)`."""
    ((pixels, labels),) = read(test, len(test))
    right = model.predict(pixels) == labels
    return np.array([right[labels == label].mean() for label in CLASSES])


def main(output: Path) -> None:
    """Train plainly, with mining, and with mining in two halves; compare."""
    runs = {name: output / f"{name}.joblib" for name in ("plain", "mined", "halves")}
    for checkpoint in runs.values():
        checkpoint.unlink(missing_ok=True)
    with drt.DatasetRuntime() as runtime:
        config = drt.ReaderConfig(seed=SEED)
        match runtime.from_cache_sources(Digits(), output / "caches", reader_config=config):
            case drt.CacheSourcesDatasetError(_, message):
                raise SystemExit(message)
            case drt.CacheSourcesDatasetSuccess(dataset, _):
                (cache,) = dataset.cache_paths

    plain = train(cache, runs["plain"], until=EPOCHS, mining=False)
    mined = train(cache, runs["mined"], until=EPOCHS, mining=True)
    hard = hardest(losses_of(plain, open_part(cache, test=False)))
    easy = [label for label in CLASSES if label not in hard]
    print(f"{EPOCHS} epochs each; hardest by training loss: {hard}")
    test = open_part(cache, test=True)
    for name, model in (("equal weights", plain), ("mined", mined)):
        right = accuracies(model, test)
        print(f"{name:13s}  hard {right[hard].mean():.1%}, the others {right[easy].mean():.1%}")

    train(cache, runs["halves"], until=STOP, mining=True)
    resumed = train(cache, runs["halves"], until=EPOCHS, mining=True)
    pairs = zip(resumed.coefs_ + resumed.intercepts_, mined.coefs_ + mined.intercepts_, strict=True)
    same = all(np.array_equal(ours, theirs) for ours, theirs in pairs)
    print(f"stopped before epoch {STOP} and resumed: {'the same' if same else 'ANOTHER'} network")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("demo_output/hard_examples"))

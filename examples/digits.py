"""Demo: handwritten digits, badly unbalanced, balanced again by weights alone.

The digits are the ones that come with scikit-learn. They are stored as PNG bytes, the way image
data sets usually are, in one cache. The demo writes the cache, runs a second time to reuse it,
looks at its table, checks it, and gives every class the same share of the stream by setting
weights, without touching a file. A small classifier shows what that is worth. At last an epoch is
stopped in the middle and goes on elsewhere, with receipts of the order.

Run it with `make demo`, or `python examples/digits.py [directory]`.
"""

from __future__ import annotations

import io
import itertools
import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import polars as pl
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

import dataset_rt as drt

# What is kept of each digit for training: hardly any zeros, many nines.
TRAIN_COUNTS = [5, 8, 12, 18, 28, 40, 60, 80, 110, 140]
TEST_COUNT = 30
EPOCHS = 5
BATCH_SIZE = 32
TAKEN = 200
SEED = 2024
CLASSES = np.arange(10)

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


class UnbalancedDigits:
    """A source: it has a name, and yields one PNG with its label at a time.

    Args:
        images: `(samples, 8, 8)`, values 0 to 16.
        labels: `(samples,)`.
    """

    name = "digits"
    # Change this whenever the preprocessing changes: caches of another version are stale then.
    fingerprint = "unbalanced-digits-png-1"

    def __init__(self, images: Images, labels: Labels) -> None:
        self._images = images
        self._labels = labels

    def __len__(self) -> int:
        """Number of samples; with it the progress line knows how long it will take."""
        return len(self._labels)

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Yield the samples in the order in which they are stored."""
        for image, label in zip(self._images, self._labels, strict=True):
            ink = float(image.mean()) / 16
            yield drt.CacheInput(encode_png(image), {"label": int(label), "ink": ink})


def encode_png(image: Images) -> bytes:
    """Return an 8x8 grey image as the bytes of a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray((image * 255 / 16).astype(np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()


def decode_png(data: bytes) -> Images:
    """Return the pixels of a PNG as `(64,)`, values 0 to 1."""
    pixels = np.asarray(Image.open(io.BytesIO(data)), dtype=np.float32)
    return np.asarray(pixels.reshape(-1) / 255, dtype=np.float32)


def split_digits() -> tuple[Images, Labels, Images, Labels]:
    """Return an unbalanced training part and a balanced test part without common samples."""
    digits = load_digits()
    by_class = [np.flatnonzero(digits.target == label) for label in CLASSES]
    test = np.concatenate([rows[:TEST_COUNT] for rows in by_class])
    train = np.concatenate(
        [
            rows[TEST_COUNT : TEST_COUNT + count]
            for rows, count in zip(by_class, TRAIN_COUNTS, strict=True)
        ]
    )
    train.sort()
    images: Images = digits.images.astype(np.float32)
    labels: Labels = digits.target.astype(np.int64)
    return images[train], labels[train], images[test], labels[test]


def open_digits(
    runtime: drt.DatasetRuntime, source: drt.CacheSource, directory: Path
) -> drt.CachedDataset:
    """Write the cache, or reuse it when it is there; print which, and how long it took."""
    started = time.perf_counter()
    outcome = runtime.from_cache_sources(
        source, directory, reader_config=drt.ReaderConfig(seed=SEED)
    )
    milliseconds = (time.perf_counter() - started) * 1e3
    match outcome:
        case drt.CacheSourcesDatasetSuccess(dataset, [drt.CacheWriteSuccess(name, _, status)]):
            print(f"  {name}: {status}, {len(dataset)} samples, {milliseconds:.1f} ms")
            return dataset
        case drt.CacheSourcesDatasetSuccess(_, results):
            raise SystemExit(f"expected one written or reused cache, found {results}")
        case drt.CacheSourcesDatasetError(_, message):
            raise SystemExit(f"no dataset: {message}")


def count_labels(dataset: drt.CachedDataset, epochs: int) -> Labels:
    """Return how often each label was drawn in the next epochs, `(10,)`."""
    labels = [sample.metadata["label"] for _ in range(epochs) for sample in dataset]
    return np.bincount(labels, minlength=10)


def balance(dataset: drt.CachedDataset) -> None:
    """Give every class the same total weight."""
    table = dataset.get_metadata()
    dataset.update_metadata(table.with_columns(weight=1.0 / pl.len().over("label")))


def weight_shares(dataset: drt.CachedDataset) -> npt.NDArray[np.float64]:
    """Return each label's part of the total weight, `(10,)`: what the stream should follow."""
    sums = dataset.get_metadata().group_by("label").agg(pl.col("weight").sum()).sort("label")
    weights = sums["weight"].to_numpy()
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def train(dataset: drt.CachedDataset, epochs: int) -> SGDClassifier:
    """Train a linear classifier on the stream, decoding every PNG as it comes."""
    model = SGDClassifier(
        loss="log_loss", alpha=1e-3, learning_rate="constant", eta0=0.05, random_state=SEED
    )
    for _ in range(epochs):
        batch: list[drt.CachedSample] = []
        for sample in dataset:
            batch.append(sample)
            if len(batch) == BATCH_SIZE:
                train_step(model, batch)
                batch.clear()
        if batch:
            train_step(model, batch)
    return model


def train_step(model: SGDClassifier, batch: list[drt.CachedSample]) -> None:
    """Take one step on one batch."""
    pixels = np.stack([decode_png(sample.data) for sample in batch])
    labels = [sample.metadata["label"] for sample in batch]
    model.partial_fit(pixels, labels, classes=CLASSES)


def print_shares(
    stored: Labels, expected: npt.NDArray[np.float64], drawn: npt.NDArray[np.float64]
) -> None:
    """Print what is stored, what the weights ask for, and what the stream gave."""
    print("  digit  stored  share of weight  share drawn")
    for label in CLASSES:
        print(f"  {label:5d}  {stored[label]:6d}  {expected[label]:15.1%}  {drawn[label]:11.1%}")


def save_shares(
    path: Path, before: npt.NDArray[np.float64], after: npt.NDArray[np.float64]
) -> None:
    """Save the shares of the stream before and after balancing as a picture."""
    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - the backend is chosen first

    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    axes.bar(CLASSES - 0.2, before * 100, width=0.4, label="all weights equal")
    axes.bar(CLASSES + 0.2, after * 100, width=0.4, label="weight = 1 / class size")
    axes.axhline(10, color="grey", linewidth=1, linestyle="--")
    axes.set(
        xlabel="digit",
        ylabel="share of the stream (%)",
        title="Digits drawn, before and after balancing",
        xticks=CLASSES,
    )
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def stop_and_go_on(runtime: drt.DatasetRuntime, dataset: drt.CachedDataset) -> None:
    """Read a part of an epoch, go on with a new dataset, and prove it with receipts."""
    begin = dataset.state_dict()["position"]
    taken = [sample.sample_id for sample in itertools.islice(dataset, TAKEN)]
    state = json.dumps(dataset.state_dict())

    resumed = runtime.cached_dataset(dataset.cache_paths, reader_config=drt.ReaderConfig(seed=SEED))
    balance(resumed)
    resumed.load_state_dict(json.loads(state))
    taken += [sample.sample_id for sample in resumed]
    end = resumed.state_dict()["position"]
    print(f"  epoch {dataset.epoch - 1}: {TAKEN} samples, {len(state)} bytes of state, the others")

    # Two runs with equal receipts saw the same samples in the same order.
    receipt = dataset.order_digest(int(begin), int(end))
    print(f"  order     {dataset.order_fingerprint[:16]}  (what it depends on)")
    print(f"  positions {receipt[:16]}  (samples {begin} to {end})")
    dataset.set_epoch(dataset.epoch - 1)
    if [sample.sample_id for sample in dataset] != taken:
        raise SystemExit("the resumed epoch is another one")


def main(output: Path) -> None:
    """Run all steps and print what happens."""
    caches = output / "caches"
    shutil.rmtree(caches, ignore_errors=True)
    output.mkdir(parents=True, exist_ok=True)
    train_images, train_labels, test_images, test_labels = split_digits()
    source = UnbalancedDigits(train_images, train_labels)
    test_pixels = np.stack([decode_png(encode_png(image)) for image in test_images])

    with drt.DatasetRuntime() as runtime:
        print("1. Write the cache")
        open_digits(runtime, source, caches)

        print("\n2. Run again: the cache is reused, the source is not touched")
        dataset = open_digits(runtime, source, caches)

        print("\n3. Look at the table and check the cache")
        print(dataset.get_metadata().head(5))
        report = drt.verify_cache(dataset.cache_paths[0], level="deep")
        print(f"  {report}")
        if not report.ok:
            raise SystemExit("the cache is damaged")

        print("\n4. Balance the classes by weights")
        stored = np.bincount(train_labels, minlength=10)
        epochs_counted = 20
        unbalanced = count_labels(dataset, epochs_counted)
        balance(dataset)
        balanced = count_labels(dataset, epochs_counted)
        before, after = unbalanced / unbalanced.sum(), balanced / balanced.sum()
        print_shares(stored, weight_shares(dataset), after)
        picture = output / "shares.png"
        save_shares(picture, before, after)
        print(f"  picture: {picture}")

        print(f"\n5. Train on both streams, {EPOCHS} epochs each, test on {TEST_COUNT} per digit")
        plain = runtime.cached_dataset(
            dataset.cache_paths, reader_config=drt.ReaderConfig(seed=SEED)
        )
        accuracies = {
            "all weights equal": train(plain, EPOCHS).score(test_pixels, test_labels),
            "balanced": train(dataset, EPOCHS).score(test_pixels, test_labels),
        }
        for name, accuracy in accuracies.items():
            print(f"  {name:18s} {accuracy:.1%} right")

        print("\n6. Stop in the middle of an epoch and go on: the next sample is the next sample")
        stop_and_go_on(runtime, dataset)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("demo_output"))

"""Images of a rare class: a folder of JPEG files, balanced by weights alone.

What it shows: a folder with one directory per class becomes a cache, JPEG bytes as they are. One
class has a tenth of the files of the other. Weights give each class half of the stream; no file is
copied, moved or written twice. A small classifier trains on both streams, equally many steps.

What to take away: balance the stream, not the files. `weight = 1 / class size` is one line, the
drawn shares follow it within the chance of drawing, and the rare class is found more often.

The images are tiles of the two photographs that come with scikit-learn.

Run it with `python examples/images_balanced.py [directory]`.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from PIL import Image
from sklearn.datasets import load_sample_images
from sklearn.linear_model import SGDClassifier

import dataset_rt as drt
from dataset_rt.sources import ImageFolderSource

TILE = 32  # pixels
RARE_EVERY = 10  # of the flower's training tiles, one in so many is kept
EPOCHS = 4
BATCH_SIZE = 32
SEED = 7
CLASSES = ("building", "flower")

Floats = npt.NDArray[np.float64]


def save_tiles(folder: Path) -> None:
    """Cut the photographs into tiles: `folder/train/CLASS/*.jpg` and `folder/test/CLASS/*.jpg`."""
    for label, photo in zip(CLASSES, load_sample_images().images, strict=True):
        rows, columns = photo.shape[0] // TILE, photo.shape[1] // TILE
        for number in range(rows * columns):
            top, left = number // columns * TILE, number % columns * TILE
            part = "test" if number % 3 == 0 else "train"
            if part == "train" and label == "flower" and number % RARE_EVERY:
                continue
            file = folder / part / label / f"{number:03}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(photo[top : top + TILE, left : left + TILE]).save(file, quality=90)


def open_images(runtime: drt.DatasetRuntime, output: Path, part: str) -> drt.CachedDataset:
    """Write the cache of one part, or reuse it when it is there."""
    source = ImageFolderSource(output / "tiles" / part)
    config = drt.ReaderConfig(seed=SEED, shuffle=part == "train")
    match runtime.from_cache_sources(source, output / "caches", reader_config=config):
        case drt.CacheSourcesDatasetSuccess(dataset, _):
            return dataset
        case drt.CacheSourcesDatasetError(_, message):
            raise SystemExit(message)


def balance(dataset: drt.CachedDataset) -> None:
    """Give every class the same total weight."""
    table = dataset.get_metadata()
    dataset.update_metadata(table.with_columns(weight=1 / pl.len().over("label")))


def decode(jpeg: bytes) -> Floats:
    """Return a tile's colours as `(24,)`: which part of its pixels is how red, green and blue."""
    pixels = np.asarray(Image.open(io.BytesIO(jpeg)))
    channels = [np.histogram(pixels[..., channel], 8, (0, 256))[0] for channel in range(3)]
    return np.concatenate(channels) / (TILE * TILE)


def train(dataset: drt.CachedDataset) -> tuple[SGDClassifier, npt.NDArray[np.int64]]:
    """Return a linear classifier trained on the stream, and how often it saw each class."""
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.5, random_state=SEED)
    seen = np.zeros(len(CLASSES), dtype=np.int64)
    for _ in range(EPOCHS):
        for batch in dataset.iter_batches(BATCH_SIZE, columns=["label_id", "payload"]):
            labels = batch["label_id"].to_numpy()
            pixels = np.stack([decode(jpeg) for jpeg in batch["payload"].to_pylist()])
            model.partial_fit(pixels, labels, classes=[0, 1])
            seen += np.bincount(labels, minlength=len(CLASSES))
    return model, seen


def found(model: SGDClassifier, test: drt.CachedDataset) -> Floats:
    """Return which part of each class's test tiles is recognised, `(2,)`."""
    labels = np.array([sample.metadata["label_id"] for sample in test])
    right = model.predict(np.stack([decode(sample.data) for sample in test])) == labels
    return np.array([right[labels == label].mean() for label in range(len(CLASSES))])


def main(output: Path) -> None:
    """Train on the stream as it is and on the balanced one, and compare."""
    if not (output / "tiles").exists():
        save_tiles(output / "tiles")
    with drt.DatasetRuntime() as runtime:
        test = open_images(runtime, output, "test")
        dataset = open_images(runtime, output, "train")
        labels = dataset.get_metadata()["label"]
        print("                 " + "".join(f"{name:>10s}" for name in CLASSES))
        print("training files   " + "".join(f"{(labels == name).sum():10d}" for name in CLASSES))
        for name in ("as stored", "balanced"):
            if name == "balanced":
                balance(dataset)
            model, seen = train(dataset)
            print(f"{name:>9s}: drawn " + "".join(f"{share:10.1%}" for share in seen / seen.sum()))
            print("      recognised " + "".join(f"{part:10.1%}" for part in found(model, test)))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("demo_output/images_balanced"))

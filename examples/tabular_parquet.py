"""Tabular rows from a Parquet file: columnar from the file to the model.

What it shows: a Parquet table, with its features packed into one binary column, becomes a cache.
Training and test rows are two tables over that cache, split by identity. A model is trained on a
shuffled stream of Arrow batches: features arrive as one `(rows, features)` matrix, labels as one
array, and no Python object is made for a row.

What to take away: the streamed model finds what a model finds that has the whole table in memory,
so nothing was lost or mixed up on the way. Columns to filter and weight by stay in the table.

The rows are the breast cancer data that come with scikit-learn: 569 tumours, 30 measurements each.

Run it with `python examples/tabular_parquet.py [directory]`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_breast_cancer
from sklearn.naive_bayes import GaussianNB

import dataset_rt as drt
from dataset_rt.sources import ParquetSource

FEATURES = 30
BATCH_SIZE = 64
SEED = 3

Matrix = npt.NDArray[np.float32]
Labels = npt.NDArray[np.bool_]


def save_parquet(path: Path) -> None:
    """Save the table: one packed column for the model, two columns for people."""
    tumours = load_breast_cancer()
    features = np.ascontiguousarray(tumours.data, dtype=np.float32)
    row_bytes = pa.binary(FEATURES * features.itemsize)
    packed = pa.FixedSizeBinaryArray.from_buffers(
        row_bytes, len(features), [None, pa.py_buffer(features)]
    )
    columns = {"features": packed, "benign": tumours.target == 1, "radius": tumours.data[:, 0]}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def open_part(cache: Path, *, test: bool) -> drt.CachedDataset:
    """Open a fifth of the rows for testing in table order, or the others for training, shuffled."""
    if test:
        dataset = drt.open_dataset(cache)
    else:
        dataset = drt.open_dataset(cache, seed=SEED, shuffle=True, sampling="permutation")
    in_test = pl.col("sample_id") % 5 == 0
    dataset.update_metadata(dataset.get_metadata().filter(in_test if test else ~in_test))
    return dataset


def read_batch(batch: pa.RecordBatch) -> tuple[Matrix, Labels]:
    """Return features, `(rows, FEATURES)`, and labels, `(rows,)`."""
    features = drt.payload_arrays(batch, np.float32, (FEATURES,))
    return features, batch["benign"].to_numpy(zero_copy_only=False)  # Arrow keeps them as bits


def train(dataset: drt.CachedDataset) -> GaussianNB:
    """Train on one epoch, batch by batch."""
    model = GaussianNB()
    for batch in dataset.iter_batches(BATCH_SIZE, columns=["benign", "payload"]):
        features, labels = read_batch(batch)
        model.partial_fit(features, labels, classes=[False, True])
    return model


def main(output: Path) -> None:
    """Write Parquet and cache where they are missing, train on both sides, and compare."""
    file = output / "tumours.parquet"
    if not file.exists():
        save_parquet(file)
    source = ParquetSource("tumours", file, payload="features")
    with drt.DatasetRuntime() as runtime:
        config = drt.ReaderConfig(seed=SEED)
        match runtime.from_cache_sources(source, output / "caches", reader_config=config):
            case drt.CacheSourcesDatasetError(_, message):
                raise SystemExit(message)
            case drt.CacheSourcesDatasetSuccess(dataset, _):
                (cache,) = dataset.cache_paths

    training, test = open_part(cache, test=False), open_part(cache, test=True)
    print(f"{len(training)} rows to train on, {len(test)} to test, {FEATURES} features")
    (everything,) = test.iter_batches(len(test))
    features, labels = read_batch(everything)
    print(f"a batch: features {features.dtype} {features.shape}, labels {labels.dtype}")
    streamed = train(training)
    print(f"streamed, {BATCH_SIZE} rows a batch: {streamed.score(features, labels):.2%} right")

    # The same without a cache: the file in memory, divided the same way.
    table = pq.read_table(file).filter(np.arange(len(training) + len(test)) % 5 != 0)
    matrix = np.stack([np.frombuffer(row, np.float32) for row in table["features"].to_pylist()])
    whole = GaussianNB().fit(matrix, table["benign"].to_numpy())
    print(f"whole table in memory:    {whole.score(features, labels):.2%} right")
    equal = int(np.sum(streamed.predict(features) == whole.predict(features)))
    print(f"the two agree on {equal} of {len(test)} test rows")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("demo_output/tabular_parquet"))

"""Cross-validation: folds by a hash of what must stay together, from one cache.

What it shows: texts are to be told apart by the package they come from. They are divided into five
folds twice: each text for itself, and by the file it stands in. Each fold is validated once, on a
model that was trained on a shuffled stream of the four others.

What to take away: a fold is a filter on the table, and a hash of a stable name decides it: the same
in every run and process, and unchanged for old samples when new ones come. Texts of one file repeat
each other; whoever divides them between training and validation measures memory.

The texts are docstrings of scikit-learn.

Run it with `python examples/cross_validation.py [directory]`.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import sklearn
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.naive_bayes import MultinomialNB

import dataset_rt as drt

PACKAGES = ["cluster", "decomposition", "ensemble", "linear_model", "metrics", "preprocessing"]
FOLDS = 5
BATCH_SIZE = 64
SEED = 17

WORDS = HashingVectorizer(n_features=2**13, alternate_sign=False, norm=None, binary=True)


class Docstrings:
    """A source: the text of each docstring, with its package and the file and line it stands in."""

    name = "docstrings"
    fingerprint = f"docstrings-1-scikit-learn-{sklearn.__version__}"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Yield the docstrings, package by package, file by file."""
        for label, package in enumerate(PACKAGES):
            for file in sorted((Path(sklearn.__file__).parent / package).glob("*.py")):
                for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module):
                        text, line = ast.get_docstring(node), getattr(node, "lineno", 0)
                        if text:
                            place = f"{package}/{file.name}"
                            metadata = {"label": label, "file": place, "line": line}
                            yield drt.CacheInput(text.encode(), metadata)


def fold_of(name: str) -> int:
    """Return the fold of a name, the same everywhere and forever; Python's `hash` is not."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest) % FOLDS


def with_folds(table: pl.DataFrame, *, by_file: bool) -> pl.DataFrame:
    """Return the table with a column `fold`."""
    name = pl.col("file") if by_file else pl.format("{}:{}", "file", "line")
    return table.with_columns(fold=name.map_elements(fold_of, return_dtype=pl.Int64))


def train(cache: Path, table: pl.DataFrame) -> MultinomialNB:
    """Train on the rows of a table, each of them once."""
    dataset = drt.open_dataset(cache, seed=SEED, shuffle=True, sampling="permutation")
    dataset.update_metadata(table)
    model = MultinomialNB(alpha=0.1)
    for batch in dataset.iter_batches(BATCH_SIZE, columns=["label", "payload"]):
        words = WORDS.transform(batch["payload"].to_pylist())
        model.partial_fit(words, batch["label"].to_numpy(), classes=range(len(PACKAGES)))
    return model


def validate(model: MultinomialNB, cache: Path, table: pl.DataFrame) -> tuple[list[int], float]:
    """Return which samples were validated, and the part of them that is right."""
    dataset = drt.open_dataset(cache)
    dataset.update_metadata(table)
    (batch,) = dataset.iter_batches(len(dataset), columns=["sample_id", "label", "payload"])
    found = model.predict(WORDS.transform(batch["payload"].to_pylist()))
    right = found == batch["label"].to_numpy()
    return batch["sample_id"].to_pylist(), float(right.mean())


def main(output: Path) -> None:
    """Write the cache where it is missing, and cross-validate in both ways."""
    with drt.DatasetRuntime() as runtime:
        config = drt.ReaderConfig(seed=SEED)
        match runtime.from_cache_sources(Docstrings(), output / "caches", reader_config=config):
            case drt.CacheSourcesDatasetError(_, message):
                raise SystemExit(message)
            case drt.CacheSourcesDatasetSuccess(dataset, _):
                (cache,) = dataset.cache_paths
    stored = drt.open_cache(cache).metadata()
    print(f"{stored.height} texts of {stored['file'].n_unique()} files")
    for by_file in (False, True):
        table = with_folds(dataset.get_metadata(), by_file=by_file)
        validated, scores = [], []
        for fold in range(FOLDS):
            model = train(cache, table.filter(pl.col("fold") != fold))
            ids, right = validate(model, cache, table.filter(fold=fold))
            validated += ids
            scores.append(right)
        once = sorted(validated) == list(range(stored.height))
        print(
            f"folds by {'file' if by_file else 'text'}:  "
            + " ".join(f"{right:.1%}" for right in scores)
            + f",  mean {np.mean(scores):.1%},  each text validated once: {once}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("demo_output/cross_validation"))

"""The examples run as a reader runs them, and what they claim holds."""

import itertools
import json
import math
import re
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest
from conftest import directory_digest
from example_tools import (
    EXAMPLES,
    GALLERY,
    ROOT,
    check_shown,
    is_excerpt,
    percentages,
    run_example,
    sections,
)

import dataset_rt as drt

PAGES = ["docs/gallery.md"]
# Where a model is trained, another processor's arithmetic may turn a sample or two.
POINTS = 3.0


@pytest.fixture
def example(tmp_path, monkeypatch, capsys):
    """Run an example in the test's directory; its names and what it printed, which is shown."""

    def run(name, points=0.0):
        scope, printed = run_example(name, tmp_path, monkeypatch, capsys)
        check_shown(name, printed, points)
        return scope, printed

    return run


def ids(samples):
    return [sample.sample_id for sample in samples]


def chi_square(counts, shares):
    expected = np.sum(counts) * np.asarray(shares)
    return float(np.sum((counts - expected) ** 2 / expected))


def test_the_gallery_has_a_section_for_each_example():
    assert sorted(sections()) == EXAMPLES
    assert len(EXAMPLES) == 9


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_lines_that_the_gallery_shows_are_those_of_the_file(name):
    blocks = [text for language, text in sections()[name] if language == "python"]
    assert blocks
    for block in blocks:
        assert is_excerpt(block, ROOT / "examples" / f"{name}.py"), block


def test_the_demo(example):
    _, printed = example("digits", POINTS)
    assert re.search(r"digits: written, 501 samples", printed)
    assert re.search(r"digits: reused, 501 samples", printed)
    rows = re.findall(r"^ +(\d) +(\d+) +([\d.]+)% +([\d.]+)%$", printed, re.MULTILINE)
    drawn = 20 * 501 * np.array([float(row[3]) / 100 for row in rows])
    assert [float(row[2]) for row in rows] == [10.0] * 10
    assert chi_square(drawn, [0.1] * 10) < 27.9  # one in a thousand draws is further off


def test_images_are_balanced_by_weights_alone(example, tmp_path):
    scope, printed = example("images_balanced", POINTS)
    files = sorted((tmp_path / "tiles/train").rglob("*.jpg"))
    dataset = drt.open_dataset(tmp_path / "caches/train", seed=1, shuffle=True)
    written = directory_digest(tmp_path / "caches")
    table = dataset.get_metadata()
    for path, sample in zip(table["path"], drt.open_dataset(dataset.cache_paths), strict=True):
        assert sample.data == (tmp_path / "tiles/train" / path).read_bytes()
        assert sample.data[:2] == b"\xff\xd8"  # JPEG
    assert len(table) == len(files) == 190
    stored = np.array([173, 17]) / 190
    for balanced, shares in ((False, stored), (True, [0.5, 0.5])):
        if balanced:
            scope["balance"](dataset)
        labels = [s.metadata["label_id"] for _ in range(20) for s in dataset]
        assert chi_square(np.bincount(labels), shares) < 10.8, shares
    # The picture shows the first 30 of each stream, and says so beside it.
    counts = []
    for balanced in (False, True):
        shown = drt.open_dataset(tmp_path / "caches/train", seed=scope["SEED"], shuffle=True)
        if balanced:
            scope["balance"](shown)
        counts.append(sum(s.metadata["label"] == "flower" for s in itertools.islice(shown, 30)))
    said = re.search(
        r"first 30 images of both streams: with equal weights (\d+) are flowers, with"
        r" balanced weights (\d+)",
        GALLERY.read_text(),
    )
    assert list(map(int, said.groups())) == counts
    assert example("images_balanced", POINTS)[1] == printed  # on the caches that are there
    assert directory_digest(tmp_path / "caches") == written

    drawn, found, drawn_balanced, found_balanced = map(percentages, printed.splitlines()[2:])
    assert drawn[1] < 15
    assert 45 < drawn_balanced[1] < 55
    assert found_balanced[1] > found[1] + 15


def test_length_buckets_save_padding_and_lose_no_text(example, tmp_path):
    scope, printed = example("text_buckets")
    dataset = drt.open_dataset(tmp_path / "caches/docstrings")
    table = dataset.get_metadata()
    lengths = table["length"].to_numpy()
    assert [len(sample.data) for sample in dataset] == (2 * lengths).tolist()

    padding = {}
    size = scope["BATCH_SIZE"]
    for name, epoch in itertools.product(("shuffled", "bucketed"), range(scope["EPOCHS"])):
        dataset.update_metadata(scope[name](table, epoch))
        order = ids(dataset)
        assert sorted(order) == list(range(len(table)))
        batches = [lengths[order[start : start + size]] for start in range(0, len(order), size)]
        cells = sum(len(batch) * batch.max() for batch in batches)
        share = padding[name, epoch] = 100 * (1 - lengths.sum() / cells)
        assert f"{name}, epoch {epoch}:  {cells} cells, {share:.1f}% padding" in printed
    picture = (ROOT / "docs/pictures/gallery-buckets.svg").read_text()
    assert all(f"{name}: {padding[name, 0]:.0f}% padding" in picture for name, _ in padding)
    assert min(padding["shuffled", epoch] / padding["bucketed", epoch] for epoch in range(3)) > 4

    (batch,) = itertools.islice(dataset.iter_batches(5), 1)
    dataset.set_epoch(dataset.epoch - 1)
    for row, sample in zip(scope["padded"](batch), dataset, strict=False):
        tokens = np.frombuffer(sample.data, np.uint16)
        assert tokens.min() > 0
        assert row.tolist() == tokens.tolist() + [0] * (len(row) - len(tokens))
    # In other company each time: 100 % would be batches that never change.
    assert all(percentages(line)[1] < 10 for line in printed.splitlines()[1:])


def test_tabular_rows_stream_to_the_same_model(example, tmp_path):
    from sklearn.datasets import load_breast_cancer
    from sklearn.naive_bayes import GaussianNB

    scope, printed = example("tabular_parquet", POINTS)
    cache = tmp_path / "caches/tumours"
    tumours = load_breast_cancer()
    (batch,) = drt.open_dataset(cache).iter_batches(1000)
    features, labels = scope["read_batch"](batch)
    assert np.array_equal(features, tumours.data.astype(np.float32))
    assert np.array_equal(labels, tumours.target == 1)
    training, test = (scope["open_part"](cache, test=test) for test in (False, True))
    assert ids(test) == list(range(0, 569, 5))
    order = ids(training)
    assert sorted(order + ids(test)) == list(range(569))
    assert order != sorted(order)
    model = scope["train"](training)
    whole = GaussianNB().fit(features[order].astype(float), labels[order])
    assert np.array_equal(model.class_count_, whole.class_count_)
    assert np.allclose(model.theta_, whole.theta_, rtol=1e-4)
    streamed, in_memory = map(percentages, printed.splitlines()[2:4])
    assert streamed == in_memory
    assert "agree on 114 of 114" in printed


def test_mining_helps_the_hard_classes_and_survives_a_stop(example, tmp_path):
    scope, printed = example("hard_examples", POINTS)
    (hard, others), (hard_mined, others_mined) = map(percentages, printed.splitlines()[1:3])
    assert hard_mined > hard + 5
    assert others_mined > others - 1
    assert "resumed: the same network" in printed
    hardest = ", ".join(re.findall(r"\d", printed.splitlines()[0].partition(":")[2]))
    picture = (ROOT / "docs/pictures/gallery-hard.svg").read_text()
    assert f"hardest by training loss: {hardest}<" in picture

    # The saved table's weights are the losses of the saved network, row by row.
    cache = tmp_path / "caches/digits"
    dataset = scope["open_part"](cache, test=False, shuffle=True)
    model = scope["load"](tmp_path / "mined.joblib", dataset)
    assert dataset.epoch == scope["EPOCHS"]
    key = ["cache_id", "sample_id"]
    both = dataset.get_metadata().join(
        scope["losses_of"](model, scope["open_part"](cache, test=False)), on=key
    )
    assert len(both) == len(dataset) == 898
    assert np.allclose(both["weight"], both["loss"] + scope["FLOOR"])
    weights, labels = both["weight"].to_numpy(), both["label"].to_numpy()
    assert weights.max() / weights.min() > 20
    assert np.bincount(labels, weights).argmax() in {1, 8, 9}


def test_a_killed_run_goes_on_as_if_nothing_had_happened(example, tmp_path):
    scope, _ = example("resume_after_kill")
    killed, undisturbed = (
        json.loads((tmp_path / f"runs/{name}.json").read_text())
        for name in ("killed", "undisturbed")
    )
    dataset = drt.open_dataset(tmp_path / "caches/digits", seed=scope["SEED"], shuffle=True)
    order = [number for _ in range(scope["EPOCHS"]) for number in ids(dataset)]
    assert killed["seen"] == undisturbed["seen"] == order
    assert killed["receipt"] == dataset.order_digest(0, len(order)) == undisturbed["receipt"]
    assert killed["weights"] == undisturbed["weights"]
    assert 0 < np.abs(killed["weights"]).max() < 10

    # A kill from outside, whenever it comes, leaves the beginning of the same run.
    checkpoint = tmp_path / "again.json"
    command = [sys.executable, ROOT / "examples/resume_after_kill.py", "--train"]
    with subprocess.Popen([*command, tmp_path / "caches/digits", checkpoint]) as process:
        deadline = time.monotonic() + 60
        while process.poll() is None and not checkpoint.exists() and time.monotonic() < deadline:
            pass
        process.kill()
    saved = json.loads(checkpoint.read_text())
    assert saved["seen"] == order[: saved["dataset"]["position"]]
    assert len(saved["seen"]) >= scope["CHECKPOINT_STEPS"] * scope["BATCH_SIZE"]


def test_a_development_subset_is_a_small_cache_of_its_own(example, tmp_path):
    _, printed = example("development_subset", POINTS)
    large = drt.open_dataset(tmp_path / "caches/digits")
    small = drt.open_dataset(tmp_path / "caches/digits-dev")
    assert drt.verify_cache(tmp_path / "caches/digits-dev", level="deep").ok
    training = large.get_metadata().filter(part="train")
    sizes = dict(training.group_by("label").len().iter_rows())
    taken = dict(small.get_metadata().group_by("label").len().iter_rows())
    assert taken == {label: math.ceil(size * 0.05) for label, size in sizes.items()}

    cache_id = large[0].cache_id
    for sample in small:
        original = large.get_item(cache_id, sample.metadata.pop("original_id"))
        assert (original.data, original.metadata) == (sample.data, sample.metadata)
        assert original.metadata["part"] == "train"
    assert small.get_metadata()["original_id"].n_unique() == len(small)
    assert example("development_subset", POINTS)[1] == printed
    (all_right,), (few_right,) = (percentages(line) for line in printed.splitlines()[:2])
    assert all_right > few_right > 75


def test_each_sample_is_in_one_fold_and_files_stay_together(example, tmp_path):
    scope, printed = example("cross_validation", POINTS)
    table = drt.open_dataset(tmp_path / "caches/docstrings").get_metadata()
    by_text, by_file = (scope["with_folds"](table, by_file=by_file) for by_file in (False, True))
    for folds in (by_text, by_file):
        sizes = folds["fold"].value_counts()
        assert sorted(sizes["fold"]) == list(range(scope["FOLDS"]))
        assert sizes["count"].min() > 80
    assert by_file.group_by("file").agg(pl.col("fold").n_unique())["fold"].max() == 1
    assert by_text.group_by("file").agg(pl.col("fold").n_unique())["fold"].max() > 1
    # By BLAKE2b of the name: another process, machine or Python finds the same.
    assert [scope["fold_of"](name) for name in ("a", "b", "cluster/_kmeans.py")] == [3, 3, 0]

    texts, files, once = printed.splitlines()[1:]
    assert once.count("True") == 2
    assert percentages(files)[-1] < percentages(texts)[-1] - 10

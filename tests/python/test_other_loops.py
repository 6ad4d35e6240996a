"""Loops of other libraries over a dataset: what takes `len` and `[i]` takes it as it is."""

import itertools
import random

import pytest
from conftest import identities, numbered, opened, written


@pytest.fixture
def dataset(runtime, tmp_path):
    path = written(runtime, tmp_path / "caches", numbered(20))
    return opened(runtime, path, seed=5, shuffle=True)


@pytest.fixture
def epochs(dataset):
    found = [identities(dataset) for _ in range(3)]
    dataset.set_epoch(0)
    return found


def test_grain_reads_the_epoch_that_was_set(dataset, epochs):
    grain = pytest.importorskip("grain", reason="see make torch")
    for epoch in (0, 2, 2):
        dataset.set_epoch(epoch)
        source = grain.MapDataset.source(dataset)
        assert (len(source), identities(source)) == (20, epochs[epoch])
        # Its reading threads ask side by side.
        assert identities(source.to_iter_dataset()) == epochs[epoch]
        # Each of its shards is a slice of the epoch.
        assert [identities(source[rank::3]) for rank in range(3)] == [
            epochs[epoch][rank::3] for rank in range(3)
        ]


def test_grain_resumes_inside_an_epoch(dataset, epochs):
    grain = pytest.importorskip("grain", reason="see make torch")
    dataset.set_epoch(1)
    pipeline = grain.MapDataset.source(dataset).batch(3, batch_fn=list).to_iter_dataset()
    for taken in range(8):
        batches = iter(pipeline)
        read = list(itertools.islice(batches, taken))
        state = batches.get_state()
        again = iter(pipeline)
        again.set_state(state)
        read += again
        assert identities(sample for batch in read for sample in batch) == epochs[1]


def test_a_sequence_protocol_is_all_another_loop_needs(dataset, epochs):
    assert identities(dataset[i] for i in range(len(dataset))) == epochs[0]
    with pytest.raises(IndexError):
        dataset[20]
    positions = random.Random(3).sample(range(20), 20)
    assert identities(dataset.__getitems__(positions)) == [epochs[0][i] for i in positions]

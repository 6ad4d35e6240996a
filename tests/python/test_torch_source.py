"""What the dataset a loader was made of is told later: a warning, and none where it is meant."""

import gc
import weakref

import polars as pl
import pytest
from conftest import NEEDS_PYTORCH, numbered, opened, written

import dataset_rt as drt

pytestmark = NEEDS_PYTORCH

MISSED = "was given {}; the loader does not see that"


@pytest.fixture
def dataset(runtime, tmp_path):
    path = written(runtime, tmp_path / "caches", numbered(11))
    return opened(runtime, path, seed=5, shuffle=True)


def loader_of(dataset, **options):
    return dataset.to_torch_dataloader(batch_size=4, num_workers=0, collate_fn=list, **options)


def heavier(dataset):
    return dataset.get_metadata().with_columns(weight=pl.col("number") + 1.0)


def warned(loader, what):
    """The next epoch begins with this warning, and the one behind it with none."""
    with pytest.warns(UserWarning, match=MISSED.format(what)) as caught:
        list(loader)
    assert [warning.filename for warning in caught] == [__file__]
    list(loader)


def test_what_only_the_source_is_told_is_warned_of_once_a_change(dataset):
    loader = loader_of(dataset)
    list(loader)
    dataset.update_metadata(heavier(dataset))
    warned(loader, "another table")
    dataset.set_epoch_len(20)
    warned(loader, "20 samples per epoch")
    dataset.set_epoch(7)
    warned(loader, "epoch 7")
    dataset.set_epoch(9)
    warned(loader, "epoch 9")
    dataset.update_metadata(dataset.get_metadata())
    dataset.set_epoch(1)
    warned(loader, "another table and epoch 1")


def test_a_state_that_only_the_source_was_given_is_warned_of(dataset, tmp_path):
    loader = loader_of(dataset)
    next(iter(loader))
    state = loader.state_dict()
    fresh = loader_of(dataset)
    dataset.load_state_dict(state)
    warned(fresh, "a place inside epoch 0")
    loader.dataset.save_state(tmp_path / "state")
    dataset.load_state(tmp_path / "state")
    warned(fresh, "another table and a place inside epoch 0")


def test_the_usual_loops_are_silent(dataset, tmp_path):
    loader = loader_of(dataset)
    # Epochs that the loop counts along.
    for epoch in range(2):
        dataset.set_epoch(epoch)
        list(loader)
    # Both are told, in either order.
    dataset.update_metadata(heavier(dataset))
    loader.dataset.update_metadata(heavier(dataset))
    loader.dataset.set_epoch_len(7)
    dataset.set_epoch_len(9)
    loader.set_epoch(6)
    dataset.set_epoch(4)
    list(loader)
    # The loader alone.
    loader.set_epoch(2)
    state = loader.state_dict()
    loader.dataset.update_metadata(loader.dataset.get_metadata().head(5))
    list(loader)
    loader.dataset.save_state(tmp_path / "state")
    loader.dataset.load_state(tmp_path / "state")
    list(loader)
    loader.dataset.set_epoch_len(9)
    loader.dataset.update_metadata(heavier(dataset))
    loader.dataset.set_epoch_len(7)
    loader.load_state_dict(state)
    list(loader)


def test_a_source_that_is_read_or_makes_other_loaders_is_silent(dataset):
    loader = loader_of(dataset)
    list(dataset)
    list(loader)
    dataset.set_epoch(5)
    list(dataset)
    list(loader)
    # A table, a length and a place for another loader.
    dataset.update_metadata(heavier(dataset).head(6))
    dataset.set_epoch_len(3)
    dataset.set_epoch(0)
    validation = loader_of(dataset, shuffle=False)
    list(loader)
    list(validation)
    share = dataset.partition(0, 2)
    share.set_epoch(3)
    list(loader_of(share))
    list(loader)
    dataset.set_epoch(8)
    with pytest.warns(UserWarning, match=MISSED.format("epoch 8")):
        list(loader)


def test_what_failed_was_not_said(dataset):
    loader = loader_of(dataset)
    for wrong in (
        lambda: dataset.update_metadata(dataset.get_metadata().drop("number")),
        lambda: dataset.set_epoch_len(0),
        lambda: dataset.set_epoch(-1),
        lambda: dataset.load_state_dict({}),
    ):
        with pytest.raises(drt.InvalidInputError):
            wrong()
    list(loader)


def test_a_loader_keeps_its_source_as_little_alive_as_before(dataset):
    other = dataset.partition(0, 1)
    loader = loader_of(other)
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None
    list(loader)

"""Datasets under PyTorch's own loaders, map-style and iterable, and torchdata's that resumes."""

import json
from collections import Counter
from itertools import islice

import pytest
from conftest import NEEDS_PYTORCH, identities, numbered, opened, written

pytestmark = [
    *NEEDS_PYTORCH,
    # torchdata's own.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
]

COUNT = 11


@pytest.fixture
def dataset(runtime, tmp_path):
    path = written(runtime, tmp_path / "caches", numbered(COUNT))
    return opened(runtime, path, seed=5, shuffle=True)


def as_it_is(item):
    return item


def data_loader(data, count=0, **options):
    """A `DataLoader` that cannot hang a test."""
    from torch.utils.data import DataLoader

    options.setdefault("collate_fn", as_it_is)
    if count:
        options.setdefault("timeout", 60)
    return DataLoader(data, num_workers=count, **options)


def epochs_of(dataset, count):
    whole = dataset.partition(0, 1)
    whole.set_epoch(0)
    return [identities(whole) for _ in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 4])
@pytest.mark.parametrize("persistent", [False, True])
def test_map_style_reads_the_epoch_that_was_set(dataset, count, persistent):
    expected = epochs_of(dataset, 3)
    options = {"persistent_workers": True} if persistent and count else {}
    loader = data_loader(dataset, count, batch_size=3, **options)
    for epoch in (0, 0, 2, 1):
        dataset.set_epoch(epoch)
        for _ in range(2):
            batches = list(loader)
            assert [len(batch) for batch in batches] == [3, 3, 3, 2]
            assert identities(sample for batch in batches for sample in batch) == expected[epoch]
        assert dataset.epoch == epoch


@pytest.mark.parametrize("count", [0, 1, 2, 4])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("size", [None, 3])
def test_a_stream_reads_the_epoch_that_was_set_in_the_global_order(
    dataset, count, persistent, size
):
    expected = epochs_of(dataset, 3)
    options = {"persistent_workers": True} if persistent and count else {}
    stream = dataset.to_torch_iterable_dataset(size)
    loader = data_loader(stream, count, batch_size=None, **options)
    for epoch in (0, 0, 2, 1):
        (stream if epoch else dataset).set_epoch(epoch)
        items = list(loader)
        assert len(items) == len(loader) == len(stream) == (COUNT if size is None else 4)
        samples = items if size is None else [sample for batch in items for sample in batch]
        assert identities(samples) == expected[epoch]
        assert dataset.epoch == epoch


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_batches_made_by_pytorch_hold_each_sample_once(dataset, count):
    loader = data_loader(dataset.to_torch_iterable_dataset(), count, batch_size=2)
    read = identities(sample for batch in loader for sample in batch)
    assert Counter(read) == Counter(epochs_of(dataset, 1)[0])


@pytest.mark.parametrize("global_batch_size", [None, 5])
@pytest.mark.parametrize("world", [2, 3, 8])
def test_streams_of_all_ranks_together_are_the_global_order(dataset, world, global_batch_size):
    size = 2 if global_batch_size is None else -(-global_batch_size // world)
    shares = [
        dataset.partition(rank, world, global_batch_size=global_batch_size) for rank in range(world)
    ]
    count = 2 if world == 2 else 0
    streams = [share.to_torch_iterable_dataset(size) for share in shares]
    batches = [list(data_loader(stream, count, batch_size=None)) for stream in streams]
    assert [len(found) for found in batches] == [len(streams[0])] * world
    by_sample = [
        list(data_loader(share.to_torch_iterable_dataset(), count, batch_size=None))
        for share in shares
    ]
    assert by_sample == [[sample for batch in found for sample in batch] for found in batches]
    for share, samples in zip(shares, by_sample, strict=True):
        assert len(share.to_torch_iterable_dataset()) == len(samples)
        assert identities(share) == identities(samples)


def test_a_stream_goes_on_where_the_dataset_was_told_to(dataset):
    samples = iter(dataset)
    for _ in range(4):
        next(samples)
    dataset.load_state_dict(dataset.state_dict())
    stream = dataset.to_torch_iterable_dataset(2)
    for count in (0, 2):
        loader = data_loader(stream, count, batch_size=None)
        read = identities(sample for batch in loader for sample in batch)
        assert read == epochs_of(dataset, 1)[0][4:]


def test_a_damaged_sample_is_passed_over_by_who_goes_on(runtime, tmp_path):
    samples = [(bytes([i]) * 200_000, {"number": i}) for i in range(6)]
    path = written(runtime, tmp_path / "caches", samples)
    (shard,) = (path / "shards").glob("*.arrow")
    content = bytearray(shard.read_bytes())
    content[content.index(bytes([3]) * 200_000) + 100_000] ^= 1
    shard.unlink()
    shard.write_bytes(content)
    dataset = opened(runtime, path)
    for size, expected in ((None, [0, 1, 2, 4, 5]), (2, [0, 1, 4, 5])):
        items, read = iter(dataset.to_torch_iterable_dataset(size)), []
        for _ in range(10):
            try:
                item = next(items)
            except StopIteration:
                break
            except ValueError:
                read.append("lost")
            else:
                read += [item.sample_id] if size is None else [sample.sample_id for sample in item]
        assert [number for number in read if number != "lost"] == expected
        assert read.count("lost") == 1


@pytest.mark.parametrize("size", [None, 3])
def test_workers_that_persist_say_that_the_table_was_replaced(dataset, size):
    """Each of them once, in the trainer, whatever else it would have read."""
    loader = data_loader(
        dataset.to_torch_iterable_dataset(size), 2, batch_size=None, persistent_workers=True
    )
    assert len(list(loader)) == len(loader)
    dataset.update_metadata(dataset.get_metadata().head(7))
    items = iter(loader)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="in DataLoader worker process") as caught:
            next(items)
        assert type(caught.value).__name__ == "ConflictError"
    assert list(items) == []


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("size", [None, 2])
@pytest.mark.parametrize("world", [1, 2])
def test_torchdata_resumes_a_stream_after_every_item(dataset, count, size, world):
    loaders = pytest.importorskip("torchdata.stateful_dataloader")
    share = dataset.partition(0, world, global_batch_size=5) if world == 2 else dataset
    size = size if size is None or world == 1 else 3
    share.set_epoch(1)

    def loader():
        return loaders.StatefulDataLoader(
            share.to_torch_iterable_dataset(size),
            batch_size=None,
            num_workers=count,
            collate_fn=as_it_is,
            **({"timeout": 60} if count else {}),
        )

    whole = list(loader())
    steps = range(0, len(whole) + 1, 1 if count == 0 else 3)
    for taken in steps:
        first = loader()
        read = list(islice(first, taken))
        state = json.loads(json.dumps(first.state_dict()))
        second = loader()
        second.load_state_dict(state)
        rest = list(second)
        # At the very end PyTorch's loader begins the next epoch, which nobody set.
        assert read + rest == whole + (whole if taken == len(whole) and rest else [])
        # A new epoch after the resumed one begins at its beginning.
        assert list(second) == whole


def test_torchdata_states_belong_to_their_worker_count(dataset):
    loaders = pytest.importorskip("torchdata.stateful_dataloader")
    stream = dataset.to_torch_iterable_dataset(2)
    next(iter(stream))
    state = stream.state_dict()
    for change, message in (
        ({"workers": 2}, "workers is 2, expected 1"),
        ({"batch_size": 3}, "batch_size is 3"),
        ({"version": 9}, "version is 9"),
        ({"format": "other"}, "format is 'other'"),
        ({"taken": -1}, "taken is -1"),
    ):
        with pytest.raises(ValueError, match=message):
            stream.load_state_dict({**state, **change})
    with pytest.raises(ValueError, match="seed"):
        stream.load_state_dict({**state, "dataset": {**state["dataset"], "seed": 6}})
    with pytest.raises(TypeError, match="dict"):
        stream.load_state_dict([])
    del loaders


@pytest.mark.parametrize("size", [0, -1, "3", 2.0])
def test_a_batch_size_is_a_positive_integer(dataset, size):
    with pytest.raises((ValueError, TypeError), match="batch_size"):
        dataset.to_torch_iterable_dataset(size)

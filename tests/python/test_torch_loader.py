"""`to_torch_dataloader`: the global order for any workers and ranks, resumed anywhere."""

import logging
import re
from itertools import islice

import polars as pl
import pytest
from conftest import NEEDS_PYTORCH, identities, numbered, opened, written

pytestmark = NEEDS_PYTORCH

COUNT = 11


@pytest.fixture
def dataset(runtime, tmp_path):
    path = written(runtime, tmp_path / "caches", numbered(COUNT))
    return opened(runtime, path, seed=5, shuffle=True)


def workers(count, **options):
    """Options of a loader that cannot hang a test."""
    return {"num_workers": count, **({"timeout": 60, **options} if count else {})}


def loader_of(dataset, batch_size=3, count=0, **options):
    options.setdefault("collate_fn", list)
    return dataset.to_torch_dataloader(batch_size=batch_size, **workers(count), **options)


def order(dataset, epochs=1):
    """The identities of the first epochs, read in this process alone."""
    whole = dataset.partition(0, 1)
    whole.set_epoch(0)
    return [identities(whole) for _ in range(epochs)]


def flat(batches):
    return identities(sample for batch in batches for sample in batch)


def merged(batches_of_ranks, global_batch=False):
    """The order of all ranks together: step by step, rank by rank."""
    assert len({len(batches) for batches in batches_of_ranks}) == 1
    found = []
    for batches in zip(*batches_of_ranks, strict=True):
        if global_batch:
            found += [sample for batch in batches for sample in batch]
            continue
        for i in range(max(map(len, batches))):
            found += [batch[i] for batch in batches if i < len(batch)]
    return identities(found)


@pytest.mark.parametrize(
    ("count", "options"),
    [
        (0, {}),
        (1, {}),
        (2, {}),
        (4, {}),
        (2, {"persistent_workers": True}),
        (4, {"persistent_workers": True, "prefetch_factor": 1}),
    ],
)
def test_any_number_of_workers_delivers_the_global_order(dataset, count, options):
    loader = loader_of(dataset, count=count, **options)
    assert (len(loader), loader.batch_size, loader.num_workers) == (4, 3, count)
    for epoch, expected in enumerate(order(dataset, 3)):
        assert loader.epoch == epoch
        batches = list(loader)
        assert [len(batch) for batch in batches] == [3, 3, 3, 2]
        assert flat(batches) == expected


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [0, 2])
def test_all_ranks_together_read_the_global_order(dataset, world, count):
    ranks = range(world) if count == 0 else range(min(world, 3))
    loaders = [loader_of(dataset, 2, count, rank=rank, world_size=world) for rank in ranks]
    shares = [loader_of(dataset, 2, 0, rank=rank, world_size=world) for rank in range(world)]
    for expected in order(dataset, 2):
        batches = [list(loader) for loader in loaders]
        read = [list(loader) for loader in shares]
        assert read[: len(batches)] == batches
        assert merged(read) == expected


@pytest.mark.parametrize(("world", "size"), [(1, 4), (2, 5), (3, 2), (8, 20)])
def test_global_batches_are_divided_between_ranks(dataset, world, size):
    shares = [dataset.partition(rank, world, global_batch_size=size) for rank in range(world)]
    batches = [list(loader_of(share, -(-size // world), 0)) for share in shares]
    assert merged(batches, global_batch=True) == order(dataset)[0]
    with pytest.raises(ValueError, match=f"expected {-(-size // world)}"):
        loader_of(shares[0], -(-size // world) + 1)


def test_three_samples_on_eight_ranks_are_one_batch_for_each(runtime, tmp_path):
    path = written(runtime, tmp_path / "caches", numbered(3))
    dataset = opened(runtime, path, seed=5, shuffle=True)

    def refused(samples):
        assert samples, "collate_fn was called without a sample"
        return samples

    batches = [
        list(loader_of(dataset, 4, 0, rank=rank, world_size=8, collate_fn=refused))
        for rank in range(8)
    ]
    assert [len(found) for found in batches] == [1] * 8
    assert merged(batches) == order(dataset)[0]
    dropped = [
        list(loader_of(dataset, 1, 0, rank=rank, world_size=8, drop_last=True)) for rank in range(8)
    ]
    assert dropped == [[]] * 8


def test_a_short_last_batch_is_left_out_on_every_rank(dataset):
    loaders = [loader_of(dataset, 2, 0, rank=rank, world_size=2, drop_last=True) for rank in (0, 1)]
    for expected in order(dataset, 2):
        batches = [list(loader) for loader in loaders]
        assert [[len(batch) for batch in found] for found in batches] == [[2, 2], [2, 2]]
        assert merged(batches) == expected[:8]
    assert [loader.state_dict()["position"] for loader in loaders] == [22, 22]


@pytest.mark.parametrize("counts", [(0, 0), (2, 0), (0, 2)])
def test_a_loader_resumes_at_every_batch_with_any_workers_and_ranks(dataset, counts):
    """Some batches on some ranks, one on others, the rest on one: again the stream."""
    stream = sum(order(dataset, 2), [])
    for world, world_2 in [(1, 3), (2, 1), (3, 2)] if counts == (0, 0) else [(1, 2)]:
        for stop in range(len(loader_of(dataset, 2, rank=0, world_size=world)) + 1):
            state, read = None, []
            for ranks, count, size, batches in (
                (world, counts[0], 2, stop),
                (world_2, counts[1], 1, 1),
                (1, 0, 4, COUNT),
            ):
                loaders = [
                    loader_of(dataset, size, count, rank=rank, world_size=ranks)
                    for rank in range(ranks)
                ]
                if state is not None:
                    for loader in loaders:
                        loader.load_state_dict(state)
                read += merged([list(islice(loader, batches)) for loader in loaders])
                states = [loader.state_dict() for loader in loaders]
                state = states[0]
                assert states == [state] * ranks
            assert (read, len(read) % COUNT) == (stream[: len(read)], 0)


def test_states_count_what_the_trainer_took(dataset):
    loader = loader_of(dataset, 2, 2, prefetch_factor=4)
    assert loader.state_dict()["position"] == 0
    batches = iter(loader)
    assert loader.state_dict()["position"] == 0
    next(batches)
    assert loader.state_dict()["position"] == 2
    for _ in batches:
        pass
    at_the_end = loader.state_dict()
    assert (at_the_end["position"], at_the_end["epoch"]) == (COUNT, 1)
    # The last batch ends the epoch, whether or not the trainer asks for another.
    other = loader_of(dataset, 2)
    assert len(list(islice(other, len(other)))) == 6
    assert other.state_dict() == at_the_end


def test_a_state_is_one_of_any_dataset(dataset):
    loader = loader_of(dataset, 4)
    batches = iter(loader)
    taken = flat([next(batches)])
    dataset.load_state_dict(loader.state_dict())
    assert taken + identities(dataset) == order(dataset)[0]
    loader.load_state_dict(dataset.state_dict())
    assert flat(loader) == order(dataset, 2)[1]
    with pytest.raises(ValueError, match="seed"):
        loader_of(dataset, 4, seed=6).load_state_dict(dataset.state_dict())


def test_what_moves_the_stream_detaches_a_running_iterator(dataset):
    loader = loader_of(dataset, 2)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    loader.set_epoch(1)
    assert loader.state_dict()["position"] == COUNT
    next(batches)
    assert loader.state_dict()["position"] == COUNT
    loader.load_state_dict(state)
    assert (loader.state_dict(), len(loader)) == (state, 6)
    assert flat(loader) == order(dataset)[0][2:]


def test_loops_that_set_every_epoch_resume_as_well(dataset):
    expected = order(dataset, 3)
    loader = loader_of(dataset, 2)
    loader.set_epoch(1)
    batches = iter(loader)
    read = flat([next(batches), next(batches)])
    state = loader.state_dict()
    loader = loader_of(dataset, 2)
    loader.load_state_dict(state)
    for epoch in (1, 2, 1):
        loader.set_epoch(epoch)
        read += flat(loader)
    assert read == expected[1] + expected[2] + expected[1]


def test_an_early_break_leaves_the_rest_of_its_epoch(dataset):
    loader = loader_of(dataset, 3, 2, persistent_workers=True)
    for batch in loader:
        assert identities(batch) == order(dataset)[0][:3]
        break
    assert flat(loader) == order(dataset, 2)[1]


def test_a_loader_may_have_an_order_of_its_own(dataset, runtime):
    loader = loader_of(dataset, 4, 0, seed=77, samples_per_epoch=7)
    other = opened(runtime, dataset.cache_paths, seed=77, shuffle=True)
    assert (len(loader), flat(loader)) == (2, order(other)[0][:7])
    assert loader.dataset.reader_config.seed == 77
    table = dataset.get_metadata().head(4)
    dataset.update_metadata(table)
    plain = loader_of(dataset, 4, 0, shuffle=False)
    assert [sample.sample_id for batch in plain for sample in batch] == [0, 1, 2, 3]
    shuffled = opened(runtime, dataset.cache_paths, seed=5, shuffle=True, sampling="permutation")
    in_order = loader_of(shuffled, 11, 0, shuffle=False)
    assert [sample.sample_id for batch in in_order for sample in batch] == list(range(COUNT))
    # None of it touched the dataset itself.
    assert (dataset.epoch, len(dataset), dataset.reader_config.shuffle) == (0, 4, True)


def test_weights_hold_for_all_ranks_and_workers_together(dataset):
    """Chi-square over 12,000 draws, far out in the tail."""
    table = dataset.get_metadata().with_columns(weight=pl.col("sample_id") + 1.0)
    dataset.update_metadata(table)
    dataset.set_epoch_len(12_000)
    counts = [0] * COUNT
    for rank in (0, 1):
        for batch in loader_of(dataset, 100, 2, rank=rank, world_size=2, collate_fn=number_list):
            for number in batch:
                counts[number] += 1
    expected = [12_000 * (i + 1) / sum(range(COUNT + 1)) for i in range(COUNT)]
    chi_square = sum((a - b) ** 2 / b for a, b in zip(counts, expected, strict=True))
    assert (sum(counts), chi_square < 45) == (12_000, True), counts


def number_list(samples):
    return [sample.sample_id for sample in samples]


def test_pytorchs_own_batches_come_by_default(dataset):
    import torch

    for count in (0, 2):
        batch = next(iter(loader_of(dataset, 3, count, collate_fn=None)))
        assert batch.metadata["number"].dtype == torch.int64
        assert batch.cache_id.tolist() == [sample for sample, _ in order(dataset)[0][:3]]
        assert batch.sample_id.tolist() == [sample for _, sample in order(dataset)[0][:3]]
        assert [data.startswith(b"payload") or not data for data in batch.data] == [True] * 3


def test_views_of_shards_become_bytes_on_their_way(runtime, tmp_path):
    path = written(runtime, tmp_path / "caches", numbered(6))
    dataset = opened(runtime, path, zero_copy=True)
    for count in (0, 2):
        batch = next(iter(loader_of(dataset, 6, count, collate_fn=None)))
        assert list(batch.data) == [data for data, _ in numbered(6)]
    lengths = loader_of(dataset, 6, 2, transform=lambda sample: len(sample.data))
    assert list(lengths) == [[len(data) for data, _ in numbered(6)]]
    with pytest.raises(ValueError, match=r"(?s)batch 0 cannot be sent.*bytes\(sample\.data\)"):
        next(iter(loader_of(dataset, 6, 2)))


class Unsendable:
    def __reduce__(self):
        raise ValueError("not this one")


@pytest.mark.parametrize(
    "make",
    [
        lambda samples: lambda: samples,
        lambda samples: Unsendable(),
        lambda samples: {"batch": [(1, "a", Unsendable())]},
        lambda samples: {Unsendable(): 1},
        lambda samples: (sample for sample in samples),
        lambda samples: _grown(samples),
    ],
)
def test_what_cannot_be_sent_is_an_error_and_never_waited_for(dataset, make):
    loader = loader_of(dataset, 3, 2, collate_fn=make)
    with pytest.raises(ValueError, match="batch 0 cannot be sent from its worker"):
        next(iter(loader))


def _grown(samples):
    """A tensor that still belongs to a computation."""
    import torch

    return torch.ones(2, requires_grad=True) * 2


def test_whatever_can_be_sent_arrives_as_it_was(dataset):
    import numpy as np
    import torch

    def make(samples):
        circle = [1]
        circle.append(circle)
        return {"t": torch.arange(3), "n": np.arange(3), "s": samples, "c": circle, "f": {2.5}}

    batch = next(iter(loader_of(dataset, 3, 1, collate_fn=make)))
    assert (batch["t"].tolist(), batch["n"].tolist(), batch["f"]) == ([0, 1, 2], [0, 1, 2], {2.5})
    assert identities(batch["s"]) == order(dataset)[0][:3]
    assert batch["c"][1] is batch["c"]


def test_a_transform_that_fails_names_the_sample_and_costs_its_batch(dataset):
    expected = order(dataset)[0]
    bad = expected[4]

    def transform(sample):
        if (sample.cache_id, sample.sample_id) == bad:
            raise KeyError("no such label")
        return sample

    lost = {i // 2 for i, identity in enumerate(expected) if identity == bad}
    for count in (0, 2):
        batches = iter(loader_of(dataset, 2, count, transform=transform))
        read = {}
        for number in range(6):
            if number in lost:
                with pytest.raises(KeyError) as caught:
                    next(batches)
                said = str(caught.value) + str(getattr(caught.value, "__notes__", ""))
                assert f"sample_id={bad[1]}" in said
            else:
                read[number] = identities(next(batches))
        assert list(batches) == []
        assert read == {i: expected[2 * i : 2 * i + 2] for i in range(6) if i not in lost}


def test_a_damaged_sample_costs_its_batch(runtime, tmp_path):
    samples = [(bytes([i]) * 200_000, {"number": i}) for i in range(6)]
    path = written(runtime, tmp_path / "caches", samples)
    (shard,) = (path / "shards").glob("*.arrow")
    content = bytearray(shard.read_bytes())
    middle = content.index(bytes([3]) * 200_000) + 100_000
    content[middle] ^= 1
    shard.unlink()
    shard.write_bytes(content)
    dataset = opened(runtime, path)
    for count in (0, 2):
        batches = iter(loader_of(dataset, 2, count))
        assert [sample.sample_id for sample in next(batches)] == [0, 1]
        with pytest.raises(ValueError, match="sample") as caught:
            next(batches)
        assert type(caught.value).__name__ == "CorruptError"
        assert [sample.sample_id for sample in next(batches)] == [4, 5]
        assert list(batches) == []


@pytest.mark.parametrize(
    ("count", "options"), [(0, {}), (2, {}), (2, {"persistent_workers": True})]
)
def test_a_table_counts_from_the_next_iterator_on(dataset, count, options):
    loader = loader_of(dataset, 2, count, **options)
    assert flat(loader) == order(dataset)[0]
    running = iter(loader)
    loader.dataset.update_metadata(dataset.get_metadata().head(1))
    assert flat(running) == order(dataset, 2)[1]
    assert {sample for _, sample in flat(loader)} == {0}


def test_a_table_given_to_the_wrong_dataset_is_said(dataset):
    loader = loader_of(dataset, 2)
    dataset.update_metadata(dataset.get_metadata().head(1))
    with pytest.warns(UserWarning, match=r"loader\.dataset\.update_metadata") as caught:
        list(loader)
    assert caught[0].filename == __file__
    list(loader)


def test_persistent_workers_serve_the_newest_iterator(dataset):
    loader = loader_of(dataset, 2, 2, persistent_workers=True)
    older = iter(loader)
    next(older)
    newer = iter(loader)
    with pytest.raises(RuntimeError, match="newer one"):
        next(older)
    assert flat(newer) == order(dataset, 2)[1]


def test_iterators_side_by_side_read_an_epoch_each(dataset):
    for count in (0, 2):
        loader = loader_of(dataset, 2, count)
        pairs = list(zip(loader, loader, strict=True))
        assert [flat(side) for side in zip(*pairs, strict=True)] == order(dataset, 2)


def test_batches_out_of_order_are_the_same_batches(dataset):
    loader = loader_of(dataset, 2, 2, in_order=False)
    batches = iter(loader)
    read = [next(batches)]
    with pytest.raises(ValueError, match="in_order"):
        loader.state_dict()
    read += batches
    assert sorted(flat(read)) == sorted(order(dataset)[0])
    assert loader.state_dict()["position"] == COUNT


def test_seeds_belong_to_positions(dataset):
    def transform(sample, seed):
        return (sample.sample_id, seed)

    expected = [
        (sample, dataset.position_seed(k)) for k, (_, sample) in enumerate(order(dataset)[0])
    ]
    for world, count in ((1, 0), (1, 2), (3, 0), (2, 2)):
        found = []
        for rank in range(world):
            loader = loader_of(
                dataset,
                2,
                count,
                rank=rank,
                world_size=world,
                transform=transform,
                position_seeds=True,
            )
            found += [pair for batch in loader for pair in batch]
        assert sorted(found) == sorted(expected)
    with pytest.raises(ValueError, match="transform"):
        loader_of(dataset, position_seeds=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": None}, "batch_size"),
        ({"sampler": [1]}, "sampler cannot be chosen"),
        ({"batch_sampler": [[1]]}, "batch_sampler cannot be chosen"),
        ({"transform": 3}, "transform must be callable"),
        ({"collate_fn": []}, "collate_fn must be callable"),
        ({"num_workers": -1}, "num_workers"),
        ({"num_workers": "many"}, "num_workers"),
        ({"native_num_workers": 0}, "native_num_workers"),
        ({"num_workers": 0, "persistent_workers": True}, "needs worker processes"),
        ({"num_workers": 0, "timeout": 3}, "needs worker processes"),
        ({"rank": 1}, "pass both"),
        ({"rank": 2, "world_size": 2}, "rank 2"),
        ({"samples_per_epoch": 0}, "n must be an integer from 1"),
        ({"seed": -1}, "seed"),
        ({"num_werkers": 2}, "num_werkers"),
        (
            {"num_workers": 1, "multiprocessing_context": "spawn", "transform": lambda s: s},
            "transform cannot be sent to workers started by 'spawn'",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(dataset, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        dataset.to_torch_dataloader(**options)


def test_a_loaders_dataset_is_copied_and_pickled_as_any_other(dataset):
    import copy
    import pickle

    loader = loader_of(dataset)
    next(iter(loader))
    for own in (copy.copy(loader.dataset), pickle.loads(pickle.dumps(loader.dataset))):
        assert type(own) is type(dataset)
        assert identities(own) == order(dataset, 2)[1]
    assert identities(loader.dataset.__getitems__([0])) == order(dataset, 2)[1][:1]
    assert loader.epoch == 1


def test_no_framework_rebuilds_a_loader_of_its_parts(dataset):
    from torch.utils.data import DataLoader

    loader = loader_of(dataset)
    rebuilt = DataLoader(loader.dataset, batch_sampler=loader.batch_sampler)
    with pytest.raises(ValueError, match="iterate over it alone"):
        next(iter(rebuilt))


@pytest.mark.parametrize(
    ("cpus", "local", "options", "expected"),
    [
        (8, None, {}, 0),
        (8, None, {"transform": len}, 7),
        (8, "4", {"collate_fn": list}, 1),
        (1, None, {"transform": len}, 0),
        (1, "2", {"transform": len, "persistent_workers": True}, 1),
        (64, None, {"transform": len}, 16),
        (64, "8", {"transform": len}, 7),
    ],
)
def test_automatic_worker_counts_follow_the_documented_rule(
    dataset, monkeypatch, cpus, local, options, expected
):
    from dataset_rt import _native

    monkeypatch.setattr(_native, "cpus_usable", lambda: cpus)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if local is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    loader = dataset.to_torch_dataloader(**options)
    assert loader.num_workers == expected
    if expected > 1:
        assert loader.dataset.runtime.num_workers == 1


def test_the_life_of_a_loader_is_logged(dataset, caplog):
    caplog.set_level(logging.INFO, logger="dataset_rt")
    loader = loader_of(dataset, 4)
    for _ in loader:
        break
    state = loader.state_dict()
    list(loader)
    loader.load_state_dict(state)
    list(loader)
    titles, lines = zip(*(r.getMessage().split(": ", 1) for r in caplog.records), strict=True)
    assert lines == (
        "epoch 0 started: stream positions [0, 11), 3 batches, rank 0 of 1, 0 workers",
        "epoch 0 abandoned after 1 of 3 batches",
        "epoch 1 started: stream positions [11, 22), 3 batches, rank 0 of 1, 0 workers",
        "epoch 1 finished: 3 batches",
        "epoch 0 resumed at stream position 4 of [0, 11), 2 batches, rank 0 of 1, 0 workers",
        "epoch 0 finished: 2 batches",
    )
    caplog.clear()
    list(loader_of(dataset, 4))
    others = {record.getMessage().split(": ")[0] for record in caplog.records}
    (title,) = {*titles}
    assert re.fullmatch(r"loader \d+ \(words\)", title)
    (other,) = others
    assert title != other


def test_workers_name_their_loader_in_the_log(dataset, tmp_path):
    log = logging.getLogger("dataset_rt")
    handler, level = logging.FileHandler(tmp_path / "log"), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        list(loader_of(dataset, 4, 2, multiprocessing_context="fork"))
    finally:
        log.setLevel(level)
        log.removeHandler(handler)
        handler.close()
    lines = (tmp_path / "log").read_text().splitlines()
    workers = [line for line in lines if ": worker " in line]
    assert len(workers) == 2
    assert len({line.split(": ")[0] for line in lines}) == 1


def test_an_epoch_that_was_over_when_a_state_was_saved_is_read_again_with_a_warning(dataset):
    """The loop of a run that saved at the last batch, with an epoch number of its own."""
    loader = loader_of(dataset)
    batches = iter(loader)
    for _ in range(len(loader)):
        next(batches)
    state = loader.state_dict()
    again = loader_of(dataset)
    again.load_state_dict(state)
    again.set_epoch(1)
    with pytest.warns(UserWarning, match="epoch 0 was over when the state was saved"):
        again.set_epoch(0)
    again.load_state_dict(state)
    assert [again.epoch for _ in range(2) if list(again)] == [2, 3]
    again.set_epoch(0)


def test_samples_per_epoch_stays_when_the_table_is_replaced(dataset):
    loader = loader_of(dataset, samples_per_epoch=7)
    list(loader)
    table = loader.dataset.get_metadata()
    loader.dataset.update_metadata(table.head(9))
    assert len(flat(loader)) == len(loader.dataset) == 7
    plain = loader_of(dataset)
    plain.dataset.update_metadata(table.head(9))
    assert len(plain.dataset) == 9


def test_a_launcher_with_several_ranks_and_a_loader_that_is_not_divided(dataset, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.warns(UserWarning, match="there are 2 ranks"):
        loader_of(dataset)
    loader_of(dataset, rank=0, world_size=2)
    loader_of(dataset.partition())
    monkeypatch.setenv("WORLD_SIZE", "1")
    loader_of(dataset)

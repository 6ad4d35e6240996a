"""Ranks: each reads its share, together they read the one global order."""

import itertools

import polars as pl
import pytest
from conftest import identities, numbered, opened, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dataset_rt as drt

WORLDS = (1, 2, 3, 8)


def rows(samples):
    return [sample.sample_id for sample in samples]


def of_batches(batches):
    return [batch["sample_id"].to_pylist() for batch in batches]


def expected_part(order, rank, world, size):
    """The specification, step by step: a contiguous part of every global batch."""
    each, more = divmod(size, world)
    offset, width = rank * each + min(rank, more), each + (rank < more)
    return [order[start:][:size][offset : offset + width] for start in range(0, len(order), size)]


@pytest.fixture
def dataset(runtime, cache):
    return opened(runtime, cache, shuffle=True, seed=5)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("world", WORLDS)
def test_ranks_take_turns_through_the_global_order(runtime, cache, world, shuffle):
    whole = opened(runtime, cache, shuffle=shuffle)
    parts = [opened(runtime, cache, shuffle=shuffle).partition(r, world) for r in range(world)]
    for _ in range(2):
        order = rows(whole)
        assert [rows(part) for part in parts] == [order[rank::world] for rank in range(world)]


@pytest.mark.parametrize(("world", "size"), [(2, 6), (3, 7), (4, 4), (5, 50), (4, 3), (2, 99)])
def test_a_global_batch_is_divided_in_contiguous_parts(dataset, runtime, cache, world, size):
    order = rows(opened(runtime, cache, shuffle=True, seed=5))
    for rank in range(world):
        part = dataset.partition(rank, world, global_batch_size=size)
        expected = expected_part(order, rank, world, size)
        assert rows(part) == list(itertools.chain(*expected))
        part.set_epoch(0)
        assert of_batches(part.iter_batches(-(-size // world))) == expected


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("batch_size", [1, 3, 50, 64])
def test_batches_are_local_steps_and_equally_many_on_every_rank(dataset, world, batch_size):
    order = rows(dataset)
    for drop_last in (False, True):
        steps = 50 // world if drop_last else -(-50 // world)
        count = steps // batch_size if drop_last else -(-steps // batch_size)
        for rank in range(world):
            dataset.set_epoch(0)
            part = dataset.partition(rank, world, drop_last=drop_last)
            mine = order[: steps * world][rank::world]
            found = of_batches(part.iter_batches(batch_size))
            cut = [mine[n * batch_size :][:batch_size] for n in range(count)]
            assert found == cut, (rank, drop_last)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_three_samples_on_eight_ranks(runtime, tmp_path, batch_size):
    cache = written(runtime, tmp_path, numbered(3))
    batches = []
    for rank in range(8):
        part = opened(runtime, cache).partition(rank, 8)
        assert len(part) == (1 if rank < 3 else 0)
        batches.append(of_batches(part.iter_batches(batch_size)))
        assert rows(part) == ([rank] if rank < 3 else [])
        dropping = opened(runtime, cache).partition(rank, 8, drop_last=True)
        assert (len(dropping), list(dropping)) == (0, [])
        assert list(dropping.iter_batches(batch_size)) == []
    assert batches == [[[0]], [[1]], [[2]], [[]], [[]], [[]], [[]], [[]]]


def test_a_batch_without_rows_has_every_column(runtime, tmp_path):
    cache = written(runtime, tmp_path, numbered(1))
    whole = opened(runtime, cache)
    (empty,) = whole.partition(1, 2).iter_batches(4)
    (full,) = whole.partition(0, 2).iter_batches(4)
    assert empty.num_rows == 0
    assert empty.schema.equals(full.schema)
    (empty,) = whole.partition(1, 2).iter_batches(4, columns=["payload"])
    assert empty.schema.names == ["payload"]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    world=st.integers(1, 9),
    size=st.none() | st.integers(1, 70),
    drop_last=st.booleans(),
    epoch_len=st.integers(1, 120),
    epoch=st.integers(0, 5),
    sampling=st.sampled_from(["multinomial", "permutation", "weighted_without_replacement"]),
)
def test_any_division_gives_the_global_order_back(
    runtime, cache, world, size, drop_last, epoch_len, epoch, sampling
):
    whole = opened(runtime, cache, shuffle=True, sampling=sampling)
    whole.set_epoch_len(epoch_len)
    whole.set_epoch(epoch)
    parts = [
        whole.partition(rank, world, global_batch_size=size, drop_last=drop_last)
        for rank in range(world)
    ]
    order = rows(whole)
    step = size or world
    kept = len(order) // step * step if drop_last else len(order)
    read = [iter(rows(part)) for part in parts]
    together = []
    for start in range(0, kept, step):
        for rank in range(world):
            width = len(expected_part(order[start:kept][:step], rank, world, step)[0])
            together.extend(itertools.islice(read[rank], width))
    assert together == order[:kept]
    assert all(next(rest, None) is None for rest in read)


def test_positions_of_a_share(dataset):
    part = dataset.partition(1, 3)
    assert len(part) == 17
    expected = identities(part)
    part.set_epoch(0)
    assert identities(part[i] for i in range(17)) == expected
    assert identities(part.__getitems__([16, 0, 3])) == [expected[i] for i in (16, 0, 3)]
    with pytest.raises(drt.SampleNotFoundError, match="17"):
        part[17]


def test_a_share_is_independent_of_the_whole(dataset):
    next(iter(dataset))
    part = dataset.partition(0, 2)
    assert part.epoch == 1
    table = dataset.get_metadata()
    part.update_metadata(table.head(10))
    list(part)
    assert (len(part), part.epoch, len(dataset), dataset.epoch) == (5, 2, 50, 1)
    assert len(dataset.get_metadata()) == 50
    assert part.order_fingerprint != dataset.order_fingerprint


def test_an_epoch_length_is_that_of_all_ranks(dataset):
    part = dataset.partition(0, 4)
    part.set_epoch_len(10)
    assert len(part) == 3
    part.set_epoch(2)
    assert part.state_dict()["position"] == 20


def test_weights_are_honoured_globally(runtime, cache):
    whole = opened(runtime, cache, shuffle=True, seed=11)
    table = whole.get_metadata()
    weights = [1.0 + 3.0 * (i % 2) for i in range(50)]
    whole.update_metadata(table.with_columns(weight=pl.Series(weights)))
    draws = 40_000
    whole.set_epoch_len(draws)
    counts = [0] * 50
    for rank in range(4):
        for batch in whole.partition(rank, 4).iter_batches(1000, columns=["sample_id"]):
            for row in batch["sample_id"].to_pylist():
                counts[row] += 1
    expected = [draws * weight / sum(weights) for weight in weights]
    chi_square = sum((c - e) ** 2 / e for c, e in zip(counts, expected, strict=True))
    # 49 degrees of freedom: 104 is passed once in 100,000 seeds, and this seed is fixed.
    assert chi_square < 104, chi_square


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((2, 2), "rank 2 of world_size 2"),
        ((-1, 2), "rank must be"),
        ((0, 0), "world_size must be"),
    ],
)
def test_ranks_outside_the_world_are_refused(dataset, arguments, says):
    with pytest.raises(drt.InvalidInputError, match=says):
        dataset.partition(*arguments)


def test_other_refusals(dataset):
    with pytest.raises(drt.InvalidInputError, match="global_batch_size"):
        dataset.partition(0, 1, global_batch_size=0)
    with pytest.raises(drt.InvalidInputError, match="rank 0 of 2 already"):
        dataset.partition(0, 2).partition(0, 2)
    part = dataset.partition(0, 2, global_batch_size=5)
    with pytest.raises(drt.InvalidInputError, match=r"batch_size 2 .* expected 3"):
        part.iter_batches(2)
    assert part.epoch == 0, "nothing was claimed"


def test_the_share_shows_in_its_repr(dataset):
    assert "rank=1 of 2" in repr(dataset.partition(1, 2))
    assert "rank" not in repr(dataset)

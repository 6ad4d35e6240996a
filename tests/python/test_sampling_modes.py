"""Sampling without replacement: each row once a cycle, in an order of its own for each cycle."""

import itertools
import random

import numpy as np
import polars as pl
import pytest
from conftest import identities, numbered, opened, run_script, written
from scipy import stats

import dataset_rt as drt

MODES = ["permutation", "weighted_without_replacement"]
WEIGHTED = "weighted_without_replacement"
SECONDS = 60
LONG_ROWS = 200_000


def rows(samples):
    return [sample.sample_id for sample in samples]


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


@pytest.fixture
def dataset(runtime, cache, mode):
    return opened(runtime, cache, seed=3, shuffle=True, sampling=mode)


@pytest.fixture
def same(runtime, cache, mode):
    """Another dataset that reads what `dataset` reads."""
    return opened(runtime, cache, seed=3, shuffle=True, sampling=mode)


def weighted(dataset):
    """A table with weights and without some of the rows."""
    table = dataset.get_metadata().with_columns(weight=(pl.col("number") % 9 + 1) / 7)
    return table.filter(pl.col("number") % 11 != 0)


def long_table(dataset):
    """So many rows that their order is worked out ahead of the workers: each sample in turn."""
    frame = dataset.get_metadata()
    weight = pl.Series(np.linspace(1, 2, LONG_ROWS))
    return frame[np.arange(LONG_ROWS) % len(frame)].with_columns(weight=weight)


def test_every_epoch_reads_each_row_once(dataset):
    epochs = [rows(dataset) for _ in range(20)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 20


def test_samples_carry_their_own_payload_and_metadata(dataset):
    expected = numbered(50)
    dataset.update_metadata(weighted(dataset))
    samples = list(dataset)
    assert sorted(rows(samples)) == [i for i in range(50) if i % 11]
    assert [(s.data, s.metadata) for s in samples] == [expected[s.sample_id] for s in samples]


@pytest.mark.parametrize("length", [1, 7, 49, 50, 51, 100, 333])
def test_an_epoch_of_another_length_is_a_piece_of_the_same_stream(dataset, same, length):
    stream = rows(itertools.chain.from_iterable(iter(same) for _ in range(22)))
    dataset.set_epoch_len(length)
    for start in range(0, 3 * length, length):
        expected = stream[start : start + length]
        assert [dataset[i].sample_id for i in range(length)] == expected
        assert rows(dataset) == expected


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_rows_are_each_read_once_a_cycle(dataset, count):
    dataset.update_metadata(dataset.get_metadata().head(count))
    dataset.set_epoch_len(300 * count)
    drawn = np.array(rows(dataset)).reshape(300, count)
    assert (np.sort(drawn) == range(count)).all()


def test_rows_appear_as_often_as_they_stand_in_the_table(dataset):
    table = dataset.get_metadata()
    dataset.update_metadata(pl.concat([table, table.head(10), table.head(3)]))
    for _ in range(3):
        counts = np.bincount(rows(dataset), minlength=50)
        assert counts.tolist() == [3] * 3 + [2] * 7 + [1] * 40


def test_the_order_of_rows_and_other_columns_change_nothing(dataset, same):
    table = weighted(dataset)
    dataset.update_metadata(table)
    same.update_metadata(
        table.sample(fraction=1.0, shuffle=True, seed=1).with_columns(note=pl.col("label") + "!")
    )
    assert [identities(dataset) for _ in range(3)] == [identities(same) for _ in range(3)]


def test_the_order_of_paths_changes_nothing(runtime, tmp_path, mode):
    paths = [written(runtime, tmp_path, numbered(9 + s, s), name=f"c{s}") for s in (0, 10, 30)]
    options = {"seed": 3, "shuffle": True, "sampling": mode}
    expected = identities(opened(runtime, paths, **options))
    for _ in range(3):
        random.shuffle(paths)
        assert identities(opened(runtime, paths, **options)) == expected


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("prefetch", [1, 13, 1000])
def test_workers_prefetch_and_reading_change_nothing(cache, dataset, mode, workers, prefetch):
    dataset.set_epoch_len(120)
    expected = [identities(dataset) for _ in range(2)]
    options = {"seed": 3, "shuffle": True, "sampling": mode, "io": "pread"}
    with drt.DatasetRuntime(num_workers=workers) as runtime:
        other = opened(runtime, cache, prefetch_size=prefetch, **options)
        other.set_epoch_len(120)
        assert [identities(other) for _ in range(2)] == expected


def test_positions_in_any_order_agree_with_iteration(dataset, same):
    dataset.set_epoch_len(220)
    same.set_epoch_len(220)
    indices = random.Random(1).sample(range(220), 220)
    found = rows(dataset.__getitems__(indices))
    expected = rows(same)
    assert found == [expected[i] for i in indices]


@pytest.mark.parametrize("size", [1, 7, 64, 500])
def test_batches_are_the_samples_of_iteration(dataset, same, size):
    dataset.set_epoch_len(170)
    same.set_epoch_len(170)
    batched = [b["sample_id"].to_pylist() for b in dataset.iter_batches(size)]
    assert sum(batched, []) == rows(same)


def test_ranks_together_read_the_order(dataset, same):
    dataset.set_epoch_len(130)
    same.set_epoch_len(130)
    parts = [dataset.partition(rank, 3) for rank in range(3)]
    for _ in range(3):
        expected = rows(same)
        assert [rows(part) for part in parts] == [expected[rank::3] for rank in range(3)]


def test_a_saved_state_goes_on_inside_a_cycle(dataset, same, runtime, cache):
    whole = [rows(dataset) for _ in range(2)]
    samples = iter(same)
    begun = rows(itertools.islice(samples, 17))
    state = same.state_dict()
    resumed = opened(runtime, cache, seed=3, shuffle=True, sampling=same.reader_config.sampling)
    resumed.load_state_dict(state)
    assert [begun + rows(resumed), rows(resumed)] == whole
    other = opened(runtime, cache, seed=3, shuffle=True)
    with pytest.raises(drt.errors.InvalidInputError, match="sampling"):
        other.load_state_dict(state)


def test_a_new_table_starts_its_own_cycle_at_the_same_epoch(dataset, same):
    list(dataset)
    samples = iter(dataset)
    first = next(samples)
    dataset.update_metadata(weighted(dataset))
    same.update_metadata(weighted(same))
    same.set_epoch(2)
    assert dataset.epoch == 2
    assert rows(dataset) == rows(same)
    # The iterator that ran goes on with its own table.
    assert sorted([first.sample_id, *rows(samples)]) == list(range(50))


def test_modes_and_seeds_have_orders_of_their_own(runtime, cache):
    found = [
        opened(runtime, cache, seed=seed, shuffle=True, sampling=sampling)
        for seed in (3, 4)
        for sampling in ("multinomial", *MODES)
    ]
    found.append(opened(runtime, cache, seed=3))
    assert len({dataset.order_fingerprint for dataset in found}) == 7
    assert len({dataset.order_digest(0, 50) for dataset in found}) == 7
    assert len({tuple(rows(dataset)) for dataset in found}) == 7


def test_any_order_of_three_rows_is_as_likely_as_its_draws(dataset, mode):
    weights = {10: 1.0, 20: 2.0, 30: 5.0}
    table = dataset.get_metadata().filter(pl.col("number").is_in(list(weights)))
    dataset.update_metadata(table.with_columns(weight=pl.Series(weights.values())))
    cycles = 4000
    dataset.set_epoch_len(3 * cycles)
    drawn = np.array(rows(dataset)).reshape(cycles, 3)
    orders = list(itertools.permutations(weights))
    found = [(drawn == order).all(axis=1).sum() for order in orders]
    if mode == "permutation":
        chances = np.full(6, 1 / 6)
    else:
        of = weights.__getitem__
        chances = np.array([of(a) / 8 * of(b) / (8 - of(a)) for a, b, _ in orders])
    # A fixed seed: one sound order in 10,000 would fail.
    assert stats.chisquare(found, chances * cycles).pvalue > 1e-4


def test_weights_of_any_size_decide_the_order_or_do_not_count(dataset, mode):
    table = dataset.get_metadata()
    heavy = pl.when(pl.col("number") == 7).then(1.7e308).otherwise(5e-324)
    dataset.update_metadata(table.with_columns(weight=heavy))
    places = [rows(dataset).index(7) for _ in range(30)]
    if mode == WEIGHTED:
        assert places == [0] * 30
    else:
        # 30 places among 50 at random: all in front half once in 10^9.
        assert min(places) < 25 < max(places)


def test_without_shuffle_only_the_default_is_accepted(runtime, cache, mode):
    with pytest.raises(ValueError, match=r"needs shuffle=True"):
        opened(runtime, cache, sampling=mode)
    with pytest.raises(ValueError, match=r"needs shuffle=True"):
        drt.open_dataset(cache, sampling=mode)
    assert rows(drt.open_dataset(cache, sampling="multinomial")) == list(range(50))
    dataset = drt.open_dataset(cache, shuffle=True, sampling=mode)
    assert dataset.reader_config.sampling == mode
    assert f"sampling='{mode}'" in repr(dataset)


def test_orders_of_many_rows_are_read_the_same_way(dataset, same):
    dataset.update_metadata(long_table(dataset))
    same.update_metadata(long_table(same))
    batches = [b["sample_id"].to_numpy() for b in same.iter_batches(30_000, columns=["sample_id"])]
    epoch = np.concatenate(batches)
    assert np.bincount(epoch).tolist() == [LONG_ROWS // 50] * 50
    places = [0, 1, 777, LONG_ROWS - 1]
    assert [dataset[i].sample_id for i in places] == epoch[places].tolist()
    assert rows(itertools.islice(dataset, 2000)) == epoch[:2000].tolist()
    # Across the border of two cycles, the second of which nobody looked at.
    dataset.set_epoch_len(LONG_ROWS - 500)
    dataset.set_epoch(1)
    following = np.concatenate(
        [b["sample_id"].to_numpy() for b in same.iter_batches(30_000, columns=["sample_id"])]
    )
    expected = [*epoch[-500:], *following[:1000]]
    assert rows(itertools.islice(dataset, 1500)) == expected
    many = [b["sample_id"].to_numpy() for b in dataset.iter_batches(LONG_ROWS)]
    assert len(many) == 1


def test_iterators_in_different_cycles_share_the_time(dataset, same):
    dataset.update_metadata(long_table(dataset))
    same.update_metadata(long_table(same))
    iterators = [iter(dataset) for _ in range(4)]
    together = [rows(itertools.islice(samples, 300)) for _ in range(2) for samples in iterators]
    for epoch in range(4):
        alone = rows(itertools.islice(iter(same), 600))
        assert together[epoch] + together[epoch + 4] == alone


def test_threads_and_forks_while_an_order_is_worked_out(cache, mode):
    script = """
        import os, sys, threading
        import numpy as np
        import polars as pl
        import dataset_rt as drt
        dataset = drt.open_dataset(sys.argv[1], seed=1, shuffle=True, sampling=sys.argv[2])
        frame = dataset.get_metadata()
        rows = np.arange(1_000_000) % len(frame)
        weight = pl.Series(np.linspace(1, 2, len(rows)))
        dataset.update_metadata(frame[rows].with_columns(weight=weight))
        print(dataset.order_fingerprint)
        found = []
        def read():
            samples = iter(dataset)
            found.append([next(samples).sample_id for _ in range(100)])
        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        children = []
        while not children or any(t.is_alive() for t in threads) and len(children) < 20:
            child = os.fork()
            if child == 0:
                dataset.set_epoch(1)
                print(dataset[0].sample_id, flush=True)
                os._exit(0)
            children.append(child)
            assert os.waitpid(child, 0)[1] == 0
        for thread in threads:
            thread.join()
        dataset.set_epoch(1)
        expected = f"{dataset[0].sample_id}"
        print("expected", expected)
        found.sort()
        dataset.set_epoch(0)
        parts = [[s.sample_id for _, s in zip(range(100), dataset)] for _ in range(3)]
        assert found == sorted(parts), (found, parts)
    """
    printed = run_script(script, cache, mode, seconds=SECONDS).split()
    at = printed.index("expected")
    assert len(printed[1:at]) >= 1
    assert set(printed[1:at]) == {printed[at + 1]}


def test_the_memory_of_orders_is_bounded(cache):
    script = """
        import re, sys
        import numpy as np
        import polars as pl
        import dataset_rt as drt
        dataset = drt.open_dataset(
            sys.argv[1], seed=1, shuffle=True, sampling="weighted_without_replacement"
        )
        frame = dataset.get_metadata()
        rows = np.arange(1_000_000) % len(frame)
        weight = pl.Series(np.linspace(1, 2, len(rows)))
        dataset.update_metadata(frame[rows].with_columns(weight=weight))
        del frame, rows, weight
        dataset[0]
        def resident():
            with open("/proc/self/status") as status:
                return int(re.search(r"RssAnon:\\s+(\\d+)", status.read())[1]) * 1024
        before = resident()
        # 30 orders of 4 MB.
        for cycle in range(30):
            dataset.order_digest(cycle * 1_000_000, cycle * 1_000_000 + 10)
        print(resident() - before)
    """
    # What is kept, and what one order takes while it is worked out.
    assert int(run_script(script, cache, seconds=SECONDS)) < (64 << 20) + 24_000_000


def test_an_order_without_memory_is_an_error_and_may_be_had_later(cache):
    script = """
        import re, resource, sys
        import numpy as np
        import polars as pl
        import dataset_rt as drt
        dataset = drt.open_dataset(
            sys.argv[1], seed=1, shuffle=True, sampling="weighted_without_replacement"
        )
        frame = dataset.get_metadata()
        rows = np.arange(6_000_000) % len(frame)
        weight = pl.Series(np.linspace(1, 2, len(rows)))
        dataset.update_metadata(frame[rows].with_columns(weight=weight))
        fingerprint = dataset.order_fingerprint
        with open("/proc/self/status") as status:
            used = int(re.search(r"VmSize:\\s+(\\d+)", status.read())[1]) * 1024
        # An order takes 120 MB while it is worked out.
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), most))
        for ask in (lambda: dataset[0], lambda: next(iter(dataset))):
            try:
                ask()
            except drt.errors.ExhaustedError as error:
                print("bytes that this process cannot have" in str(error))
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        dataset.set_epoch(0)
        print(dataset[0] == next(iter(dataset)), dataset.order_fingerprint == fingerprint)
    """
    assert run_script(script, cache, seconds=SECONDS).split() == ["True"] * 4

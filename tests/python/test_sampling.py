"""The shuffled order: a function of contents, table, seed and position, and of nothing else."""

import random

import numpy as np
import polars as pl
import pytest
from conftest import identities, numbered, opened, run_script, written
from scipy import stats

import dataset_rt as drt


@pytest.fixture
def dataset(runtime, cache):
    return opened(runtime, cache, seed=3, shuffle=True)


def three_epochs(dataset):
    return [identities(dataset) for _ in range(3)]


def rows(samples):
    return [sample.sample_id for sample in samples]


def weighted(dataset):
    """A table with weights and rows that make sampling non-trivial."""
    table = dataset.get_metadata().with_columns(weight=(pl.col("number") % 9 + 1) / 7)
    return table.filter(pl.col("number") % 11 != 0)


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("prefetch", [1, 13, 1000])
def test_workers_and_prefetch_change_no_order(cache, dataset, workers, prefetch):
    expected = three_epochs(dataset)
    with drt.DatasetRuntime(num_workers=workers) as runtime:
        other = opened(runtime, cache, seed=3, shuffle=True, prefetch_size=prefetch)
        assert three_epochs(other) == expected


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_the_way_of_reading_changes_no_order(runtime, cache, dataset, io):
    other = opened(runtime, cache, seed=3, shuffle=True, io=io, verify=False, zero_copy=True)
    assert three_epochs(other) == three_epochs(dataset)


def test_shards_compression_name_and_place_change_no_order(runtime, tmp_path, dataset):
    config = drt.WriterConfig(
        max_shard_bytes=100,
        show_progress=False,
        shard_compression=drt.ShardCompression(algo="zstd"),
    )
    path = written(runtime, tmp_path / "x", numbered(50), name="other", config=config)
    other = opened(runtime, path, seed=3, shuffle=True)
    assert three_epochs(other) == three_epochs(dataset)


def test_another_process_reads_the_same_order(cache, dataset):
    script = """
        import sys
        import dataset_rt as drt
        dataset = drt.open_dataset(sys.argv[1], seed=3, shuffle=True)
        print([(s.cache_id, s.sample_id) for _ in range(3) for s in dataset])
    """
    assert run_script(script, cache).strip() == str(sum(three_epochs(dataset), []))


def test_the_order_of_rows_changes_no_draw(runtime, cache):
    plain, shuffled = (opened(runtime, cache, seed=3, shuffle=True) for _ in range(2))
    table = weighted(plain)
    plain.update_metadata(table)
    shuffled.update_metadata(table.sample(fraction=1.0, shuffle=True, seed=1))
    assert three_epochs(shuffled) == three_epochs(plain)


def test_the_order_of_paths_changes_no_draw(runtime, tmp_path):
    paths = [written(runtime, tmp_path, numbered(9 + s, s), name=f"c{s}") for s in (0, 10, 30)]
    expected = three_epochs(opened(runtime, paths, seed=3, shuffle=True))
    for _ in range(3):
        random.shuffle(paths)
        assert three_epochs(opened(runtime, paths, seed=3, shuffle=True)) == expected


def test_annotation_columns_change_no_draw(runtime, cache):
    plain, annotated = (opened(runtime, cache, seed=3, shuffle=True) for _ in range(2))
    plain.update_metadata(weighted(plain))
    annotated.update_metadata(weighted(annotated).with_columns(note=pl.col("label") + "!"))
    assert three_epochs(annotated) == three_epochs(plain)


def test_an_untouched_table_passed_back_changes_no_draw(runtime, cache):
    plain, passed = (opened(runtime, cache, seed=3, shuffle=True) for _ in range(2))
    passed.update_metadata(passed.get_metadata())
    assert passed.order_fingerprint == plain.order_fingerprint
    assert three_epochs(passed) == three_epochs(plain)


def test_only_active_rows_are_ever_drawn(dataset):
    dataset.update_metadata(dataset.get_metadata().filter(pl.col("number").is_in([3, 14, 41])))
    dataset.set_epoch_len(500)
    assert set(rows(dataset)) == {3, 14, 41}


def test_drawn_samples_carry_their_own_payload_and_metadata(dataset):
    expected = numbered(50)
    dataset.update_metadata(weighted(dataset))
    for sample in dataset:
        assert (sample.data, sample.metadata) == expected[sample.sample_id]


def chance_of(dataset, weights, draws=20_000):
    """The chance that draws this uneven come from these weights."""
    dataset.set_epoch_len(draws)
    found = np.bincount(rows(dataset), minlength=len(weights))
    shares = np.asarray(weights) / sum(weights)
    return stats.chisquare(found, shares * draws).pvalue


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
def test_equal_weights_draw_every_row_equally_often(runtime, cache, seed):
    dataset = opened(runtime, cache, seed=seed, shuffle=True)
    assert chance_of(dataset, [1.0] * 50) > 1e-4


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300])
def test_rows_are_drawn_in_proportion_to_their_weights(dataset, scale):
    weights = [(i % 9 + 1) * scale for i in range(50)]
    table = dataset.get_metadata().with_columns(weight=pl.Series(weights))
    dataset.update_metadata(table)
    assert chance_of(dataset, weights) > 1e-4


def test_a_dominant_weight_wins_nearly_always(dataset):
    weight = pl.when(pl.col("number") == 7).then(1e12).otherwise(1.0)
    dataset.update_metadata(dataset.get_metadata().with_columns(weight=weight))
    dataset.set_epoch_len(1000)
    assert set(rows(dataset)) == {7}


def test_scaling_all_weights_by_a_power_of_two_keeps_the_share(dataset):
    weights = [float(i + 1) for i in range(50)]
    dataset.update_metadata(
        dataset.get_metadata().with_columns(weight=pl.Series(weights) * 2.0**-40)
    )
    assert chance_of(dataset, weights) > 1e-4


def test_neighbouring_seeds_read_unrelated_orders(runtime, cache):
    orders = {}
    for seed in [*range(8), 2**32, 2**32 + 1, 2**63, 2**64 - 1]:
        dataset = opened(runtime, cache, seed=seed, shuffle=True)
        dataset.set_epoch_len(2000)
        orders[seed] = np.array(rows(dataset))
    pairs = [(a, b) for a in orders for b in orders if a < b]
    agreement = [np.mean(orders[a] == orders[b]) for a, b in pairs]
    shifted = [np.mean(orders[a][1:] == orders[b][:-1]) for a, b in pairs]
    # One in 50 by chance; 2,000 draws put the standard deviation at 0.003.
    assert max(agreement + shifted) < 0.04


def test_the_next_epoch_is_not_the_next_seeds_epoch(runtime, cache):
    first, second = (opened(runtime, cache, seed=seed, shuffle=True) for seed in (3, 4))
    first.set_epoch(1)
    assert rows(first) != rows(second)


def test_the_fingerprint_ignores_the_position(dataset):
    before = dataset.order_fingerprint
    list(dataset)
    dataset.set_epoch(77)
    assert dataset.order_fingerprint == before
    assert len(bytes.fromhex(before)) == 32


def test_the_fingerprint_changes_with_everything_the_order_depends_on(runtime, cache, tmp_path):
    other = written(runtime, tmp_path, numbered(51))
    found = [
        opened(runtime, cache, seed=3, shuffle=True).order_fingerprint,
        opened(runtime, cache, seed=4, shuffle=True).order_fingerprint,
        opened(runtime, cache, seed=3, shuffle=False).order_fingerprint,
        opened(runtime, other, seed=3, shuffle=True).order_fingerprint,
    ]
    for change in (
        lambda table: table.head(49),
        lambda table: table.with_columns(weight=pl.col("number") + 1.0),
        lambda table: pl.concat([table, table.head(1)]),
    ):
        dataset = opened(runtime, cache, seed=3, shuffle=True)
        dataset.update_metadata(change(dataset.get_metadata()))
        found.append(dataset.order_fingerprint)
    assert len(set(found)) == len(found)


def test_without_shuffle_row_order_enters_the_fingerprint(runtime, cache):
    plain, reversed_ = (opened(runtime, cache) for _ in range(2))
    reversed_.update_metadata(reversed_.get_metadata().reverse())
    assert plain.order_fingerprint != reversed_.order_fingerprint


def test_the_digest_tells_equal_ranges_from_different_ones(runtime, cache, dataset):
    same = opened(runtime, cache, seed=3, shuffle=True)
    list(same)
    assert same.order_digest(0, 100) == dataset.order_digest(0, 100)
    found = {dataset.order_digest(*r) for r in [(0, 100), (0, 99), (1, 100), (1, 101), (5, 5)]}
    assert len(found) == 5


@pytest.mark.parametrize("bad", [(3, 2), (-1, 2), (0, 2**64)])
def test_a_range_that_is_none_is_refused(dataset, bad):
    with pytest.raises(ValueError, match=r"\d"):
        dataset.order_digest(*bad)


def test_position_seeds_are_stable_distinct_and_64_bit(runtime, cache, dataset):
    seeds = [dataset.position_seed(k) for k in range(1000)]
    same = opened(runtime, cache, seed=3, shuffle=True, prefetch_size=1)
    list(same)
    assert [same.position_seed(k) for k in range(1000)] == seeds
    assert len(set(seeds)) == 1000
    assert max(seeds) > 2**63
    assert 0 <= min(seeds) <= max(seeds) < 2**64


def test_position_seeds_of_another_seed_are_others(runtime, cache, dataset):
    other = opened(runtime, cache, seed=4, shuffle=True)
    assert not {other.position_seed(k) for k in range(100)} & {
        dataset.position_seed(k) for k in range(100)
    }

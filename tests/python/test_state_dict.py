"""Saved states: a run that stops anywhere goes on with exactly the next sample."""

import json
import os
import threading

import polars as pl
import pytest
from conftest import numbered, opened, put, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dataset_rt as drt

ROWS = 23
MODES = [
    {"shuffle": False},
    {"shuffle": True, "sampling": "multinomial"},
    {"shuffle": True, "sampling": "permutation"},
    {"shuffle": True, "sampling": "weighted_without_replacement"},
]


@pytest.fixture
def small(runtime, tmp_path):
    return written(runtime, tmp_path / "small", numbered(ROWS))


def rows(samples):
    return [sample.sample_id for sample in samples]


def stream(dataset, count):
    """Sample ids over as many epochs as it takes."""
    taken = []
    while len(taken) < count:
        for sample in dataset:
            taken.append(sample.sample_id)
            if len(taken) == count:
                break
    return taken


def through_json(state):
    text = json.dumps(state)
    assert len(text) < 500
    return json.loads(text)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.get("sampling", "sequential"))
def test_every_position_of_two_epochs(runtime, small, mode):
    order = stream(opened(runtime, small, **mode), 4 * ROWS)
    for count in range(2 * ROWS + 1):
        first = opened(runtime, small, **mode)
        assert stream(first, count) == order[:count]
        state = through_json(first.state_dict())
        second = opened(runtime, small, **mode, prefetch_size=1 + count % 5)
        second.load_state_dict(state)
        assert second.state_dict() == state
        assert second.epoch == (count // ROWS if count else 0)
        assert stream(second, ROWS) == order[count : count + ROWS]


Batched = st.tuples(st.just("batches"), st.integers(1, 9))
Sampled = st.tuples(st.just("samples"), st.just(1))


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    mode=st.sampled_from(MODES),
    epoch_len=st.none() | st.integers(1, 60),
    legs=st.lists(
        st.tuples(
            st.integers(1, 5),  # ranks
            st.none() | st.integers(1, 12),  # global batch
            Batched | Sampled,
            st.integers(0, 40),  # steps before the next save
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_any_legs_on_any_ranks_make_the_uninterrupted_run(runtime, small, mode, epoch_len, legs):
    """Each leg runs some global steps on its ranks, saves on all of them, and hands over."""
    whole = opened(runtime, small, **mode, seed=9)
    if epoch_len is not None:
        whole.set_epoch_len(epoch_len)
    state = through_json(whole.state_dict())
    read = []
    for world, size, (kind, batch_size), steps in legs:
        parts = []
        for rank in range(world):
            part = opened(runtime, small, **mode, seed=9).partition(
                rank, world, global_batch_size=size
            )
            part.load_state_dict(state)
            parts.append(part)
        step = size or world
        if kind == "samples" or size is not None:
            local = -(-step // world)
        else:
            local, step = batch_size, batch_size * world
        iterators = [None] * world
        for _ in range(steps):
            gathered = [next_rows(parts, iterators, rank, local) for rank in range(world)]
            read.append(merged(gathered, size))
        states = [through_json(part.state_dict()) for part in parts]
        assert all(other == states[0] for other in states)
        state = states[0]
    uninterrupted = stream(whole, sum(map(len, read)))
    assert [row for step in read for row in step] == uninterrupted
    last = opened(runtime, small, **mode, seed=9)
    last.load_state_dict(state)
    assert stream(last, 5) == stream_from(runtime, small, mode, epoch_len, len(uninterrupted), 5)


def next_rows(parts, iterators, rank, local):
    """The rank's part of the next global batch, over the ends of epochs."""
    while True:
        if iterators[rank] is None:
            iterators[rank] = iter(parts[rank].iter_batches(local, columns=["sample_id"]))
        batch = next(iterators[rank], None)
        if batch is not None:
            return batch["sample_id"].to_pylist()
        iterators[rank] = None


def merged(parts, size):
    """The global batch that the parts of all ranks make."""
    if size is not None:
        return [row for part in parts for row in part]
    longest = max(map(len, parts))
    return [part[i] for i in range(longest) for part in parts if i < len(part)]


def stream_from(runtime, cache, mode, epoch_len, start, count):
    dataset = opened(runtime, cache, **mode, seed=9)
    if epoch_len is not None:
        dataset.set_epoch_len(epoch_len)
    return stream(dataset, start + count)[start:]


def test_what_was_read_ahead_does_not_count(runtime, cache):
    dataset = opened(runtime, cache, shuffle=True, prefetch_size=256)
    iterator = iter(dataset)
    for taken in range(1, 10):
        next(iterator)
        assert dataset.state_dict()["position"] == taken


def test_the_newest_iterator_counts(runtime, small):
    dataset = opened(runtime, small)
    first, second = iter(dataset), iter(dataset)
    next(second)
    for _ in range(5):
        next(first)
    assert dataset.state_dict()["position"] == ROWS + 1


def test_the_end_of_an_epoch_is_the_start_of_the_next(runtime, small):
    told, untold, fresh = (opened(runtime, small, shuffle=True) for _ in range(3))
    list(told)
    iterator = iter(untold)
    for _ in range(ROWS):
        next(iterator)
    fresh.set_epoch(1)
    assert told.state_dict() == untold.state_dict() == fresh.state_dict()


def test_inside_an_epoch_length_indices_and_epoch_are_those_of_all_of_it(runtime, small):
    dataset = opened(runtime, small, shuffle=True)
    order = stream(dataset, ROWS + 7)
    loaded = opened(runtime, small, shuffle=True)
    loaded.load_state_dict(dataset.state_dict())
    assert (len(loaded), loaded.epoch) == (ROWS, 1)
    epoch = opened(runtime, small, shuffle=True)
    epoch.set_epoch(1)
    assert rows(loaded[i] for i in range(ROWS)) == rows(epoch)
    assert rows(loaded)[:1] != order[ROWS : ROWS + 1]
    assert loaded.epoch == 2


@pytest.mark.parametrize(
    ("move", "expected"),
    [
        (lambda d: d.set_epoch(3), (3 * ROWS, 3 * ROWS, 3)),
        (lambda d: d.set_epoch_len(5), (ROWS, ROWS, 1)),
        (lambda d: d.update_metadata(d.get_metadata().head(4)), (4, 4, 1)),
    ],
)
def test_whatever_moves_the_stream_detaches_running_iterators(runtime, small, move, expected):
    dataset = opened(runtime, small, shuffle=True)
    iterator = iter(dataset)
    next(iterator)
    move(dataset)
    next(iterator)
    state = dataset.state_dict()
    assert (state["window_start"], state["position"], state["epoch"]) == expected


def test_a_new_length_after_a_load_goes_on_behind_what_was_read(runtime, small):
    dataset = opened(runtime, small, shuffle=True)
    order = stream(opened(runtime, small, shuffle=True), ROWS)
    stream(dataset, 7)
    loaded = opened(runtime, small, shuffle=True)
    loaded.load_state_dict(dataset.state_dict())
    loaded.set_epoch_len(5)
    assert rows(loaded) == order[7:12]


def test_a_load_lets_running_iterators_go_on(runtime, small):
    dataset = opened(runtime, small)
    start = dataset.state_dict()
    iterator = iter(dataset)
    next(iterator)
    dataset.load_state_dict(start)
    assert next(iterator).sample_id == 1
    assert dataset.state_dict() == start
    assert next(iter(dataset)).sample_id == 0


def test_batches_and_samples_share_their_states(runtime, small):
    dataset = opened(runtime, small, shuffle=True)
    order = stream(opened(runtime, small, shuffle=True), ROWS)
    batches = dataset.iter_batches(5)
    next(batches)
    next(batches)
    loaded = opened(runtime, small, shuffle=True)
    loaded.load_state_dict(dataset.state_dict())
    assert rows(loaded) == order[10:]


def test_inside_a_global_batch_there_is_no_state(runtime, small):
    part = opened(runtime, small).partition(0, 2, global_batch_size=6)
    iterator = iter(part)
    for taken in range(1, 7):
        next(iterator)
        if taken % 3:
            with pytest.raises(drt.InvalidInputError, match=f"took {taken} samples .* of 6"):
                part.state_dict()
        else:
            assert part.state_dict()["position"] == 2 * taken


def test_a_rank_without_a_sample_of_the_last_step_is_behind_it_once_it_was_told(runtime, tmp_path):
    cache = written(runtime, tmp_path, numbered(3))
    parts = [opened(runtime, cache).partition(rank, 2) for rank in range(2)]
    iterators = [iter(part) for part in parts]
    for iterator in iterators:
        next(iterator)
    assert [part.state_dict()["position"] for part in parts] == [2, 2]
    assert [len(list(iterator)) for iterator in iterators] == [1, 0]
    assert [part.state_dict()["position"] for part in parts] == [3, 3]
    assert parts[0].state_dict() == parts[1].state_dict()


def test_a_damaged_sample_is_not_read_again(runtime, tmp_path):
    cache = written(runtime, tmp_path, [(bytes([65 + i]) * 100_000, {"i": i}) for i in range(8)])
    shard = next((cache / "shards").iterdir())
    content = bytearray(shard.read_bytes())
    content[content.index(b"D" * 1000) + 50_000] ^= 1
    put(shard, bytes(content))
    dataset = opened(runtime, cache)
    iterator = iter(dataset)
    seen = []
    for _ in range(5):
        try:
            seen.append(next(iterator).sample_id)
        except drt.CorruptError:
            seen.append(None)
        position = dataset.state_dict()["position"]
        assert position == len(seen)
        loaded = opened(runtime, cache)
        loaded.load_state_dict(dataset.state_dict())
        if len(seen) == 3:
            with pytest.raises(drt.CorruptError):
                next(iter(loaded))
        else:
            assert next(iter(loaded)).sample_id == len(seen)
    assert seen == [0, 1, 2, None, 4]


def test_a_rank_without_a_part_in_any_step_says_so(runtime, small):
    part = opened(runtime, small).partition(2, 3, global_batch_size=2)
    start = part.state_dict()
    iterator = iter(part)
    with pytest.raises(drt.InvalidInputError, match=r"rank 2 of 3 has no part .* of 2 samples"):
        part.state_dict()
    assert list(iterator) == []
    assert part.state_dict()["position"] == ROWS
    part.load_state_dict(start)
    for number, _ in enumerate(part.iter_batches(1), 1):
        assert part.state_dict()["position"] == min(2 * number, ROWS)


def test_an_epoch_is_shorter_than_python_can_count(runtime, small):
    dataset = opened(runtime, small)
    for n in (2**63, 2**64 - 1):
        with pytest.raises(drt.InvalidInputError, match=f"epoch of {n} samples is too long"):
            dataset.set_epoch_len(n)
    assert len(dataset) == ROWS
    dataset.set_epoch_len(2**63 - 1)
    assert len(dataset) == 2**63 - 1
    assert next(iter(dataset)).sample_id == 0


def test_threads_that_share_an_iterator_are_counted_together(runtime, cache):
    dataset = opened(runtime, cache, shuffle=True)
    iterator = iter(dataset)

    def take():
        for _ in range(10):
            next(iterator)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert dataset.state_dict()["position"] == 40


def test_a_forked_child_has_no_part_in_its_parents_iterator(runtime, small):
    dataset = opened(runtime, small)
    iterator = iter(dataset)
    next(iterator)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(dataset.state_dict()["position"]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert (os.read(read, 20), dataset.state_dict()["position"]) == (str(ROWS).encode(), 1)


def test_the_state_of_a_table_that_was_edited(runtime, small):
    def edited():
        dataset = opened(runtime, small, shuffle=True)
        table = dataset.get_metadata().filter(pl.col("number") % 2 == 0)
        dataset.update_metadata(table.with_columns(weight=pl.col("number") + 1.0))
        return dataset

    dataset = edited()
    order = stream(edited(), 40)
    stream(dataset, 17)
    loaded = edited()
    loaded.load_state_dict(dataset.state_dict())
    assert stream(loaded, 23) == order[17:]
    with pytest.raises(drt.InvalidInputError, match="rows 12, this dataset 23"):
        opened(runtime, small, shuffle=True).load_state_dict(dataset.state_dict())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 1}, "seed 1, this dataset 0"),
        (
            {"sampling": "sequential"},
            "sampling sequential, this dataset multinomial; sequential is shuffle=False",
        ),
        ({"sampler_version": 99}, "sampler_version 99"),
        ({"version": 2}, "version 2"),
        ({"format": "other"}, "format other"),
        ({"table_digest": "00" * 32}, "table_digest 0000"),
        ({"rows": 5}, "rows 5, this dataset 23"),
        ({"position": 23}, "23 samples of an epoch were read"),
        ({"window_start": 5, "position": 4}, "position 4 before its window_start 5"),
        ({"epoch_len": 0, "epoch_len_was_set": True}, "at least 1 sample"),
        ({"epoch_len": 2**63, "epoch_len_was_set": True}, "too long"),
        ({"epoch_len": 22}, "22, this dataset 23; expected the number of rows"),
        ({"window_start": 22, "position": 22}, "cannot begin at position 22"),
        ({"epoch": 1}, "cannot begin at position 0"),
        (
            {"window_start": 2**63 + 1, "position": 2**63 + 1, "epoch_len_was_set": True},
            r"2\*\*63",
        ),
        ({"position": -1}, "no saved state"),
        ({"position": 1.0}, "no saved state"),
        ({"extra": 1}, "extra"),
    ],
)
def test_another_state_is_refused_and_changes_nothing(runtime, small, change, says):
    dataset = opened(runtime, small, shuffle=True)
    stream(dataset, 3)
    before = dataset.state_dict()
    with pytest.raises(drt.InvalidInputError, match=says):
        dataset.load_state_dict({**before, **change})
    assert dataset.state_dict() == before
    missing = {key: value for key, value in before.items() if key not in change}
    with pytest.raises(drt.InvalidInputError):
        dataset.load_state_dict(missing if len(missing) < len(before) else {})


@pytest.mark.parametrize("value", [None, "{}", [1], {"seed": object()}, {1j: 2}])
def test_what_is_no_mapping_of_json_is_a_type_error(runtime, small, value):
    with pytest.raises(TypeError, match="state must"):
        opened(runtime, small).load_state_dict(value)


def test_another_cache_is_refused(runtime, small, cache):
    state = opened(runtime, small).state_dict()
    with pytest.raises(drt.InvalidInputError, match="rows 23, this dataset 50"):
        opened(runtime, cache).load_state_dict(state)


def test_a_rewritten_cache_of_the_same_content_continues(runtime, small, tmp_path):
    config = drt.WriterConfig(
        show_progress=False, shard_compression=drt.ShardCompression(algo="zstd")
    )
    other = written(runtime, tmp_path / "other", numbered(ROWS), name="renamed", config=config)
    dataset = opened(runtime, small, shuffle=True)
    order = stream(opened(runtime, small, shuffle=True), ROWS)
    stream(dataset, 9)
    moved = opened(runtime, other, shuffle=True)
    moved.load_state_dict(dataset.state_dict())
    assert rows(moved) == order[9:]

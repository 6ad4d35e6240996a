"""Whatever goes wrong: batches given and errors told leave no gap, and the state stands there."""

import multiprocessing
import os
import threading
from contextlib import suppress

import pytest
from conftest import NEEDS_PYTORCH, identities, numbered, opened, written

pytestmark = NEEDS_PYTORCH

COUNT = 11
BATCHES = 6


@pytest.fixture
def dataset(runtime, tmp_path):
    path = written(runtime, tmp_path / "caches", numbered(COUNT))
    return opened(runtime, path, seed=5, shuffle=True)


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def loader_of(dataset, count, **options):
    """Batches of two, by workers that cannot hang a test."""
    if count:
        options.setdefault("timeout", 60)
    options.setdefault("collate_fn", list)
    return dataset.to_torch_dataloader(batch_size=2, num_workers=count, **options)


def order(dataset, epochs=1):
    whole = dataset.partition(0, 1)
    return [identities(whole) for _ in range(epochs)]


def flat(batches):
    return identities(sample for batch in batches for sample in batch)


def place(loader):
    state = loader.state_dict()
    return state["epoch"], state["position"]


def resumed(dataset, loader):
    """What another loader reads of the epoch in which this one's state was taken."""
    other = loader_of(dataset, 0)
    other.load_state_dict(loader.state_dict())
    return flat(other)


def take_all(batches, read):
    """Add to `read` what comes, until something else does."""
    while True:
        read += flat([next(batches)])


def is_first(samples, dataset, position):
    """Whether this batch is the one that begins at a position of epoch 0."""
    return identities(samples[:1]) == order(dataset)[0][position : position + 1]


def test_a_timeout_counts_for_nothing(dataset, pipe):
    """PyTorch goes on waiting for the same batch, however often it complained."""

    def when_told(samples):
        os.read(pipe[0], 1)
        return samples

    loader = loader_of(dataset, 2, collate_fn=when_told, timeout=0.05)
    batches, read, state = iter(loader), [], loader.state_dict()
    for _ in range(2 * BATCHES):
        with pytest.raises(RuntimeError, match="timed out"):
            next(batches)
        assert (loader.state_dict(), batches.is_over) == (state, False)
    os.write(pipe[1], bytes(BATCHES))
    while not batches.is_over:
        # A slow machine may need longer than that.
        with suppress(RuntimeError):
            read += flat([next(batches)])
        assert loader.state_dict()["position"] == len(read)
    assert (read, place(loader)) == (order(dataset)[0], (1, COUNT))
    assert list(batches) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_without_workers_an_interrupted_batch_is_made_again(dataset, error):
    """A second time and a third, in transform and behind it."""
    interruptions = []

    def interrupted(samples):
        if is_first(samples, dataset, 4) and len(interruptions) < 3:
            interruptions.append(samples)
            raise error
        return samples

    first, last = order(dataset)[0][4], order(dataset)[0][-1]

    def transform(sample):
        (identity,) = identities([sample])
        if identity in {first, last} and identity not in interruptions:
            interruptions.append(identity)
            raise error
        return sample

    for options in ({"collate_fn": interrupted}, {"transform": transform}):
        interruptions.clear()
        loader = loader_of(dataset, 0, **options)
        batches, read, told = iter(loader), [], 0
        while not batches.is_over:
            try:
                read += flat([next(batches)])
            except error:
                told += 1
            assert loader.state_dict()["position"] == len(read)
        assert (read, told) == (order(dataset)[0], len(interruptions))
        assert told > 1


def interrupt():
    raise KeyboardInterrupt


class Interrupting:
    """Ctrl-C while the trainer takes it out of PyTorch's queue."""

    def __reduce__(self):
        return interrupt, ()


@pytest.mark.parametrize("persistent", [False, True])
def test_an_interrupt_with_workers_ends_the_iterator_and_moves_nothing(dataset, persistent):
    class Once:
        has_come = multiprocessing.Event()

        def __call__(self, samples):
            if is_first(samples, dataset, 4) and not self.has_come.is_set():
                self.has_come.set()
                return Interrupting()
            return samples

    loader = loader_of(dataset, 2, collate_fn=Once(), persistent_workers=persistent)
    batches, read = iter(loader), []
    with pytest.raises(KeyboardInterrupt):
        take_all(batches, read)
    for _ in range(3):
        with pytest.raises(RuntimeError, match=r"of 6 did not come .*loader\.state_dict"):
            next(batches)
    assert (place(loader), batches.is_over) == ((0, len(read)), False)
    assert read + resumed(dataset, loader) == order(dataset)[0]
    loader.load_state_dict(loader.state_dict())
    assert read + flat(loader) == order(dataset)[0]
    assert flat(loader) == order(dataset, 2)[1]


class Counting:
    """A batching that is interrupted once, just when it was told of the second batch."""

    def __init__(self, batching):
        self.batching = batching
        self.interrupts = [KeyboardInterrupt()]

    def __getattr__(self, name):
        return getattr(self.batching, name)

    def take(self, batches):
        self.batching.take(batches)
        if batches == 2 and self.interrupts:
            raise self.interrupts.pop()


@pytest.mark.parametrize("count", [0, 2])
def test_an_interrupt_while_a_batch_is_counted_takes_it_back(dataset, count):
    loader = loader_of(dataset, count)
    batches = iter(loader)
    batches._batching = Counting(batches._batching)
    read = flat([next(batches)])
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert place(loader) == (0, 2)
    assert read + (resumed(dataset, loader) if count else flat(batches)) == order(dataset)[0]


def test_an_interrupt_behind_the_last_batch_takes_nothing_back(dataset):
    loader = loader_of(dataset, 2)
    batches = iter(loader)
    assert flat(next(batches) for _ in range(BATCHES)) == order(dataset)[0]
    ends = [KeyboardInterrupt()]
    torchs = batches._batches
    end_workers = torchs._shutdown_workers

    def interrupted():
        if ends:
            raise ends.pop()
        end_workers()

    torchs._shutdown_workers = interrupted
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert (list(batches), place(loader)) == ([], (1, COUNT))


@pytest.mark.parametrize("persistent", [False, True])
def test_a_worker_that_dies_costs_no_batch(dataset, persistent):
    """However many batches the others had made, or had yet to make."""

    class Dying:
        has_died = multiprocessing.Event()

        def __call__(self, samples):
            if is_first(samples, dataset, 4) and not self.has_died.is_set():
                self.has_died.set()
                os._exit(3)
            return samples

    loader = loader_of(dataset, 2, collate_fn=Dying(), persistent_workers=persistent)
    batches, read = iter(loader), []
    with pytest.raises(RuntimeError, match="exited unexpectedly") as caught:
        take_all(batches, read)
    # PyTorch's handler of SIGCHLD may raise the error anywhere, also where no note can be added.
    for note in getattr(caught.value, "__notes__", []):
        assert note.endswith("loader.load_state_dict(loader.state_dict()) and a new iter(loader)")
    for _ in range(BATCHES):
        with pytest.raises(RuntimeError, match="did not come"):
            next(batches)
    assert place(loader) == (0, len(read))
    assert read + resumed(dataset, loader) == order(dataset)[0]
    loader.load_state_dict(loader.state_dict())
    assert read + flat(loader) == order(dataset)[0]
    assert flat(loader) == order(dataset, 2)[1]


class Unreadable:
    """Sent without trouble, and of no use over there."""

    def __reduce__(self):
        return int, ("not a number",)


def local_error():
    """An error of a type that no other process can name."""

    class LocalError(Exception):
        pass

    raise LocalError("no such label")


@pytest.mark.parametrize(
    ("make", "count", "message"),
    [
        (Unreadable, 2, "batch 2 came from its worker but cannot be unpickled"),
        (local_error, 2, "no such label"),
        (lambda: next(iter(())), 2, "raised StopIteration"),
        (lambda: next(iter(())), 0, "raised StopIteration"),
        (lambda: {}["key"], 2, "key"),
        (lambda: {}["key"], 0, "key"),
    ],
)
def test_an_error_of_a_batch_costs_this_batch_alone(dataset, make, count, message):
    loader = loader_of(
        dataset,
        count,
        collate_fn=lambda samples: make() if is_first(samples, dataset, 4) else samples,
    )
    batches = iter(loader)
    before = flat([next(batches), next(batches)])
    with pytest.raises(Exception, match=message):
        next(batches)
    # Told is told: who resumes gets what next gives.
    assert place(loader) == (0, 6)
    assert before == order(dataset)[0][:4]
    assert resumed(dataset, loader) == order(dataset)[0][6:]
    assert flat(batches) == order(dataset)[0][6:]


def test_a_tensor_that_cannot_be_received_costs_its_batch(dataset, monkeypatch):
    """As when the trainer has no descriptor left for it."""
    import torch
    from torch.multiprocessing import reductions

    received, calls = reductions.rebuild_storage_fd, []

    def rebuild(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise RuntimeError("received 0 items of ancdata")
        return received(*arguments)

    loader = loader_of(
        dataset, 1, collate_fn=lambda samples: torch.tensor([s.sample_id for s in samples])
    )
    batches = iter(loader)
    monkeypatch.setattr(reductions, "rebuild_storage_fd", rebuild)
    expected = [sample for _, sample in order(dataset)[0]]
    assert next(batches).tolist() == expected[:2]
    with pytest.raises(ValueError, match=r"batch 1 .*received 0 items of ancdata"):
        next(batches)
    assert [number for batch in batches for number in batch.tolist()] == expected[4:]


@pytest.mark.parametrize("error", [BlockingIOError(11, "no process left"), KeyboardInterrupt()])
@pytest.mark.parametrize("persistent", [False, True])
def test_an_iterator_that_cannot_begin_claims_no_epoch(dataset, monkeypatch, error, persistent):
    loader = loader_of(dataset, 2, persistent_workers=persistent)
    fork, calls = os.fork, []

    def refuse():
        calls.append(1)
        if len(calls) % 2 == 0:
            raise error
        return fork()

    monkeypatch.setattr(os, "fork", refuse)
    for _ in range(2):
        with pytest.raises(type(error)):
            iter(loader)
        assert (loader.epoch, place(loader)) == (0, (0, 0))
    monkeypatch.undo()
    assert [flat(loader) for _ in range(2)] == order(dataset, 2)


def test_who_moves_the_dataset_while_workers_start_is_followed(dataset, monkeypatch):
    loader = loader_of(dataset, 2)
    fork, moves = os.fork, [1]

    def moving():
        if moves:
            loader.set_epoch(moves.pop())
        return fork()

    monkeypatch.setattr(os, "fork", moving)
    assert flat(loader) == order(dataset, 2)[1]
    assert (loader.epoch, place(loader)) == (2, (2, 2 * COUNT))


def test_workers_that_died_between_epochs_cost_no_epoch(dataset, pipe):
    def ending(samples):
        """Exit when told, whatever PyTorch waits for."""
        threading.Thread(target=lambda: (os.read(pipe[0], 1), os._exit(0)), daemon=True).start()
        return samples

    before = set(multiprocessing.active_children())
    loader = loader_of(dataset, 2, collate_fn=ending, persistent_workers=True, timeout=20)
    assert flat(loader) == order(dataset)[0]
    workers = set(multiprocessing.active_children()) - before
    assert len(workers) == 2
    os.write(pipe[1], bytes(BATCHES))
    for worker in workers:
        worker.join()
    # What they did not read would end their successors.
    os.set_blocking(pipe[0], False)
    with suppress(BlockingIOError):
        os.read(pipe[0], BATCHES)
    os.set_blocking(pipe[0], True)
    loader.timeout = loader._iterator._timeout = 0.2
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        iter(loader)
    assert (loader.epoch, place(loader)) == (1, (1, COUNT))
    loader.timeout = 60
    assert flat(loader) == order(dataset, 2)[1]


def test_threads_that_share_an_iterator_take_batches_in_turn(dataset):
    batches, threads, taken = None, [], []

    def take():
        taken.append(flat([next(batches)]))

    def collate(samples):
        if not threads:
            threads.append(threading.Thread(target=take))
            threads[0].start()
            # Whoever does not wait for this batch is through by then.
            threads[0].join(0.2)
        return samples

    loader = loader_of(dataset, 0, collate_fn=collate)
    batches = iter(loader)
    first = flat([next(batches)])
    threads[0].join()
    assert [*first, *taken[0], *flat(batches)] == order(dataset)[0]


def test_without_an_order_no_state_is_given_by_any_way(dataset, tmp_path):
    loader = loader_of(dataset, 2, in_order=False)
    batches = iter(loader)
    next(batches)
    for refused in (
        loader.state_dict,
        loader.dataset.state_dict,
        lambda: loader.dataset.save_state(tmp_path / "state"),
    ):
        with pytest.raises(ValueError, match="in_order"):
            refused()
    # Whoever moves it stands where it was moved to.
    for epoch in (3, 0, 1):
        loader.set_epoch(epoch)
        assert place(loader) == (epoch, epoch * COUNT)
    next(batches)
    assert place(loader) == (1, COUNT)
    batches = iter(loader)
    list(batches)
    loader.dataset.save_state(tmp_path / "state")
    assert place(loader) == (2, 2 * COUNT)


def test_lengths_are_known_at_the_end_of_the_stream(dataset):
    dataset.set_epoch_len(2**62)
    dataset.set_epoch(1)
    next(iter(dataset))
    loader = loader_of(dataset, 0)
    stream, single = (dataset.to_torch_iterable_dataset(size) for size in (2, None))
    assert (len(loader), len(stream), len(single)) == (2**61, 2**61, 2**62)
    with pytest.raises(ValueError, match="the stream of samples ends at position"):
        iter(loader)
    share = dataset.partition(1, 3, global_batch_size=4)
    assert len(share.to_torch_iterable_dataset(2)) == 2**60


def test_the_dataset_of_a_loader_is_pickled_as_any_other(dataset):
    import pickle

    import polars as pl

    loader = loader_of(dataset, 0)
    table = loader.dataset.get_metadata()
    loader.dataset.update_metadata(table.with_columns(weight=pl.lit(2.0)))
    received = pickle.loads(pickle.dumps(loader.dataset))
    assert received.get_metadata().equals(loader.dataset.get_metadata())
    assert identities(received) == flat(loader)

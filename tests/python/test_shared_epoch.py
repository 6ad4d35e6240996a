"""Workers read the epoch that their trainer's process set last, however they were started."""

import functools
import multiprocessing
import os
import pickle

import polars as pl
import pytest
from conftest import identities, numbered, opened, run_script, written

import dataset_rt as drt

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*multi-threaded.*fork:DeprecationWarning",
    "ignore:Using fork.*:RuntimeWarning",
)

METHODS = ["fork", "spawn", "forkserver"]
SECONDS = 60


def identity(sample):
    return (sample.cache_id, sample.sample_id)


def seen(dataset):
    """What a worker of a loader reads of the epoch it is told."""
    few = [0, len(dataset) - 1]
    samples = [dataset[few[0]], dataset[few[1]], *dataset.__getitems__(few)]
    return dataset.epoch, len(dataset), [identity(sample) for sample in samples]


def serve(pipe, dataset):
    """Do with the dataset what each message says; answer with the outcome or the error."""
    calls = {
        "seen": seen,
        "iterate": identities,
        "set_epoch": lambda dataset: dataset.set_epoch(100),
        "pickle": lambda dataset: seen(pickle.loads(pickle.dumps(dataset))),
        "grandchild": grandchild_sees,
        "first": lambda dataset: identity(dataset[0]),
        "length": len,
        "epoch": lambda dataset: dataset.epoch,
        "table": lambda dataset: dataset.get_metadata(),
        "batch": lambda dataset: next(dataset.iter_batches(3)),
        "arrow": lambda dataset: dataset.to_arrow(),
        "digest": lambda dataset: dataset.order_digest(0, 9),
        "update": lambda dataset: dataset.update_metadata(dataset.get_metadata()),
    }
    children = []
    for method in METHODS:
        context = multiprocessing.get_context(method)
        start = functools.partial(Worker, context)
        calls[f"start {method}"] = lambda dataset, start=start: children.append(start(dataset))
    calls["seen by child"] = lambda _: children[-1].ask("seen")
    while (name := pipe.recv()) is not None:
        try:
            pipe.send(calls[name](dataset))
        except drt.DatasetRTError as error:
            pipe.send(error)
    for child in children:
        child.__exit__()


def grandchild_sees(dataset):
    with Worker(multiprocessing.get_context("fork"), dataset) as worker:
        return worker.ask("seen")


class Worker:
    """A process that lives on, as the workers of a loader with `persistent_workers` do."""

    def __init__(self, context, dataset):
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, dataset))
        self.process.start()
        theirs.close()

    def ask(self, name):
        self.pipe.send(name)
        assert self.pipe.poll(SECONDS), "the worker hangs"
        return self.pipe.recv()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pipe.send(None)
        self.process.join(SECONDS)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        assert self.process.exitcode == 0
        self.pipe.close()


@pytest.fixture
def dataset(runtime, cache):
    return opened(runtime, cache, seed=3, shuffle=True)


def weighted(dataset):
    return dataset.get_metadata().with_columns(weight=pl.col("number") + 1.0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("has_table", [False, True])
def test_a_living_worker_reads_what_is_set_later(dataset, method, has_table):
    if has_table:
        dataset.update_metadata(weighted(dataset))
    with Worker(multiprocessing.get_context(method), dataset) as worker:
        assert worker.ask("seen") == seen(dataset)
        for change in (
            lambda: dataset.set_epoch(5),
            lambda: dataset.set_epoch_len(30),
            lambda: next(iter(dataset)),
            lambda: next(dataset.iter_batches(7)),
            lambda: dataset.set_epoch(2**40),
            lambda: dataset.load_state_dict({**dataset.state_dict(), "epoch": 77}),
        ):
            before = seen(dataset)
            change()
            assert seen(dataset) != before
            assert worker.ask("seen") == seen(dataset)


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_that_moves_its_own_place_keeps_it(dataset, method):
    dataset.set_epoch(3)
    with Worker(multiprocessing.get_context(method), dataset) as worker:
        dataset.set_epoch(4)
        twin = pickle.loads(pickle.dumps(dataset))
        assert worker.ask("iterate") == identities(twin)
        dataset.set_epoch(9)
        assert worker.ask("seen") == seen(twin)
        assert worker.ask("set_epoch") is None
        assert worker.ask("epoch") == 100
        assert (dataset.epoch, twin.epoch) == (9, 5)


@pytest.mark.parametrize("method", METHODS)
def test_a_replaced_table_is_an_error_in_old_workers(dataset, method):
    with Worker(multiprocessing.get_context(method), dataset) as worker:
        dataset.update_metadata(weighted(dataset))
        asked = "seen", "first", "length", "epoch", "table", "batch", "arrow", "digest"
        for name in (*asked, "iterate", "set_epoch", "pickle"):
            error = worker.ask(name)
            assert isinstance(error, drt.ConflictError), (name, error)
            assert "start new workers" in str(error)
        # Reading with the new table is for new workers.
        with Worker(multiprocessing.get_context(method), dataset) as newer:
            assert newer.ask("seen") == seen(dataset)


@pytest.mark.parametrize("method", METHODS)
def test_a_table_of_the_workers_own_is_no_conflict(dataset, method):
    with Worker(multiprocessing.get_context(method), dataset) as worker:
        assert worker.ask("update") is None
        dataset.update_metadata(weighted(dataset))
        dataset.set_epoch(4)
        assert worker.ask("epoch") == 0


@pytest.mark.parametrize("method", METHODS)
def test_workers_of_workers_follow_whoever_moved_last_among_their_parents(dataset, method):
    with Worker(multiprocessing.get_context(method), dataset) as worker:
        dataset.set_epoch(6)
        assert worker.ask("grandchild") == seen(dataset)
        worker.ask("set_epoch")
        dataset.set_epoch(7)
        assert worker.ask("grandchild")[0] == 100


@pytest.mark.parametrize("second", ["fork", "spawn"])
@pytest.mark.parametrize("first", METHODS)
def test_children_of_workers_follow_and_read_no_old_table(dataset, first, second):
    dataset.update_metadata(weighted(dataset))
    with Worker(multiprocessing.get_context(first), dataset) as worker:
        assert worker.ask(f"start {second}") is None
        for epoch in (6, 7):
            dataset.set_epoch(epoch)
            assert worker.ask("seen by child") == worker.ask("seen") == seen(dataset)
        dataset.update_metadata(dataset.get_metadata().head(9))
        for name in ("seen", "seen by child"):
            error = worker.ask(name)
            assert isinstance(error, drt.ConflictError), (name, error)


@pytest.mark.parametrize("second", ["fork", "spawn"])
def test_children_of_a_worker_follow_it_when_it_moves(dataset, second):
    with Worker(multiprocessing.get_context("fork"), dataset) as worker:
        worker.ask(f"start {second}")
        worker.ask("set_epoch")
        dataset.set_epoch(7)
        assert worker.ask("seen by child")[0] == 100
        dataset.update_metadata(weighted(dataset))
        assert worker.ask("seen by child")[0] == 100
        worker.ask("update")
        assert isinstance(worker.ask("seen by child"), drt.ConflictError)


def test_who_was_forked_unseen_does_not_start_others(cache):
    script = """
        import ctypes, os, sys
        import dataset_rt as drt
        dataset = drt.open_dataset(sys.argv[1], seed=3, shuffle=True)
        child = ctypes.PyDLL(None).fork()
        if child == 0:
            try:
                dataset._native.hand_over(True)
            except drt.UnsupportedError as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """
    assert "without Python's knowledge" in run_script(script, cache)


@pytest.mark.parametrize("method", METHODS)
def test_a_pickle_made_in_a_worker_has_the_place_of_now(dataset, method):
    dataset.update_metadata(weighted(dataset))
    with Worker(multiprocessing.get_context(method), dataset) as worker:
        dataset.set_epoch(6)
        assert worker.ask("pickle") == seen(dataset)


@pytest.mark.parametrize("method", METHODS)
def test_ranks_share_the_epoch_of_their_process(dataset, method):
    part = dataset.partition(1, 3)
    with Worker(multiprocessing.get_context(method), part) as worker:
        part.set_epoch(4)
        dataset.set_epoch(9)
        assert worker.ask("seen") == seen(part)


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_outlives_the_dataset_it_follows(runtime, cache, method):
    dataset = opened(runtime, cache, seed=3, shuffle=True)
    dataset.update_metadata(weighted(dataset))
    dataset.set_epoch(8)
    expected = seen(dataset)
    with Worker(multiprocessing.get_context(method), dataset) as worker:
        del dataset
        assert worker.ask("seen") == expected


def test_following_keeps_no_descriptor_of_forks(runtime, tmp_path):
    path = written(runtime, tmp_path / "caches", numbered(5))
    datasets = [opened(runtime, path, seed=seed) for seed in range(50)]
    before = len(os.listdir("/proc/self/fd"))
    with Worker(multiprocessing.get_context("fork"), datasets[7]) as worker:
        datasets[7].set_epoch(3)
        assert worker.ask("epoch") == 3
        assert len(os.listdir("/proc/self/fd")) < before + 10

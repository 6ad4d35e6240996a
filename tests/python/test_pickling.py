"""Pickled datasets: small, equal where they arrive, and sharing one table in memory."""

import copy
import gc
import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import textwrap

import polars as pl
import pytest
from conftest import identities, numbered, opened, run_script, written
from test_processes import answers_of_child

import dataset_rt as drt

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*multi-threaded.*fork:DeprecationWarning",
    "ignore:Using fork.*:RuntimeWarning",
)

METHODS = ["fork", "spawn", "forkserver"]


def edited(dataset):
    """Weights, an extra column, edited values, dropped and doubled rows, another order."""
    table = dataset.get_metadata()
    table = table.filter(pl.col("number") % 5 != 0)
    table = pl.concat([table, table.head(3)]).reverse()
    table = table.with_columns(
        weight=pl.col("number") + 0.5,
        score=pl.col("score") * -1,
        note="n" + pl.col("number").cast(pl.String) + "-" * 20,
    )
    dataset.update_metadata(table, edited=["score"])
    return dataset


def facts(dataset):
    """Everything about a dataset that its samples and its order show."""
    return {
        "len": len(dataset),
        "epoch": dataset.epoch,
        "fingerprint": dataset.order_fingerprint,
        "digest": dataset.order_digest(0, 500),
        "seed": dataset.position_seed(11),
        "samples": dataset.__getitems__(range(len(dataset))),
        "first": dataset[0],
        "iterated": list(copy.copy(dataset)),
        "batches": [batch.to_pylist() for batch in copy.copy(dataset).iter_batches(16)],
        "table": dataset.get_metadata().to_dicts(),
        "paths": [str(path) for path in dataset.cache_paths],
        "config": dataset.reader_config,
    }


def send_facts(send, dataset):
    send.send(facts(dataset))


@pytest.fixture
def two_caches(runtime, tmp_path):
    return [
        written(runtime, tmp_path / "caches", numbered(60), name="a"),
        written(runtime, tmp_path / "caches", numbered(40, start=60), name="b"),
    ]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["whole", "edited", "edited, in table order"])
def test_a_child_gets_an_equal_dataset(runtime, two_caches, method, kind):
    dataset = opened(runtime, two_caches, seed=3, shuffle=kind != "edited, in table order")
    if kind != "whole":
        edited(dataset)
    dataset.set_epoch_len(77)
    dataset.set_epoch(4)
    context = multiprocessing.get_context(method)
    assert answers_of_child(context, send_facts, dataset) == facts(dataset)


@pytest.mark.parametrize("sampling", ["permutation", "weighted_without_replacement"])
@pytest.mark.parametrize("method", METHODS)
def test_a_child_gets_an_equal_order_in_every_mode(runtime, two_caches, method, sampling):
    dataset = opened(runtime, two_caches, seed=3, shuffle=True, sampling=sampling)
    context = multiprocessing.get_context(method)
    assert answers_of_child(context, send_facts, dataset) == facts(dataset)
    edited(dataset)
    dataset.set_epoch(5)
    assert answers_of_child(context, send_facts, dataset) == facts(dataset)


def test_pickles_are_independent_of_each_other(runtime, cache):
    dataset = edited(opened(runtime, cache, seed=3, shuffle=True))
    dataset.set_epoch(2)
    twin = pickle.loads(pickle.dumps(dataset))
    assert facts(twin) == facts(dataset)
    expected = identities(dataset)
    dataset.set_epoch(9)
    dataset.update_metadata(dataset.get_metadata().head(2), edited=["score"])
    assert (twin.epoch, len(twin)) == (2, len(expected))
    assert identities(twin) == expected
    again = pickle.loads(pickle.dumps(twin))
    assert again.epoch == 3
    assert again.order_fingerprint == twin.order_fingerprint


@pytest.mark.parametrize("send", [copy.copy, copy.deepcopy])
def test_copies_share_everything_but_the_position(runtime, cache, send):
    dataset = edited(opened(runtime, cache, seed=3, shuffle=True))
    dataset.set_epoch(2)
    twin = send(dataset)
    assert twin.runtime is dataset.runtime
    assert facts(twin) == facts(dataset)
    next(iter(twin))
    assert (twin.epoch, dataset.epoch) == (3, 2)
    dataset.update_metadata(dataset.get_metadata().head(2), edited=["score"])
    assert len(twin) > len(dataset) == 2


def test_a_pickle_is_small_whatever_the_row_count(runtime, tmp_path):
    sizes = {}
    for count in (10, 200_000):
        frame = pl.DataFrame({"number": range(count), "payload": [b"x"] * count})
        (result,) = runtime.write_cache(
            drt.ArrowSource(f"rows-{count}", frame),
            tmp_path,
            writer_config=drt.WriterConfig(show_progress=False),
        )
        dataset = opened(runtime, result.path, seed=3, shuffle=True)
        whole = len(pickle.dumps(dataset))
        table = dataset.get_metadata().reverse()
        dataset.update_metadata(table.with_columns(weight=pl.col("number") + 1.0))
        sizes[count] = (whole, len(pickle.dumps(dataset)))
    small, large = sizes.values()
    assert max(large) < 2000
    assert all(abs(a - b) < 100 for a, b in zip(small, large, strict=True))


def test_the_table_is_written_to_memory_once(runtime, cache):
    dataset = edited(opened(runtime, cache, seed=3, shuffle=True))
    first = pickle.dumps(dataset)
    before = len(os.listdir("/proc/self/fd"))
    assert pickle.dumps(dataset) == first
    twins = [pickle.loads(first) for _ in range(3)]
    assert len({twin.order_fingerprint for twin in twins}) == 1
    del twins, dataset
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) < before


def test_a_table_that_is_gone_is_told(runtime, cache):
    dataset = edited(opened(runtime, cache, seed=3, shuffle=True))
    sent = pickle.dumps(dataset)
    del dataset
    gc.collect()
    with pytest.raises(drt.NotFoundError, match="save_state"):
        pickle.loads(sent)


def test_a_table_that_was_replaced_is_told(runtime, cache):
    dataset = edited(opened(runtime, cache, seed=3, shuffle=True))
    sent = pickle.dumps(dataset)
    dataset.update_metadata(dataset.get_metadata().head(5), edited=["score"])
    # Its descriptor has most likely been given to this one.
    pickle.dumps(dataset)
    gc.collect()
    with pytest.raises(drt.NotFoundError, match="memory"):
        pickle.loads(sent)


UNPICKLING = """
    import pickle, sys
    from pathlib import Path
    import dataset_rt as drt
    try:
        dataset = pickle.loads(Path(sys.argv[1]).read_bytes())
        print(dataset.order_digest(0, 300), dataset[3].sample_id)
    except drt.DatasetRTError as error:
        print(type(error).__name__, error)
"""


def test_a_process_that_is_no_child_unpickles_it_while_the_dataset_lives(runtime, cache, tmp_path):
    dataset = edited(opened(runtime, cache, seed=3, shuffle=True))
    path = tmp_path / "pickle"
    path.write_bytes(pickle.dumps(dataset))
    assert run_script(UNPICKLING, path).split()[0] == dataset.order_digest(0, 300)
    del dataset
    gc.collect()
    assert run_script(UNPICKLING, path).startswith("NotFoundError the table of this dataset")


def test_a_cache_with_other_contents_is_told_with_both_digests(runtime, tmp_path):
    path = written(runtime, tmp_path / "caches", numbered(50))
    dataset = opened(runtime, path)
    digest = json.loads(path.joinpath("manifest.json").read_text())["content_blake3"]
    sent = pickle.dumps(dataset)
    shutil.rmtree(path)
    with pytest.raises(drt.NotFoundError, match=digest) as missing:
        pickle.loads(sent)
    assert str(path) in str(missing.value)
    written(runtime, tmp_path / "caches", numbered(51))
    other = json.loads(path.joinpath("manifest.json").read_text())["content_blake3"]
    with pytest.raises(drt.ConflictError) as replaced:
        pickle.loads(sent)
    assert all(part in str(replaced.value) for part in (digest, other, str(path)))


def test_unpickled_datasets_share_one_runtime(runtime, cache):
    sent = [pickle.dumps(opened(runtime, cache, seed=seed)) for seed in range(3)]
    twins = [pickle.loads(each) for each in sent]
    assert len({id(twin.runtime) for twin in twins}) == 1
    assert twins[0].runtime is not runtime
    assert twins[0].runtime.num_workers <= min(2, len(os.sched_getaffinity(0)))
    twins[0].runtime.close()
    assert len(list(pickle.loads(sent[0]))) == 50


def test_a_working_directory_is_not_part_of_a_pickle(runtime, cache, tmp_path, monkeypatch):
    monkeypatch.chdir(cache.parent)
    dataset = opened(runtime, cache.name)
    sent = pickle.dumps(dataset)
    monkeypatch.chdir(tmp_path)
    assert identities(pickle.loads(sent)) == identities(dataset)


def test_a_share_of_ranks_stays_one(runtime, cache):
    dataset = edited(opened(runtime, cache, seed=3, shuffle=True))
    part = dataset.partition(1, 3, global_batch_size=7, drop_last=True)
    for twin in (pickle.loads(pickle.dumps(part)), copy.copy(part)):
        assert facts_of_share(twin) == facts_of_share(part)


def facts_of_share(part):
    samples = [part[i] for i in range(len(part))]
    batches = [batch.num_rows for batch in copy.copy(part).iter_batches(3)]
    return repr(part), samples, identities(copy.copy(part)), batches


def test_a_place_inside_an_epoch_is_kept(runtime, cache):
    dataset = opened(runtime, cache, seed=3, shuffle=True)
    samples = iter(dataset)
    for _ in range(7):
        next(samples)
    state = dataset.state_dict()
    dataset.load_state_dict(state)
    twin = pickle.loads(pickle.dumps(dataset))
    assert twin.state_dict() == state
    assert identities(twin) == identities(samples)


MANY_TYPES = {
    "text": pl.Series(["a" * 40, None, "b"], dtype=pl.String),
    "category": pl.Series(["x", None, "y"], dtype=pl.Categorical),
    "list": pl.Series([[1, 2], None, []], dtype=pl.List(pl.Int16)),
    "struct": pl.Series([{"s": "t" * 30}, None, {"s": None}]),
    "nothing": pl.Series([None, None, None], dtype=pl.Null),
    "moment": pl.Series([1, None, 3], dtype=pl.Datetime("ns", "Europe/Berlin")),
    "flag": pl.Series([True, None, False]),
}


def test_extra_columns_of_any_type_arrive(runtime, cache):
    dataset = opened(runtime, cache)
    parts = [
        dataset.get_metadata().slice(start, 3).with_columns(**MANY_TYPES) for start in (0, 9, 30)
    ]
    dataset.update_metadata(pl.concat(parts, rechunk=False))
    twin = pickle.loads(pickle.dumps(dataset))
    assert twin.get_metadata().equals(dataset.get_metadata())
    assert twin.get_metadata().schema == dataset.get_metadata().schema
    assert list(twin) == list(dataset)


CHILD_MEMORY = """
    import json, multiprocessing, sys
    from pathlib import Path
    import polars as pl
    import dataset_rt as drt

    def memory():
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
        fields = (line.split(":") for line in lines)
        return {name: int(value.split()[0]) * 1024 for name, value in fields}

    def read(pipe, dataset):
        dataset[0]
        before = memory()["Anonymous"]
        for start in range(0, len(dataset), len(dataset) // 40):
            dataset.__getitems__(range(start, start + 256))
        pipe.send((memory()["Anonymous"], memory()["Anonymous"] - before))

    def nothing(pipe, dataset):
        import polars, pyarrow
        pipe.send((memory()["Anonymous"], 0))

    def in_child(target, dataset):
        context = multiprocessing.get_context("spawn")
        receive, send = context.Pipe(duplex=False)
        child = context.Process(target=target, args=(send, dataset))
        child.start()
        assert receive.poll(60)
        answer = receive.recv()
        child.join(60)
        return answer

    if __name__ == "__main__":
        dataset = drt.open_dataset(sys.argv[1], seed=1, shuffle=True)
        table = dataset.get_metadata()
        table = table.with_columns(weight=1.0 + pl.int_range(pl.len()) % 1000).reverse()
        dataset.update_metadata(table.with_columns(note="n" + pl.col("number").cast(pl.String)))
        del table
        empty = in_child(nothing, None)[0]
        print(json.dumps([in_child(read, dataset)[0] - empty, len(dataset)]))
"""


def test_a_started_child_holds_no_table_of_its_own(runtime, tmp_path):
    count = 1_000_000
    frame = pl.DataFrame({"number": range(count), "payload": [b"x"] * count})
    (result,) = runtime.write_cache(
        drt.ArrowSource("rows", frame),
        tmp_path,
        writer_config=drt.WriterConfig(show_progress=False),
    )
    script = tmp_path / "memory.py"
    script.write_text(textwrap.dedent(CHILD_MEMORY))
    done = subprocess.run(
        [sys.executable, script, result.path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    added, rows = json.loads(done.stdout)
    print(f"{added / 2**20:.1f} MiB for {rows} rows")
    # The table and its order have about 60 bytes a row; everything else does not grow with rows.
    assert added < 24 * 2**20

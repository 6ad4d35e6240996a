"""One sample at a time: the short way, which never waits, gives what the long way gives.

The short way is `NativeDataset.item_at_hand` and its like, which say `None` where they would have
to open, read, hash or decompress something; the long way is what comes then.
"""

import json
from datetime import UTC, date, datetime

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from conftest import QUIET, numbered, opened, run_script, written
from hypothesis import given, settings
from hypothesis import strategies as st

import dataset_rt as drt

PLAIN = {
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "int16": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint8": (pa.uint8(), st.integers(0, 2**8 - 1)),
    "uint16": (pa.uint16(), st.integers(0, 2**16 - 1)),
    "uint32": (pa.uint32(), st.integers(0, 2**32 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "float64": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.large_string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "binary": (pa.large_binary(), st.binary()),
    "null": (pa.null(), st.none()),
}
NOT_PLAIN = {
    "date": (pa.date32(), st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    "time": (
        pa.timestamp("us", "UTC"),
        st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    ),
}


def plain(sample):
    """A sample with all types spelled out, so that 1, 1.0 and True differ."""
    data, metadata, cache_id, sample_id = sample
    shown = {name: (type(value), value) for name, value in metadata.items()}
    return type(sample), bytes(data), type(data), list(shown.items()), cache_id, sample_id


def both_ways(dataset, cache_id, row):
    """The short way's sample or None, and the long way's, which verifies first."""
    long = dataset._native.get_item(cache_id, row)
    return dataset._native.item_at_hand(cache_id, row), long


@st.composite
def tables(draw, columns):
    names = draw(st.lists(st.sampled_from(sorted(columns)), unique=True, max_size=6))
    count = draw(st.integers(1, 20))
    arrays = {"payload": pa.array(draw(lists(st.binary(max_size=40), count)), pa.large_binary())}
    for name in names:
        kind, values = columns[name]
        arrays[name] = pa.array(draw(lists(st.none() | values, count)), kind)
    return pa.table(arrays)


def are_plain(names):
    # Where all is null nobody ever looked at the metadata.
    return not set(names) & set(NOT_PLAIN) and names != ["null"]


def lists(values, count):
    return st.lists(values, min_size=count, max_size=count)


@pytest.mark.parametrize("zero_copy", [False, True])
@pytest.mark.parametrize("columns", [PLAIN, {**PLAIN, **NOT_PLAIN}], ids=["plain", "all"])
def test_both_ways_give_equal_samples_of_equal_types(runtime, tmp_path_factory, columns, zero_copy):
    @settings(max_examples=40, deadline=None)
    @given(table=tables(columns), seed=st.integers(0, 9))
    def check(table, seed):
        directory = tmp_path_factory.mktemp("single")
        source = drt.ArrowSource("s", table, payload="payload")
        (result,) = runtime.write_cache(source, directory, writer_config=QUIET)
        dataset = opened(runtime, result.path, seed=seed, shuffle=True, zero_copy=zero_copy)
        cache_id = drt.open_cache(result.path).cache_id
        rows = range(table.num_rows)
        expected = [dataset._native.sample_at(i) for i in rows]
        for row in rows:
            short, long = both_ways(dataset, cache_id, row)
            assert short is not None or not are_plain(table.column_names[1:])
            assert short is None or plain(short) == plain(long)
            assert plain(dataset.get_item(cache_id, row)) == plain(long)
        assert [plain(dataset[i]) for i in rows] == [plain(sample) for sample in expected]

    check()


def test_users_tables_give_their_own_values_the_short_way(runtime, cache):
    dataset = opened(runtime, cache, seed=3, shuffle=True)
    table = dataset.get_metadata()[::2].with_columns(
        weight=pl.col("number") + 0.5,
        label=pl.col("label") + "!",
        extra=pl.col("number").cast(pl.Float32),
        missing=pl.when(pl.col("number") > 20).then(pl.col("number").cast(pl.Int8)),
    )
    dataset.update_metadata(table, edited=["label"])
    # The first look works the order out, and verifies.
    expected = [dataset._native.sample_at(i) for i in range(len(dataset))]
    for i, sample in enumerate(expected):
        assert plain(dataset._native.sample_at_hand(i)) == plain(dataset[i]) == plain(sample)
        number = sample.metadata["number"]
        assert sample.metadata["label"] == f"l{number % 7}!"
        assert sample.metadata["missing"] == (number if number > 20 else None)


def test_categories_of_a_users_table_go_the_long_way(runtime, cache):
    dataset = opened(runtime, cache)
    kinds = pl.Series(["a", "b"] * 25, dtype=pl.Categorical)
    dataset.update_metadata(dataset.get_metadata().with_columns(kind=kinds))
    assert [dataset[i].metadata["kind"] for i in range(4)] == ["a", "b", "a", "b"]
    assert dataset._native.sample_at_hand(1) is None


def test_several_caches_are_told_apart(runtime, tmp_path):
    paths = [written(runtime, tmp_path, numbered(9, i), name=f"c{i}") for i in (0, 20, 40)]
    dataset = opened(runtime, paths, shuffle=True)
    everything = list(dataset)
    for sample in everything:
        short, long = both_ways(dataset, sample.cache_id, sample.sample_id)
        assert plain(short) == plain(long) == plain(sample)
    assert [dataset[i] for i in range(27)] == dataset.__getitems__(range(27))


@pytest.mark.parametrize(
    "options", [{"io": "pread"}, {"algo": "lz4"}, {"algo": "zstd", "scope": "buffer"}]
)
def test_what_is_not_mapped_as_it_is_goes_the_long_way(runtime, tmp_path, options):
    io = options.pop("io", "auto")
    config = drt.WriterConfig(
        show_progress=False, shard_compression=drt.ShardCompression(**options)
    )
    dataset = opened(runtime, written(runtime, tmp_path, numbered(9), config=config), io=io)
    samples = list(dataset)
    for i, sample in enumerate(samples):
        assert both_ways(dataset, sample.cache_id, i)[0] is None
        assert dataset[i] == dataset.get_item(sample.cache_id, i) == sample


def test_nothing_is_hashed_the_short_way(runtime, cache):
    dataset = opened(runtime, cache)
    cache_id = drt.open_cache(cache).cache_id
    assert dataset._native.item_at_hand(cache_id, 3) is None
    sample = dataset.get_item(cache_id, 3)
    assert plain(dataset._native.item_at_hand(cache_id, 3)) == plain(sample)


@pytest.mark.parametrize("bad", [True, 1.0, "1", None, -1, 2**64, slice(2), 50])
def test_errors_are_those_of_the_long_way(runtime, cache, bad):
    dataset = opened(runtime, cache)
    cache_id = dataset[0].cache_id
    kind = drt.SampleNotFoundError if type(bad) is int else TypeError
    for call in (lambda: dataset[bad], lambda: dataset.get_item(cache_id, bad)):
        with pytest.raises(kind):
            call()


def test_other_integers_are_taken(runtime, cache):
    dataset = opened(runtime, cache)
    cache_id = dataset[0].cache_id
    assert dataset[np.int8(5)] == dataset.get_item(np.uint64(cache_id), np.int16(5))
    assert dataset.__getitems__(np.array([5, 5]))[1] == dataset.__getitems__((5,))[0] == dataset[5]


def test_a_closed_runtime_is_told(tmp_path):
    with drt.DatasetRuntime(num_workers=1) as runtime:
        dataset = opened(runtime, written(runtime, tmp_path, numbered(3)))
        cache_id = dataset[0].cache_id
    for call in (lambda: dataset[0], lambda: dataset.get_item(cache_id, 0)):
        with pytest.raises(drt.DatasetRTError, match="closed"):
            call()


COLLECTED = """
    import gc, os, sys
    import dataset_rt as drt

    dataset = drt.open_dataset(sys.argv[1])
    cache_id = dataset[0].cache_id
    done = []

    class Loop:
        '''Garbage whose finaliser asks for samples and forks, in the middle of an allocation.'''
        def __init__(self):
            self.me = self
        def __del__(self):
            done.append(dataset.get_item(cache_id, 7).sample_id)
            if len(done) % 50 == 1:
                pid = os.fork()
                if pid == 0:
                    os._exit(dataset.get_item(cache_id, 9).sample_id)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9

    gc.set_threshold(5)
    kept = []
    for i in range(2000):
        Loop()
        kept.append(dataset.get_item(cache_id, i % 50))
        kept.append(dataset[i % 50])
    assert [s.sample_id for s in kept[::2]] == [s.sample_id for s in kept[1::2]]
    print(len(done))
"""


def test_finalisers_that_run_in_between_may_read_and_fork(cache):
    assert json.loads(run_script(COLLECTED, cache)) > 100


REPLACED = """
    import sys, threading
    import numpy as np
    import pyarrow as pa
    import dataset_rt as drt

    dataset = drt.open_dataset(sys.argv[1])
    table = dataset.get_metadata().to_arrow()
    replacing = True

    def ask():
        while replacing:
            assert len(dataset) == 50 and dataset[0].metadata["own"] == 0.0

    # pyarrow takes the interpreter lock to let go of memory of NumPy's.
    dataset.update_metadata(table.append_column("own", pa.array(np.zeros(50))))
    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(200):
        dataset.update_metadata(table.append_column("own", pa.array(np.zeros(50))))
    replacing = False
    asking.join()
"""


def test_a_replaced_table_is_let_go_while_others_ask(cache):
    run_script(REPLACED, cache)

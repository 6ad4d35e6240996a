"""Single steps of ours under pytest-benchmark: `make bench-micro`; for comparing two builds.

`--benchmark-save=NAME` keeps a run, `--benchmark-compare` sets the next one beside it. Rows are a
million, so that a figure in milliseconds is one in nanoseconds a row.
"""

import os

import polars as pl
import pyarrow as pa
import pytest

import dataset_rt as drt
from benchmarks.workloads import Workload

ROWS = int(os.environ.get("MICRO_ROWS", "1_000_000"))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    workload = Workload("tiny", ROWS)
    numbers = pa.array(range(ROWS))
    stored = pa.table(
        {
            "payload": pa.array([data for data, _ in workload.samples()], pa.large_binary()),
            "label": numbers,
            "score": numbers.cast(pa.float64()),
            "split": pa.array(["train", "valid"] * (ROWS // 2)),
        }
    )
    with drt.DatasetRuntime() as runtime:
        source = drt.ArrowSource("samples", stored, payload="payload")
        config = drt.WriterConfig(show_progress=False)
        (result,) = runtime.write_cache(
            source, tmp_path_factory.mktemp("micro"), writer_config=config
        )
    return result.path


@pytest.fixture
def table_order(path):
    return ready(drt.open_dataset(path))


@pytest.fixture
def drawn(path):
    dataset = drt.open_dataset(path, seed=1, shuffle=True)
    weights = pl.Series(Workload("tiny", ROWS).weights)
    dataset.update_metadata(dataset.get_metadata().with_columns(weight=weights))
    return ready(dataset)


def ready(dataset):
    """Verified: that belongs to a first epoch."""
    consume(dataset.iter_batches(4096))
    return dataset


def consume(items):
    for _ in items:
        pass


def test_draws(benchmark, drawn):
    """The sampler and identities alone: nothing is read from shards."""
    benchmark(lambda: consume(drawn.iter_batches(4096, columns=["cache_id", "sample_id"])))


def test_drawn_metadata(benchmark, drawn):
    benchmark(lambda: consume(drawn.iter_batches(4096, columns=["label", "score", "split"])))


def test_drawn_payload_views(benchmark, drawn):
    benchmark(lambda: consume(drawn.iter_batches(4096, columns=["payload"])))


def test_drawn_samples(benchmark, drawn):
    """Draws, reading and Python objects."""
    benchmark(lambda: consume(drawn))


def test_samples_in_table_order(benchmark, table_order):
    """Block decoding and Python objects."""
    benchmark(lambda: consume(table_order))


def test_get_metadata(benchmark, table_order):
    benchmark(table_order.get_metadata)


def test_update_metadata(benchmark, table_order):
    """Full validation: identities, weights, and stored columns that are equal."""
    table = table_order.get_metadata()
    benchmark(lambda: table_order.update_metadata(table))


def test_update_metadata_in_another_order(benchmark, table_order):
    table = table_order.get_metadata().reverse()
    benchmark(lambda: table_order.update_metadata(table))

"""DatasetRT with its defaults: verification on, everything durable when the write returns."""

import dataset_rt as drt
from benchmarks import engines
from benchmarks.workloads import COLUMNS

BATCH_ROWS = 256
# What is imported at its first use belongs to the imports here.
_ = drt.ReaderConfig, drt.WriterConfig, drt.DatasetRuntime
OPTIONS = {"": {}, "zero_copy": {"zero_copy": True}, "pread": {"io": "pread"}, "batches": {}}


class Source:
    """The samples as a cache source."""

    name = "samples"

    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        return iter(self.samples)


def write(directory, samples, compression="none"):
    config = drt.WriterConfig(
        show_progress=False, shard_compression=drt.ShardCompression(algo=compression)
    )
    with drt.DatasetRuntime() as runtime:
        (result,) = runtime.write_cache(Source(samples), directory, writer_config=config)
    if not isinstance(result, drt.CacheWriteSuccess):
        raise RuntimeError(result.message)


class Reader(engines.Reader):
    def __init__(self, directory, workload, mode):
        self.runtime = drt.DatasetRuntime()
        self.path = directory / Source.name
        self.options = OPTIONS[mode]
        self.delivers_batches = mode == "batches"
        self.table_order = self.open(shuffle=False)

    def open(self, **options):
        config = drt.ReaderConfig(seed=1, **options, **self.options)
        return self.runtime.cached_dataset(self.path, reader_config=config)

    def epoch(self, dataset):
        if self.delivers_batches:
            return dataset.iter_batches(BATCH_ROWS, columns=[*COLUMNS, "payload"])
        return iter(dataset)

    def sequential(self):
        return self.epoch(self.table_order)

    def set_weights(self, workload):
        import polars as pl

        self.drawn = self.open(shuffle=True)
        weight = pl.Series(workload.weights)
        self.drawn.update_metadata(self.drawn.get_metadata().with_columns(weight=weight))
        self.cache_id = self.table_order[0].cache_id

    def weighted(self):
        return self.epoch(self.drawn)

    def get(self, row):
        if self.delivers_batches:
            raise engines.CannotError("batches are a face of epochs")
        return self.table_order.get_item(self.cache_id, row)

    def get_batch(self, rows):
        if self.delivers_batches:
            raise engines.CannotError("batches are a face of epochs")
        return self.table_order.__getitems__(rows)

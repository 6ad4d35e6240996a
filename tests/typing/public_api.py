"""What type checkers see of the public API; mypy reads this file, nothing runs it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, assert_type

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from typing_extensions import Buffer

import dataset_rt as drt


class Words:
    """A source as users write it: plain attributes satisfy the read-only members."""

    name = "words"
    fingerprint = "1"
    provenance = {"from": "here"}

    def __len__(self) -> int:
        """Return one."""
        return 1

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Yield one sample."""
        yield drt.CacheInput(b"", {"a": 1, "b": None})


def sources_are_protocols(words: Words, table: drt.ArrowSource) -> None:
    """Plain classes and ArrowSource are sources."""
    source: drt.CacheSource = words
    source = table
    fingerprint: drt.HasFingerprint = words
    fingerprint = table
    length: drt.HasLength = words
    provenance: drt.HasProvenance = words
    del source, fingerprint, length, provenance


def writing(runtime: drt.DatasetRuntime, words: Words) -> None:
    """Results are unions made for match."""
    results = runtime.write_cache([words], "caches", writer_config=drt.WriterConfig())
    assert_type(results, list[drt.CacheWriteSuccess | drt.CacheWriteError])
    for result in results:
        match result:
            case drt.CacheWriteSuccess(name, path, status, reused):
                assert_type(name, str)
                assert_type(path, Path)
                assert_type(status, Literal["written", "reused", "resumed"])
                assert_type(reused, int)
            case drt.CacheWriteError(name, message, exception):
                assert_type(message, str)
                assert_type(exception, BaseException | None)
        assert_type(result.path, Path)
    outcome = runtime.from_cache_sources(
        words, Path("caches"), reader_config=drt.ReaderConfig(seed=1)
    )
    if isinstance(outcome, drt.CacheSourcesDatasetSuccess):
        assert_type(outcome.dataset, drt.CachedDataset)
    else:
        assert_type(outcome, drt.CacheSourcesDatasetError)
    one_line = runtime.from_cache_sources(
        words, "caches", reader_config=drt.ReaderConfig(seed=1)
    ).dataset
    assert_type(one_line, drt.CachedDataset)
    assert_type(one_line.epoch, int)


def reading(dataset: drt.CachedDataset, frame: pl.DataFrame) -> None:
    """Samples, positions and tables have exact types."""
    assert_type(iter(dataset), Iterator[drt.CachedSample])
    assert_type(len(dataset), int)
    assert_type(dataset[0], drt.CachedSample)
    assert_type(dataset.__getitems__([0]), list[drt.CachedSample])
    sample = dataset.get_item(1, 2)
    assert_type(sample.data, bytes)
    assert_type(sample.metadata, dict[str, Any])
    assert_type(sample.cache_id, int)
    assert_type(dataset.get_metadata(), pl.DataFrame)
    dataset.update_metadata(frame, edited=["label"])
    assert_type(dataset.epoch, int)
    assert_type(dataset.order_fingerprint, str)
    assert_type(dataset.order_digest(0, 1), str)
    assert_type(dataset.position_seed(0), int)
    assert_type(dataset.cache_paths, tuple[Path, ...])
    assert_type(dataset.reader_config, drt.ReaderConfig)
    assert_type(dataset.runtime.num_workers, int)
    assert_type(drt.open_dataset("cache", seed=1, io="pread"), drt.CachedDataset)


def training(dataset: drt.CachedDataset) -> None:
    """Loaders take DataLoader's arguments by their names; what they return is PyTorch's."""
    share = dataset.partition()
    assert_type(share, drt.CachedDataset)
    loader = share.to_torch_dataloader(batch_size=8, collate_fn=list, pin_memory=True)
    assert_type(loader.epoch, int)
    assert_type(len(loader), int)
    assert_type(loader.state_dict(), dict[str, int | str | bool])
    loader.dataset.update_metadata(loader.dataset.get_metadata())
    assert_type(len(dataset.to_torch_iterable_dataset(4)), int)
    dataset.to_torch_dataloader(num_werkers=2)  # type: ignore[call-arg]
    dataset.to_torch_dataloader(num_workers="many")  # type: ignore[arg-type]


def inspecting() -> None:
    """Caches and reports have exact types."""
    cache = drt.open_cache("cache")
    assert_type(cache.manifest, dict[str, Any])
    assert_type(cache.num_samples, int)
    assert_type(cache.cache_id, int)
    assert_type(cache.metadata(), pl.DataFrame)
    assert_type(cache.shards(), list[drt.Shard])
    page = drt.write_report(Path("cache"), "report.html", balance="label", draws=1000)
    assert_type(page, drt.WrittenReport)
    assert_type(page.ok, bool)
    assert_type(page.troubles, tuple[str, ...])
    report = drt.verify_cache(Path("cache"), level="deep")
    assert_type(report.ok, bool)
    assert_type(report.findings, tuple[drt.Finding, ...])
    assert_type(report.to_json(), str)


def arrays(sample: drt.CachedSample, batch: pa.RecordBatch) -> None:
    """Payloads as arrays of any dtype."""
    assert_type(drt.payload_array(sample.data, "float32", (2, 3)), npt.NDArray[Any])
    assert_type(drt.payload_arrays(batch, np.uint8, 3, copy=False), npt.NDArray[Any])


def aliases(
    value: drt.MetadataValue,
    data: drt.BytesLike,
    algo: drt.CompressionAlgo,
    pixels: npt.NDArray[np.uint8],
) -> None:
    """The aliases for annotations mean what the documentation says."""
    buffer: Buffer | npt.NDArray[Any] = data
    drt.CacheInput(np.zeros(3, np.float32), {"a": 1})
    drt.CacheInput(pixels, {"a": 1})
    drt.CacheInput(memoryview(b""), {"a": 1})
    metadata: drt.Metadata = {"a": value}
    assert_type(algo, Literal["none", "lz4", "zstd"])
    del buffer, metadata


def mistakes_are_seen(runtime: drt.DatasetRuntime) -> None:
    """Each ignore below is an error that must stay one: mypy refuses an unused ignore."""
    runtime.write_cache(object(), "caches")  # type: ignore[arg-type]
    runtime.cached_dataset("cache", reader_config={"seed": 1})  # type: ignore[arg-type]
    drt.ReaderConfig()  # type: ignore[call-arg]
    drt.ReaderConfig(seed="1")  # type: ignore[arg-type]
    drt.open_dataset("cache", sede=1)  # type: ignore[call-arg]
    drt.verify_cache("cache", level="all")  # type: ignore[arg-type]
    drt.CacheInput("text", {})  # type: ignore[arg-type]

"""`bench`: how fast a cache is read on this machine, in a few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.console import RenderableType
from rich.text import Text

from dataset_rt.cli.console import line, paragraph, show, show_json, table
from dataset_rt.cli.options import CachesArgument, JsonOption
from dataset_rt.cli.progress import counting
from dataset_rt.text import count, counted, path_text, seconds, size

if TYPE_CHECKING:
    from dataset_rt.dataset import CachedDataset

    _Read: TypeAlias = Callable[[CachedDataset], Iterator[Any]]
    _Measure: TypeAlias = Callable[[Any], tuple[int, int]]

_BATCH_ROWS = 256
_NOTE = (
    "Each way opens the caches anew and checks each block when it first touches it. Files may be "
    "in memory already; what a disk adds is in it only for what was not."
)


@dataclass(frozen=True, slots=True)
class _Run:
    """One way of reading.

    Attributes:
        way: `sequential`, `shuffled` or `batches`.
        samples: Samples read.
        payload_bytes: Bytes of their payloads.
        seconds: Time taken, opening included.
        first_sample_seconds: Time until the first sample, opening included.
        epochs: How often the whole was read.
    """

    way: str
    samples: int
    payload_bytes: int
    seconds: float
    first_sample_seconds: float
    epochs: float


def bench(
    caches: CachesArgument,
    limit: Annotated[
        float,
        typer.Option("--seconds", metavar="S", min=0.1, max=3600, help="Time for each way."),
    ] = 2.0,
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", min=1, help="Native threads [default: all CPUs]."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how fast caches are read on this machine.

    Reads for some seconds in order, shuffled, and in shuffled batches. Payloads are read, verified
    and handed over, as Python bytes or, in batches, as Arrow views.
    """
    from dataset_rt.config import ReaderConfig  # noqa: PLC0415 - pydantic
    from dataset_rt.runtime import DatasetRuntime  # noqa: PLC0415 - Polars and pydantic

    ways: list[tuple[str, bool, _Read, _Measure]] = [
        ("sequential", False, iter, _of_sample),
        ("shuffled", True, iter, _of_sample),
        ("batches", True, lambda dataset: dataset.iter_batches(_BATCH_ROWS), _of_batch),
    ]
    runs = []
    with DatasetRuntime(workers) as runtime, counting("reading", len(ways)) as on_progress:
        for way, shuffle, read, measure in ways:
            config = ReaderConfig(seed=0, shuffle=shuffle)
            started = time.perf_counter()
            dataset = runtime.cached_dataset(caches, reader_config=config)
            runs.append(_timed(way, dataset, (read, measure), started, limit))
            on_progress(len(runs))
        threads = runtime.num_workers
    if as_json:
        ways_read = [
            asdict(run)
            | {
                "samples_per_second": run.samples / run.seconds,
                "bytes_per_second": run.payload_bytes / run.seconds,
            }
            for run in runs
        ]
        show_json({"caches": [str(path) for path in caches], "workers": threads, "runs": ways_read})
    else:
        show(*_drawn(caches, threads, runs))


def _timed(
    way: str, dataset: CachedDataset, how: tuple[_Read, _Measure], started: float, limit: float
) -> _Run:
    read, measure = how
    samples = payload_bytes = 0
    first = None
    while first is None or time.perf_counter() - started < limit:
        for item in read(dataset):
            now = time.perf_counter() - started
            first = now if first is None else first
            rows, size_bytes = measure(item)
            samples += rows
            payload_bytes += size_bytes
            if now > limit:
                break
    duration = time.perf_counter() - started
    return _Run(way, samples, payload_bytes, duration, first, samples / len(dataset))


def _of_sample(sample: Any) -> tuple[int, int]:
    return 1, len(sample.data)


def _of_batch(batch: Any) -> tuple[int, int]:
    import polars as pl  # noqa: PLC0415 - imported by what opened the dataset

    return batch.num_rows, int(pl.Series(batch["payload"]).bin.size().sum())


def _drawn(caches: list[Path], threads: int, runs: list[_Run]) -> list[RenderableType]:
    rows = [
        (
            run.way if run.way != "batches" else f"batches of {_BATCH_ROWS}",
            count(round(run.samples / run.seconds)),
            f"{size(run.payload_bytes / run.seconds)}/s",
            seconds(run.first_sample_seconds),
            count(run.samples),
            f"{run.epochs:.2f}" if run.epochs < 10 else count(round(run.epochs)),
        )
        for run in runs
    ]
    headings = ("way", ">samples/s", ">payload", ">first sample", ">samples read", ">epochs")
    return [
        line(
            (", ".join(path_text(path) for path in caches), "bold"),
            f"  {counted(threads, 'native thread')}",
        ),
        Text(),
        table(headings, rows, flexible=("way",)),
        Text(),
        paragraph(_NOTE, "dim"),
    ]

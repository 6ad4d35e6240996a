"""`dataset-rt import`: files of other libraries as caches; knows nothing of how they are read."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dataset_rt.cli.console import line, show, show_json, styled, tell
from dataset_rt.cli.import_options import (
    CachesDir,
    Columns,
    Compression,
    Fingerprint,
    MaxShardBytes,
    Name,
    NoPayload,
    OnStale,
    Paths,
    Payload,
    PayloadFiles,
    Processes,
    Root,
    TransformFunction,
    TransformVersion,
    Writing,
    in_terms_of_options,
    name_of,
    payload_of,
)
from dataset_rt.cli.import_outcomes import failure_of, remarks, what_is_kept
from dataset_rt.cli.options import JsonOption, example
from dataset_rt.errors import InvalidInputError
from dataset_rt.inspection.lengths import lengths_of
from dataset_rt.text import count, counted, path_text, size

if TYPE_CHECKING:
    from dataset_rt.results import CacheWriteSuccess
    from dataset_rt.sources import CacheSource

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Make a cache of an image folder, tables, tar shards or a dataset of another library.",
)


@app.command(**example("dataset-rt import images photos/ caches/"))
def images(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Holds LABEL/.../FILE.")],
    caches_dir: CachesDir,
    *,
    name: Name = None,
    extensions: Annotated[
        str | None, typer.Option(help="Separated by commas, '*' for all; else those of images.")
    ] = None,
    labels: Annotated[bool, typer.Option(help="Whether directories are labels.")] = True,
    compression: Compression = "none",
    max_shard_bytes: MaxShardBytes = None,
    processes: Processes = None,
    transform: TransformFunction = None,
    transform_version: TransformVersion = None,
    fingerprint: Fingerprint = None,
    on_stale: OnStale = "error",
    as_json: JsonOption = False,
) -> None:
    """Import a folder of images, labelled by its directories."""
    from dataset_rt.sources import ImageFolderSource  # noqa: PLC0415 - pyarrow

    writing = Writing.of(locals())
    options: dict[str, Any] = {"name": name, "labels": labels}
    if extensions is not None:
        options["extensions"] = None if extensions == "*" else extensions.split(",")
    _write(writing, ImageFolderSource, folder, **options)


@app.command(**example("dataset-rt import parquet 'train-*.parquet' caches/ --payload image"))
def parquet(
    paths: Paths,
    caches_dir: CachesDir,
    *,
    name: Name = None,
    payload: Payload = None,
    payload_files: PayloadFiles = None,
    root: Root = None,
    no_payload: NoPayload = False,
    columns: Columns = None,
    compression: Compression = "none",
    max_shard_bytes: MaxShardBytes = None,
    processes: Processes = None,
    transform: TransformFunction = None,
    transform_version: TransformVersion = None,
    fingerprint: Fingerprint = None,
    on_stale: OnStale = "error",
    as_json: JsonOption = False,
) -> None:
    """Import Parquet files, a sample per row."""
    from dataset_rt.sources import ParquetSource  # noqa: PLC0415 - pyarrow

    writing = Writing.of(locals())
    _write(
        writing,
        ParquetSource,
        name_of(name, paths),
        paths,
        payload=payload_of(payload, no_payload),
        payload_files=payload_files,
        root=root,
        columns=writing.columns,
    )


@app.command(
    **example("dataset-rt import csv labels.csv caches/ --payload-files file --root images/")
)
def csv(
    paths: Paths,
    caches_dir: CachesDir,
    *,
    name: Name = None,
    payload: Payload = None,
    payload_files: PayloadFiles = None,
    root: Root = None,
    no_payload: NoPayload = False,
    columns: Columns = None,
    delimiter: Annotated[str, typer.Option(help=r"Between cells; \t is a tab.")] = ",",
    compression: Compression = "none",
    max_shard_bytes: MaxShardBytes = None,
    processes: Processes = None,
    transform: TransformFunction = None,
    transform_version: TransformVersion = None,
    fingerprint: Fingerprint = None,
    on_stale: OnStale = "error",
    as_json: JsonOption = False,
) -> None:
    """Import CSV files of texts, or of file names."""
    from dataset_rt.sources import CsvSource  # noqa: PLC0415 - pyarrow

    writing = Writing.of(locals())
    _write(
        writing,
        CsvSource,
        name_of(name, paths),
        paths,
        payload=payload_of(payload, no_payload),
        payload_files=payload_files,
        root=root,
        columns=writing.columns,
        delimiter=delimiter.replace(r"\t", "\t"),
    )


@app.command(
    **example("dataset-rt import webdataset 'train-{000..127}.tar' caches/ --payload 'jpg;png'")
)
def webdataset(
    shards: Annotated[
        list[str], typer.Argument(metavar="SHARD...", help="Files, directories, quoted patterns.")
    ],
    caches_dir: CachesDir,
    *,
    payload: Annotated[str, typer.Option(help="Endings of the payload, separated by ;")],
    name: Name = None,
    columns: Columns = None,
    ignore: Annotated[
        str | None,
        typer.Option(
            help="Endings of members to leave out, separated by commas; '.' for those without one."
        ),
    ] = None,
    compression: Compression = "none",
    max_shard_bytes: MaxShardBytes = None,
    processes: Processes = None,
    transform: TransformFunction = None,
    transform_version: TransformVersion = None,
    fingerprint: Fingerprint = None,
    on_stale: OnStale = "error",
    as_json: JsonOption = False,
) -> None:
    """Import tar shards of WebDataset."""
    from dataset_rt.sources import WebDatasetSource  # noqa: PLC0415 - pyarrow

    writing = Writing.of(locals())
    _write(
        writing,
        WebDatasetSource,
        name_of(name, shards),
        shards,
        payload=payload,
        columns=writing.columns,
        ignore=[] if ignore is None else ignore.split(","),
    )


@app.command(
    **example("dataset-rt import huggingface saved/ caches/ --payload image --split train")
)
def huggingface(
    directory: Annotated[
        str, typer.Argument(metavar="DIRECTORY", help="What save_to_disk of datasets wrote.")
    ],
    caches_dir: CachesDir,
    *,
    name: Name = None,
    split: Annotated[str | None, typer.Option(help="Which split, where there are some.")] = None,
    payload: Payload = None,
    payload_files: PayloadFiles = None,
    root: Root = None,
    no_payload: NoPayload = False,
    columns: Columns = None,
    compression: Compression = "none",
    max_shard_bytes: MaxShardBytes = None,
    processes: Processes = None,
    transform: TransformFunction = None,
    transform_version: TransformVersion = None,
    fingerprint: Fingerprint = None,
    on_stale: OnStale = "error",
    as_json: JsonOption = False,
) -> None:
    """Import a saved dataset of Hugging Face."""
    from dataset_rt.sources import HuggingFaceSource  # noqa: PLC0415 - pyarrow

    writing = Writing.of(locals())
    _write(
        writing,
        HuggingFaceSource,
        name_of(name, [directory]) + ("" if name or split is None else f"-{split}"),
        _saved_dataset(directory, split),
        payload=payload_of(payload, no_payload),
        payload_files=payload_files,
        root=root,
        columns=writing.columns,
    )


@app.command(**example("dataset-rt import arrayrecord 'train/*.array_record' caches/"))
def arrayrecord(
    paths: Paths,
    caches_dir: CachesDir,
    *,
    name: Name = None,
    compression: Compression = "none",
    max_shard_bytes: MaxShardBytes = None,
    processes: Processes = None,
    transform: TransformFunction = None,
    transform_version: TransformVersion = None,
    fingerprint: Fingerprint = None,
    on_stale: OnStale = "error",
    as_json: JsonOption = False,
) -> None:
    """Import ArrayRecord files, a payload per record."""
    from dataset_rt.sources import ArrayRecordSource  # noqa: PLC0415 - pyarrow

    _write(Writing.of(locals()), ArrayRecordSource, name_of(name, paths), paths)


def _write(
    writing: Writing, make: Callable[..., CacheSource], *arguments: object, **options: object
) -> None:
    """Write or reuse the cache of a source, and say what became of it."""
    import dataset_rt  # noqa: PLC0415 - its members are heavy

    config = writing.config()
    with in_terms_of_options():
        source = make(*arguments, **options, **writing.importer_options())
        try:
            with dataset_rt.DatasetRuntime() as runtime:
                (result,) = runtime.from_cache_sources(
                    source,
                    writing.caches_dir,
                    reader_config=dataset_rt.ReaderConfig(seed=0),
                    writer_config=config,
                ).results
        except KeyboardInterrupt:
            tell(what_is_kept(Path(writing.caches_dir), source.name))
            raise
        if isinstance(result, dataset_rt.CacheWriteError):
            raise failure_of(result, source, Path(writing.caches_dir))
    _report(result, source, writing)


def _report(result: CacheWriteSuccess, source: CacheSource, writing: Writing) -> None:
    from dataset_rt.cache import open_cache  # noqa: PLC0415 - pyarrow and Polars

    cache = open_cache(result.path)
    size_bytes = sum(file.stat().st_size for file in result.path.rglob("*") if file.is_file())
    columns = list(cache.schema.names)
    empty = lengths_of(result.path, cache.manifest).buckets.get(0, 0)
    left_out: Mapping[str, int] = getattr(source, "left_out", {})
    if writing.as_json:
        document = {
            "status": result.status,
            "path": str(result.path),
            "num_samples": cache.num_samples,
            "samples_reused": result.samples_reused,
            "size_bytes": size_bytes,
            "cache_id": cache.cache_id,
            "columns": columns,
            "payloads_empty": empty,
            "files_left_out": sum(left_out.values()),
            "fingerprint": cache.manifest["fingerprint"],
        }
        show_json(document)
        return
    kept = ""
    if result.status == "resumed":
        whole = counted(cache.num_samples, "sample")
        kept = f"  {count(result.samples_reused)} of {whole} were there already"
    elif result.status == "reused":
        # Options of writing make no other cache of the one that is there.
        kept = f"  as it was written, compression {cache.manifest['compression']['algo']}"
    show(
        line(f"{result.status} ", (path_text(result.path), "bold"), kept),
        styled(f"  {counted(cache.num_samples, 'sample')}, {size(size_bytes)} on disk"),
        styled(f"  columns: {', '.join(columns) or 'none'}"),
        *(styled(f"  {remark}") for remark in remarks(source, cache.num_samples, empty, left_out)),
        line("next: ", (f"dataset-rt inspect {shlex.quote(str(result.path))}", "bold")),
    )


def _saved_dataset(directory: str, split: str | None) -> Any:
    from dataset_rt.sources.inputs.files import optional_module  # noqa: PLC0415 - pyarrow

    # Nothing is asked of any network, whatever the directory says.
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    try:
        library = optional_module("datasets", "datasets", "dataset-rt import huggingface")
    except ModuleNotFoundError as error:
        raise InvalidInputError(str(error)) from error
    try:
        dataset = library.load_from_disk(directory)
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"{directory}: expected what save_to_disk wrote: {error}; for Parquet files take "
            "dataset-rt import parquet"
        ) from error
    if not isinstance(dataset, dict):
        if split is not None:
            raise typer.BadParameter(f"--split {split}: the dataset has no splits")
        return dataset
    if split not in dataset:
        raise typer.BadParameter(f"--split: expected one of {', '.join(dataset)}, found {split}")
    return dataset[split]

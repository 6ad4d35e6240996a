"""`dataset-rt export`: caches as files of other libraries, or as a new cache of some rows."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dataset_rt.cli.console import line, show, show_json, styled
from dataset_rt.cli.options import CachesArgument, JsonOption, example
from dataset_rt.cli.text import counted, path_text
from dataset_rt.errors import InvalidInputError

if TYPE_CHECKING:
    from dataset_rt.dataset import CachedDataset

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Write caches as Parquet, as WebDataset shards, or some of their rows as a new cache.",
)

Where = Annotated[
    str | None,
    typer.Option(metavar="SQL", help='Rows to take, for example "label = 3 AND score > 0.5".'),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Take at most so many rows.")]
Columns = Annotated[
    str | None, typer.Option(help="Columns to keep, separated by commas; default all.")
]


@app.command(
    **example("dataset-rt export parquet caches/pets pets.parquet --where \"label = 'cat'\"")
)
def parquet(
    caches: CachesArgument,
    out: Annotated[str, typer.Argument(metavar="FILE", help="The Parquet file.")],
    *,
    where: Where = None,
    columns: Columns = None,
    limit: Limit = None,
    compression: Annotated[str, typer.Option(help="none, snappy, lz4 or zstd.")] = "zstd",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write one Parquet file, the payload a column of bytes."""
    from dataset_rt.exporters import to_parquet  # noqa: PLC0415 - slow

    if compression not in {"none", "snappy", "lz4", "zstd"}:
        raise typer.BadParameter("--compression: expected none, snappy, lz4 or zstd")
    dataset = _selected(caches, where, limit)
    names = _names(columns)
    options: dict[str, Any] = {"compression": compression, "overwrite": overwrite}
    file = to_parquet(dataset, out, columns=names, **options)
    _report(
        dataset, [file], as_json, f"dataset-rt import parquet {shlex.quote(str(file))} CACHES_DIR"
    )


@app.command(
    **example("dataset-rt export webdataset caches/pets shards/ --extension jpg --cls label_id")
)
def webdataset(
    caches: CachesArgument,
    out: Annotated[str, typer.Argument(metavar="DIRECTORY", help="New directory for the shards.")],
    *,
    extension: Annotated[str, typer.Option(help="Ending of payloads, for example jpg.")] = "bin",
    cls: Annotated[str | None, typer.Option(help="Column of integers for the member cls.")] = None,
    where: Where = None,
    columns: Columns = None,
    limit: Limit = None,
    max_shard_bytes: Annotated[
        int | None, typer.Option(help="A shard closes before it grows beyond this.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write tar shards as the library webdataset reads them."""
    from dataset_rt.exporters import to_webdataset  # noqa: PLC0415 - slow

    dataset = _selected(caches, where, limit)
    names = _names(columns)
    options = {} if max_shard_bytes is None else {"max_shard_bytes": max_shard_bytes}
    shards = to_webdataset(dataset, out, extension=extension, columns=names, cls=cls, **options)
    _report(
        dataset,
        shards,
        as_json,
        f"dataset-rt import webdataset {shlex.quote(out)} CACHES_DIR --payload {extension}",
    )


@app.command(**example("dataset-rt export cache caches/pets caches/cats --where \"label = 'cat'\""))
def cache(
    caches: CachesArgument,
    out: Annotated[str, typer.Argument(metavar="NEW_CACHE", help="Directory of the new cache.")],
    *,
    where: Where = None,
    columns: Columns = None,
    limit: Limit = None,
    as_json: JsonOption = False,
) -> None:
    """Write a new cache of some rows and columns."""
    from dataset_rt.exporters import materialize  # noqa: PLC0415 - slow

    target = Path(out)
    if not target.name:
        raise typer.BadParameter(f"{out}: expected the directory of a new cache")
    dataset = _selected(caches, where, limit)
    names = _names(columns)
    made = materialize(dataset, target.parent, target.name, columns=names)
    _report(dataset, [made], as_json, f"dataset-rt inspect {shlex.quote(str(made))}")


def _selected(caches: list[Path], where: str | None, limit: int | None) -> CachedDataset:
    """Return the caches as one dataset whose table has only the rows asked for."""
    import polars as pl  # noqa: PLC0415 - slow

    from dataset_rt.runtime import open_dataset  # noqa: PLC0415 - slow

    dataset = open_dataset(caches)
    if where is None and limit is None:
        return dataset
    table = dataset.get_metadata()
    if where is not None:
        try:
            # An expression, not a query: it can name columns and functions, but no file.
            table = table.filter(pl.sql_expr(where))
        except pl.exceptions.PolarsError as error:
            reason = str(error).splitlines()[0]
            raise InvalidInputError(f"--where {where!r}: {reason}") from error
    if limit is not None:
        table = table.head(limit)
    if table.is_empty():
        raise InvalidInputError(f"--where {where!r}: no row fulfils it; nothing was written")
    dataset.update_metadata(table)
    return dataset


def _names(columns: str | None) -> list[str] | None:
    return None if columns is None else columns.split(",")


def _report(dataset: CachedDataset, files: list[Path], as_json: bool, following: str) -> None:
    if as_json:
        show_json({"num_samples": len(dataset), "files": [str(file) for file in files]})
        return
    show(
        line("written ", (path_text(files[0]), "bold")),
        *([] if len(files) == 1 else [styled(f"  and {counted(len(files) - 1, 'more shard')}")]),
        styled(f"  {counted(len(dataset), 'sample')}"),
        line("next: ", (following, "bold")),
    )

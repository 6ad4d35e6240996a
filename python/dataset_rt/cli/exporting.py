"""`dataset-rt export`: caches as files of other libraries, or as a new cache of some rows."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dataset_rt.cli.console import line, show, show_json, styled
from dataset_rt.cli.import_options import CachesDir, in_terms_of_options, names_of
from dataset_rt.cli.options import CachesArgument, JsonOption, example, require_column
from dataset_rt.cli.where import rows_where
from dataset_rt.errors import ConflictError, InvalidInputError
from dataset_rt.inspection.words import in_words_of_options
from dataset_rt.text import counted, path_text

if TYPE_CHECKING:
    from dataset_rt.dataset import CachedDataset

PAYLOAD = "payload"
# Of tables; an import refuses columns of these names.
_IDENTITY = ("cache_id", "sample_id", "weight")

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Write caches as Parquet, as WebDataset shards, or some of their rows as a new cache.",
)

Where = Annotated[
    str | None,
    typer.Option(
        metavar="SQL", help='Rows to take, for example "label = 3 AND payload_bytes > 0".'
    ),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Take at most so many rows.")]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Metadata to keep, separated by commas; payloads always come along [default: all].",
    ),
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
    no_payload: Annotated[
        bool, typer.Option("--no-payload", help="Leave the payloads out.")
    ] = False,
    compression: Annotated[
        Literal["none", "snappy", "lz4", "zstd"], typer.Option(help="Of the columns of the file.")
    ] = "zstd",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write one Parquet file, the payload a column of bytes."""
    from dataset_rt.exporters import to_parquet  # noqa: PLC0415 - slow

    dataset = _selected(caches, where, limit)
    names = _names(columns, dataset)
    if no_payload:
        exported = [name for name in names if name != PAYLOAD]
    else:
        exported = names if PAYLOAD in names else [*names, PAYLOAD]
    with in_terms_of_options():
        try:
            file = to_parquet(
                dataset, out, columns=exported, compression=compression, overwrite=overwrite
            )
        except ConflictError as error:
            raise ConflictError(in_words_of_options(str(error))) from error
    back = f"dataset-rt import parquet {shlex.quote(str(file))} CACHES_DIR"
    back += " --no-payload" if no_payload else ""
    _report(dataset, [file], as_json, back + _only_storable(exported))


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
    names = _names(columns, dataset)
    options = {} if max_shard_bytes is None else {"max_shard_bytes": max_shard_bytes}
    with in_terms_of_options():
        shards = to_webdataset(dataset, out, extension=extension, columns=names, cls=cls, **options)
    back = f"dataset-rt import webdataset {shlex.quote(out)} CACHES_DIR --payload {extension}"
    others = [name for name in names if name not in {"__key__", cls}]
    members = ["__key__", *([] if cls is None else ["cls"]), *others]
    _report(dataset, shards, as_json, back + _only_storable(members))


@app.command(
    **example("dataset-rt export cache caches/pets caches/ --name cats --where \"label = 'cat'\"")
)
def cache(
    caches: CachesArgument,
    caches_dir: CachesDir,
    *,
    name: Annotated[
        str | None, typer.Option(help="Name of the new cache [default: that of the one exported].")
    ] = None,
    where: Where = None,
    columns: Columns = None,
    limit: Limit = None,
    as_json: JsonOption = False,
) -> None:
    """Write a new cache of some rows and columns."""
    from dataset_rt.exporters import materialize  # noqa: PLC0415 - slow

    if name is None and len(caches) > 1:
        raise typer.BadParameter("several caches become one: give it a name with --name")
    name = name or caches[0].resolve().name
    if os.path.lexists(Path(caches_dir, name)):
        raise ConflictError(
            f"{Path(caches_dir, name)} is there already, and nothing was written: give the new "
            "cache another name with --name, or another directory"
        )
    dataset = _selected(caches, where, limit)
    names = [column for column in _names(columns, dataset) if column != PAYLOAD]
    for column in names:
        if column in _IDENTITY:
            raise typer.BadParameter(
                f"a cache cannot store {column!r}, the name is reserved; `export parquet` can"
            )
    with in_terms_of_options():
        made = materialize(dataset, caches_dir, name, columns=names)
    _report(dataset, [made], as_json, f"dataset-rt inspect {shlex.quote(str(made))}")


def _selected(caches: list[Path], where: str | None, limit: int | None) -> CachedDataset:
    """Return the caches as one dataset whose table has only the rows asked for."""
    from dataset_rt.runtime import open_dataset  # noqa: PLC0415 - slow

    dataset = open_dataset(caches)
    if where is None and limit is None:
        return dataset
    table = dataset.get_metadata() if where is None else rows_where(dataset, where)
    if limit is not None:
        table = table.head(limit)
    if table.is_empty() and where is not None:
        raise InvalidInputError(f"--where {where!r}: no row fulfils it; nothing was written")
    dataset.update_metadata(table)
    return dataset


def _names(columns: str | None, dataset: CachedDataset) -> list[str]:
    """Return the columns asked for, all that are stored by default."""
    known = dataset.get_metadata().columns
    names = names_of(columns)
    if names is None:
        return [name for name in known if name not in _IDENTITY]
    for name in names:
        require_column(name, [*known, PAYLOAD])
    return names


def _only_storable(names: list[str]) -> str:
    """Return the option that keeps an import from columns that only tables have, if there are."""
    kept = [name for name in names if name not in {*_IDENTITY, PAYLOAD}]
    has_others = any(name in _IDENTITY for name in names)
    return f" --columns {shlex.quote(','.join(kept))}" if has_others else ""


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

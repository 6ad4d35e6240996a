"""`repair`: what is lost of a damaged cache, and how to save the rest."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dataset_rt.cli.console import line, show, show_json, table
from dataset_rt.cli.options import CacheArgument, JsonOption, given_path
from dataset_rt.cli.text import counted, safe, value_text

if TYPE_CHECKING:
    import polars as pl
    from rich.console import RenderableType

    from dataset_rt.repair import LostSamples, RepairReport, SalvageReport

_LOST_SHOWN = 10
_COLUMNS_SHOWN = 8


def repair(
    cache: CacheArgument,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is damaged and lost; change nothing.")
    ] = False,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            metavar="DIRECTORY",
            help="Salvage every sample that is right into a new cache in this directory.",
            parser=given_path,
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Name of the new cache; by default that of the old one.",
            show_default=False,
        ),
    ] = None,
    original_ids: Annotated[
        bool,
        typer.Option("--original-ids", help="Keep the old ids as column original_sample_id."),
    ] = False,
    always: Annotated[
        bool, typer.Option("--always", help="Salvage even where no sample is lost.")
    ] = False,
    unproven: Annotated[
        bool,
        typer.Option(
            "--unproven",
            help="Salvage what is well-formed where the manifest is lost and nothing proves it.",
        ),
    ] = False,
    lost_to: Annotated[
        Path | None,
        typer.Option(
            "--lost",
            metavar="FILE",
            help="Write ids and metadata of lost samples as CSV to this file.",
            parser=given_path,
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Restore damaged files of a cache in place, or salvage its samples.

    Restored are index.bin, metadata.arrow and digests.bin, where the rest proves them.

    Shards cannot be: --into writes every sample that is right into a new cache.

    The exit code is 0 when the cache is whole or was salvaged, 1 when something is lost.
    """
    if into is None and (name or original_ids or always or unproven):
        raise typer.BadParameter("--name, --original-ids, --always and --unproven need --into")
    if into is not None and dry_run:
        raise typer.BadParameter("--dry-run changes nothing, --into writes a cache: leave one out")
    from dataset_rt.repair import repair_cache, salvage_cache  # noqa: PLC0415 - slow to import

    report: RepairReport | SalvageReport
    if into is None:
        report = repair_cache(cache, dry_run=dry_run)
    else:
        report = salvage_cache(
            cache,
            into,
            name=name,
            trust="structure" if unproven else "manifest",
            original_ids=original_ids,
            always=always,
        )
    lost = report.lost_metadata() if report.lost and (lost_to or not as_json) else None
    if lost_to is not None and lost is not None:
        _write_csv(lost, lost_to)
    if as_json:
        show_json(json.loads(report.to_json()))
    else:
        show(*(line(text) for text in str(report).split("\n")))
        if lost is not None:
            show(*_drawn(lost))
        if into is None and not report:
            show(*(line(text) for text in _advice(cache, report.lost, dry_run=dry_run)))
    is_fine = bool(report) or (into is not None and not report.lost)
    raise typer.Exit(0 if is_fine else 1)


def _drawn(lost: pl.DataFrame) -> list[RenderableType]:
    """What is known of the first lost samples, so that a person can name them."""
    if lost.width < 2:
        return []
    shown = lost[:, : _COLUMNS_SHOWN + 1].head(_LOST_SHOWN)
    rows = [[value_text(value) for value in row] for row in shown.iter_rows()]
    parts = [
        line("what is known of the lost samples (null: nothing, or it was null):"),
        table(shown.columns, rows, flexible=shown.columns[1:]),
    ]
    if lost.height > _LOST_SHOWN or lost.width > shown.width:
        rest = counted(lost.height, "sample")
        parts.append(line(f"  --lost FILE writes all columns of all {rest}"))
    return parts


def _advice(cache: Path, lost: tuple[LostSamples, ...], *, dry_run: bool) -> list[str]:
    """The command to type next."""
    here = shlex.quote(str(cache))
    target = shlex.quote(str(cache.absolute().parent / "salvaged"))
    what = "the rest" if lost else "all samples, none is lost,"
    restore = [f"to restore what can be restored: dataset-rt repair {here}"] if dry_run else []
    salvage = f"to salvage {what} into a new cache: dataset-rt repair {here} --into {target}"
    return [safe(text) for text in (*restore, salvage)]


def _write_csv(lost: pl.DataFrame, path: Path) -> None:
    import polars as pl  # noqa: PLC0415 - slow to import

    # CSV has no bytes.
    binary = [name for name, kind in lost.schema.items() if kind == pl.Binary]
    lost.with_columns(pl.col(name).bin.encode("hex") for name in binary).write_csv(path)

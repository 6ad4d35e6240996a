"""`dataset-rt repair`: what is lost of a damaged cache, and how to save the rest."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import polars as pl

    from dataset_rt.repair import LostSamples, RepairReport, SalvageReport

_LOST_SHOWN = 10


def repair(
    cache: Annotated[Path, typer.Argument(help="The cache directory.", show_default=False)],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is damaged and lost; change nothing.")
    ] = False,
    into: Annotated[
        Path | None,
        typer.Option(help="Salvage every sample that is right into a new cache below this one."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the new cache; by default that of the old one.")
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
        typer.Option("--lost", help="Write ids and metadata of lost samples as CSV to this file."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Restore damaged files of a cache in place, or salvage its samples.

    Restored are index.bin, metadata.arrow and digests.bin, where the rest proves them.

    Shards cannot be: --into writes every sample that is right into a new cache.

    Exit code 0: whole now, or salvaged; 1: something is damaged or lost.
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
    lost_metadata = report.lost_metadata() if report.lost and (lost_to or not as_json) else None
    if lost_to is not None and lost_metadata is not None:
        _write_csv(lost_metadata, lost_to)
    if as_json:
        typer.echo(report.to_json())
    else:
        typer.echo(str(report))
        if lost_metadata is not None:
            _show_lost(lost_metadata)
        if into is None and not report:
            _advise(cache, report.lost, dry_run=dry_run)
    is_fine = bool(report) or (into is not None and not report.lost)
    if not is_fine:
        raise typer.Exit(1)


def _show_lost(lost: pl.DataFrame) -> None:
    """What is known of the first lost samples, so that a person can name them."""
    if lost.width < 2:
        return
    typer.echo("what is known of the lost samples:")
    for row in lost.head(_LOST_SHOWN).iter_rows(named=True):
        sample_id = row.pop("sample_id")
        known = ", ".join(f"{key}={value!r}" for key, value in row.items() if value is not None)
        typer.echo(f"  {sample_id}: {known or 'nothing'}")
    if lost.height > _LOST_SHOWN:
        typer.echo(f"  and {lost.height - _LOST_SHOWN} more; --lost FILE writes all of them")


def _advise(cache: Path, lost: tuple[LostSamples, ...], *, dry_run: bool) -> None:
    """The command to type next."""
    if dry_run:
        typer.echo(f"to restore what can be restored: dataset-rt repair {shlex.quote(str(cache))}")
    target = cache.absolute().parent / "salvaged"
    what = "the rest" if lost else "all samples, none is lost,"
    typer.echo(
        f"to salvage {what} into a new cache: "
        f"dataset-rt repair {shlex.quote(str(cache))} --into {shlex.quote(str(target))}"
    )


def _write_csv(lost: pl.DataFrame, path: Path) -> None:
    import polars as pl  # noqa: PLC0415 - slow to import

    # CSV has no bytes.
    binary = [name for name, kind in lost.schema.items() if kind == pl.Binary]
    lost.with_columns(pl.col(name).bin.encode("hex") for name in binary).write_csv(path)

"""`repair`: what is lost of a damaged cache, and how to save the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dataset_rt.cli.console import show, show_json
from dataset_rt.cli.options import CacheArgument, JsonOption, given_path
from dataset_rt.errors import ExhaustedError, FileUnavailableError

if TYPE_CHECKING:
    import polars as pl

    from dataset_rt.repair import RepairReport, SalvageReport


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
        bool, typer.Option("--always", help="Make the new cache even where no sample is lost.")
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
            help="Write ids and metadata of lost samples as CSV to this new file.",
            parser=given_path,
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Restore damaged files of a cache in place, or salvage its samples.

    Restored are index.bin, metadata.arrow and digests.bin, where the rest proves them.

    Shards cannot be: --into writes every sample that is right into a new cache.

    The exit code is 0 when the cache is whole now or was salvaged, and 1 otherwise.
    """
    if into is None and (name or original_ids or always or unproven):
        raise typer.BadParameter("--name, --original-ids, --always and --unproven need --into")
    if into is not None and dry_run:
        raise typer.BadParameter("--dry-run changes nothing, --into writes a cache: leave one out")
    from dataset_rt.cli.losses import drawn, repair_command  # noqa: PLC0415 - Polars
    from dataset_rt.exporters.publishing import published_file, refuse_old_file  # noqa: PLC0415
    from dataset_rt.repair import repair_cache, salvage_cache  # noqa: PLC0415 - slow to import

    if lost_to is not None:
        refuse_old_file(lost_to)
    report: RepairReport | SalvageReport
    if into is not None:
        report = salvage_cache(
            cache,
            into,
            name=name,
            trust="structure" if unproven else "manifest",
            original_ids=original_ids,
            always=always,
        )
    else:
        try:
            report = repair_cache(cache, dry_run=dry_run)
        except FileUnavailableError as error:
            copying = repair_command(cache, "--into", "--always")
            raise FileUnavailableError(
                f"{error}; to leave the cache as it is: {copying}"
            ) from error
    lost = _lost(report, is_wanted=lost_to is not None) if lost_to or not as_json else None
    if as_json:
        show_json(json.loads(report.to_json()))
    else:
        show(*drawn(report, lost))
    if lost_to is not None and lost is not None:
        with published_file(lost_to, overwrite=False) as aside:
            _write_csv(lost, aside)
    is_whole = not report.files and not report.lost
    raise typer.Exit(0 if report or is_whole else 1)


def _lost(report: RepairReport | SalvageReport, *, is_wanted: bool) -> pl.DataFrame | None:
    if not report.lost:
        return None
    try:
        return report.lost_metadata()
    except ExhaustedError:
        # The ranges say it all the same, where no file of rows was asked for.
        if is_wanted:
            raise
        return None


def _write_csv(lost: pl.DataFrame, path: Path) -> None:
    import polars as pl  # noqa: PLC0415 - slow to import

    from dataset_rt.inspection.values import is_in_calendars, plain_values  # noqa: PLC0415 - Polars

    # CSV has no bytes, and Polars panics over dates that Python does not have.
    binary = [name for name, kind in lost.schema.items() if kind == pl.Binary]
    texts = [
        pl.Series(
            column.name,
            [None if one is None else str(one) for one in plain_values(column)],
            dtype=pl.String,
        )
        for column in lost.get_columns()
        if not is_in_calendars(column)
    ]
    lost = lost.with_columns(texts)
    lost.with_columns(pl.col(name).bin.encode("hex") for name in binary).write_csv(path)

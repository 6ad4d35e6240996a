"""`report`: one HTML file that tells what a cache is and what training on it sees."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType

from dataset_rt.cli.console import line, paragraph, show, show_json, write_bytes
from dataset_rt.cli.options import (
    BalanceOption,
    CacheArgument,
    ColumnsOption,
    JsonOption,
    SamplingOption,
    SeedOption,
    WeightByOption,
    columns_among,
    complete_columns,
    given_path,
    require_column,
)
from dataset_rt.cli.progress import reading
from dataset_rt.errors import ConflictError, NotFoundError
from dataset_rt.inspection.caches import anatomy_of, hint
from dataset_rt.inspection.words import in_words_of_options
from dataset_rt.text import path_text, size
from dataset_rt.verification import VerificationLevel

if TYPE_CHECKING:
    from dataset_rt.report import WrittenReport

_TROUBLES_SHOWN = 8
_STDOUT = Path("-")


def report(  # noqa: PLR0917 - options have names
    cache: CacheArgument,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="The HTML file; - is stdout.",
            show_default=False,
            parser=given_path,
        ),
    ],
    level: Annotated[
        VerificationLevel,
        typer.Option("--level", "-l", help="How much is verified, as in verify."),
    ] = "full",
    columns: ColumnsOption = None,
    balance: BalanceOption = None,
    weight_by: WeightByOption = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="COLUMN",
            help="Show shares of the values of this column; by default of a label.",
            autocompletion=complete_columns,
        ),
    ] = None,
    sampling: SamplingOption = "multinomial",
    seed: SeedOption = 0,
    draws: Annotated[
        int | None,
        typer.Option(
            "--draws",
            metavar="N",
            min=1,
            help="Samples to draw [default: one epoch, at most 200,000].",
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples",
            metavar="N",
            min=0,
            max=60,
            help="Samples to show [default: 12 with pictures, 6 of others].",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write one HTML file that shows a cache.

    The file needs no network and runs no script. It shows columns and their distributions, shares
    of classes as stored, due and really drawn, some samples with thumbnails of pictures, and
    what a verification found.

    A damaged cache gets a report, too, as far as it can be read; the exit code is 1 then.
    """
    if output == _STDOUT and as_json:
        raise typer.BadParameter("--json needs a file: -o FILE")
    if balance is not None and weight_by is not None:
        raise typer.BadParameter("give --balance or --weight-by, not both")
    try:
        manifest = anatomy_of(cache).manifest
    except NotFoundError as error:
        raise NotFoundError(f"{error}{hint(cache)}") from None
    names = columns
    if "columns" in manifest:
        known = [column["name"] for column in manifest["columns"]]
        names = None if columns is None else columns_among(known, columns)[0]
        for name in (balance, weight_by, by):
            if name is not None:
                require_column(name, known)
    from dataset_rt.report.writing import (  # noqa: PLC0415 - slow
        made_report,
        report_options,
        written_report,
    )

    options = report_options(
        level=level,
        columns=names,
        balance=balance,
        weight_by=weight_by,
        by=by,
        sampling=sampling,
        seed=seed,
        draws=draws,
        samples=samples,
    )
    if output == _STDOUT:
        page, _, troubles = made_report(cache, options, reading)
        write_bytes(page)
        raise typer.Exit(1 if troubles else 0)
    try:
        made = written_report(cache, output, options, reading, overwrite=overwrite)
    except ConflictError as error:
        raise ConflictError(in_words_of_options(str(error))) from error
    if as_json:
        show_json(_document(cache, made))
    else:
        show(*_drawn(made))
    raise typer.Exit(0 if made else 1)


def _document(cache: Path, made: WrittenReport) -> dict[str, Any]:
    return {
        "path": str(cache),
        "report": str(made.path),
        "size_bytes": made.size_bytes,
        "ok": made.ok,
        "level": made.verification.level,
        "findings": [asdict(finding) for finding in made.verification.findings],
        "troubles": list(made.troubles),
    }


def _drawn(made: WrittenReport) -> list[RenderableType]:
    verdict = ("ok", "bold green") if made else ("DAMAGED", "bold red")
    parts: list[RenderableType] = [
        line("written ", (path_text(made.path), "bold"), f"  {size(made.size_bytes)}"),
        line("cache: ", verdict, f" (level {made.verification.level})"),
    ]
    parts += [paragraph(trouble, "red") for trouble in made.troubles[:_TROUBLES_SHOWN]]
    if len(made.troubles) > _TROUBLES_SHOWN:
        parts.append(line((f"  and {len(made.troubles) - _TROUBLES_SHOWN} more: --json", "dim")))
    return parts

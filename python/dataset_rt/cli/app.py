"""The commands together, and how errors and exit codes leave; knows no cache."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

import dataset_rt
from dataset_rt.cli.repair import repair
from dataset_rt.errors import DatasetRTError

app = typer.Typer(
    name="dataset-rt",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dataset-rt {dataset_rt.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Look into, check, make and mend dataset caches."""


app.command()(repair)


def run() -> NoReturn:
    """Run one command line; errors become one message on stderr, without traceback.

    Raises:
        SystemExit: With 0, with 1 for a command that failed or found something wrong, 2 for
            wrong usage, 130 for Ctrl-C.
    """
    try:
        app()
    except DatasetRTError as error:
        typer.echo(f"dataset-rt: {error}", err=True)
    sys.exit(1)

"""The commands together, and how errors and exit codes leave; knows no cache.

To add a command, write a plain typer function in a module of its own and register it below with
one line: `app.command(**example("dataset-rt mend CACHE"))(mend)`; a family of commands is a
`Typer` of its own: `app.add_typer(importing.app, name="import")`. A command prints through
`console.show` and `show_json`, raises `DatasetRTError`, `OSError` or `typer.BadParameter`, and
imports what is slow inside of its functions.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, NoReturn

import typer

import dataset_rt
from dataset_rt.cli import exporting, importing
from dataset_rt.cli.bench import bench
from dataset_rt.cli.cat import cat
from dataset_rt.cli.console import tell
from dataset_rt.cli.diff import diff
from dataset_rt.cli.head import head
from dataset_rt.cli.inspecting import inspect
from dataset_rt.cli.options import example
from dataset_rt.cli.repair import repair
from dataset_rt.cli.sample import sample
from dataset_rt.cli.stats import stats
from dataset_rt.cli.unfinished import unfinished
from dataset_rt.cli.verify import verify

_DEBUG = "DATASET_RT_DEBUG"

app = typer.Typer(
    name="dataset-rt",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help, at once: drawn by rich it takes a quarter of a second longer.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dataset-rt {dataset_rt.__version__}")
        raise typer.Exit


@app.callback(**example("dataset-rt inspect caches"))
def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar=_DEBUG, help="Show tracebacks of errors.")
    ] = False,
) -> None:
    """Look into, check, make and mend dataset caches."""
    if debug:
        os.environ[_DEBUG] = "1"


app.command(**example("dataset-rt inspect caches/words"))(inspect)
app.command(**example("dataset-rt head caches/words -n 5 --columns label,payload"))(head)
app.command(**example("dataset-rt stats caches/words --columns label"))(stats)
app.command(**example("dataset-rt verify caches/* --level deep"))(verify)
app.command(**example("dataset-rt repair caches/words --into salvaged"))(repair)
app.command(**example("dataset-rt diff caches/words backup/words"))(diff)
app.command(**example("dataset-rt cat caches/words 17 -o word.bin"))(cat)
app.command(**example("dataset-rt sample caches/words --balance label"))(sample)
app.command(**example("dataset-rt bench caches/words --seconds 3"))(bench)
app.command(**example("dataset-rt repair caches/words --into mended"))(repair)
app.command(**example("dataset-rt unfinished caches"))(unfinished)
app.add_typer(importing.app, name="import")
app.add_typer(exporting.app, name="export")


def run() -> NoReturn:
    """Run one command line; errors become one message on stderr, without traceback.

    Raises:
        SystemExit: With 0, with 1 for a command that failed or found something wrong, 2 for
            wrong usage, 130 for Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        # What a terminal cannot show comes escaped, instead of ending the command.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app(prog_name="dataset-rt")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if os.environ.get(_DEBUG, "") not in {"", "0"}:
            raise
        tell(_message(error))
        sys.exit(2 if _is_of_an_option(error) else 1)
    sys.exit(0)


def _is_of_an_option(error: Exception) -> bool:
    # Of pydantic, which is not imported only to ask for its class.
    return type(error).__name__ == "ValidationError" and hasattr(error, "errors")


def _message(error: Exception) -> str:
    if _is_of_an_option(error):
        found: Any = error
        parts = [(part["loc"] or ("options",), part) for part in found.errors()]
        return "; ".join(
            f"{'.'.join(map(str, place))}: {part['msg']}, found {part['input']!r}"
            for place, part in parts
        )
    if isinstance(error, (dataset_rt.DatasetRTError, OSError)):
        return str(error)
    kind = type(error).__name__
    return f"{kind}: {error}; {_DEBUG}=1 shows where, please report it"

"""The commands together, and how errors and exit codes leave; knows no cache.

To add a command, write a plain typer function in a module of its own and register it below with
one line: `app.command(**example("dataset-rt mend CACHE"))(mend)`; a family of commands is a
`Typer` of its own: `app.add_typer(importing.app, name="import")`. A command prints through
`console.show` and `show_json`, raises `DatasetRTError`, `OSError` or `typer.BadParameter`, and
imports what is slow inside of its functions.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer

import dataset_rt
from dataset_rt.cli import exporting, importing
from dataset_rt.cli.bench import bench
from dataset_rt.cli.cat import cat
from dataset_rt.cli.console import show_json, tell
from dataset_rt.cli.diff import diff
from dataset_rt.cli.head import head
from dataset_rt.cli.inspecting import inspect
from dataset_rt.cli.options import example
from dataset_rt.cli.repair import repair
from dataset_rt.cli.report import report
from dataset_rt.cli.sample import sample
from dataset_rt.cli.stats import stats
from dataset_rt.cli.unfinished import unfinished
from dataset_rt.cli.verify import verify
from dataset_rt.inspection.words import in_words_of_options

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
app.command(
    **example("dataset-rt repair caches/words --into salvaged"),
    short_help="Restore a damaged cache, or salvage its samples.",
)(repair)
app.command(**example("dataset-rt diff caches/words backup/words"))(diff)
app.command(**example("dataset-rt cat caches/words 17 -o word.bin"))(cat)
app.command(**example("dataset-rt sample caches/words --balance label"))(sample)
app.command(**example("dataset-rt report caches/words --balance label -o words.html"))(report)
app.command(**example("dataset-rt bench caches/words --seconds 3"))(bench)
app.command(**example("dataset-rt unfinished caches"))(unfinished)
app.add_typer(importing.app, name="import", short_help="Make a cache of files of other libraries.")
app.add_typer(exporting.app, name="export", short_help="Write caches as files of other libraries.")


@app.command("help", **example("dataset-rt help import parquet"))
def show_help(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="Whose help.", show_default=False),
    ] = None,
) -> None:
    """Show the help of a command."""
    found: Any = ctx.find_root()
    for name in command or []:
        commands = getattr(found.command, "commands", {})
        if name not in commands:
            raise typer.BadParameter(
                f"no command {name!r}; there are: {', '.join(commands) or 'none below this one'}"
            )
        found = type(found)(commands[name], parent=found, info_name=name)
    typer.echo(found.get_help())


def run() -> NoReturn:
    """Run one command line; errors become one message on stderr, without traceback.

    With `--json` they are a document on stdout, too: `{"error": {"kind": ..., ...}}`.

    Raises:
        SystemExit: With 0, with 1 for a command that failed or found something wrong, 2 for
            wrong usage, 130 for Ctrl-C.
    """
    for name in ("stdout", "stderr"):
        # Closed by the shell (`>&-`) it is None, and nobody reads.
        stream: Any = getattr(sys, name) or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        # What a terminal cannot show comes escaped, instead of ending the command.
        stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, stream)
    # Without the place in the library, which is nobody's fault.
    warnings.showwarning = lambda message, *_: tell(str(message))
    try:
        # What `typer.Exit` says comes back.
        code = app(prog_name="dataset-rt", standalone_mode=False)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if not _is_usage(error) and os.environ.get(_DEBUG, "") not in {"", "0"}:
            raise
        sys.exit(_fail(error))
    sys.exit(code or 0)


def _fail(error: Exception) -> int:
    """Say what went wrong, and return the exit code."""
    shown: Any = error
    if _is_usage(error):
        code, kind, message = int(shown.exit_code), "Usage", str(shown.format_message())
        shown.show()
    else:
        code = 2 if _is_of_an_option(error) else 1
        kind, message = _kind(error), _message(error)
        tell(message)
    if "--json" in sys.argv:
        # A reader that went away is no second error.
        with contextlib.suppress(OSError):
            show_json({"error": {"kind": kind, "message": message, "exit_code": code}})
    return code


def _is_usage(error: Exception) -> bool:
    # Of click, which typer has inside or beside it, depending on its version.
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _is_of_an_option(error: Exception) -> bool:
    # Of pydantic, which is not imported only to ask for its class.
    return type(error).__name__ == "ValidationError" and hasattr(error, "errors")


def _kind(error: Exception) -> str:
    if _is_of_an_option(error):
        return "Usage"
    if isinstance(error, dataset_rt.DatasetRTError):
        return error.kind
    return "System" if isinstance(error, OSError) else "Internal"


def _message(error: Exception) -> str:
    if _is_of_an_option(error):
        found: Any = error
        return "; ".join(
            f"{_option(part['loc'])}: {_of_value(part['msg'])}, found {part['input']!r}"
            for part in found.errors()
        )
    if isinstance(error, dataset_rt.DatasetRTError):
        return in_words_of_options(str(error))
    if isinstance(error, OSError):
        # Without the number, which says nothing to anybody.
        named = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return f"{named}{error.strerror}" if error.strerror else str(error)
    kind = type(error).__name__
    return f"{kind}: {error}; {_DEBUG}=1 shows where, please report it"


def _option(place: tuple[str | int, ...]) -> str:
    """Return the option that sets a field of a configuration: they have the same names."""
    return "--" + ".".join(map(str, place)).replace("_", "-") if place else "options"


def _of_value(message: str) -> str:
    """Return a message of pydantic in words of a command line."""
    words = message.removeprefix("Value error, ")
    for bound in ("greater", "less"):
        words = words.replace(f"Input should be {bound}", f"expected a number {bound}")
    return words.replace("Input should be", "expected")

"""Arguments and options that several commands share, and what a shell completes for them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dataset_rt.errors import DatasetRTError
from dataset_rt.inspection.caches import anatomy_of
from dataset_rt.text import safe

if TYPE_CHECKING:
    from dataset_rt.cache import Cache


def complete_columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the columns of the cache named so far; a shell must never see an error."""
    # Nothing is parsed when the line ends in an option without its value.
    named = ctx.params.get("cache") or ctx.params.get("caches") or ctx.args
    path = named if isinstance(named, Path) else next(iter(named), "")
    try:
        columns = anatomy_of(Path(path)).manifest.get("columns", [])
    except (DatasetRTError, OSError):
        return []
    return [column["name"] for column in columns if column["name"].startswith(incomplete)]


def given_path(text: str) -> Path:
    """Return a path as it was typed.

    Raises:
        typer.BadParameter: It is empty, as an unset variable of a shell is; it would mean `.`.
    """
    if not text:
        raise typer.BadParameter("the path is empty")
    return Path(text)


def given_seed(text: str | int) -> int:
    """Return a seed.

    Raises:
        typer.BadParameter: It is none.
    """
    with contextlib.suppress(ValueError):
        if 0 <= (seed := int(text)) < 2**64:
            return seed
    raise typer.BadParameter(f"expected an integer from 0 to 2**64 - 1, found {text!r}")


CacheArgument = Annotated[
    Path,
    typer.Argument(
        metavar="CACHE", help="Directory of the cache.", show_default=False, parser=given_path
    ),
]
CachesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="CACHE", help="Directories of the caches.", show_default=False, parser=given_path
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, nothing else.")
]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        "-c",
        metavar="NAMES",
        help="Columns to show, with commas between them or one at a time.",
        autocompletion=complete_columns,
        show_default=False,
    ),
]


BalanceOption = Annotated[
    str | None,
    typer.Option(
        "--balance",
        metavar="COLUMN",
        help="Give every value of this column the same total weight.",
        autocompletion=complete_columns,
    ),
]
WeightByOption = Annotated[
    str | None,
    typer.Option(
        "--weight-by",
        metavar="COLUMN",
        help="Take this column of numbers as weights.",
        autocompletion=complete_columns,
    ),
]
SamplingOption = Annotated[
    Literal["multinomial", "permutation", "weighted_without_replacement"],
    typer.Option("--sampling", help="How positions become rows."),
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="N", help="Seed of the order.", parser=given_seed)
]


def example(*lines: str) -> dict[str, Any]:
    """Return the arguments of `app.command` that show an example below the help of a command."""
    return {"epilog": "Example: " + "  \n".join(lines)}


def stored_columns(cache: Cache, asked: list[str] | None) -> tuple[list[str], bool]:
    """Return the stored columns asked for, without doubles, and whether payloads are, too.

    All of them, and payloads, when nobody asked.

    Raises:
        typer.BadParameter: A name is no column of the cache.
    """
    return columns_among(list(cache.schema.names), asked)


def columns_among(stored: list[str], asked: list[str] | None) -> tuple[list[str], bool]:
    """Return the same of a list of the stored columns."""
    if not asked:
        return stored, True
    names: list[str] = []
    for text in asked:
        # A name may have commas of its own.
        names += [text] if text in stored else [name.strip() for name in text.split(",")]
    for name in names:
        require_column(name, [*stored, "payload"])
    return [name for name in dict.fromkeys(names) if name != "payload"], "payload" in names


def require_column(name: str, columns: list[str]) -> None:
    """Refuse a name that is none of the columns.

    Raises:
        typer.BadParameter: The message lists what there is.
    """
    if name in columns:
        return
    shown = ", ".join(map(safe, columns[:20]))
    more = f" and {len(columns) - 20} more" if columns[20:] else ""
    raise typer.BadParameter(f"no column {name!r}; there are: {shown or 'none'}{more}")

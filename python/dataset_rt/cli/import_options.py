"""What the options of every import mean; knows no command and no cache."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

import typer

from dataset_rt.errors import DatasetRTError, InvalidInputError, SourceError

if TYPE_CHECKING:
    from dataset_rt.config import WriterConfig

CachesDir = Annotated[
    str, typer.Argument(metavar="CACHES_DIR", help="Directory for caches; the new one is below it.")
]
Paths = Annotated[
    list[str], typer.Argument(metavar="PATH...", help="Files, directories, quoted patterns.")
]
Name = Annotated[str | None, typer.Option(help="Name of the cache [default: that of the input].")]
Payload = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Bytes or text, the payload [default: payload]."),
]
NoPayload = Annotated[
    bool, typer.Option("--no-payload", help="Give every sample an empty payload.")
]
PayloadFiles = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Names of files whose bytes are the payload."),
]
Root = Annotated[
    str | None,
    typer.Option(metavar="DIRECTORY", help="Where those files are [default: beside the table]."),
]
Columns = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="Metadata to keep, separated by commas [default: all]."),
]
Compression = Annotated[
    str, typer.Option(metavar="ALGO[:LEVEL]", help="Of payloads: none, lz4, zstd, zstd:3.")
]
MaxShardBytes = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="A shard file closes before it grows beyond this."),
]
Processes = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="How many run --transform [default: 1].")
]
TransformFunction = Annotated[
    str | None, typer.Option(metavar="MODULE:FUNCTION", help="Makes the stored sample of each.")
]
TransformVersion = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Change it whenever that function changes."),
]
WhenStale: TypeAlias = Literal["error", "rewrite", "reuse"]
OnStale = Annotated[
    WhenStale, typer.Option(help="What to do with a cache that other input or options made.")
]
Fingerprint = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Instead of names, sizes and times of the files."),
]
# What the library says in terms of its arguments, in terms of the command line.
_WORDS = (
    ("payload_files=...", "--payload-files COLUMN"),
    ("payload=None", "--no-payload"),
    ("payload_files=", "--payload-files "),
    ("payload=", "--payload "),
    ("columns=[...]", "--columns NAMES"),
    ("columns=[]", "--columns ''"),
    ("columns=", "--columns "),
    ("ignore=[...]", "--ignore ENDINGS"),
    ("ignore=", "--ignore "),
    ("extensions=", "--extensions "),
    ("labels=False", "--no-labels"),
    ("root=", "--root "),
    ("a transform=", "a --transform"),
    ("say the type of the column with column_types", "import it from Python with column_types"),
    ("choose another source name", "give this one another name with --name"),
    ('set on_stale to "rewrite" or "reuse"', "pass --on-stale rewrite or --on-stale reuse"),
)
# A list of names as Python writes it.
_NAMES = re.compile(r"(columns|ignore)=(\['[^'\\]*'(?:, '[^'\\]*')*\])")
_COMPRESSION = re.compile(r"none|lz4|zstd|zstd:([1-9]|1[0-9]|2[0-2])")


@dataclass(frozen=True, slots=True)
class Writing:
    """What the options that all imports share say.

    Attributes:
        columns: Metadata columns, `None` for all.
    """

    caches_dir: str
    compression: str
    max_shard_bytes: int | None
    processes: int | None
    transform: str | None
    transform_version: str | None
    fingerprint: str | None
    on_stale: WhenStale
    as_json: bool
    columns: list[str] | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Return it for the arguments of a command, which may have others too."""
        known = {
            field.name: arguments[field.name] for field in fields(cls) if field.name in arguments
        }
        return cls(**known | {"columns": names_of(known.get("columns"))})

    def importer_options(self) -> dict[str, Any]:
        """Return the keyword arguments that every importer takes.

        Raises:
            typer.BadParameter: `--transform` names no function, or has no version.
        """
        options: dict[str, Any] = {"fingerprint": self.fingerprint}
        if self.transform is not None:
            if self.transform_version is None and self.fingerprint is None:
                raise typer.BadParameter(
                    "--transform needs --transform-version: any text that you change whenever the "
                    "function changes; nothing else can tell that its caches are stale"
                )
            options["transform"] = _function(self.transform)
        return options | {"transform_version": self.transform_version}

    def config(self) -> WriterConfig:
        """Return the settings of writing.

        Raises:
            typer.BadParameter: One of them is wrong.
        """
        from dataset_rt.config import ShardCompression, WriterConfig  # noqa: PLC0415 - pydantic

        if not _COMPRESSION.fullmatch(self.compression):
            raise typer.BadParameter(
                f"--compression: expected none, lz4, zstd, or zstd:1 to zstd:22, found "
                f"{self.compression!r}"
            )
        algo, _, level = self.compression.partition(":")
        options: dict[str, Any] = {"on_stale": self.on_stale}
        if self.max_shard_bytes is not None:
            options["max_shard_bytes"] = self.max_shard_bytes
        if self.processes is not None:
            options["num_processes"] = self.processes
        compression = ShardCompression.model_validate(
            {"algo": algo, "level": int(level) if level else None}
        )
        return WriterConfig(shard_compression=compression, **options)


@contextmanager
def in_terms_of_options() -> Iterator[None]:
    """Let errors of the library name options where they name arguments.

    Raises:
        DatasetRTError: The same with another message; a library that is missing, too, and
            `SystemExit`, which would end the command as if all were well.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise InvalidInputError(str(error)) from error
    except SystemExit as error:
        raise InvalidInputError(
            f"the import was ended by code that it runs, with SystemExit({error.code!r}): let "
            "--transform raise an error instead, and its module do nothing when it is imported"
        ) from error
    except SourceError:
        # It has texts of others, a transform's above all.
        raise
    except DatasetRTError as error:
        message = _NAMES.sub(_pasted, str(error))
        for argument, option in _WORDS:
            message = message.replace(argument, option)
        raise type(error)(message) from error


def _pasted(found: re.Match[str]) -> str:
    """Return a list of names as an option that may be pasted."""
    option, names = f"--{found[1]}", ast.literal_eval(found[2])
    if any("," in name for name in names):
        return f"{option} NAMES"
    return f"{option} {shlex.quote(','.join(names))}"


def names_of(text: str | None) -> list[str] | None:
    """Return the columns of an option, `None` when it was not given; empty text names none."""
    if text is None:
        return None
    return [name.strip() for name in text.split(",")] if text.strip() else []


def name_of(name: str | None, paths: Iterable[str]) -> str:
    """Return the name of a cache: what was given, or the first input's up to its first dot.

    Raises:
        typer.BadParameter: The input is a pattern.
    """
    if name is not None:
        return name
    first = os.path.basename(os.path.abspath(next(iter(paths)))).partition(".")[0]
    if not first or any(sign in first for sign in "*?[{"):
        raise typer.BadParameter("the input has no name of its own: give one with --name")
    return first


def payload_of(payload: str | None, no_payload: bool) -> str | None:
    """Return the payload column, `None` when there is none.

    Raises:
        typer.BadParameter: Both were said.
    """
    if no_payload:
        if payload is not None:
            raise typer.BadParameter("--payload and --no-payload exclude each other")
        return None
    return "payload" if payload is None else payload


def _function(text: str) -> Callable[..., Any]:
    module, _, name = text.partition(":")
    if not module or not name:
        raise typer.BadParameter(f"--transform {text}: expected MODULE:FUNCTION")
    if module.endswith(".py") or "/" in module:
        dotted = module.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise typer.BadParameter(
            f"--transform {text}: expected the name of a module, as in python -m, not its file; "
            f"write {dotted}:{name}"
        )
    # As `python -m` does: modules beside the data are what people name here.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise typer.BadParameter(f"--transform {text}: {error}") from None
    if not callable(found):
        raise typer.BadParameter(f"--transform {text}: expected a function, found {found!r}")
    function: Callable[..., Any] = found
    return function

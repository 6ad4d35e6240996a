"""`unfinished`: what interrupted writes left beside the caches, to see and to remove."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from dataset_rt.cli.console import line, show, show_json, styled, table
from dataset_rt.cli.options import JsonOption, given_path
from dataset_rt.errors import NotFoundError
from dataset_rt.text import count, counted, cut, path_text, size
from dataset_rt.unfinished import UnfinishedWrite, remove_unfinished_write, unfinished_writes


def unfinished(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Directory that caches were written to.",
            show_default=False,
            parser=given_path,
        ),
    ],
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="NAME", help="Remove what this source left."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List or remove what interrupted writes left.

    The next write of the same source goes on behind its finished shards; nothing has to be
    removed for that.
    """
    for name in remove or []:
        _remove(directory, name)
    left = unfinished_writes(directory)
    if as_json:
        document = {"path": str(directory), "removed": remove or []}
        show_json(document | {"unfinished": unfinished_document(left)})
        return
    if remove:
        show(styled(f"removed {', '.join(remove)}"))
    show(line((path_text(directory), "bold"), f"  {counted(len(left), 'unfinished write')}"))
    if left:
        show(Text(), unfinished_table(left))


def _remove(directory: Path, name: str) -> None:
    try:
        remove_unfinished_write(directory, name)
    except NotFoundError:
        names = [write.source_name for write in unfinished_writes(directory)]
        raise NotFoundError(
            f"there is no unfinished write of {name!r} in {directory}; there are: "
            f"{', '.join(names) or 'none'}"
        ) from None


def unfinished_document(writes: Sequence[UnfinishedWrite]) -> list[dict[str, Any]]:
    """Return unfinished writes as they stand in JSON documents."""
    return [write._asdict() | {"path": str(write.path)} for write in writes]


def unfinished_table(writes: Sequence[UnfinishedWrite]) -> RenderableType:
    """Return unfinished writes as a table."""
    rows = [
        (
            cut(write.source_name),
            count(write.samples),
            size(write.size_bytes),
            styled("being written", "green") if write.is_running else "interrupted",
        )
        for write in writes
    ]
    return table(("source", ">samples kept", ">on disk", "state"), rows, flexible=("source",))

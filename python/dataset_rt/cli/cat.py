"""`cat`: one payload, byte for byte, or the metadata of one sample."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dataset_rt.cli.console import show_json, write_bytes
from dataset_rt.cli.options import CacheArgument
from dataset_rt.errors import ConflictError, InvalidInputError, SampleNotFoundError
from dataset_rt.inspection.caches import open_existing
from dataset_rt.inspection.payload_kind import HEAD_BYTES, payload_kind
from dataset_rt.inspection.rows import rows_of
from dataset_rt.text import size


def cat(
    cache: CacheArgument,
    sample_id: Annotated[
        int,
        typer.Argument(
            metavar="SAMPLE_ID", min=0, help="Row in the cache, from 0.", show_default=False
        ),
    ],
    metadata: Annotated[
        bool, typer.Option("--metadata", "--json", help="Print the columns as JSON instead.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the payload to this file."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Send bytes to a terminal; replace FILE.")
    ] = False,
) -> None:
    """Write the payload of one sample to stdout.

    Byte for byte; all of it was verified before the first byte is written.
    """
    opened = open_existing(cache)
    if sample_id >= opened.num_samples:
        raise SampleNotFoundError(
            f"no sample {sample_id} in {cache}: it has samples 0 to {opened.num_samples - 1}"
        )
    if metadata:
        (row,) = rows_of(opened, opened.schema.names, sample_id, sample_id + 1)
        show_json({"path": str(opened.path), "sample_id": sample_id, "metadata": row})
        return
    payload = opened.payload(sample_id)
    if output is not None:
        from dataset_rt.exporters.publishing import published_file  # noqa: PLC0415 - pyarrow

        try:
            with published_file(output, overwrite=force) as aside:
                aside.write_bytes(payload)
        except ConflictError as error:
            raise ConflictError(str(error).replace("overwrite=True", "--force")) from error
        return
    head = payload.slice(0, min(HEAD_BYTES, payload.size)).to_pybytes()
    kind = payload_kind(head, payload.size)
    if sys.stdout.isatty() and not force and not _is_text(payload.to_pybytes()):
        raise InvalidInputError(
            f"the payload of sample {sample_id} is {kind}, {size(payload.size)}: it would garble "
            "the terminal. Write it to a file with -o FILE, pipe it on, or insist with --force"
        )
    write_bytes(memoryview(payload))


def _is_text(payload: bytes) -> bool:
    """Whether a terminal shows it without acting on it."""
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(letter.isprintable() or letter in "\t\r\n" for letter in text)

"""`head`: the first samples of a cache as a table."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from dataset_rt.cli.console import facts, line, paragraph, show, show_json, styled, table, width
from dataset_rt.cli.fitting import Columns, fitting
from dataset_rt.cli.options import CacheArgument, ColumnsOption, JsonOption, stored_columns
from dataset_rt.errors import DatasetRTError
from dataset_rt.inspection.caches import open_existing
from dataset_rt.inspection.payload_kind import HEAD_BYTES, payload_kind
from dataset_rt.inspection.rows import rows_of
from dataset_rt.inspection.words import in_words_of_options
from dataset_rt.text import count, cut, path_text, safe, size, value_text

if TYPE_CHECKING:
    from dataset_rt.cache import Cache

_COLUMNS_READ = 60
"""Columns looked at without `--columns`: more fit no terminal."""
_PREVIEW_BYTES = 8
_JSON_HEAD_BYTES = 64


@dataclass(frozen=True, slots=True)
class _Payload:
    """One payload as far as it is looked at; `trouble` instead where it cannot be read."""

    size_bytes: int = 0
    kind: str = ""
    head: bytes = b""
    trouble: str | None = None


def head(
    cache: CacheArgument,
    n: Annotated[
        int, typer.Option("-n", metavar="N", min=1, max=10_000, help="Samples to show.")
    ] = 10,
    start: Annotated[
        int, typer.Option("--start", metavar="SAMPLE_ID", min=0, help="First sample to show.")
    ] = 0,
    columns: ColumnsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the first samples as a table.

    Payloads are named by what their first bytes look like. They are read and verified; one that
    cannot be read is marked, and the exit code is 1 then.
    """
    opened = open_existing(cache)
    if start >= opened.num_samples:
        raise typer.BadParameter(
            f"--start {start}: the cache has samples 0 to {opened.num_samples - 1}"
        )
    stop = min(start + n, opened.num_samples)
    names, with_payloads = stored_columns(opened, columns)
    is_chosen = columns is not None
    if not is_chosen and not as_json:
        names = names[:_COLUMNS_READ]
    rows = rows_of(opened, names, start, stop)
    payloads = [_payload(opened, i) for i in range(start, stop)] if with_payloads else []
    if as_json:
        show_json(_document(opened, start, rows, payloads))
    else:
        show(*_drawn(opened, range(start, stop), rows, payloads, is_chosen))
    if any(payload.trouble for payload in payloads):
        raise typer.Exit(1)


def _payload(cache: Cache, i: int) -> _Payload:
    try:
        payload = cache.payload(i)
    except DatasetRTError as error:
        return _Payload(trouble=in_words_of_options(str(error)))
    start = payload.slice(0, min(HEAD_BYTES, payload.size)).to_pybytes()
    return _Payload(payload.size, payload_kind(start, payload.size), start)


def _document(
    cache: Cache, start: int, rows: list[dict[str, Any]], payloads: list[_Payload]
) -> dict[str, Any]:
    samples: list[dict[str, Any]] = []
    for i, row in enumerate(rows):
        samples.append({"sample_id": start + i, "metadata": row})
        if payloads:
            samples[-1]["payload"] = _payload_document(payloads[i])
    return {"path": str(cache.path), "samples_total": cache.num_samples, "samples": samples}


def _payload_document(payload: _Payload) -> dict[str, Any]:
    if payload.trouble:
        return {"trouble": payload.trouble}
    return {
        "size_bytes": payload.size_bytes,
        "kind": payload.kind,
        "head": payload.head[:_JSON_HEAD_BYTES],
    }


def _drawn(
    cache: Cache,
    samples: range,
    rows: list[dict[str, Any]],
    payloads: list[_Payload],
    is_chosen: bool,
) -> list[RenderableType]:
    left = Columns([">sample"], [[styled(str(sample))] for sample in samples])
    right = Columns([], [[] for _ in rows])
    if payloads:
        right = Columns([">payload", "kind", "begins with"], [_payload_cells(p) for p in payloads])
    room = width() - 2 - left.cells() - right.cells()
    middle, shown = fitting(rows, room, is_chosen=is_chosen)
    whole = left.beside(middle).beside(right)
    title = f"samples {samples[0]:,} to {samples[-1]:,} of {cache.num_samples:,}"
    parts: list[RenderableType] = [
        line((path_text(cache.path), "bold"), f"  {title}"),
        Text(),
        table(whole.headings, whole.rows, flexible=[h.removeprefix(">") for h in whole.headings]),
    ]
    hidden = [name for name in cache.schema.names if name not in shown]
    if hidden and not is_chosen:
        text = f"{count(len(hidden))} more columns: {', '.join(hidden)}"
        parts.append(line((f"  {cut(safe(text), width() - 14)} (--columns)", "dim")))
    # Samples of one damaged block have one message.
    troubles = dict.fromkeys(payload.trouble for payload in payloads if payload.trouble)
    parts += [paragraph(trouble, "red") for trouble in troubles]
    if troubles:
        here = shlex.quote(str(cache.path))
        next_command = f"dataset-rt repair {here} --dry-run says which samples are lost"
        parts.append(facts([("next", next_command)]))
    return parts


def _payload_cells(payload: _Payload) -> list[Text]:
    if payload.trouble:
        return [styled("unreadable", "bold red"), styled(""), styled("")]
    if payload.kind.endswith("text"):
        preview = value_text(payload.head.decode("utf-8", "ignore"), _PREVIEW_BYTES * 2 + 3)
    else:
        preview = payload.head[:_PREVIEW_BYTES].hex(" ", 2)
    return [
        styled(size(payload.size_bytes)),
        styled(payload.kind, "cyan"),
        styled(preview, "dim"),
    ]

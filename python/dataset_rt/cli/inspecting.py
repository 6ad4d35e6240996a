"""`inspect`: what a cache is, or which caches a directory has."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from dataset_rt.cli.console import facts, line, paragraph, show, show_json, styled, table
from dataset_rt.cli.findings import findings_table
from dataset_rt.cli.options import JsonOption, given_path
from dataset_rt.cli.unfinished import unfinished_document, unfinished_table
from dataset_rt.errors import NotFoundError
from dataset_rt.inspection.caches import (
    Anatomy,
    anatomy_of,
    caches_below,
    hint,
    is_cache,
    is_remains,
)
from dataset_rt.text import count, counted, cut, path_text, size
from dataset_rt.unfinished import unfinished_writes

_ROWS_SHOWN = 24
"""Columns and shards listed without `--all`."""

STATUS_STYLE = {"ok": "green", "damaged": "bold red", "unsupported": "bold magenta"}
_VERDICT = {
    "ok": "structure ok, contents not read",
    "damaged": "DAMAGED",
    "unsupported": "of a format that this version does not read",
}


def inspect(
    cache: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="A cache, or a directory with caches in it.",
            show_default=False,
            parser=given_path,
        ),
    ],
    all_rows: Annotated[bool, typer.Option("--all", help="List every column and shard.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what a cache is, or which caches a directory has.

    Of a cache: samples, columns, sizes, compression, digests and shards. Of a directory: the
    caches in it, and what interrupted writes left.

    Reads the manifest and the structure of the files; no payload. What is known of a damaged
    cache is shown, and what is wrong with it; the exit code is 1 then.
    """
    if cache.is_dir() and not is_cache(cache) and not is_remains(cache):
        is_fine = _show_directory(cache, as_json)
    else:
        try:
            found = anatomy_of(cache)
        except NotFoundError as error:
            raise NotFoundError(f"{error}{hint(cache)}") from None
        if as_json:
            show_json(_document(found))
        else:
            show(*_drawn(found, _ROWS_SHOWN if not all_rows else None))
        is_fine = found.status == "ok"
    raise typer.Exit(0 if is_fine else 1)


def _document(found: Anatomy) -> dict[str, Any]:
    manifest = found.manifest
    sizes = found.sizes_on_disk()
    shards, begin = [], 0
    for shard in manifest.get("shards", []):
        end = begin + shard["rows"]
        shards.append(
            {
                "path": shard["path"],
                "samples": [begin, end],
                "size_bytes": shard["size_bytes"],
                "size_bytes_found": sizes.get(shard["path"]),
                "blake3": shard.get("blake3"),
            }
        )
        begin = end
    fields = (
        "format_version",
        "cache_id",
        "content_blake3",
        "fingerprint",
        "payload_bytes_total",
        "compression",
        "columns",
        "provenance",
    )
    return {
        "path": str(found.path),
        "status": found.status,
        "trouble": found.trouble,
        "findings": [asdict(finding) for finding in found.findings],
        "source_name": manifest.get("source_name"),
        "samples": manifest.get("samples_total"),
        **{name: manifest.get(name) for name in fields},
        "shards": shards,
        "files": [{"path": path, "size_bytes": size} for path, size in sizes.items()],
        "size_bytes": sum(sizes.values()),
    }


def _drawn(found: Anatomy, rows_max: int | None) -> list[RenderableType]:
    manifest = found.manifest
    name = manifest.get("source_name", found.path.name)
    style = STATUS_STYLE[found.status]
    parts: list[RenderableType] = [
        line((name, "bold"), _where(found, name), "  ", (_VERDICT[found.status], style)),
        Text(),
        facts(_facts(found)),
    ]
    if manifest.get("provenance"):
        parts += [Text(), line(("Provenance", "bold"))]
        parts.append(facts((cut(key, 24), value) for key, value in manifest["provenance"].items()))
    if "columns" in manifest:
        parts += [Text(), *_columns(manifest["columns"], rows_max)]
    if "shards" in manifest:
        parts += [Text(), *_shards(found, rows_max)]
    if found.findings:
        parts += [Text(), line(("What is wrong", "bold red")), findings_table(found.findings)]
    elif found.trouble:
        parts += [Text(), paragraph(found.trouble, "red")]
    if found.status == "damaged":
        verify = f"dataset-rt verify {shlex.quote(str(found.path))}"
        parts += [Text(), line((f"  which samples are lost: {verify}", "dim"))]
    return parts


def _where(found: Anatomy, name: str) -> str:
    """Return the directory where it has another name than the source."""
    return "" if found.path.name == name else f" in {path_text(found.path.name)}"


def _facts(found: Anatomy) -> list[tuple[str, str | Text]]:
    manifest = found.manifest
    sizes = found.sizes_on_disk()
    rows: list[tuple[str, str | Text]] = [("path", path_text(found.path))]
    if "samples_total" in manifest:
        shards = counted(len(manifest["shards"]), "shard") if "shards" in manifest else "?"
        rows.append(("samples", f"{count(manifest['samples_total'])} in {shards}"))
    if "payload_bytes_total" in manifest:
        rows.append(("payload", _payload(manifest, sizes)))
    rows.append(("on disk", f"{size(sum(sizes.values()))}: {_parts_of(sizes)}"))
    if "compression" in manifest:
        rows.append(("compression", _compression(manifest["compression"])))
    if "fingerprint" in manifest:
        rows.append(("fingerprint", manifest["fingerprint"] or line(("none", "dim"))))
    for name, field in (("cache id", "cache_id"), ("contents", "content_blake3")):
        if field in manifest:
            rows.append((name, str(manifest[field])))
    if "format_version" in manifest:
        rows.append(("format", f"version {manifest['format_version']}"))
    return rows


def _payload(manifest: dict[str, Any], sizes: dict[str, int]) -> str:
    total = manifest["payload_bytes_total"]
    text = size(total)
    if manifest.get("samples_total"):
        text += f", {size(total / manifest['samples_total'])} on average"
    stored = sum(size for path, size in sizes.items() if path.startswith("shards/"))
    if manifest.get("compression", {}).get("algo", "none") != "none" and stored and total:
        text += f"; shards are {stored / total:.0%} of that"
    return text


def _parts_of(sizes: dict[str, int]) -> str:
    shards = [size for path, size in sizes.items() if path.startswith("shards/")]
    others = ["metadata.arrow", "index.bin", "digests.bin", "dictionary.bin"]
    others += sorted(name for name in sizes if "/" not in name and name not in others)
    parts = [f"{name.partition('.')[0]} {size(sizes[name])}" for name in others if name in sizes]
    return ", ".join([f"shards {size(sum(shards))}", *parts])


def _compression(compression: dict[str, Any]) -> str:
    if compression["algo"] == "none":
        return "none"
    text = str(compression["algo"])
    if compression.get("level") is not None:
        text += f" level {compression['level']}"
    text += f", per {compression.get('scope')}"
    if compression.get("dictionary_bytes"):
        text += f", dictionary of {compression['dictionary_bytes']} bytes"
    return text


def _columns(columns: list[dict[str, Any]], rows_max: int | None) -> list[RenderableType]:
    if not columns:
        return [line(("No columns", "bold"), ": samples are payloads alone")]
    rows = [
        (
            cut(column["name"]),
            styled(column["type"], "cyan"),
            "" if column.get("nullable", True) else "not null",
        )
        for column in columns[:rows_max]
    ]
    return [
        line(("Columns", "bold"), f"  {count(len(columns))}"),
        table(("name", "type", ""), rows, flexible=("name",)),
        *_more(len(columns) - len(rows)),
    ]


def _shards(found: Anatomy, rows_max: int | None) -> list[RenderableType]:
    shards = _document(found)["shards"]
    bad = {finding.file for finding in found.findings}
    # Damaged ones are never left out.
    shown = [s for i, s in enumerate(shards) if rows_max is None or i < 8 or s["path"] in bad]
    rows = []
    for shard in shown:
        begin, end = shard["samples"]
        state = ""
        if shard["size_bytes_found"] is None:
            state = "missing"
        elif shard["path"] in bad:
            state = "damaged"
        rows.append(
            (
                shard["path"],
                f"{begin:,} to {end - 1:,}",
                count(end - begin),
                size(shard["size_bytes"]),
                (shard["blake3"] or "")[:16],
                styled(state, "bold red"),
            )
        )
    return [
        line(("Shards", "bold"), f"  {count(len(shards))}"),
        table(("file", "samples", ">rows", ">size", "blake3", ""), rows, flexible=("blake3",)),
        *_more(len(shards) - len(shown)),
    ]


def _more(left: int) -> list[RenderableType]:
    return [line((f"  and {count(left)} more: --all lists them", "dim"))] if left > 0 else []


def _show_directory(path: Path, as_json: bool) -> bool:
    caches = [anatomy_of(cache) for cache in caches_below(path)]
    leftovers = unfinished_writes(path)
    if not caches and not leftovers:
        raise NotFoundError(
            f"there is no cache at {path}, and none in it; name a cache, or the directory that it "
            f"was written to{hint(path)}"
        )
    if as_json:
        show_json(
            {
                "path": str(path),
                "caches": [
                    {
                        "name": cache.path.name,
                        "path": str(cache.path),
                        "status": cache.status,
                        "trouble": cache.trouble,
                        "samples": cache.manifest.get("samples_total"),
                        "size_bytes": sum(cache.sizes_on_disk().values()),
                    }
                    for cache in caches
                ],
                "unfinished": unfinished_document(leftovers),
            }
        )
    else:
        show(*_directory(path, caches))
        if leftovers:
            show(Text(), line(("Unfinished writes", "bold")), unfinished_table(leftovers))
    return all(cache.status == "ok" for cache in caches)


def _directory(path: Path, caches: list[Anatomy]) -> list[RenderableType]:
    rows = []
    for cache in caches:
        samples = cache.manifest.get("samples_total")
        rows.append(
            (
                cut(cache.path.name),
                "?" if samples is None else count(samples),
                size(sum(cache.sizes_on_disk().values())),
                styled(cache.status, STATUS_STYLE[cache.status]),
            )
        )
    return [
        line((path_text(path), "bold"), f"  {counted(len(caches), 'cache')}"),
        Text(),
        table(("name", ">samples", ">on disk", "structure"), rows, flexible=("name",)),
    ]

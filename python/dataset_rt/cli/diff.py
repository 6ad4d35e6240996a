"""`diff`: what two caches differ in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from dataset_rt.cli.caches import open_existing
from dataset_rt.cli.console import line, show, show_json, styled, table
from dataset_rt.cli.options import JsonOption, given_path
from dataset_rt.cli.payload_kind import HEAD_BYTES, payload_kind
from dataset_rt.cli.progress import counting
from dataset_rt.cli.text import count, cut, path_text, share, size, value_text

if TYPE_CHECKING:
    from dataset_rt.cache import Cache
    from dataset_rt.cli.comparison import Comparison

_ROWS_SHOWN = 20


def diff(
    a: Annotated[
        Path,
        typer.Argument(metavar="A", help="A cache.", show_default=False, parser=given_path),
    ],
    b: Annotated[
        Path,
        typer.Argument(metavar="B", help="Another one.", show_default=False, parser=given_path),
    ],
    as_json: JsonOption = False,
) -> None:
    """Compare two caches, down to the first difference.

    Equal content digests mean equal contents, however they are compressed, sharded and named;
    nothing is read then. Otherwise both are read side by side, in bounded memory. The exit code
    is 0 for equal contents and 1 for different ones.
    """
    left, right = open_existing(a), open_existing(b)
    is_equal = left.manifest["content_blake3"] == right.manifest["content_blake3"]
    columns = _column_differences(left, right)
    compared = None if is_equal else _compared(left, right)
    if as_json:
        show_json(_document(left, right, columns, compared))
    else:
        show(*_drawn(left, right, columns, compared))
    raise typer.Exit(0 if is_equal else 1)


def _types(cache: Cache) -> dict[str, str]:
    return {column["name"]: column["type"] for column in cache.manifest["columns"]}


def _column_differences(left: Cache, right: Cache) -> list[tuple[str, str | None, str | None]]:
    """Return name and both types of columns that are not in both, or of another type."""
    ours, theirs = _types(left), _types(right)
    return [
        (name, ours.get(name), theirs.get(name))
        for name in dict.fromkeys([*ours, *theirs])
        if ours.get(name) != theirs.get(name)
    ]


def _compared(left: Cache, right: Cache) -> Comparison:
    from dataset_rt.cli.comparison import compare  # noqa: PLC0415 - Polars

    theirs = _types(right)
    names = [name for name, kind in _types(left).items() if theirs.get(name) == kind]
    total = min(left.num_samples, right.num_samples)
    with counting("comparing", total) as on_progress:
        return compare(left, right, names, on_progress)


def _document(
    left: Cache,
    right: Cache,
    columns: list[tuple[str, str | None, str | None]],
    compared: Comparison | None,
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "equal": compared is None,
        "a": _side(left),
        "b": _side(right),
        "columns": [{"name": name, "a": ours, "b": theirs} for name, ours, theirs in columns],
        "same_column_order": [*_types(left)] == [*_types(right)],
    }
    if compared is not None:
        document["samples_compared"] = compared.compared
        document["samples_differing"] = compared.differing
        document["differing_by_column"] = compared.by_column
        document["first_difference"] = None
        if compared.first is not None:
            sample, names, ours, theirs = compared.first
            document["first_difference"] = {
                "sample_id": sample,
                "columns": names,
                "a": _values(names, ours),
                "b": _values(names, theirs),
            }
            if "payload" in names:
                offset = _first_byte(ours["payload"], theirs["payload"])
                document["first_difference"]["payload_offset"] = offset
    return document


def _side(cache: Cache) -> dict[str, Any]:
    manifest = cache.manifest
    return {
        "path": str(cache.path),
        "samples": cache.num_samples,
        "content_blake3": manifest["content_blake3"],
        "fingerprint": manifest["fingerprint"],
        "shards": len(manifest["shards"]),
        "compression": manifest["compression"],
    }


def _values(names: list[str], row: dict[str, Any]) -> dict[str, Any]:
    values = {name: row[name] for name in names if name != "payload"}
    if "payload" in names:
        values["payload"] = {"size_bytes": len(row["payload"])}
    return values


def _first_byte(ours: bytes, theirs: bytes) -> int:
    """Return the offset of the first byte that differs: the end of the shorter, if it is a part."""
    shared = min(len(ours), len(theirs))
    piece = 65536
    for begin in range(0, shared, piece):
        one, other = ours[begin : begin + piece], theirs[begin : begin + piece]
        if one != other:
            pairs = enumerate(zip(one, other, strict=False))
            return begin + next((i for i, (x, y) in pairs if x != y), min(len(one), len(other)))
    return shared


def _drawn(
    left: Cache,
    right: Cache,
    columns: list[tuple[str, str | None, str | None]],
    compared: Comparison | None,
) -> list[RenderableType]:
    verdict, note = ("different contents", "bold red"), ""
    if compared is None:
        verdict = ("same contents", "bold green")
        note = "  by the digests in the manifests; no sample was read"
    parts: list[RenderableType] = [
        line(verdict, (note, "dim")),
        Text(),
        table(("", "A", "B"), _sides(left, right), flexible=("A", "B")),
    ]
    if columns:
        rows = [
            (cut(name), styled(ours or "none", "cyan"), styled(theirs or "none", "cyan"))
            for name, ours, theirs in columns[:_ROWS_SHOWN]
        ]
        if len(columns) > _ROWS_SHOWN:
            more = count(len(columns) - _ROWS_SHOWN)
            rows.append((f"and {more} more", styled(""), styled("")))
        parts += [Text(), line(("Columns that differ", "bold"))]
        parts.append(table(("name", "A", "B"), rows, flexible=("name",)))
    if compared is not None:
        parts += [Text(), *_samples(compared)]
    return parts


def _sides(left: Cache, right: Cache) -> list[tuple[str | Text, ...]]:
    ours, theirs = _side(left), _side(right)
    rows: list[tuple[str | Text, ...]] = []
    for name, text in (
        ("path", path_text),
        ("samples", count),
        ("contents", lambda digest: digest[:16]),
        ("fingerprint", lambda fingerprint: cut(fingerprint or "none")),
        ("shards", count),
        ("compression", lambda compression: compression["algo"]),
    ):
        field = "content_blake3" if name == "contents" else name
        style = "" if ours[field] == theirs[field] or name == "path" else "bold"
        texts = (styled(text(side[field]), style) for side in (ours, theirs))
        rows.append((styled(name, "dim"), *texts))
    return rows


def _samples(compared: Comparison) -> list[RenderableType]:
    part = compared.differing / compared.compared if compared.compared else 0
    parts: list[RenderableType] = [
        line(
            ("Samples", "bold"),
            f"  {count(compared.differing)} of {count(compared.compared)} in both differ "
            f"({share(part)})",
        )
    ]
    differing = {name: number for name, number in compared.by_column.items() if number}
    if differing:
        rows = [(cut(name), count(number)) for name, number in differing.items()]
        parts.append(table(("column", ">samples that differ"), rows[:_ROWS_SHOWN]))
    if compared.first is None:
        parts.append(line(("  what both have is equal", "dim")))
        return parts
    sample, names, ours, theirs = compared.first
    parts += [Text(), line(("First difference", "bold"), f"  sample {count(sample)}")]
    values = [
        (cut(name, 24), _text_of(name, ours[name]), _text_of(name, theirs[name]))
        for name in names[:_ROWS_SHOWN]
    ]
    parts.append(table(("column", "A", "B"), values, flexible=("column",)))
    if "payload" in names:
        offset = _first_byte(ours["payload"], theirs["payload"])
        parts.append(line((f"  payloads differ from byte {count(offset)} on", "dim")))
    return parts


def _text_of(name: str, value: Any) -> str:
    if name != "payload":
        return value_text(value, 32)
    return f"{size(len(value))}, {payload_kind(value[:HEAD_BYTES], len(value))}"

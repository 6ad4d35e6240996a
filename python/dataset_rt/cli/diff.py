"""`diff`: what two caches differ in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from dataset_rt.cli.console import heading, line, paragraph, show, show_json, styled, table
from dataset_rt.cli.options import JsonOption, given_path, require_column
from dataset_rt.cli.progress import counting, reading
from dataset_rt.errors import CorruptError
from dataset_rt.inspection.payload_kind import HEAD_BYTES, payload_kind
from dataset_rt.text import (
    count,
    counted,
    cut,
    path_text,
    ranges_text,
    share,
    size,
    value_text,
)

if TYPE_CHECKING:
    from dataset_rt.cli.comparison import Comparison
    from dataset_rt.inspection.survivors import Readable

ORIGINAL_IDS = "original_sample_id"
"""Column of a salvaged cache: ids that its samples had."""

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
    original_ids: Annotated[
        bool,
        typer.Option(
            "--original-ids",
            help="Compare each sample of B with that of A that its column original_sample_id "
            "names, as repair --original-ids writes it.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two caches, down to the first difference.

    Equal content digests mean equal contents, however they are compressed, sharded and named;
    nothing is read then. Otherwise both are read side by side, in bounded memory. Samples that
    damage makes unreadable are named, and count as a difference.

    The exit code is 0 for equal contents and 1 for different ones; with --original-ids 0 when
    every sample of B is in A, unchanged.
    """
    from dataset_rt.inspection.survivors import Readable  # noqa: PLC0415 - Polars

    sides = Readable.open(a), Readable.open(b)
    compared = None
    if original_ids or any(side.lost is not None for side in sides) or not _have_one_digest(sides):
        compared = _compared(sides, ORIGINAL_IDS if original_ids else None)
    found = _Difference(sides, _column_differences(sides, original_ids), compared, original_ids)
    if as_json:
        show_json(_document(found))
    else:
        show(*_drawn(found))
    raise typer.Exit(0 if found.is_equal() else 1)


@dataclass(frozen=True, slots=True)
class _Difference:
    """What was found: columns with name and both types, and samples unless nothing was read."""

    sides: tuple[Readable, Readable]
    columns: list[tuple[str, str | None, str | None]]
    compared: Comparison | None
    by_original_ids: bool

    def is_equal(self) -> bool:
        """Whether the contents are equal, or all of B is in A."""
        if self.compared is None:
            return True
        return (
            self.by_original_ids
            and not self.columns
            and not self.compared.differing
            and self.compared.compared == self.sides[1].num_samples
        )

    def unreadable(self) -> list[list[tuple[int, int]]]:
        """Return the samples of each side that damage makes unreadable."""
        return [side.lost or [] for side in self.sides]

    def is_another_order(self) -> bool:
        """Whether both have the same samples, each in its own order."""
        found, (left, right) = self.compared, self.sides
        return (
            found is not None
            and not self.by_original_ids
            and not self.columns
            and found.differing > 0
            and found.compared == left.num_samples == right.num_samples
            and found.bags[0] is not None
            and found.bags[0] == found.bags[1]
        )


def _have_one_digest(sides: tuple[Readable, Readable]) -> bool:
    return bool(sides[0].manifest["content_blake3"] == sides[1].manifest["content_blake3"])


def _column_differences(
    sides: tuple[Readable, Readable], by_original_ids: bool
) -> list[tuple[str, str | None, str | None]]:
    """Return name and both types of columns that are not in both, or of another type."""
    ours, theirs = (side.types() for side in sides)
    if by_original_ids and ORIGINAL_IDS not in ours:
        theirs.pop(ORIGINAL_IDS, None)
    return [
        (name, ours.get(name), theirs.get(name))
        for name in dict.fromkeys([*ours, *theirs])
        if ours.get(name) != theirs.get(name)
    ]


def _compared(sides: tuple[Readable, Readable], ids: str | None) -> Comparison:
    """Compare by sample id, or by the ids that a column of B names."""
    left, right = sides
    theirs = right.types()
    if ids is not None:
        require_column(ids, [*theirs])
    names = [name for name, kind in left.types().items() if theirs.get(name) == kind]
    try:
        return _once(sides, names, ids)
    except CorruptError:
        # Now that it is known to be worth it, every byte is looked at for what else is lost.
        for side in sides:
            if side.lost is None:
                with reading(f"looking for lost samples of {side.path.name}", 0):
                    side.look_for_losses()
        if not any(side.lost for side in sides) and all(side.is_whole for side in sides):
            raise
        return _once(sides, names, ids)


def _once(sides: tuple[Readable, Readable], names: list[str], ids: str | None) -> Comparison:
    from dataset_rt.cli.comparison import PAYLOAD, compare  # noqa: PLC0415 - Polars

    left, right = sides
    columns = [*names, PAYLOAD]
    total = min(left.num_samples, right.num_samples)
    with counting("comparing", total) as on_progress:
        others = right.runs(columns) if ids is None else right.runs_by(ids, columns)
        return compare(left.runs(columns), others, names, on_progress)


def _document(found: _Difference) -> dict[str, Any]:
    left, right = found.sides
    document: dict[str, Any] = {
        "equal": found.is_equal(),
        "a": _side(left),
        "b": _side(right),
        "columns": [{"name": name, "a": ours, "b": theirs} for name, ours, theirs in found.columns],
        "same_column_order": [*left.types()] == [*right.types()],
    }
    compared = found.compared
    if compared is not None:
        document["by_original_ids"] = found.by_original_ids
        document["samples_compared"] = compared.compared
        document["samples_differing"] = compared.differing
        document["samples_unreadable"] = dict(zip("ab", found.unreadable(), strict=True))
        document["same_samples_in_another_order"] = found.is_another_order()
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


def _side(side: Readable) -> dict[str, Any]:
    manifest = side.manifest
    return {
        "path": str(side.path),
        "samples": side.num_samples,
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


def _drawn(found: _Difference) -> list[RenderableType]:
    columns = found.columns
    parts: list[RenderableType] = [
        _verdict(found),
        Text(),
        table(("", "A", "B"), _sides(*found.sides), flexible=("A", "B")),
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
    if found.compared is not None:
        parts += [Text(), *_samples(found, found.compared)]
    return parts


def _verdict(found: _Difference) -> Text:
    if found.compared is None:
        note = "  by the digests in the manifests; no sample was read: see verify"
        return line(("same contents", "bold green"), (note, "dim"))
    if found.is_equal():
        return line(("every sample of B is in A, unchanged", "bold green"))
    if found.by_original_ids:
        return line(("not every sample of B is in A, unchanged", "bold red"))
    if found.is_another_order():
        return line(("the same samples in another order", "bold red"))
    if _have_one_digest(found.sides):
        return line(("damaged", "bold red"), "  the manifests name the same contents")
    return line(("different contents", "bold red"))


def _sides(left: Readable, right: Readable) -> list[tuple[str | Text, ...]]:
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


def _samples(found: _Difference, compared: Comparison) -> list[RenderableType]:
    part = compared.differing / compared.compared if compared.compared else 0
    parts: list[RenderableType] = [
        heading(
            "Samples",
            f"{count(compared.differing)} of {count(compared.compared)} in both differ "
            f"({share(part)})",
            style="",
        )
    ]
    for name, side in zip("AB", found.sides, strict=True):
        if side.lost:
            lost = sum(stop - start for start, stop in side.lost)
            text = f"{counted(lost, 'sample')} of {name} cannot be read: "
            parts.append(paragraph(text + ranges_text(side.lost), "red"))
    only_a = found.sides[0].num_samples - compared.compared
    if found.by_original_ids and only_a:
        parts.append(line((f"  {counted(only_a, 'sample')} of A not compared", "dim")))
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

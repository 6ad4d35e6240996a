"""Draws the whole page: one HTML file that asks for nothing and runs nothing."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from dataset_rt._native import VERSION
from dataset_rt.html import (
    AnyContent,
    Markup,
    content,
    details,
    element,
    facts,
    joined,
    table,
    tiles,
)
from dataset_rt.inspection.kinds import Kinds
from dataset_rt.report.facts import CacheFacts, Missing
from dataset_rt.report.frame import section
from dataset_rt.report.sections import (
    columns_sections,
    draws_section,
    has_pictures,
    payloads_section,
    samples_section,
)
from dataset_rt.report.status import integrity_section, status_badge
from dataset_rt.report.style import page_style
from dataset_rt.text import count, counted, cut, safe, size

# Values are escaped wherever they stand. This says so to the browser once more: no script, no
# frame and nothing from anywhere, whatever a mistake of ours let through.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'"

# Of this or another system, alone or within a list.
_ABSOLUTE = re.compile(r"""(?:^|[\s"'=\[(,:])(?:~?/[^/\s]|[A-Za-z]:[\\/]|\\\\|file:)""")

_SHARDS_SHOWN = 100
_PROVENANCE_SHOWN = 40
_NAME_CELLS_MAX = 160
_FACT_CELLS_MAX = 600


def page_of(found: CacheFacts, command: str) -> str:
    """Return the HTML of a report; the same for the same facts.

    Args:
        found: What it says.
        command: The call that makes it, for its last line.
    """
    title = escape(cut(safe(f"{_name(found)} · dataset report"), _NAME_CELLS_MAX))
    head = joined(
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": _POLICY}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "referrer", "content": "no-referrer"}),
        element("meta", {"name": "generator", "content": f"dataset-rt {VERSION}"}),
        element("title", {}, Markup(title)),
        page_style(),
    )
    status = integrity_section(found.integrity)
    is_damaged = not found.integrity.report.ok
    # Pictures say most at a glance; other payloads least.
    samples = [samples_section(found)]
    is_pictured = has_pictures(found)
    parts = [
        _header(found),
        *([status] if is_damaged else []),
        *(samples if is_pictured else []),
        draws_section(found),
        *columns_sections(found),
        payloads_section(found),
        *([] if is_pictured else samples),
        *([] if is_damaged else [status]),
        _identity(found),
        _footer(command),
    ]
    if isinstance(found.samples, Missing) and found.samples is found.columns:
        # Nothing could be opened at all, which the status says.
        parts = [_header(found), status, _identity(found), _footer(command)]
    body = element("body", {}, element("main", {"class": "drt report"}, *parts))
    page = element("html", {"lang": "en"}, element("head", {}, head), body)
    return f"<!DOCTYPE html>\n{page}\n"


def _name(found: CacheFacts) -> str:
    return str(found.manifest.get("source_name", found.anatomy.path.name))


def _header(found: CacheFacts) -> Markup:
    heading = element("h1", {}, content(_name(found), _NAME_CELLS_MAX))
    return element(
        "header",
        {},
        element("div", {"class": "eyebrow"}, content(_what(found), _NAME_CELLS_MAX)),
        element("div", {"class": "head"}, heading, status_badge(found.integrity)),
        tiles(_tiles(found)),
    )


def _what(found: CacheFacts) -> str:
    directory = found.anatomy.path.name
    return "Dataset cache" + (f" in {directory}" if directory != _name(found) else "")


def _tiles(found: CacheFacts) -> list[tuple[AnyContent, AnyContent, AnyContent]]:
    manifest = found.manifest
    shown: list[tuple[AnyContent, AnyContent, AnyContent]] = []
    samples = manifest.get("samples_total")
    if samples is not None:
        shards = manifest.get("shards")
        shown.append(
            ("samples", count(samples), f"in {counted(len(shards), 'shard')}" if shards else "")
        )
    if "columns" in manifest:
        shown.append(("columns", count(len(manifest["columns"])), ""))
    if "payload_bytes_total" in manifest:
        total = manifest["payload_bytes_total"]
        words = [f"{size(total / samples)} on average"] if samples else []
        if isinstance(found.kinds, Kinds) and found.kinds.counts:
            kinds = [kind for kind, _, _ in found.kinds.by_frequency()]
            some = found.kinds.looked_at
            looked_at = f" in the {count(some)} looked at" if some < (samples or 0) else ""
            words.append((kinds[0] if len(kinds) == 1 else f"most {kinds[0]}") + looked_at)
        shown.append(("payloads", size(total), ", ".join(words)))
    on_disk = sum(found.anatomy.sizes_on_disk().values())
    compression = manifest.get("compression", {}).get("algo")
    remark = {None: "", "none": "not compressed"}.get(compression, str(compression))
    shown.append(("on disk", size(on_disk), remark))
    return shown


def _identity(found: CacheFacts) -> Markup:
    manifest = found.manifest
    rows: list[tuple[AnyContent, AnyContent]] = []
    for name, field in (
        ("source", "source_name"),
        ("cache id", "cache_id"),
        ("contents", "content_blake3"),
    ):
        if field in manifest:
            rows.append((name, content(str(manifest[field]), _FACT_CELLS_MAX)))
    if "fingerprint" in manifest:
        rows.append(("fingerprint", content(manifest["fingerprint"] or "none", _FACT_CELLS_MAX)))
    if "compression" in manifest:
        rows.append(("compression", _compression(manifest["compression"])))
    if "format_version" in manifest:
        rows.append(("format", f"version {manifest['format_version']}"))
    sizes = found.anatomy.sizes_on_disk()
    shards = sum(number for path, number in sizes.items() if path.startswith("shards/"))
    others = [f"{path} {size(sizes[path])}" for path in sizes if not path.startswith("shards/")]
    rows.append(("files", content(", ".join([f"shards {size(shards)}", *others]), 400)))
    rows.append(("path", content(str(found.anatomy.path), _FACT_CELLS_MAX)))
    parts: list[AnyContent] = [facts(rows)]
    provenance = list(manifest.get("provenance", {}).items())
    if provenance:
        shown = provenance[:_PROVENANCE_SHOWN]
        parts.append(element("h3", {}, "Provenance"))
        parts.append(
            facts((content(key, 60), content(_without_paths(text), 400)) for key, text in shown)
        )
        if len(provenance) > len(shown):
            parts.append(f"and {count(len(provenance) - len(shown))} more")
    if manifest.get("shards"):
        parts.append(_shards(manifest["shards"], sizes))
    return section("Identity", "", *parts)


def _without_paths(text: str) -> str:
    """Return a text of the provenance: a page that is passed on names no place of its machine."""
    return "(a path, left out here)" if _ABSOLUTE.search(text) else text


def _compression(compression: dict[str, Any]) -> str:
    if compression["algo"] == "none":
        return "none"
    level = compression.get("level")
    words = [str(compression["algo"])]
    if level is not None:
        words.append(f"level {level}")
    return f"{' '.join(words)}, per {compression.get('scope')}"


def _shards(shards: list[dict[str, Any]], sizes: dict[str, int]) -> Markup:
    rows, begin = [], 0
    for shard in shards:
        end = begin + shard["rows"]
        rows.append(
            (
                content(shard["path"], 60),
                f"{begin:,} to {end - 1:,}",
                count(shard["rows"]),
                size(shard["size_bytes"]) if shard["path"] in sizes else "missing",
                element("code", {}, str(shard.get("blake3") or "")[:16]),
            )
        )
        begin = end
    drawn = table(["file", "samples", ">rows", ">size", "blake3"], rows, rows_max=_SHARDS_SHOWN)
    return details(counted(len(shards), "shard"), drawn)


def _footer(command: str) -> Markup:
    return element(
        "footer",
        {},
        element("div", {}, "One file that asks for nothing and runs no script, made by"),
        element("code", {"class": "command"}, content(command, _FACT_CELLS_MAX)),
        element("div", {"class": "drt-key"}, f"dataset-rt {VERSION}"),
    )

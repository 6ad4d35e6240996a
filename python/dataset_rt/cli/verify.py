"""`verify`: does a cache obey its format, and which samples are lost where it does not."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import RenderableType
from rich.text import Text

from dataset_rt.cli.caches import anatomy_of, hint
from dataset_rt.cli.console import line, show, show_json
from dataset_rt.cli.findings import findings_table
from dataset_rt.cli.lost import Loss, loss_of, samples_in
from dataset_rt.cli.options import CachesArgument, JsonOption
from dataset_rt.cli.progress import counting, reading
from dataset_rt.cli.text import counted, path_text, ranges_text, seconds, size
from dataset_rt.errors import NotFoundError
from dataset_rt.verification import VerificationReport, verify_cache

_CHECKED = {
    "quick": "structure; payloads were not read, --level full reads every byte",
    "full": "every byte against its digest",
    "deep": "every byte against its digest, every row and value",
}


@dataclass(frozen=True, slots=True)
class _Outcome:
    report: VerificationReport
    loss: Loss
    seconds: float


def verify(
    caches: CachesArgument,
    level: Annotated[
        Literal["quick", "full", "deep"],
        typer.Option(
            "--level",
            "-l",
            help="quick: manifest, sizes, structure. full: every byte besides. "
            "deep: every row and value besides.",
        ),
    ] = "full",
    as_json: JsonOption = False,
) -> None:
    """Check caches, and name the samples that damage has cost.

    The exit code is 1 when anything is found. Nothing is ever changed.
    """
    outcomes = []
    for number, path in enumerate(caches):
        outcome = _check(path, level)
        outcomes.append(outcome)
        if not as_json:
            show(*([Text()] if number and not outcome.report.ok else []), *_drawn(outcome))
    is_fine = all(outcome.report.ok for outcome in outcomes)
    if as_json:
        show_json({"ok": is_fine, "reports": [_document(outcome) for outcome in outcomes]})
    raise typer.Exit(0 if is_fine else 1)


def _check(path: Path, level: Literal["quick", "full", "deep"]) -> _Outcome:
    try:
        sizes = anatomy_of(path).sizes_on_disk()
    except NotFoundError as error:
        raise NotFoundError(f"{error}{hint(path)}") from None
    # The deepest level decodes the Arrow files once more.
    arrow = sum(size for name, size in sizes.items() if name.endswith(".arrow"))
    total = {"quick": 0, "full": sum(sizes.values()), "deep": sum(sizes.values()) + arrow}[level]
    started = time.monotonic()
    with reading(f"verifying {path.name}", total):
        report = verify_cache(path, level)
    duration = time.monotonic() - started
    loss = Loss([], [], [])
    if not report.ok:
        manifest = anatomy_of(path).manifest
        with counting("looking for lost samples", manifest.get("samples_total", 0)) as on_progress:
            loss = loss_of(path, manifest, report.findings, on_progress)
    return _Outcome(report, loss, duration)


def _document(outcome: _Outcome) -> dict[str, Any]:
    report, loss = outcome.report, outcome.loss
    return {
        "path": str(report.path),
        "level": report.level,
        "ok": report.ok,
        "payloads_read": report.level != "quick",
        "seconds": outcome.seconds,
        "files_checked": report.files_checked,
        "bytes_checked": report.bytes_checked,
        "findings": [asdict(finding) for finding in report.findings],
        "samples_lost": loss.lost,
        "samples_in_doubt": loss.in_doubt,
        "rebuildable": loss.rebuildable,
    }


def _drawn(outcome: _Outcome) -> list[RenderableType]:
    report = outcome.report
    verdict = ("ok", "bold green") if report.ok else ("DAMAGED", "bold red")
    parts: list[RenderableType] = [
        line(
            (path_text(report.path), "bold"),
            "  ",
            verdict,
            f"  {counted(report.files_checked, 'file')}, {size(report.bytes_checked)} checked in "
            f"{seconds(outcome.seconds)}",
        ),
        line((f"  level {report.level}: {_CHECKED[report.level]}", "dim")),
    ]
    if not report.ok:
        parts += [Text(), findings_table(report.findings), Text(), *_losses(outcome)]
    return parts


def _losses(outcome: _Outcome) -> list[RenderableType]:
    loss = outcome.loss
    parts: list[RenderableType] = []
    if loss.lost:
        lost = counted(samples_in(loss.lost), "sample")
        parts.append(line(("  lost      ", "bold red"), f"{lost}: {ranges_text(loss.lost)}"))
    if loss.in_doubt:
        doubt = counted(samples_in(loss.in_doubt), "sample")
        text = f"up to {doubt} of damaged shards: {ranges_text(loss.in_doubt)}"
        parts.append(line(("  in doubt  ", "bold red"), text))
    parts += [
        line(("  derived   ", "bold"), f"{name} can be rebuilt from the shards")
        for name in loss.rebuildable
    ]
    advice = f"dataset-rt repair {shlex.quote(str(outcome.report.path))}"
    parts.append(line(("  next      ", "bold"), f"{advice} --help"))
    return parts

"""`verify`: does a cache obey its format, and which samples are lost where it does not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from dataset_rt.cli.console import facts, line, show, show_json, styled
from dataset_rt.cli.findings import findings_table
from dataset_rt.cli.options import JsonOption, given_path
from dataset_rt.cli.progress import reading
from dataset_rt.inspection.caches import caches_below, is_cache, is_remains
from dataset_rt.inspection.checks import amount, checked
from dataset_rt.inspection.integrity import Integrity, integrity_of
from dataset_rt.text import count, counted, path_text, seconds
from dataset_rt.verification import VerificationLevel


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one check found, and how long the verification took."""

    integrity: Integrity
    seconds: float


def verify(
    caches: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            help="Caches, or directories with caches in them.",
            show_default=False,
            parser=given_path,
        ),
    ],
    level: Annotated[
        VerificationLevel,
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

    Of a directory with caches in it, each is checked. The exit code is 1 when anything is found.
    Nothing is ever changed.
    """
    outcomes = []
    for number, path in enumerate(_each(caches)):
        outcome = _check(path, level)
        outcomes.append(outcome)
        if not as_json:
            show(
                *([Text()] if number and not outcome.integrity.report.ok else []), *_drawn(outcome)
            )
    is_fine = all(outcome.integrity.report.ok for outcome in outcomes)
    if len(outcomes) > 1 and not as_json:
        bad = sum(not outcome.integrity.report.ok for outcome in outcomes)
        verdict = (f"{count(bad)} DAMAGED", "bold red") if bad else ("all ok", "bold green")
        show(Text(), line(f"{counted(len(outcomes), 'cache')}: ", verdict))
    if as_json:
        show_json({"ok": is_fine, "reports": [_document(outcome) for outcome in outcomes]})
    raise typer.Exit(0 if is_fine else 1)


def _each(paths: list[Path]) -> list[Path]:
    """Return the paths, each directory of caches replaced by its caches."""
    found = []
    for path in paths:
        below = [] if is_cache(path) or is_remains(path) else caches_below(path)
        found += below or [path]
    return found


def _check(path: Path, level: VerificationLevel) -> _Outcome:
    durations: list[float] = []

    @contextmanager
    def timed(label: str, size_bytes: int) -> Iterator[None]:
        started = time.monotonic()
        with reading(label, size_bytes):
            yield
        durations.append(time.monotonic() - started)

    integrity = integrity_of(path, level, timed)
    return _Outcome(integrity, durations[0] if durations else 0.0)


def _document(outcome: _Outcome) -> dict[str, Any]:
    report, trouble = outcome.integrity.report, outcome.integrity.trouble
    return {
        "path": str(report.path),
        "level": report.level,
        "ok": report.ok,
        "payloads_read": report.level != "quick",
        "seconds": outcome.seconds,
        "files_checked": report.files_checked,
        "bytes_checked": report.bytes_checked,
        "is_complete": report.is_complete,
        "findings": [asdict(finding) for finding in report.findings],
        "samples_lost": outcome.integrity.lost(),
        "restorable": outcome.integrity.restorable(),
        "trouble": trouble,
    }


def _drawn(outcome: _Outcome) -> list[RenderableType]:
    report = outcome.integrity.report
    verdict = ("ok", "bold green") if report.ok else ("DAMAGED", "bold red")
    more = "; --level full reads every byte" if report.level == "quick" else ""
    rows = [
        ("level", f"{report.level}: {checked(report)}{more}"),
        ("checked", f"{amount(report)} in {seconds(outcome.seconds)}"),
    ]
    parts = [line((path_text(report.path), "bold"), "  ", verdict), facts(rows)]
    if not report.ok:
        parts += [Text(), findings_table(report.findings), Text(), *_losses(outcome.integrity)]
    return parts


def _losses(integrity: Integrity) -> list[RenderableType]:
    is_certain = bool(integrity.lost())
    rows: list[tuple[str, str | Text]] = [
        (name, styled(text, "bold red") if name == "lost" and is_certain else text)
        for name, text in integrity.advice()
    ]
    return [facts((name, text) for name, text in rows)]

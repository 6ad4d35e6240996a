"""`verify`: does a cache obey its format, and which samples are lost where it does not."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from dataset_rt.cli.caches import (
    MANIFEST,
    anatomy_of,
    caches_below,
    hint,
    is_cache,
    is_remains,
    report_of_remains,
)
from dataset_rt.cli.console import facts, line, show, show_json, styled
from dataset_rt.cli.findings import findings_table
from dataset_rt.cli.options import JsonOption, given_path
from dataset_rt.cli.progress import reading
from dataset_rt.cli.words import in_words_of_options
from dataset_rt.errors import DatasetRTError, NotFoundError
from dataset_rt.text import count, counted, joined, path_text, ranges_text, seconds, size
from dataset_rt.verification import VerificationLevel, VerificationReport, verify_cache

if TYPE_CHECKING:
    from dataset_rt.repair import RepairReport

_CHECKED = {
    "quick": "structure; payloads were not read, --level full reads every byte",
    "full": "every byte against its digest",
    "deep": "every byte against its digest, every row and value",
}


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one check found, and, of a damaged cache that was read, what that means for samples."""

    report: VerificationReport
    repair: RepairReport | None
    trouble: str | None
    seconds: float

    def lost(self) -> list[tuple[int, int]] | None:
        """Return the lost samples as joined ranges `[start, stop)`, `None` if nobody knows."""
        if self.repair is None:
            return [] if self.report.ok else None
        return joined((samples.start, samples.stop) for samples in self.repair.lost)

    def restorable(self) -> list[str]:
        """Return the damaged files that the other files can restore."""
        files = () if self.repair is None else self.repair.files
        return [file.file for file in files if file.state == "restorable"]


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
            show(*([Text()] if number and not outcome.report.ok else []), *_drawn(outcome))
    is_fine = all(outcome.report.ok for outcome in outcomes)
    if len(outcomes) > 1 and not as_json:
        bad = sum(not outcome.report.ok for outcome in outcomes)
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
    if is_remains(path):
        return _Outcome(report_of_remains(path, level), None, "nothing proves any sample", 0.0)
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
    repair, trouble = None, None
    if not report.ok and level != "quick":
        from dataset_rt.repair import repair_cache  # noqa: PLC0415 - Polars

        try:
            with reading("looking for lost samples", total):
                repair = repair_cache(path, dry_run=True)
        except DatasetRTError as error:
            trouble = in_words_of_options(str(error))
    return _Outcome(report, repair, trouble, duration)


def _document(outcome: _Outcome) -> dict[str, Any]:
    report = outcome.report
    return {
        "path": str(report.path),
        "level": report.level,
        "ok": report.ok,
        "payloads_read": report.level != "quick",
        "seconds": outcome.seconds,
        "files_checked": report.files_checked,
        "bytes_checked": report.bytes_checked,
        "findings": [asdict(finding) for finding in report.findings],
        "samples_lost": outcome.lost(),
        "restorable": outcome.restorable(),
        "trouble": outcome.trouble,
    }


def _drawn(outcome: _Outcome) -> list[RenderableType]:
    report = outcome.report
    verdict = ("ok", "bold green") if report.ok else ("DAMAGED", "bold red")
    checked = f"{counted(report.files_checked, 'file')}, {size(report.bytes_checked)}"
    rows = [
        ("level", f"{report.level}: {_CHECKED[report.level]}"),
        ("checked", f"{checked} in {seconds(outcome.seconds)}"),
    ]
    parts = [line((path_text(report.path), "bold"), "  ", verdict), facts(rows)]
    if not report.ok:
        parts += [Text(), findings_table(report.findings), Text(), *_losses(outcome)]
    return parts


def _losses(outcome: _Outcome) -> list[RenderableType]:
    lost, path = outcome.lost(), shlex.quote(str(outcome.report.path))
    files = " and ".join(outcome.restorable())
    rows: list[tuple[str, str | Text]] = []
    if lost:
        number = sum(stop - start for start, stop in lost)
        text = f"{counted(number, 'sample')}: {ranges_text(lost)}"
        rows += [
            ("lost", styled(text, "bold red")),
            ("next", f"dataset-rt repair {path} --dry-run says what they were"),
            ("", f"dataset-rt repair {path} --into DIR --original-ids saves others"),
        ]
    elif lost is not None:
        rows.append(("lost", "no sample"))
        if files:
            rows.append(("next", f"dataset-rt repair {path} restores {files}"))
        else:
            rows.append(("next", f"dataset-rt repair {path} --into DIR saves all samples"))
    elif outcome.trouble is not None:
        rows += [
            ("lost", f"unknown: {outcome.trouble}"),
            ("next", f"restore {MANIFEST} from a copy, if there is one"),
            ("", f"dataset-rt repair {path} --into DIR --unproven saves what looks right"),
        ]
    else:
        rows.append(("next", f"dataset-rt verify {path} says which samples are lost"))
    return [facts(rows)]

"""What a verification found, which samples that costs, and what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from dataset_rt.errors import DatasetRTError, NotFoundError
from dataset_rt.inspection.caches import (
    MANIFEST,
    anatomy_of,
    hint,
    is_remains,
    report_of_remains,
)
from dataset_rt.inspection.words import in_words_of_options
from dataset_rt.text import counted, joined, ranges_text
from dataset_rt.verification import VerificationLevel, VerificationReport, verify_cache

if TYPE_CHECKING:
    from dataset_rt.repair import RepairReport

Watch: TypeAlias = Callable[[str, int], AbstractContextManager[object]]
"""Is told what is read, and how many bytes that is, and entered meanwhile."""


@dataclass(frozen=True, slots=True)
class Integrity:
    """What one check found, and, of a damaged cache that was read, what that means for samples.

    Attributes:
        report: Of the verification.
        repair: What a repair would find, of a damaged cache above level "quick".
        trouble: Why nobody knows that, if so.
    """

    report: VerificationReport
    repair: RepairReport | None = None
    trouble: str | None = None

    def lost(self) -> list[tuple[int, int]] | None:
        """Return the lost samples as joined ranges `[start, stop)`, `None` if nobody knows."""
        if self.repair is None:
            return [] if self.report.ok else None
        return joined((samples.start, samples.stop) for samples in self.repair.lost)

    def restorable(self) -> list[str]:
        """Return the damaged files that the other files can restore."""
        files = () if self.repair is None else self.repair.files
        return [file.file for file in files if file.state == "restorable"]

    def advice(self) -> list[tuple[str, str]]:
        """Return what is lost and what to do next, as names (`lost`, `next`) and texts."""
        if self.report.ok:
            return []
        lost, path = self.lost(), shlex.quote(str(self.report.path))
        files = " and ".join(self.restorable())
        if lost:
            number = sum(stop - start for start, stop in lost)
            return [
                ("lost", f"{counted(number, 'sample')}: {ranges_text(lost)}"),
                ("next", f"dataset-rt repair {path} --dry-run says what they were"),
                ("", f"dataset-rt repair {path} --into DIR --original-ids saves others"),
            ]
        if lost is not None:
            way = f"restores {files}" if files else "--into DIR saves all samples"
            return [("lost", "no sample"), ("next", f"dataset-rt repair {path} {way}")]
        if self.trouble is not None:
            return [
                ("lost", f"unknown: {self.trouble}"),
                ("next", f"restore {MANIFEST} from a copy, if there is one"),
                ("", f"dataset-rt repair {path} --into DIR --unproven saves what looks right"),
            ]
        return [("next", f"dataset-rt verify {path} says which samples are lost")]


def integrity_of(
    path: Path, level: VerificationLevel, watch: Watch = lambda *_: nullcontext()
) -> Integrity:
    """Verify a cache, and find out what damage costs; `"quick"` cannot say the latter.

    Raises:
        NotFoundError: There is no cache; the message names caches with a name like it.
    """
    if is_remains(path):
        return Integrity(report_of_remains(path, level), trouble="nothing proves any sample")
    try:
        sizes = anatomy_of(path).sizes_on_disk()
    except NotFoundError as error:
        raise NotFoundError(f"{error}{hint(path)}") from None
    # The deepest level decodes the Arrow files once more.
    arrow = sum(size for name, size in sizes.items() if name.endswith(".arrow"))
    total = {"quick": 0, "full": sum(sizes.values()), "deep": sum(sizes.values()) + arrow}[level]
    with watch(f"verifying {path.name}", total):
        report = verify_cache(path, level)
    if report.ok or level == "quick":
        return Integrity(report)
    from dataset_rt.repair import repair_cache  # noqa: PLC0415 - Polars

    try:
        with watch("looking for lost samples", total):
            return Integrity(report, repair_cache(path, dry_run=True))
    except DatasetRTError as error:
        return Integrity(report, trouble=in_words_of_options(str(error)))

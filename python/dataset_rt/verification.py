"""Checks a cache against its format and reports findings; knows none of the rules itself."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from dataset_rt import _native
from dataset_rt.arguments import AnyPath, to_cache_path
from dataset_rt.errors import InvalidInputError

VerificationLevel: TypeAlias = Literal["quick", "full", "deep"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule of the storage format.

    Attributes:
        rule: Id of the rule in the format specification.
        severity: How bad it is.
        file: File in the cache, relative to it.
        place: Where in the file.
        expected: What the rule asks for.
        found: What stands there.
    """

    rule: str
    severity: str
    file: str
    place: str
    expected: str
    found: str

    def __str__(self) -> str:
        """One readable line."""
        where = f"{self.file} {self.place}".strip()
        return (
            f"{self.severity} {self.rule} in {where}: expected {self.expected}, found {self.found}"
        )


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """What `verify_cache` found; true in a condition when the cache is in order.

    Attributes:
        path: The cache directory.
        level: How much was checked.
        ok: Whether the cache may be used.
        findings: Every broken rule.
        files_checked: Number of files looked into.
        bytes_checked: Number of bytes read and compared.
    """

    path: Path
    level: VerificationLevel
    ok: bool
    findings: tuple[Finding, ...]
    files_checked: int
    bytes_checked: int

    def __bool__(self) -> bool:
        """Return `ok`, so that `if verify_cache(path)` means what it says."""
        return self.ok

    def __str__(self) -> str:
        """One line for the whole, one more per finding."""
        verdict = "ok" if self.ok else "NOT OK"
        if self.ok and self.level == "quick":
            verdict = "ok as far as structure goes, payloads not read"
        head = (
            f"{self.path}: {verdict} (level {self.level}, {self.files_checked} files, "
            f"{self.bytes_checked} bytes checked, {len(self.findings)} findings)"
        )
        return "\n".join([head, *(f"  {finding}" for finding in self.findings)])

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, and every finding."""
        from dataset_rt.cards.verification import report_card  # noqa: PLC0415 - notebooks only

        return report_card(self)

    def to_json(self) -> str:
        """Return the report as JSON text with the same field names."""
        return json.dumps(asdict(self) | {"path": str(self.path)}, ensure_ascii=False, indent=2)


def verify_cache(path: AnyPath, level: VerificationLevel = "quick") -> VerificationReport:
    """Check a cache and report every broken rule; it never changes anything.

    Args:
        path: The cache directory.
        level: `"quick"` checks manifest, sizes and structure; `"full"` every digest besides;
            `"deep"` every cross-reference and value besides.

    Returns:
        The report. Whatever is wrong with an existing cache is a finding, not an exception:
        damage, files that cannot be read, a newer format.

    Raises:
        TypeError: `path` is no path.
        InvalidInputError: `level` is none of the three.
        NotFoundError: There is no cache at `path`.
        ExhaustedError: Memory or file descriptors ran out meanwhile.

    Example:
        >>> verify_cache(cache, level="deep").ok
        True
    """
    if level not in get_args(VerificationLevel):
        raise InvalidInputError(f"level must be 'quick', 'full' or 'deep', found {level!r}")
    report = json.loads(_native.verify_cache(to_cache_path(path, "path"), level))
    return VerificationReport(
        path=Path(report["path"]),
        level=report["level"],
        ok=report["ok"],
        findings=tuple(Finding(**finding) for finding in report["findings"]),
        files_checked=report["files_checked"],
        bytes_checked=report["bytes_checked"],
    )

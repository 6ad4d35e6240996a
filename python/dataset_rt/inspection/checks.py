"""A verification in words: what was checked, what could not be, and what a broken rule means.

The command line, reports and cards of notebooks say it with these words alone.
"""

from __future__ import annotations

import re

from dataset_rt.text import counted, size
from dataset_rt.verification import VerificationReport

_CHECKED = {
    "quick": "manifest, sizes and structure; payloads were not read",
    "full": "every byte against its digest",
    "deep": "every byte against its digest, every row and value",
}
_VERDICTS = {
    "quick": "structure ok, payloads not read",
    "full": "every byte verified",
    "deep": "every byte and value verified",
}
# By what a check is ended: manifest, files that are not there as a whole, Arrow files.
_MANIFEST_RULES = ("M01", "M02", "M03")
_FILE_RULES = ("F01", "F02")
_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")

# In the words of someone who never read the format; docs/format/v0.md has the rules.
MEANING = {
    "M01": "manifest is not of this format",
    "M02": "manifest was changed or damaged",
    "M03": "manifest contradicts itself",
    "F01": "file missing or unreadable",
    "F02": "file has another size",
    "F03": "file has other bytes than written",
    "F04": "block digests are wrong",
    "I01": "index begins wrongly",
    "I02": "index points elsewhere",
    "A01": "Arrow file ends wrongly",
    "A02": "Arrow file begins wrongly",
    "A03": "Arrow file has another schema",
    "A04": "record batch is malformed",
    "A05": "other number of rows",
    "A06": "other compression",
    "A07": "values are malformed",
    "A08": "nulls where none may be",
    "S01": "samples are numbered wrongly",
    "S02": "metadata differs from the shard",
    "S03": "payload does not decompress",
    "C01": "rows or payloads are not those the manifest names; the manifest itself is intact",
    "C02": "payload sizes differ",
}
"""What it means that a rule of the format is broken."""


def checked(report: VerificationReport) -> str:
    """Return what was checked; of a check that damage ended early, what was left out and why."""
    if report.is_complete:
        return _CHECKED[report.level]
    rules = {finding.rule for finding in report.findings}
    if not report.files_checked or rules & {*_MANIFEST_RULES}:
        return "the manifest alone; nothing else, since it is missing or damaged"
    is_cut = bool(rules & {*_FILE_RULES})
    done = {
        "quick": "manifest and sizes" if is_cut else "manifest, sizes and structure in part",
        "full": "every byte that is there against its digest",
        "deep": "every byte that is there against its digest",
    }[report.level]
    left_out = {"quick": "structure was", "full": "structure was", "deep": "rows and values were"}
    why = "files are missing or cut" if is_cut else "files are malformed"
    whole = "" if is_cut or report.level == "deep" else " as a whole"
    return f"{done}; {left_out[report.level]} not compared{whole}, since {why}"


def amount(report: VerificationReport) -> str:
    """Return how many files were looked into, and how many bytes were read for that."""
    twice = ", most read twice" if report.level == "deep" and report.is_complete else ""
    return f"{counted(report.files_checked, 'file')}, {size(report.bytes_checked)}{twice}"


def verdict(report: VerificationReport) -> str:
    """Return the outcome in a few words; a quick check of a sound cache proves no payload."""
    return _VERDICTS[report.level] if report.ok else "damaged"


def shortened(text: str) -> str:
    """Return expected or found values with every BLAKE3 digest cut to its first 12 digits."""
    return _DIGEST.sub(r"\1...", text)

"""Messages of the library in the words of the command line."""

from __future__ import annotations

from dataset_rt.inspection.checks import shortened

_WORDS = (
    ('with trust="structure" (--unproven)', "with --unproven"),
    ("num_workers is ", "--workers is "),
    ("replace it with overwrite=True", "replace it with --overwrite"),
    ("remove it or use from_cache_sources to reuse it", "choose another name, or remove it"),
    ("repair_cache(dry_run=True)", "dataset-rt repair --dry-run"),
    ("repair_cache (dataset-rt repair)", "dataset-rt repair"),
    (
        "salvage_cache(always=True) (dataset-rt repair --into DIR --always)",
        "dataset-rt repair --into DIR --always",
    ),
    ("salvage_cache (dataset-rt repair --into)", "dataset-rt repair --into DIR"),
)


def in_words_of_options(message: str) -> str:
    """Return a message with options and commands where it names arguments and functions."""
    for ours, theirs in _WORDS:
        message = message.replace(ours, theirs)
    return message


def in_words(error: Exception | str) -> str:
    """Return a message with options where it names arguments, and digests shortened."""
    return shortened(in_words_of_options(str(error)))

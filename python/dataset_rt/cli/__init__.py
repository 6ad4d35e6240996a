"""The command line `dataset-rt`, a thin front over what the package exports.

app.py           the commands together, and how errors and exit codes leave
options.py       arguments that several commands share, and their completion
inspecting.py, head.py, stats.py, verify.py, repair.py, diff.py, cat.py, sample.py, report.py,
bench.py, unfinished.py
                 one command each: what it collects, and how that is drawn
importing.py     import: files of other libraries as caches
import_options.py  what the options of every import mean
exporting.py     export: caches as files of other libraries, or some rows as a new cache
comparison.py    what `diff` finds in two caches, in bounded memory; what others ask of a cache is
                 in dataset_rt/inspection
console.py, fitting.py, findings.py, losses.py, progress.py, bars.py
                 how things are drawn
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say what it needs: typer and rich come with the extra `cli`."""
    try:
        from dataset_rt.cli.app import run  # noqa: PLC0415 - typer is an extra
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        # Not the extra by this package's name: no index has the package yet, or another's.
        sys.exit(f"dataset-rt: the command line needs {error.name}: pip install {error.name}")
    except KeyboardInterrupt:
        sys.exit(130)
    run()

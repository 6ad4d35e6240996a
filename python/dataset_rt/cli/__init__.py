"""The command line `dataset-rt`, a thin front over what the package exports.

app.py       the commands together, and how errors and exit codes leave
importing.py import: files of other libraries as caches
import_options.py what the options of every import mean
exporting.py export: caches as files of other libraries, or some rows as a new cache
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
        sys.exit(f"dataset-rt: the command line needs {error.name}: pip install 'dataset-rt[cli]'")
    run()

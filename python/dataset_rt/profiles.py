"""Joins the stage times of several sources into one JSON file; measures nothing itself."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Self

from dataset_rt.config import WriterProfilerConfig


class ProfileFile:
    """One file for all sources of one call: `{"sources": [...]}`, written whatever the ending.

    The compiled module writes one source's report to the path; leaving the context joins them.
    """

    def __init__(self, config: WriterProfilerConfig) -> None:
        """See the class."""
        self._path = config.path if config.enabled else None
        self._reports: list[Any] = []

    def __enter__(self) -> Self:
        """Forget what an earlier call left at the path."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        return self

    def collect(self) -> None:
        """Take over the report of the source that just ended, if it left one."""
        if self._path is not None and self._path.exists():
            self._reports.append(json.loads(self._path.read_text(encoding="utf-8")))
            self._path.unlink()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write the reports collected so far, after an interrupt too."""
        self.collect()
        if self._path is not None and self._reports:
            text = json.dumps({"sources": self._reports}, indent=2)
            self._path.write_text(text + "\n", encoding="utf-8")

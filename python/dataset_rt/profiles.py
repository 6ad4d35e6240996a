"""Joins the stage times of several sources into one JSON file; measures nothing itself."""

from __future__ import annotations

import json
import warnings
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from dataset_rt.config import WriterProfilerConfig
from dataset_rt.errors import InvalidInputError


class ProfileFile:
    """One file for all sources of one call: `{"sources": [...]}`, written whatever the ending.

    The compiled module writes one source's report to the path; leaving the context joins them.
    """

    def __init__(self, config: WriterProfilerConfig) -> None:
        """See the class."""
        self._path = config.path if config.enabled else None
        self._reports: list[Any] = []

    def __enter__(self) -> Self:
        """Forget what an earlier call left at the path, and see that it can be written.

        Raises:
            InvalidInputError: It cannot; nothing was written yet.
        """
        if self._path is not None:
            try:
                self._path.write_text("", encoding="utf-8")
                self._path.unlink()
            except OSError as error:
                raise InvalidInputError(
                    f"the profile cannot be written: {error}; set another profiler path, or "
                    "profiler.enabled to False"
                ) from error
        return self

    def collect(self) -> None:
        """Take over the report of the source that just ended, if it left one."""
        if self._path is None or not self._path.exists():
            return
        # Whatever happens to a report, the sources that follow are written.
        with suppress(OSError, ValueError):
            self._reports.append(json.loads(self._path.read_text(encoding="utf-8")))
            self._path.unlink()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write the reports collected so far, after an interrupt too.

        A failure is a warning: the caches are written.
        """
        if self._path is None:
            return
        try:
            self.collect()
            text = json.dumps({"sources": self._reports}, indent=2)
            self._path.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            warnings.warn(f"the profile could not be written: {error}", stacklevel=5)

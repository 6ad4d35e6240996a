"""Joins the stage times of several sources into one JSON file; measures nothing itself."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dataset_rt.config import WriterProfilerConfig
from dataset_rt.errors import InvalidInputError


class ProfileFile:
    """One file for all sources of one call: `{"sources": [...]}`, written whatever the ending.

    The compiled module writes a report of each source to a path of its own beside it; leaving
    the context joins them.

    Args:
        config: Where, and whether at all.
        count: Number of sources.
    """

    def __init__(self, config: WriterProfilerConfig, count: int) -> None:
        """See the class."""
        self._path = config.path if config.enabled else None
        self._count = count

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

    def path_of(self, index: int) -> str | None:
        """Return where the report of one source goes, `None` when nobody wants it."""
        if self._path is None:
            return None
        return str(self._path.with_name(f"{self._path.name}.{index}"))

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Join the reports there are, after an interrupt too.

        A failure is a warning: the caches are written.
        """
        if self._path is None:
            return
        reports = [report for index in range(self._count) for report in self._collect(index)]
        try:
            text = json.dumps({"sources": reports}, indent=2)
            self._path.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            warnings.warn(f"the profile could not be written: {error}", stacklevel=5)

    def _collect(self, index: int) -> Iterator[Any]:
        # A report that is missing or broken costs only itself.
        with suppress(OSError, ValueError):
            path = Path(self.path_of(index) or "")
            text = path.read_text(encoding="utf-8")
            path.unlink()
            yield json.loads(text)

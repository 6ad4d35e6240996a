"""Writes the sources of one call, here or by several processes, and says what became of each.

Knows no rule of writing: the compiled module decides, does and publishes.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import pyarrow as pa

from dataset_rt import _native
from dataset_rt.config import WriterConfig
from dataset_rt.errors import DatasetRTError, SourceError
from dataset_rt.profiles import ProfileFile
from dataset_rt.progress import OnProgress, length_of, progress_line
from dataset_rt.results import CacheWriteError, CacheWriteResult, CacheWriteSuccess
from dataset_rt.sources import CacheSource
from dataset_rt.sources.transformed import TransformedSource, has_transform

_LOGGER = logging.getLogger("dataset_rt")

Outcome: TypeAlias = tuple[CacheWriteResult, list[str]]
"""What became of one source, and what to warn of."""

# Samples that worker processes have made wait in as many bytes, unless prefetch_bytes says so.
_WAITING_BYTES = 64 * 1024 * 1024


def write_all(
    native: _native.NativeRuntime,
    sources: Sequence[CacheSource],
    names: Sequence[str],
    directory: str,
    *,
    config: WriterConfig,
    reuse: bool,
) -> tuple[list[CacheWriteResult], list[str]]:
    """Write sources, or reuse their caches.

    Args:
        native: The runtime.
        sources: What to write.
        names: Their names, checked and normalised.
        directory: Where the caches go.
        config: Settings of writing.
        reuse: Whether a complete cache serves as it is.

    Returns:
        One result per source, in their order; and what to warn of.

    Raises:
        BaseException: What ends the whole call, such as Ctrl-C.
    """
    outcomes: dict[int, Outcome] = {}
    with ProfileFile(config.profiler, len(sources)) as profile, ExitStack() as stack:
        call = _Call(native, directory, config, reuse, profile)
        if call.num_processes > 1 or config.process_timeout is not None:
            from dataset_rt.processes.spawned import stop_script_without_guard  # noqa: PLC0415 - as above

            stop_script_without_guard()
            outcomes = call.write_side_by_side(sources, names)
            stack.enter_context(call.open_pool())
        for index, (source, name) in enumerate(zip(sources, names, strict=True)):
            if index not in outcomes:
                outcomes[index] = call.write_here(index, source, name)
    results = [outcomes[index][0] for index in range(len(sources))]
    notes = [note for index in range(len(sources)) for note in outcomes[index][1]]
    return results, notes


class _Call:
    """What the sources of one call share."""

    def __init__(
        self,
        native: _native.NativeRuntime,
        directory: str,
        config: WriterConfig,
        reuse: bool,
        profile: ProfileFile,
    ) -> None:
        self._native = native
        self._directory = directory
        self._config = config
        self._reuse = reuse
        self._profile = profile
        self._pool: Any = None
        asked = config.num_processes
        self.num_processes = _native.cpus_usable() if asked == "auto" else asked

    def open_pool(self) -> Any:
        """Return the context of the processes that make samples; they start with the work."""
        from dataset_rt.processes.transforming import TransformPool  # noqa: PLC0415 - few calls need them

        waiting_bytes = self._config.prefetch_bytes or _WAITING_BYTES
        timeout = self._config.process_timeout
        self._pool = TransformPool(self.num_processes, timeout, waiting_bytes)
        return self._pool

    def write_here(self, index: int, source: CacheSource, name: str) -> Outcome:
        """Write one source on this thread, its samples made by the pool if there is one."""
        options = self._options(index)
        made: Any = source
        if has_transform(source):
            made = TransformedSource(source)
            if self._pool is not None:
                from dataset_rt.processes.transforming import PooledSource  # noqa: PLC0415 - as above

                made = PooledSource(source, self._pool)
        with progress_line(name, source, self._config.show_progress) as on_progress:
            return write_one(
                self._native,
                made,
                name,
                self._directory,
                options=options,
                reuse=self._reuse,
                on_progress=on_progress,
            )

    def write_side_by_side(
        self, sources: Sequence[CacheSource], names: Sequence[str]
    ) -> dict[int, Outcome]:
        """Write those that take their samples from their own iteration; leave the others."""
        # As above.
        from dataset_rt.processes.side_by_side import SideBySide, Task  # noqa: PLC0415
        from dataset_rt.processes.source_worker import Job  # noqa: PLC0415
        from dataset_rt.processes.spawned import working_directory  # noqa: PLC0415

        indices = [
            index
            for index, (source, name) in enumerate(zip(sources, names, strict=True))
            if not has_transform(source) and self._is_worth_a_process(source, name)
        ]
        at_once = min(self.num_processes, len(indices))
        if at_once == 0 or (at_once == 1 and self._config.process_timeout is None):
            return {}
        num_workers = max(self._native.num_workers // at_once, 1)
        tasks = [
            Task(
                index,
                sources[index],
                Job(
                    names[index],
                    self._directory,
                    self._options(index),
                    self._reuse,
                    num_workers,
                    working_directory(),
                    _LOGGER.getEffectiveLevel(),
                ),
            )
            for index in indices
        ]
        title = names[indices[0]] if len(indices) == 1 else f"{len(indices)} sources"
        lengths = _Lengths([sources[index] for index in indices])
        with progress_line(title, lengths, self._config.show_progress) as on_progress:
            return SideBySide(at_once, self._config, on_progress).write(tasks)

    def _is_worth_a_process(self, source: CacheSource, name: str) -> bool:
        """Guess whether a source will be written; wrong guesses cost time, nothing else."""
        path = Path(self._directory, name)
        if not os.path.lexists(path):
            return True
        if not self._reuse or self._config.on_stale != "rewrite":
            return False
        try:
            cache = _native.NativeCache(str(path))
            stored = json.loads(cache.manifest_json())["fingerprint"]
            declared = getattr(source, "schema", None)
            is_stale = stored != getattr(source, "fingerprint", None) or (
                declared is not None and not pa.schema(cache.schema()).equals(declared)
            )
        except Exception:  # noqa: BLE001 - whoever writes it finds out, and reports it
            return False
        return is_stale

    def _options(self, index: int) -> dict[str, Any]:
        return self._config._native_options() | {"profile_path": self._profile.path_of(index)}


class _Lengths:
    """The length of several sources, as far as all of them tell it."""

    def __init__(self, sources: Sequence[Any]) -> None:
        self._sources = sources

    def __len__(self) -> int:
        lengths = [length_of(source) for source in self._sources]
        if None in lengths:
            raise TypeError("one of the sources does not tell its length")
        return sum(length or 0 for length in lengths)


def write_one(
    native: _native.NativeRuntime,
    source: Any,
    name: str,
    directory: str,
    *,
    options: dict[str, Any],
    reuse: bool,
    on_progress: OnProgress | None,
) -> Outcome:
    """Write one source on this thread.

    Args:
        native: The runtime.
        source: What to write; it yields samples or Arrow data.
        name: Its name, checked and normalised.
        directory: Where the cache goes.
        options: Settings, as the compiled module takes them.
        reuse: Whether a complete cache serves as it is.
        on_progress: Told of samples and bytes so far.

    Returns:
        What became of it, and what to warn of.

    Raises:
        BaseException: What ends the whole call, such as Ctrl-C.
    """
    # Exception, not BaseException: Ctrl-C and SystemExit end the whole call at once.
    began = time.monotonic()
    _LOGGER.info("source %r: begins, into %s", name, directory)
    try:
        status, samples_reused, note = native.write_source(
            source, name, directory, options, reuse, on_progress
        )
    except SourceError as error:
        return _failed(name, str(error), error.__cause__ or error)
    except Exception as error:  # noqa: BLE001 - one failing source never stops the others
        return _failed(name, str(error) or type(error).__name__, error)
    path = Path(directory, name)
    _log_end(name, path, status, time.monotonic() - began)
    notes = [] if note is None else [note]
    if status != "reused":
        notes.extend(_length_note(source, name, path))
    status = cast("Literal['written', 'reused', 'resumed']", status)
    return CacheWriteSuccess(name, path, status, samples_reused), notes


def _failed(name: str, message: str, error: BaseException) -> Outcome:
    # The caller gets the failure, too, but a list of results is easily passed over.
    _LOGGER.error("source %r: failed: %s", name, message)
    return CacheWriteError(name, message, error), []


def _log_end(name: str, path: Path, status: str, seconds: float) -> None:
    if not _LOGGER.isEnabledFor(logging.INFO):
        return
    try:
        manifest = json.loads(_native.NativeCache(str(path)).manifest_json())
    except DatasetRTError:
        # Somebody replaced or removed it since; whoever opens it next will be told.
        return
    _LOGGER.info(
        "source %r: %s, %d samples, %d bytes, %.2f s",
        name,
        status,
        manifest["samples_total"],
        manifest["payload_bytes_total"],
        seconds,
    )


def _length_note(source: Any, name: str, path: Path) -> Iterator[str]:
    """Say so when a source yielded another number of samples than its length: often a cut one."""
    try:
        expected = len(source)
    except Exception:  # noqa: BLE001 - a length is optional, and only a hint
        return
    try:
        found = _native.NativeCache(str(path)).num_samples
    except DatasetRTError:
        # As above.
        return
    if found != expected:
        yield (
            f"source {name!r} yielded {found} samples, but its length is {expected}; the cache "
            "holds what was yielded: check the source, and remove the cache if it is cut short"
        )

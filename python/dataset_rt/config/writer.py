"""Settings of writing a cache; knows nothing of how they are carried out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, field_validator, model_validator

from dataset_rt.config.fields import Bytes, FrozenConfig, Level, PositiveCount

CompressionAlgo: TypeAlias = Literal["none", "lz4", "zstd"]
"""How payload bytes are compressed on disk."""

_SHARD_BYTES_DEFAULT = 256 * 1024 * 1024
_DICTIONARY_BYTES_MAX = 1024 * 1024
# The trainer of zstd refuses to build anything smaller.
_DICTIONARY_BYTES_MIN = 256


class ShardCompression(FrozenConfig):
    """How payloads are compressed in the shards.

    Attributes:
        algo: `"none"` is the only form that can be read without copying.
        level: zstd 1 to 22, `None` for the library's default. `lz4` and `none` have no levels.
        scope: `"payload"` compresses each payload alone, so that one sample costs one small
            decompression; `"buffer"` is the Arrow IPC body compression that other tools read.
        dictionary_bytes: Size of a zstd dictionary trained from the first payloads, which helps
            small similar payloads; 0 for none, else 256 bytes to 1 MiB, `scope="payload"` only.

    Example:
        >>> ShardCompression(algo="zstd", level=3).scope
        'payload'
    """

    algo: CompressionAlgo = "none"
    level: Level | None = None
    scope: Literal["payload", "buffer"] = "payload"
    dictionary_bytes: Bytes = 0

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if self.level is not None and self.algo != "zstd":
            raise ValueError(
                f"level={self.level} needs algo='zstd', found algo={self.algo!r}: "
                "leave level out, this algorithm has none"
            )
        if self.dictionary_bytes == 0:
            return self
        if self.algo != "zstd" or self.scope != "payload":
            raise ValueError(
                f"dictionary_bytes={self.dictionary_bytes} needs algo='zstd' and "
                f"scope='payload', found algo={self.algo!r} and scope={self.scope!r}"
            )
        if not _DICTIONARY_BYTES_MIN <= self.dictionary_bytes <= _DICTIONARY_BYTES_MAX:
            raise ValueError(
                f"dictionary_bytes must be 0 or {_DICTIONARY_BYTES_MIN} to "
                f"{_DICTIONARY_BYTES_MAX}, found {self.dictionary_bytes}"
            )
        return self


class WriterProfilerConfig(FrozenConfig):
    """Times of the writing stages as a JSON file, written also after failures and Ctrl-C.

    The file holds `{"sources": [...]}`, per source its name, outcome, samples, payload bytes and
    seconds of each stage.

    Attributes:
        enabled: Whether the file is written at all.
        path: Where, relative to the working directory.

    Example:
        >>> WriterProfilerConfig(enabled=True).path.name
        'dataset_rt_profile.json'
    """

    enabled: bool = False
    path: Annotated[Path, Field(strict=False)] = Path("dataset_rt_profile.json")

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: Path) -> Path:
        if not path.name:
            raise ValueError(f"path must name a file, found {str(path)!r}")
        return path


class WriterConfig(FrozenConfig):
    """Settings of `DatasetRuntime.write_cache` and `from_cache_sources`.

    Attributes:
        prefetch_size: Samples that the source may run ahead of the encoders, beyond one row
            group per worker.
        prefetch_bytes: The same in bytes; `None` chooses from the memory this process may use.
            One larger sample alone is allowed.
        max_shard_bytes: A shard file, columns included, closes before it grows beyond this.
        shard_compression: How payloads are compressed.
        show_progress: Draw a line per source where someone looks (terminal, notebook).
        validate_cache: Check every byte of a cache before it is reused.
        on_stale: What `from_cache_sources` does with a cache whose fingerprint or declared schema
            differs from the source's: report an error, build it again and exchange, or reuse it.
        resume: Keep the finished shards of a write that is interrupted, and go on behind them the
            next time; see `HasIterFrom`. Without it nothing of an interrupted write stays, and
            what an earlier one left is removed.
        lock_timeout: Seconds to wait for another writer of the same cache; `None` waits as long
            as it takes, 0 not at all.
        profiler: Times of the writing stages.
        num_processes: Processes for preprocessing that costs CPU time, `"auto"` for one a CPU
            that this process may use; 1 does everything on the calling thread. A source with
            `transform` is written by this process, its samples made in order by as many worker
            processes (see `HasTransform`); other sources are written side by side by as many
            processes, each in one of them. The caches are the same to the byte. It needs
            `if __name__ == "__main__":` in scripts, and sources that can be pickled. Up to two
            chunks of items, 1 MiB each or one larger item, wait per worker; samples that wait for
            their turn are bounded by `prefetch_bytes` (64 MiB for `None`), and 6 MiB or three
            larger samples per worker.
        process_timeout: Seconds that one sample may take in such a process; a longer one is an
            error of its source, which names it. It is never too strict, and noticed at the latest
            when the samples before it are stored.

    Example:
        >>> WriterConfig(on_stale="rewrite").prefetch_size
        256
    """

    prefetch_size: PositiveCount = 256
    prefetch_bytes: PositiveCount | None = None
    max_shard_bytes: PositiveCount = _SHARD_BYTES_DEFAULT
    shard_compression: ShardCompression = ShardCompression()
    show_progress: bool = True
    validate_cache: bool = False
    on_stale: Literal["error", "rewrite", "reuse"] = "error"
    resume: bool = True
    lock_timeout: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    profiler: WriterProfilerConfig = WriterProfilerConfig()
    num_processes: PositiveCount | Literal["auto"] = 1
    process_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _check_timeout(self) -> Self:
        if self.process_timeout is not None and self.num_processes == 1:
            raise ValueError(
                f"process_timeout={self.process_timeout:g} needs num_processes > 1: only a process "
                "of its own can be stopped amid a sample"
            )
        return self

    def _native_options(self) -> dict[str, Any]:
        """Return the flat options of the compiled module's `write_source`."""
        compression = self.shard_compression
        return {
            "prefetch_size": self.prefetch_size,
            "prefetch_bytes": self.prefetch_bytes,
            "max_shard_bytes": self.max_shard_bytes,
            "algo": compression.algo,
            "level": compression.level,
            "scope": compression.scope,
            "dictionary_bytes": compression.dictionary_bytes,
            "validate_cache": self.validate_cache,
            "on_stale": self.on_stale,
            "resume": self.resume,
            "lock_timeout": self.lock_timeout,
            "profile_path": str(self.profiler.path) if self.profiler.enabled else None,
        }

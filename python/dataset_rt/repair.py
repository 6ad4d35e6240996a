"""Damaged caches: names what is lost, restores what can be derived, saves the rest elsewhere.

Which bytes are right, and what may be put in their place, is decided in the compiled module.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import polars as pl
import pyarrow as pa

from dataset_rt import _native
from dataset_rt.arguments import AnyPath, to_cache_path, to_config, to_directory, to_flag
from dataset_rt.errors import InternalError, InvalidInputError
from dataset_rt.results import CacheWriteError

if TYPE_CHECKING:
    from dataset_rt.config import WriterConfig

Trust: TypeAlias = Literal["manifest", "structure"]
"""What vouches for the bytes of a damaged cache."""

_RANGES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file that is not what the manifest says.

    Attributes:
        file: File in the cache, relative to it.
        state: `"restorable"` from the other files, `"restored"` by this call, or `"lost"`.
        reason: What is wrong with it.
        obstacle: Why it cannot be restored, for derived files that cannot.
    """

    file: str
    state: Literal["restorable", "restored", "lost"]
    reason: str
    obstacle: str | None

    def __str__(self) -> str:
        """One readable line."""
        obstacle = f" (cannot be restored: {self.obstacle})" if self.obstacle else ""
        return f"{self.file}: {self.reason}; {self.state}{obstacle}"


@dataclass(frozen=True, slots=True)
class LostSamples:
    """Neighbouring samples that are lost for one reason.

    Attributes:
        start: `sample_id` of the first.
        stop: `sample_id` behind the last.
        file: File in the cache, relative to it.
        reason: What is wrong with that file, and where.
    """

    start: int
    stop: int
    file: str
    reason: str

    def __str__(self) -> str:
        """One readable line."""
        return f"{_ids(self.start, self.stop)}: {self.file}: {self.reason}"


@dataclass(frozen=True, slots=True)
class KeptSamples:
    """Neighbouring samples that survive, and where they are in the new cache.

    Attributes:
        start: `sample_id` of the first in the damaged cache.
        stop: `sample_id` behind the last in the damaged cache.
        new_start: `sample_id` of the first in the new cache.
    """

    start: int
    stop: int
    new_start: int


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What `repair_cache` found and did; true in a condition when the cache is whole now.

    Attributes:
        path: The cache directory.
        dry_run: Whether nothing was to be changed.
        ok: Whether every file is now what the manifest says.
        files: Every file that was not.
        lost: Samples that are lost, in order.
        samples_total: Samples that the cache had.
        samples_lost: Number of samples that are lost.
    """

    path: Path
    dry_run: bool
    ok: bool
    files: tuple[DamagedFile, ...]
    lost: tuple[LostSamples, ...]
    samples_total: int
    samples_lost: int

    def __bool__(self) -> bool:
        """Return `ok`, so that `if repair_cache(path)` means what it says."""
        return self.ok

    def lost_metadata(self) -> pl.DataFrame:
        """Return `sample_id` and the stored columns of the lost samples, to tell which they are.

        `metadata.arrow` and the shards hold the columns twice, so that most are known although
        the payload is gone; values that are lost too are null. Reads the damaged cache anew.

        Raises:
            ConflictError: The cache was changed since this report.
            ExhaustedError: Damaged numbers claim more samples than memory has room for.
        """
        return _lost_metadata(self.path, self.lost, is_trusting=False)

    def __str__(self) -> str:
        """One line for the whole, one more per file and per range of lost samples."""
        return "\n".join(
            [
                f"{self.path}: {self._verdict()}",
                *(f"  {file}" for file in self.files),
                *_shown_ranges(self.lost, self.samples_lost, self.samples_total),
            ]
        )

    def _verdict(self) -> str:
        states = {file.state for file in self.files}
        if not states:
            return "nothing to repair, every file is what the manifest says"
        if "lost" not in states:
            if self.dry_run:
                return "damaged; every damaged file can be restored"
            return "restored; every file is what the manifest says"
        return (
            "damaged beyond repair in place; "
            f"{self.samples_total - self.samples_lost:,} of {self.samples_total:,} samples survive "
            "and can be salvaged into a new cache"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from dataset_rt.cards.repairing import repair_card  # noqa: PLC0415 - notebooks only

        return repair_card(self)

    def to_json(self) -> str:
        """Return the report as JSON text with the same field names."""
        return _to_json(self)


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """What `salvage_cache` found and wrote; true in a condition when there is a new cache.

    Attributes:
        path: The damaged cache directory, untouched.
        new_path: The new cache; `None` when none was written: no sample is lost, or all are.
        is_proven: Whether the old manifest vouches for every sample kept.
        is_identical: Whether the new cache has the contents that the old manifest names: the same
            `cache_id`, so that saved tables and orders stay valid.
        files: Files of the damaged cache that are not what its manifest says.
        kept: Samples that survive, in order, with their new ids.
        lost: Samples that are lost, in order.
        samples_kept: Number of samples that survive.
        samples_lost: Number of samples that are lost.
        cache_id: Identity of the new cache, `None` without one.
        original_cache_id: Identity of the damaged cache, `None` where its manifest is lost.
    """

    path: Path
    new_path: Path | None
    is_proven: bool
    is_identical: bool
    files: tuple[DamagedFile, ...]
    kept: tuple[KeptSamples, ...]
    lost: tuple[LostSamples, ...]
    samples_kept: int
    samples_lost: int
    cache_id: int | None
    original_cache_id: int | None

    def __bool__(self) -> bool:
        """Return whether a new cache was written."""
        return self.new_path is not None

    def lost_metadata(self) -> pl.DataFrame:
        """Return what is known of the lost samples, as `RepairReport.lost_metadata` does."""
        return _lost_metadata(self.path, self.lost, is_trusting=not self.is_proven)

    def __str__(self) -> str:
        """One line for the whole, one more per file and per range of lost samples."""
        total = self.samples_kept + self.samples_lost
        return "\n".join(
            [
                f"{self.path}: {self._verdict(total)}",
                *(f"  {file}" for file in self.files),
                *_shown_ranges(self.lost, self.samples_lost, total),
            ]
        )

    def _verdict(self, total: int) -> str:
        if self.new_path is None:
            if self.samples_kept == 0:
                return "nothing can be salvaged, every sample is lost; no cache was written"
            what = "repair restores its files in place" if self.files else "it is not damaged"
            return (
                f"a copy is not needed, no sample is lost and {what}; no cache was written "
                "(always=True writes one)"
            )
        proof = "" if self.is_proven else ", none of them proven: the manifest is lost"
        return f"{self.samples_kept:,} of {total:,} samples salvaged into {self.new_path}{proof}"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from dataset_rt.cards.repairing import salvage_card  # noqa: PLC0415 - notebooks only

        return salvage_card(self)

    def to_json(self) -> str:
        """Return the report as JSON text with the same field names."""
        return _to_json(self)


def repair_cache(path: AnyPath, *, dry_run: bool = False) -> RepairReport:
    """Restore the derived files of a damaged cache in place, and say what is lost.

    `index.bin`, `metadata.arrow` and `digests.bin` can be worked out from the other files, bit for
    bit. A file is replaced only by bytes with the digest that the manifest names for it; shards,
    dictionary and manifest are never touched. A crash at any moment leaves each file old or new.
    Open datasets keep what they have mapped. Every file is read once, damaged shards twice.

    Args:
        path: The cache directory.
        dry_run: Look only; works on read-only media.

    Returns:
        The report. Whatever is damaged and cannot be restored is named in it, not raised.

    Raises:
        TypeError: `path` is no path.
        NotFoundError: There is no cache at `path`.
        CorruptError: The manifest is lost, so that nothing proves the rest.
        UnsupportedError: The cache has a newer format.
        ConflictError: Another process repairs or changes the cache.
        FileUnavailableError: Something is to be restored, and the media are read-only.

    Example:
        >>> (cache / "index.bin").write_bytes(b"damaged")
        7
        >>> [file.state for file in repair_cache(cache).files]
        ['restored']
        >>> repair_cache(cache).ok
        True
    """
    text = to_cache_path(path, "path")
    found = json.loads(
        _native.examine_cache(text, False, False) if dry_run else _native.restore_cache(text)
    )
    files = _damaged_files(found)
    return RepairReport(
        path=Path(text),
        dry_run=dry_run,
        ok=all(file.state == "restored" for file in files),
        files=files,
        lost=_lost_samples(found),
        samples_total=found["samples_total"],
        samples_lost=found["samples_lost"],
    )


def salvage_cache(
    path: AnyPath,
    into: AnyPath,
    *,
    name: str | None = None,
    trust: Trust = "manifest",
    original_ids: bool = False,
    always: bool = False,
    writer_config: WriterConfig | None = None,
) -> SalvageReport:
    """Write every sample of a damaged cache that is proven right into a new cache.

    A damaged block of 64 KiB costs the samples whose payload lies in it, and others only where
    both copies of their columns, or both ways to their payload, are damaged. The damaged cache is
    only read, three times: to check every digest, to try every sample, and to copy. Memory is that
    of a writer, one piece of 8 MiB or one larger payload, and 32 bytes for each 64 KiB of the
    index, the metadata and one shard.

    Args:
        path: The damaged cache directory.
        into: Directory of the new cache; made when missing.
        name: Name of the new cache; that of the old source by default.
        trust: `"manifest"` takes what the manifest proves. Where it is lost, `"structure"` takes
            what is well-formed and agrees with what is left of `digests.bin`; nothing then proves
            that the samples are right, and report and provenance say so.
        original_ids: Store the old ids as a column `original_sample_id` (uint64).
        always: Write the new cache even where no sample is lost and repair in place would do.
        writer_config: Settings of writing; compression is that of the old cache unless it is set.

    Returns:
        The report, with the ranges of kept and lost samples.

    Raises:
        TypeError: An argument has the wrong type.
        InvalidInputError: `trust` is neither of the two, `into` lies inside the damaged cache, or a
            column `original_sample_id` exists.
        NotFoundError: There is no cache at `path`, nor what is left of one.
        CorruptError: The manifest is lost and `trust` is `"manifest"`, or shards do not say how
            they belong together.
        UnsupportedError: The cache has a newer format.
        ConflictError: `into / name` exists, or the damaged cache changed meanwhile.

    Example:
        >>> (cache / "shards" / "000000.arrow").unlink()
        >>> report = salvage_cache(cache, tmp_path / "salvaged")
        >>> report.new_path is None, report.samples_lost
        (True, 2)
        >>> report.lost_metadata()["position"].to_list()
        [0, 1]
    """
    from dataset_rt.config import WriterConfig  # noqa: PLC0415 - pydantic is slow to import

    text, directory = to_cache_path(path, "path"), to_directory(into, "into")
    original_ids, always = to_flag(original_ids, "original_ids"), to_flag(always, "always")
    if trust not in get_args(Trust):
        raise InvalidInputError(f"trust must be 'manifest' or 'structure', found {trust!r}")
    damaged, target = Path(text).resolve(), Path(directory).resolve()
    if damaged == target or damaged in target.parents:
        raise InvalidInputError(
            f"{directory} lies inside the damaged cache {text}; name a directory beside it"
        )
    config = to_config(writer_config or WriterConfig(), WriterConfig, "writer_config")
    is_trusting = trust == "structure"
    found = json.loads(_native.examine_cache(text, is_trusting, True))
    files, lost = _damaged_files(found), _lost_samples(found)
    total = found["samples_total"]
    new_path, cache_id, is_identical = None, None, False
    is_needed = always or any(file.state == "lost" for file in files) or bool(lost)
    if found["samples_lost"] < total and (is_needed or not found["is_proven"]):
        source = _Survivors(
            name or found["source_name"] or Path(text).absolute().name,
            text,
            found,
            is_trusting=is_trusting,
            original_ids=original_ids,
        )
        new_path = _write(source, directory, _compressed_like(config, found))
        manifest = json.loads(_native.NativeCache(str(new_path)).manifest_json())
        cache_id = manifest["cache_id"]
        is_identical = manifest["content_blake3"] == found["content_blake3"]
    return SalvageReport(
        path=Path(text),
        new_path=new_path,
        is_proven=found["is_proven"],
        is_identical=is_identical,
        files=files,
        kept=tuple(_kept_samples(lost, total)),
        lost=lost,
        samples_kept=total - found["samples_lost"],
        samples_lost=found["samples_lost"],
        cache_id=cache_id,
        original_cache_id=found["cache_id"] if found["is_proven"] else None,
    )


class _Survivors:
    """The samples of a damaged cache that are right, as a source."""

    def __init__(
        self,
        name: str,
        path: str,
        found: dict[str, Any],
        *,
        is_trusting: bool,
        original_ids: bool,
    ) -> None:
        self.name = name
        self._path = path
        self._is_trusting = is_trusting
        self._original_ids = original_ids
        self._lost = _ranges(_lost_samples(found))
        self._samples: int = found["samples_total"] - found["samples_lost"]
        schema = pa.schema(self._open().schema())
        self.schema = schema.remove(schema.get_field_index("payload"))
        # Never the old one of an incomplete cache: it would pass for the whole.
        is_whole = found["is_proven"] and not found["samples_lost"]
        origin = found["content_blake3"] or "a cache without manifest"
        self.fingerprint = found["fingerprint"] if is_whole else f"salvaged from {origin}"
        self.provenance = found["provenance"] | {
            # A name on disk need not be text.
            "salvaged_from": path.encode("utf-8", "backslashreplace").decode(),
            "salvaged_from_cache_id": str(found["cache_id"]) if found["is_proven"] else "unknown",
            "salvaged_from_content_blake3": found["content_blake3"] or "unknown",
            "salvaged_samples_kept": str(self._samples),
            "salvaged_samples_lost": str(found["samples_lost"]),
            "salvaged_proof": "manifest"
            if found["is_proven"]
            else "none: the manifest was lost, samples are well-formed but unproven",
        }

    def _open(self) -> _native.NativeRemains:
        return _native.NativeRemains(
            self._path, self._is_trusting, self._lost, False, self._original_ids
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        remains = self._open()
        while (batch := remains.next_batch()) is not None:
            yield from pa.RecordBatchReader.from_stream(batch)

    def __len__(self) -> int:
        return self._samples


def _write(source: _Survivors, directory: str, config: WriterConfig) -> Path:
    from dataset_rt.runtime import DatasetRuntime  # noqa: PLC0415 - pydantic is slow to import

    with DatasetRuntime() as runtime:
        (result,) = runtime.write_cache(source, directory, writer_config=config)
    if isinstance(result, CacheWriteError):
        raise result.exception or InternalError(result.message)
    return result.path


def _compressed_like(config: WriterConfig, found: dict[str, Any]) -> WriterConfig:
    from dataset_rt.config import ShardCompression  # noqa: PLC0415 - pydantic is slow to import

    if "shard_compression" in config.model_fields_set:
        return config
    compression = ShardCompression(**found["compression"])
    return config.model_copy(update={"shard_compression": compression})


def _damaged_files(found: dict[str, Any]) -> tuple[DamagedFile, ...]:
    return tuple(DamagedFile(**file) for file in found["files"])


def _lost_samples(found: dict[str, Any]) -> tuple[LostSamples, ...]:
    return tuple(LostSamples(**lost) for lost in found["lost"])


def _kept_samples(lost: tuple[LostSamples, ...], total: int) -> Iterator[KeptSamples]:
    start, new_start = 0, 0
    for stop, next_start in [*_ranges(lost), (total, total)]:
        if start < stop:
            yield KeptSamples(start, stop, new_start)
            new_start += stop - start
        start = next_start


def _ranges(lost: tuple[LostSamples, ...]) -> list[tuple[int, int]]:
    return [(samples.start, samples.stop) for samples in lost]


def _lost_metadata(path: Path, lost: tuple[LostSamples, ...], *, is_trusting: bool) -> pl.DataFrame:
    remains = _native.NativeRemains(str(path), is_trusting, _ranges(lost), True, False)
    frames = [pl.DataFrame(remains.schema())]
    while (batch := remains.next_batch()) is not None:
        frames.append(pl.DataFrame(batch))
    return pl.concat(frames)


def _ids(start: int, stop: int) -> str:
    return f"sample {start:,}" if stop == start + 1 else f"samples {start:,} to {stop - 1:,}"


def _shown_ranges(lost: tuple[LostSamples, ...], count: int, total: int) -> Iterator[str]:
    if not lost:
        return
    yield f"  {count:,} of {total:,} samples are lost:"
    for samples in lost[:_RANGES_SHOWN]:
        yield f"    {samples}"
    if len(lost) > _RANGES_SHOWN:
        yield f"    and {len(lost) - _RANGES_SHOWN:,} more ranges"


def _to_json(report: RepairReport | SalvageReport) -> str:
    fields = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in asdict(report).items()
    }
    return json.dumps(fields, ensure_ascii=False, indent=2)

"""Datasets in directories: place in the stream with its table, and configurations.

Knows no bytes: the compiled module writes and reads the files, and checks what they say.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError

from dataset_rt import _native
from dataset_rt.config import ReaderConfig
from dataset_rt.errors import CorruptError, DatasetRTError, NotFoundError

if TYPE_CHECKING:
    from dataset_rt._native import NativeDataset
    from dataset_rt.dataset import CachedDataset
    from dataset_rt.runtime import DatasetRuntime

STATE = "state"
CONFIG = "config"


class CacheEntry(BaseModel):
    """One cache of a configuration."""

    model_config = ConfigDict(extra="forbid")

    path: str
    """Absolute."""
    relative_path: str
    """Relative to the directory of the configuration."""
    content_blake3: str
    """Digest of the contents, which decides whether a cache is the one meant."""


class Partition(BaseModel):
    """Whose share the dataset reads."""

    model_config = ConfigDict(extra="forbid")

    rank: int
    world_size: int
    global_batch_size: int | None
    drop_last: bool


class Configuration(BaseModel):
    """`config.json` without its entry about the table."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["dataset_rt.config"] = "dataset_rt.config"
    version: Literal[1] = 1
    caches: list[CacheEntry]
    reader_config: ReaderConfig
    epoch_len: int | None
    """What `set_epoch_len` said since the table was handed in."""
    partition: Partition


def save_state(dataset: CachedDataset, directory: str) -> None:
    """Save place and table; see `CachedDataset.save_state`."""
    dataset._native.save_state_with_table(directory)


def load_state(dataset: CachedDataset, directory: str) -> None:
    """Take over place and table; see `CachedDataset.load_state`."""
    document, table = _native.load_files(directory, STATE)
    frame, edited = (None, []) if table is None else (_to_table(table[0], directory), table[1])
    dataset._native.load_state_with_table(document, frame, edited)


def dump_config(dataset: CachedDataset, directory: str) -> None:
    """Save everything but the place; see `CachedDataset.dump_config`."""
    native = dataset._native
    paths, contents = native.sources
    rows, length = native.lengths
    base = os.path.abspath(directory)
    caches = [
        CacheEntry(path=path, relative_path=os.path.relpath(path, base), content_blake3=content)
        for path, content in zip(map(os.fspath, paths), contents, strict=True)
    ]
    rank, world_size, global_batch, drop_last = native.rank
    configuration = Configuration(
        caches=caches,
        reader_config=dataset.reader_config,
        epoch_len=None if length == rows else length,
        partition=Partition(
            rank=rank,
            world_size=world_size,
            global_batch_size=global_batch,
            drop_last=drop_last,
        ),
    )
    native.save_document_with_table(directory, CONFIG, configuration.model_dump_json())


def from_config(directory: str, runtime: DatasetRuntime) -> tuple[NativeDataset, ReaderConfig]:
    """Open the caches of a configuration with its table; see `CachedDataset.from_config`."""
    document, table = _native.load_files(directory, CONFIG)
    try:
        found = Configuration.model_validate_json(document)
    except ValidationError as error:
        raise CorruptError(
            f"{Path(directory, CONFIG)}.json is no configuration of a dataset that this release "
            f"knows: {error}; dump it again, or use the release that did"
        ) from error
    part = found.partition
    native = runtime._native.take_over(
        [_place_of(cache, directory) for cache in found.caches],
        found.reader_config._native_options(),
        [cache.content_blake3 for cache in found.caches],
        None,
        (part.rank, part.world_size, part.global_batch_size, part.drop_last),
        None,
        None,
    )
    if table is not None:
        native.update_table(_to_table(table[0], directory), table[1])
    if found.epoch_len is not None:
        native.set_epoch_len(found.epoch_len)
    return native, found.reader_config


def _place_of(cache: CacheEntry, directory: str) -> str:
    """Return where the contents are: at the absolute path, else beside the configuration."""
    beside = os.path.normpath(os.path.join(os.path.abspath(directory), cache.relative_path))
    notes = []
    for path in (cache.path, beside):
        try:
            manifest: dict[str, Any] = json.loads(_native.NativeCache(path).manifest_json())
        except DatasetRTError as error:
            notes.append(f"{path}: {error}")
            continue
        if manifest["content_blake3"] == cache.content_blake3:
            return path
        notes.append(f"{path}: found content {manifest['content_blake3']}")
    raise NotFoundError(
        f"no cache with content {cache.content_blake3}, which the configuration in {directory} "
        f"names; looked at {'; '.join(notes)}; restore the cache, or dump the configuration again"
    )


def _to_table(stream: bytes, directory: str) -> pa.Table:
    try:
        return pa.ipc.open_stream(pa.py_buffer(stream)).read_all()
    except pa.ArrowException as error:
        raise CorruptError(f"the table in {directory} cannot be read: {error}") from error

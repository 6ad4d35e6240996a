"""Datasets in directories: place in the stream with its table, and configurations.

Knows no bytes: the compiled module writes and reads the files, and checks what they say.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import pyarrow as pa
from pydantic import Field, ValidationError, model_validator

from dataset_rt import _native
from dataset_rt.config import ReaderConfig
from dataset_rt.config.fields import U64_END, FrozenConfig
from dataset_rt.errors import CorruptError, DatasetRTError, InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from dataset_rt._native import NativeDataset
    from dataset_rt.dataset import CachedDataset
    from dataset_rt.runtime import DatasetRuntime

STATE = "state"
CONFIG = "config"

Count = Annotated[int, Field(ge=1, lt=U64_END)]


class CacheEntry(FrozenConfig):
    """One cache of a configuration."""

    path: str
    """Absolute."""
    relative_path: str
    """Relative to the directory of the configuration."""
    content_blake3: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """Digest of the contents, which decides whether a cache is the one meant."""


class Partition(FrozenConfig):
    """Whose share the dataset reads."""

    rank: Annotated[int, Field(ge=0, lt=U64_END)]
    world_size: Count
    global_batch_size: Count | None
    drop_last: bool

    @model_validator(mode="after")
    def _check_rank(self) -> Self:
        if self.rank >= self.world_size:
            raise ValueError(f"found rank {self.rank}; expected one below {self.world_size}")
        return self


class Configuration(FrozenConfig):
    """What `config.json` says, but for its table."""

    caches: Annotated[list[CacheEntry], Field(min_length=1)]
    reader_config: ReaderConfig
    epoch_len: Count | None
    """What `set_epoch_len` said since the table was handed in."""
    partition: Partition


def save_state(dataset: CachedDataset, directory: str) -> None:
    """Save place and table; see `CachedDataset.save_state`."""
    dataset._native.save_state_with_table(directory)


def load_state(dataset: CachedDataset, directory: str) -> None:
    """Take over place and table; see `CachedDataset.load_state`."""
    contents, saved = _native.load_files(directory, STATE)
    table, edited = (None, []) if saved is None else _to_table(*saved)
    dataset._native.load_state_with_table(directory, contents, table, edited)


def dump_config(dataset: CachedDataset, directory: str) -> None:
    """Save everything but the place; see `CachedDataset.dump_config`."""
    native = dataset._native
    paths, contents = native.sources
    base = os.path.abspath(directory)
    for path in (base, *map(os.fspath, paths)):
        if any("\ud800" <= letter <= "\udfff" for letter in path):
            raise InvalidInputError(
                f"the path {path!r} is no Unicode text, which a configuration cannot hold: rename "
                "the directory"
            )
    caches = [
        CacheEntry(path=path, relative_path=os.path.relpath(path, base), content_blake3=content)
        for path, content in zip(map(os.fspath, paths), contents, strict=True)
    ]
    rank, world_size, global_batch, drop_last = native.rank
    configuration = Configuration(
        caches=caches,
        reader_config=dataset.reader_config,
        epoch_len=native.epoch_len_set,
        partition=Partition(
            rank=rank,
            world_size=world_size,
            global_batch_size=global_batch,
            drop_last=drop_last,
        ),
    )
    native.save_config_with_table(directory, configuration.model_dump_json())


def from_config(directory: str, runtime: DatasetRuntime) -> tuple[NativeDataset, ReaderConfig]:
    """Open the caches of a configuration with its table; see `CachedDataset.from_config`."""
    contents, saved = _native.load_files(directory, CONFIG)
    place = Path(directory, f"{CONFIG}.json")
    try:
        found = Configuration.model_validate_json(contents)
    except ValidationError as error:
        raise CorruptError(f"{place}: {_first(error)}; dump it again") from error
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
    if saved is not None:
        native.update_table(*_to_table(*saved))
    if found.epoch_len is not None:
        try:
            native.set_epoch_len(found.epoch_len)
        except InvalidInputError as error:
            raise CorruptError(f"{place}: field epoch_len: {error}; dump it again") from error
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


def _first(error: ValidationError) -> str:
    """Return what is wrong with the first wrong field: its name, expected and found."""
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"])) or "document"
    return f"field {field}: {first['msg']}; found {first['input']!r:.200}"


def _to_table(
    path: Path, stream: bytes, rows: int, edited: list[str]
) -> tuple[pa.Table, list[str]]:
    """Return a saved table, sound and complete, and its edited columns."""
    try:
        table = pa.ipc.open_stream(pa.py_buffer(stream)).read_all()
        table.validate(full=True)
    # Whatever Arrow raises: its errors of files are no ArrowException.
    except Exception as error:
        raise CorruptError(
            f"{path}: found no table in Arrow's stream format ({error}); expected the table that "
            "was saved; save it again"
        ) from error
    if table.num_rows != rows:
        raise CorruptError(
            f"{path}: found {table.num_rows} rows; expected {rows}, as the field table.rows of "
            "the file that names it says; save it again"
        )
    return table, edited

"""A cache or dataset as WebDataset tar shards; knows nothing of publishing."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from dataset_rt.arguments import AnyPath, to_count, to_names, to_path
from dataset_rt.errors import InvalidInputError
from dataset_rt.exporters.publishing import published_directory
from dataset_rt.exporters.rows import PAYLOAD, AnyCache, ExportedRows, open_rows

_SHARD_BYTES_DEFAULT = 256 * 1024 * 1024
# Two blocks of zeros, padded to a whole record.
_END_BYTES = tarfile.RECORDSIZE
# What readers take for the same one ending, and a shell for a word.
_ENDING = re.compile(r"[a-z0-9][a-z0-9_+-]*(\.[a-z0-9_+-]+)*")
_METADATA_ENDINGS = ("json", "cls")
_KEY = "__key__"
_KEY_LETTERS_MAX = 1024


def to_webdataset(
    source: AnyCache,
    directory: AnyPath,
    *,
    extension: str = "bin",
    columns: Iterable[str] | None = None,
    cls: str | None = None,
    max_shard_bytes: int = _SHARD_BYTES_DEFAULT,
) -> list[Path]:
    """Write samples as tar shards that the library `webdataset` reads.

    A sample has the key in its column `__key__`, as shards that were imported have it, or else the
    number of its row, `000000000` and on, in a whole cache its `sample_id`. Its members are the
    payload, `cls` when asked for, and `json` with the other
    columns. Dates and instants become ISO text. Equal rows make equal bytes: members have neither
    times nor owners.

    `WebDatasetSource(name, directory, payload=extension, columns=...)` without `__key__` makes a
    cache of the same contents, and so the same `cache_id`, where columns are text, bool, int64 and
    float64, which JSON tells apart.

    Args:
        source: A dataset, whose active table is written in its order, a cache, or its directory.
        directory: For the shards `000000.tar` and on. It appears once all are whole.
        extension: Ending of the payload, for example `"jpg"`: decoders go by it.
        columns: Metadata columns; by default all but `cache_id`, `sample_id` and `weight`.
        cls: An integer column that becomes the member `cls`, as classifiers expect.
        max_shard_bytes: A shard closes before it grows beyond this; one larger sample has its own.

    Returns:
        The shards in order.

    Raises:
        TypeError: An argument has the wrong type.
        InvalidInputError: A column is unknown or cannot be written, a value of `__key__` is no key
            or that of the row before, or `extension` is no ending.
        NotFoundError: There is no cache at a path.
        CorruptError: A sample is damaged; nothing is left.
        ConflictError: The directory is there already and not empty.

    Example:
        >>> from dataset_rt.exporters import to_webdataset
        >>> [shard.name for shard in to_webdataset(cache, tmp_path / "shards", extension="txt")]
        ['000000.tar']
    """
    target = Path(to_path(directory, "directory"))
    size_max = to_count(max_shard_bytes, "max_shard_bytes", minimum=1)
    ending = _checked_ending(extension)
    wanted = None
    if columns is not None:
        wanted = [*(name for name in to_names(columns, "columns") if name != PAYLOAD), PAYLOAD]
        # Asked for once more as cls, a column is no double.
        wanted += [cls] if cls is not None and cls not in wanted else []
    rows = open_rows(source, wanted)
    if PAYLOAD not in rows.schema.names:
        raise InvalidInputError("there is no payload to export")
    _check_columns(rows.schema, cls)
    with published_directory(target) as aside:
        names = _write_shards(_samples(rows, ending, cls), aside, size_max)
    return [target / name for name in names]


def _samples(rows: ExportedRows, ending: str, cls: str | None) -> Iterator[list[tuple[str, bytes]]]:
    """Yield the members of each sample."""
    number = 0
    before = None
    for batch in rows.batches:
        payloads = batch.column(PAYLOAD)
        metadata = _values_of(batch.drop_columns([PAYLOAD]), number)
        for index in range(batch.num_rows):
            values = metadata[index] if metadata else {}
            key = f"{number:09}"
            if _KEY in values:
                key = _checked_key(values.pop(_KEY), before, number)
            before = key
            members = [(f"{key}.{ending}", payloads[index].as_py())]
            if cls is not None:
                members.append((f"{key}.cls", _class_of(values.pop(cls), cls, number)))
            if values:
                text = json.dumps(values, ensure_ascii=False, default=_iso)
                members.append((f"{key}.json", text.encode()))
            yield members
            number += 1


def _values_of(batch: pa.RecordBatch, first_row: int) -> list[dict[str, Any]]:
    """Return the rows of a batch; a date may be stored that Python has none for."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (OverflowError, ValueError):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            for row, value in enumerate(column, first_row):
                try:
                    value.as_py()
                except (OverflowError, ValueError) as error:
                    raise InvalidInputError(
                        f"row {row}: column {name!r}: expected a date or time of the years 1 to "
                        f"9999 in whole microseconds, which ISO text can say, found {value.type} "
                        f"{value.cast(_counted(value.type)).as_py()}; correct it, or leave the "
                        "column out with columns=[...]"
                    ) from error
        raise
    return rows


def _counted(kind: pa.DataType) -> pa.DataType:
    """Return the integers that dates and times are stored as."""
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def _write_shards(
    samples: Iterable[list[tuple[str, bytes]]], directory: Path, size_max: int
) -> list[str]:
    names: list[str] = []
    used = 0
    with ExitStack() as open_shard:
        for members in samples:
            size = sum(_size_in_archive(name, data) for name, data in members)
            if not names or used + size + _END_BYTES > size_max:
                open_shard.close()
                names.append(f"{len(names):06}.tar")
                archive = open_shard.enter_context(
                    tarfile.open(directory / names[-1], "x", format=tarfile.PAX_FORMAT)
                )
                used = 0
            for name, data in members:
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
            # It would remember every member that it ever wrote.
            archive.members.clear()  # type: ignore[attr-defined]
            used += size
    return names


def _size_in_archive(name: str, data: bytes) -> int:
    blocks = 1 + -(-len(data) // tarfile.BLOCKSIZE)
    if not name.isascii() or len(name) > tarfile.LENGTH_NAME:
        # The whole name comes in a header of its own.
        blocks += 2 + -(-(len(name.encode()) + 32) // tarfile.BLOCKSIZE)
    return blocks * tarfile.BLOCKSIZE


def _checked_key(key: object, before: str | None, row: int) -> str:
    """Return a key that readers take for one, and for another sample's than the one before."""
    is_text = isinstance(key, str) and key.isprintable() and len(key) <= _KEY_LETTERS_MAX
    name = str(key).rpartition("/")[2]
    if not is_text or not name or "." in name or str(key).startswith(("/", "__")) or key == before:
        raise InvalidInputError(
            f"row {row}: column {_KEY!r}: expected a key without dots, not that of the row before, "
            f"found {key!r}; number the samples instead: leave the column out with columns=[...]"
        )
    return str(key)


def _checked_ending(extension: str) -> str:
    ending = extension.removeprefix(".")
    if not _ENDING.fullmatch(ending) or ending in _METADATA_ENDINGS:
        raise InvalidInputError(
            "extension must be a lower-case ending of letters and digits, such as jpg or seg.png, "
            f"and neither json nor cls, found {extension!r}"
        )
    return ending


def _check_columns(schema: pa.Schema, cls: str | None) -> None:
    if cls is not None and (cls not in schema.names or not pt.is_integer(schema.field(cls).type)):
        found = schema.field(cls).type if cls in schema.names else "no such column"
        raise InvalidInputError(f"cls must name a column of integers, found {cls!r}: {found}")
    metadata = [field for field in schema if field.name != PAYLOAD]
    kept = [field.name for field in metadata if not _is_bytes(field.type)]
    for field in metadata:
        if _is_bytes(field.type):
            raise InvalidInputError(
                f"column {field.name!r} has type {field.type}, which JSON cannot hold; leave it "
                f"out with columns={kept}"
            )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pt.is_large_binary(kind) or pt.is_binary(kind) or pt.is_binary_view(kind))


def _class_of(value: int | None, column: str, row: int) -> bytes:
    if value is None:
        raise InvalidInputError(
            f"row {row}: expected an integer in column {column!r} for cls, found null"
        )
    return str(value).encode()


def _iso(value: Any) -> str:
    if isinstance(value, date):
        return value.isoformat()
    raise InvalidInputError(
        f"a value of type {type(value).__name__} cannot be written as JSON; leave its column out"
    )

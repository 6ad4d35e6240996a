"""Which rows and columns are exported, as a stream of batches; knows no file format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pyarrow as pa

from dataset_rt.arguments import AnyPath, to_names
from dataset_rt.cache import Cache, open_cache
from dataset_rt.dataset import CachedDataset
from dataset_rt.errors import InvalidInputError

if TYPE_CHECKING:
    from dataset_rt._native import NativeFace

IDENTITY = ("cache_id", "sample_id", "weight")
"""Columns of every table that are left out unless somebody asks for them."""

PAYLOAD = "payload"

AnyCache: TypeAlias = CachedDataset | Cache | AnyPath
"""A dataset with its active table, a cache, or the directory of one."""


class ExportedRows(NamedTuple):
    """Columns, and batches of them that can be read once."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


def open_rows(source: AnyCache, columns: Iterable[str] | None) -> ExportedRows:
    """Return rows in table order, batches of at most 65,536 rows and about 32 MiB of payload.

    Args:
        source: What to export.
        columns: Names in order; by default all but `cache_id`, `sample_id` and `weight`.

    Returns:
        Schema and batches; `payload` is large_binary, as other libraries know it.

    Raises:
        TypeError: `source` is something else.
        InvalidInputError: A column is unknown or named twice.
        NotFoundError: There is no cache at a path.
    """
    opened = source if isinstance(source, (CachedDataset, Cache)) else open_cache(source)
    if columns is None:
        names = [name for name in opened.to_arrow().schema.names if name not in IDENTITY]
    else:
        names = to_names(columns, "columns")
    if not names:
        raise InvalidInputError("columns is empty: name at least one column to export")
    face = opened._native.face().select(names)
    schema = pa.schema([_exported(field) for field in pa.schema(face)])
    return ExportedRows(schema, _cast(face, schema))


def _exported(field: pa.Field) -> pa.Field:
    kind = pa.large_binary() if field.name == PAYLOAD else field.type
    return pa.field(field.name, kind, field.nullable)


def _cast(face: NativeFace, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    # Not through a reader of pyarrow: errors keep their classes.
    for batch in face.batches():
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)

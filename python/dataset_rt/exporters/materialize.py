"""A new cache of a dataset's rows; knows nothing of how caches are written."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from dataset_rt.arguments import AnyPath, to_names
from dataset_rt.errors import ConflictError, DatasetRTError, InvalidInputError, SourceError
from dataset_rt.exporters.rows import IDENTITY, PAYLOAD
from dataset_rt.results import CacheWriteError

if TYPE_CHECKING:
    from dataset_rt.config import WriterConfig
    from dataset_rt.dataset import CachedDataset

# Of one batch of an epoch; those of a table have bounds of their own.
_EPOCH_ROWS = 256


def materialize(
    dataset: CachedDataset,
    path: AnyPath,
    name: str,
    *,
    columns: Iterable[str] | Mapping[str, str] | None = None,
    order: Literal["table", "epoch"] = "table",
    writer_config: WriterConfig | None = None,
) -> Path:
    """Write the rows of the active table, or one epoch drawn from it, as a new cache.

    Edited and extra columns are stored as they are, rows that occur twice are written twice. The
    new cache is independent of the old ones. Neither table nor position of `dataset` change.

    Args:
        dataset: Its active table says which samples.
        path: Directory of the caches.
        name: Name of the new cache.
        columns: Metadata columns in order, or a mapping from them to other names, such as
            `{"label": "label", "weight": "old_weight"}`: `cache_id`, `sample_id` and `weight`
            can only be stored under other names, and are left out by default.
        order: `"table"` takes each row once in table order; `"epoch"` the samples of the epoch that
            the next iterator would read, in its order.
        writer_config: Settings of writing; what an interrupted write leaves is always removed.

    Returns:
        The cache directory.

    Raises:
        TypeError: An argument has the wrong type.
        InvalidInputError: A column is unknown or cannot be stored; nothing was written.
        CorruptError: A sample is damaged; nothing is left, as after every failure.
        ConflictError: There is a cache of that name already.

    Example:
        >>> from dataset_rt.exporters import materialize
        >>> dataset = open_dataset(cache)
        >>> dataset.update_metadata(dataset.get_metadata().filter(pl.col("position") == 1))
        >>> open_cache(materialize(dataset, tmp_path, "second")).num_samples
        1
    """
    # Here, for those who only look into caches: settings cost time to import.
    from dataset_rt.config import WriterConfig  # noqa: PLC0415

    if order not in {"table", "epoch"}:
        raise InvalidInputError(f"order must be 'table' or 'epoch', found {order!r}")
    config = WriterConfig() if writer_config is None else writer_config
    source = _DatasetRows(dataset, name, columns, order)
    (result,) = dataset.runtime.write_cache(
        source, path, writer_config=config.model_copy(update={"resume": False})
    )
    if isinstance(result, CacheWriteError):
        raise _raised(result)
    return result.path


class _DatasetRows:
    """The rows of a dataset as a source."""

    def __init__(
        self, dataset: CachedDataset, name: str, columns: object, order: Literal["table", "epoch"]
    ) -> None:
        self.name = name
        # A copy keeps its own position: writing must not move the caller's stream.
        self._dataset = copy.copy(dataset)
        self._order = order
        all_columns = self._dataset.to_arrow().schema
        self._names = _stored_names(all_columns.names, columns)
        self.schema = pa.schema(
            [all_columns.field(column).with_name(stored) for column, stored in self._names.items()]
        )
        self.provenance = {
            "materialized_from": json.dumps([str(path) for path in dataset.cache_paths]),
            "materialized_from_content_blake3": json.dumps(list(dataset._native.sources[1])),
            "order": order,
        }

    def __len__(self) -> int:
        return len(self._dataset) if self._order == "epoch" else self._dataset.get_metadata().height

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        columns = [*self._names, PAYLOAD]
        batches: Iterable[pa.RecordBatch] = (
            self._dataset._native.face().select(columns).batches()
            if self._order == "table"
            else self._dataset.iter_batches(_EPOCH_ROWS, columns=columns)
        )
        for batch in batches:
            yield batch.rename_columns([*self._names.values(), PAYLOAD])


def _stored_names(known: list[str], columns: object) -> dict[str, str]:
    """Return the stored name of each column that is taken."""
    if columns is None:
        return {name: name for name in known if name not in {*IDENTITY, PAYLOAD}}
    names = to_names([*columns] if isinstance(columns, Mapping) else columns, "columns")
    if len({*names}) != len(names):
        raise InvalidInputError(f"columns names a column twice: {names}")
    chosen = dict(columns) if isinstance(columns, Mapping) else {name: name for name in names}
    for column, stored in chosen.items():
        if column not in known or column == PAYLOAD:
            raise InvalidInputError(
                f"columns names {column!r}; expected metadata columns of the table, "
                f"{[name for name in known if name != PAYLOAD]}"
            )
        if stored in {*IDENTITY, PAYLOAD}:
            raise InvalidInputError(
                f"column {column!r} cannot be stored as {stored!r}, the name is reserved; give it "
                f'another: columns={{..., "{column}": "old_{column}"}}'
            )
    return chosen


def _raised(result: CacheWriteError) -> DatasetRTError:
    found = result.exception
    if isinstance(found, ConflictError):
        # There is no source that could be reused.
        message = str(found).replace(
            "remove it or use from_cache_sources to reuse it", "choose another name, or remove it"
        )
        return ConflictError(message)
    # What iterating the dataset raised says more than that its iteration failed.
    if isinstance(found, DatasetRTError):
        return found
    error = SourceError(result.message)
    error.__cause__ = found
    return error

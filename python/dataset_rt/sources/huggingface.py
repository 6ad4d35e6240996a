"""Datasets of Hugging Face as a source, by their Arrow columns; never decodes what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dataset_rt.arguments import AnyPath, to_path
from dataset_rt.errors import InvalidInputError
from dataset_rt.sources.arrow import PAYLOAD
from dataset_rt.sources.inputs.column_rules import ColumnChoice
from dataset_rt.sources.inputs.columnar import ColumnarImporter, Rows
from dataset_rt.sources.inputs.files import file_at
from dataset_rt.sources.inputs.importer import ImporterOptions

# Rows taken at once. The library maps its files: nothing is read before it is used.
_BATCH_ROWS = 64


class HuggingFaceSource(ColumnarImporter):
    """The rows of a `datasets.Dataset` or `datasets.IterableDataset`, in its order.

    Columns are taken as they are stored: images and audio come as their encoded bytes, also where
    the dataset would decode them, and formats and transforms set on it do not run. Class labels
    are their integers; their names are in the provenance.

    The fingerprint holds the dataset's own, which follows its files and everything done to it by
    `map`, `filter`, `shuffle`; after a `map` with a function that cannot be hashed, and for an
    `IterableDataset`, which has none, give `fingerprint`.

    Args:
        name: Name of the source and of its cache directory.
        dataset: Map-style or iterable.
        payload: Column of bytes, text, images or audio that becomes the payload. `None` gives
            every sample an empty payload.
        columns: Metadata columns in order; all others by default. Types that cannot be stored
            must be left out.
        payload_files: Column that names files whose bytes are the payload, instead of `payload`.
        root: Where these files lie; needed with `payload_files`.
        **options: See `ImporterOptions`.

    Raises:
        TypeError: `dataset` is something else, for example a `DatasetDict`.
        InvalidInputError: Columns are missing or cannot be stored.
    """

    kind = "huggingface"

    def __init__(
        self,
        name: str,
        dataset: Any,
        *,
        payload: str | None = PAYLOAD,
        columns: Iterable[str] | None = None,
        payload_files: str | None = None,
        root: AnyPath | None = None,
        **options: Unpack[ImporterOptions],
    ) -> None:
        """See the class."""
        if not all(hasattr(dataset, member) for member in ("features", "with_format", "iter")):
            found = type(dataset)
            advice = "pass one of its splits" if isinstance(dataset, dict) else "load it first"
            raise TypeError(
                "dataset must be a datasets.Dataset or IterableDataset, found "
                f"{found.__module__}.{found.__qualname__}: {advice}"
            )
        if payload_files is not None and root is None:
            raise InvalidInputError(f"source {name!r}: payload_files needs root=...")
        choice = ColumnChoice.of(name, payload, payload_files, columns)
        super().__init__(name, choice, None if root is None else to_path(root, "root"), **options)
        self._dataset = dataset
        _ = self._metadata

    def __len__(self) -> int:
        """Return the number of rows; an `IterableDataset` has none and raises `TypeError`."""
        return len(self._dataset)

    def _read_schema(self) -> tuple[pa.Schema, str]:
        features = self._dataset.features
        if features is None:
            # Only datasets that are made while they are read do not know.
            features = self._dataset._resolve_features().features
        return features.arrow_schema, f"dataset of source {self.name!r}"

    def _rows_from(self, start: int, names: list[str]) -> Iterator[Rows]:
        tables = self._tables(self._dataset.select_columns(names).with_format("arrow"), start)
        row = start
        for table in tables:
            for batch in table.select(names).to_batches():
                yield Rows(batch, f"dataset of source {self.name!r}", row)
                row += batch.num_rows

    def _tables(self, dataset: Any, start: int) -> Iterator[pa.Table]:
        if not hasattr(dataset, "__len__"):
            yield from dataset.skip(start).iter(batch_size=_BATCH_ROWS)
            return
        for first in range(start, len(dataset), _BATCH_ROWS):
            yield dataset[first : first + _BATCH_ROWS]

    def _payloads(self, rows: Rows) -> pa.Array:
        column = self._choice.payload
        if column is None or not pt.is_struct(rows.batch.column(column).type):
            return super()._payloads(rows)
        values = rows.batch.column(column)
        data = pc.struct_field(values, "bytes")
        if data.null_count == 0 or values.type.get_field_index("path") < 0:
            return super()._payloads(rows)
        # A folder that was loaded as a dataset: it holds no bytes, only the paths of its files.
        filled = []
        paths = pc.struct_field(values, "path").to_pylist()
        for index, (value, path) in enumerate(zip(data.to_pylist(), paths, strict=True)):
            if value is None and not path:
                raise InvalidInputError(
                    f"{rows.place(index)}: expected bytes or a path in column {column!r}, found "
                    "neither; drop the row with filter()"
                )
            filled.append(file_at(path).read() if value is None else value)
        return pa.array(filled, pa.large_binary())

    def _computed_fingerprint(self, options: dict[str, object]) -> str | None:
        if not hasattr(self._dataset, "__len__"):
            return None
        return self._fingerprint_of(options, [], self._dataset._fingerprint)

    def _origin(self) -> Mapping[str, str]:
        name = getattr(self._dataset.info, "dataset_name", None)
        origin = {} if name is None else {"dataset": str(name)}
        for column, feature in (self._dataset.features or {}).items():
            names = getattr(feature, "names", None)
            if isinstance(names, list):
                origin[f"names of {column}"] = "\n".join(names)
        return origin

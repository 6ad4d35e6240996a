"""Which columns are payload, which metadata, and what is refused; knows no file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dataset_rt.arguments import to_names
from dataset_rt.errors import InvalidInputError
from dataset_rt.sources.arrow import PAYLOAD

RESERVED = ("cache_id", "sample_id", "weight", PAYLOAD)
"""Names that no stored column may have."""

# docs/reference/types.md has the same as a table.
_STORED = (
    *(pt.is_null, pt.is_boolean, pt.is_integer, pt.is_floating, pt.is_date32, pt.is_timestamp),
    *(pt.is_string, pt.is_large_string, pt.is_string_view),
    *(pt.is_binary, pt.is_large_binary, pt.is_binary_view, pt.is_fixed_size_binary),
)
_BYTES = (pt.is_binary, pt.is_large_binary, pt.is_binary_view, pt.is_fixed_size_binary)
_TEXT = (pt.is_string, pt.is_large_string, pt.is_string_view)


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """What a caller said about columns.

    Attributes:
        payload: Column of payloads; `None` when there is none.
        payload_files: Column that names files whose bytes are the payloads; `None` when none does.
        columns: Metadata columns in order; `None` takes all others.
    """

    payload: str | None
    payload_files: str | None
    columns: tuple[str, ...] | None

    @classmethod
    def of(
        cls, name: str, payload: str | None, payload_files: str | None, columns: object
    ) -> ColumnChoice:
        """Return the choice of a caller; `payload="payload"` stands for nothing said."""
        if payload_files is not None:
            if payload not in {None, PAYLOAD}:
                raise InvalidInputError(
                    f"source {name!r}: payload={payload!r} and payload_files={payload_files!r} "
                    "both say where payloads are; leave one out"
                )
            payload = None
        chosen = None if columns is None else tuple(to_names(columns, "columns"))
        return cls(payload, payload_files, chosen)

    def metadata_schema(
        self, schema: pa.Schema, place: str, *, is_transformed: bool = False
    ) -> pa.Schema:
        """Return the metadata columns among those of a file.

        Args:
            schema: All columns of the file.
            place: Where the columns are, for messages.
            is_transformed: Whether a transform gets them, which may make others of any type.

        Raises:
            InvalidInputError: A column is missing or named twice, or cannot be stored.
        """
        self._check_payload(schema, place)
        names = self.columns
        if names is None:
            names = tuple(name for name in schema.names if name != self.payload)
        if self.payload is not None and self.payload in names:
            raise InvalidInputError(
                f"{place}: column {self.payload!r} is the payload already; take it out of columns="
            )
        fields = [_field(schema, name, place) for name in names]
        problems = [_problem_of(field, any_type=is_transformed) for field in fields]
        for field, problem in zip(fields, problems, strict=True):
            if problem is not None:
                kept = [f.name for f, p in zip(fields, problems, strict=True) if p is None]
                other = (
                    "rename it before"
                    if field.name in RESERVED
                    else "make text or numbers of it before, or in a transform= (of lists, for "
                    "example, by json.dumps)"
                )
                raise InvalidInputError(
                    f"{place}: {problem}; leave it out with columns={kept}, or {other}"
                )
        # What else files say about columns is theirs: field numbers, pandas' notes.
        return pa.schema([pa.field(f.name, f.type, f.nullable) for f in fields])

    def read_names(self, metadata: pa.Schema) -> list[str]:
        """Return the names of all columns that must be read, each once."""
        sources = (self.payload, self.payload_files)
        return list(dict.fromkeys([*metadata.names, *(n for n in sources if n is not None)]))

    def _check_payload(self, schema: pa.Schema, place: str) -> None:
        if self.payload_files is not None:
            field = _field(schema, self.payload_files, place)
            if not _is_one_of(field.type, _TEXT):
                raise InvalidInputError(
                    f"{place}: column {field.name!r} must name files (text), found {field.type}; "
                    "say which with payload_files="
                )
            return
        if self.payload is None:
            return
        if self.payload not in schema.names:
            raise InvalidInputError(_no_payload(schema, self.payload, place))
        field = _field(schema, self.payload, place)
        if not _is_payload(field.type):
            raise InvalidInputError(
                f"{place}: column {field.name!r} becomes the payload; expected bytes, text or a "
                f"struct of bytes and path, found {field.type}; say which with payload="
            )


def is_text(kind: pa.DataType) -> bool:
    """Whether a column is text."""
    return _is_one_of(_values_type(kind), _TEXT)


def payload_values(column: pa.Array) -> pa.Array:
    """Return the payloads of a column as bytes, `{bytes, path}` structs taken apart.

    Args:
        column: Bytes, text or such a struct.
    """
    if pt.is_struct(column.type):
        column = pc.struct_field(column, "bytes")
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_one_of(column.type, _TEXT):
        # Of text, only the large form becomes bytes without a copy in every pyarrow.
        column = column.cast(pa.large_string()).cast(pa.large_binary())
    return column


def _field(schema: pa.Schema, name: str, place: str) -> pa.Field:
    found = schema.names.count(name)
    if found != 1:
        raise InvalidInputError(
            f"{place}: expected one column {name!r}, found {found} among {schema.names}"
        )
    return schema.field(name)


def _problem_of(field: pa.Field, *, any_type: bool) -> str | None:
    """Say why a column cannot be stored, `None` when it can."""
    if field.name in RESERVED:
        return f"a stored column cannot be named {field.name!r}, the name is reserved"
    if not any_type and not _is_one_of(_values_type(field.type), _STORED):
        return f"column {field.name!r} has type {field.type}, which cannot be stored"
    return None


def _no_payload(schema: pa.Schema, payload: str, place: str) -> str:
    # Text may be meant, bytes mostly are.
    fitting = [field for field in schema if _is_payload(field.type)]
    fitting.sort(key=lambda field: _is_one_of(_values_type(field.type), _TEXT))
    ways = [f"payload={field.name!r}" for field in fitting[:5]]
    return (
        f"{place}: expected a column {payload!r} for the payload, found columns {schema.names}; "
        f"say which column holds the bytes ({', '.join(ways) or 'none here holds bytes or text'})"
        ", which one names files (payload_files=...), or that samples have an empty payload "
        "(payload=None)"
    )


def _is_payload(kind: pa.DataType) -> bool:
    if pt.is_struct(kind):
        index = kind.get_field_index("bytes")
        return index >= 0 and _is_one_of(kind.field(index).type, _BYTES)
    return _is_one_of(_values_type(kind), (*_BYTES, *_TEXT))


def _values_type(kind: pa.DataType) -> pa.DataType:
    """Return what a dictionary or an extension is stored as."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        kind = kind.value_type
    return kind


def _is_one_of(kind: pa.DataType, questions: Iterable[object]) -> bool:
    return any(question(kind) for question in questions)  # type: ignore[operator]

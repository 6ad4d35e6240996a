"""Name, fingerprint, schema and transform, alike for every importer; knows no file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypedDict, TypeVar

import pyarrow as pa

from dataset_rt.errors import InvalidInputError, SourceError
from dataset_rt.frames import ArrowArrayExporter
from dataset_rt.samples import CacheInput
from dataset_rt.sources.transformed import checked

Transform: TypeAlias = Callable[[CacheInput], CacheInput]
"""What turns one sample of a file into the sample that is stored."""

_Item = TypeVar("_Item")


class ImporterOptions(TypedDict, total=False):
    """Keyword arguments that every importer of files takes.

    Attributes:
        transform: Makes the stored sample of each imported one; `HasTransform` says where it may
            run. A module-level function: lambdas and closures cannot be sent to processes.
        transform_version: Required with `transform`, unless `fingerprint` is given: a fingerprint
            cannot see code, this text says when it changed.
        schema: Metadata columns of what is stored, where the importer would have them inferred;
            with a `transform`, those that it returns.
        fingerprint: Instead of the computed one.
    """

    transform: Transform | None
    transform_version: str | None
    schema: pa.Schema | None
    fingerprint: str | None


class Importer(ABC):
    """A source made of what other libraries wrote.

    Args:
        name: Name of the source and of its cache directory.
        transform: See `ImporterOptions`, as for the following.
        transform_version: Text.
        schema: Metadata columns.
        fingerprint: Text.

    Raises:
        InvalidInputError: `transform` without a version, or a version without `transform`.
    """

    kind: ClassVar[str]
    """Names the importer in fingerprints and provenance; never changes."""

    def __init__(
        self,
        name: str,
        *,
        transform: Transform | None = None,
        transform_version: str | None = None,
        schema: pa.Schema | None = None,
        fingerprint: str | None = None,
    ) -> None:
        """See the class."""
        if transform is not None and transform_version is None and fingerprint is None:
            raise InvalidInputError(
                f"source {name!r}: transform needs transform_version=..., any text that you change "
                "whenever the function does: the fingerprint of a source cannot see code, and "
                "caches made by the old function would pass for fresh ones"
            )
        if transform is None and transform_version is not None:
            raise InvalidInputError(
                f"source {name!r}: transform_version={transform_version!r} is the version of a "
                "transform, and there is none; leave it out"
            )
        self._name = name
        self._transform = transform
        self._transform_version = transform_version
        self._schema = schema
        self._fingerprint = fingerprint

    @property
    def name(self) -> str:
        """Name of the source and of its cache directory."""
        return self._name

    @cached_property
    def fingerprint(self) -> str | None:
        """What was given, or computed from options and files, whose contents are not read."""
        if self._fingerprint is not None:
            return self._fingerprint
        return self._computed_fingerprint({"transform_version": self._transform_version})

    @property
    def schema(self) -> pa.Schema | None:
        """Metadata columns, `None` where they are inferred."""
        if self._schema is None and self._transform is None:
            return self._known_schema
        return self._schema

    @property
    def transform(self) -> Callable[[Any], CacheInput] | None:
        """Makes the sample of one item, `None` when the items are samples; see `HasTransform`.

        The items of importers know their files and rows, so that errors can name them.
        """
        return None if self._transform is None else LoadThenTransform(_loaded, self._transform)

    @property
    def provenance(self) -> Mapping[str, str]:
        """Where the samples came from, for the manifest."""
        origin = {"importer": self.kind, **self._origin()}
        # Directories may have names that are no text; they are only told, not used.
        return {key: value.encode(errors="replace").decode() for key, value in origin.items()}

    def __iter__(self) -> Iterator[CacheInput | ArrowArrayExporter]:
        """Yield samples, or the items of `transform`."""
        return self.iter_from(0)

    @abstractmethod
    def iter_from(self, start: int) -> Iterator[Any]:
        """Yield samples, or the items of `transform`, from number `start` on."""

    @property
    def _known_schema(self) -> pa.Schema | None:
        """Metadata columns of the samples before `transform`, as far as known without them."""
        return None

    @abstractmethod
    def _computed_fingerprint(self, options: dict[str, object]) -> str | None:
        """Return a fingerprint of `options`, the importer's own, and its files."""

    @abstractmethod
    def _origin(self) -> Mapping[str, str]:
        """Return what provenance says besides the kind."""

    def __repr__(self) -> str:
        """Kind and name."""
        return f"{type(self).__name__}(name={self._name!r})"


class Placed(NamedTuple):
    """A sample before its transform, and where it comes from, for messages."""

    place: str
    sample: CacheInput


@dataclass(frozen=True, slots=True)
class LoadThenTransform(Generic[_Item]):
    """A transform whose items are loaded where it runs, so that processes share the loading."""

    load: Callable[[_Item], Placed]
    transform: Transform

    def __call__(self, item: _Item) -> CacheInput:
        """Return the stored sample of one item.

        Raises:
            SourceError: `transform` raised; the message names the item, `__cause__` is the error.
            InvalidInputError: It returned something else than one sample.
        """
        place, sample = self.load(item)
        with named(place, "transform"):
            made = self.transform(sample)
        try:
            found: CacheInput = checked(made)
        except InvalidInputError as error:
            raise InvalidInputError(f"{place}: {error}") from None
        return found


@contextmanager
def named(place: str, what: str) -> Iterator[None]:
    """Let errors of a caller's function say what it was at work on.

    Args:
        place: File and row, or what else the item is.
        what: The function.

    Raises:
        SourceError: It raised; `__cause__` is what.
    """
    try:
        yield
    except Exception as error:
        kind = type(error).__name__
        try:
            text = str(error)
        except Exception:  # noqa: BLE001 - their own code may raise anything
            text = "no text, since its __str__ failed"
        raise SourceError(f"{place}: {what} raised {kind}: {text}") from error


def _loaded(item: Placed) -> Placed:
    return item

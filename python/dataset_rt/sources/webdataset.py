"""Tar shards of WebDataset as a source, grouped by key as that library does; one sample at a time.

Knows nothing of tar itself.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Unpack

from dataset_rt.arguments import AnyPath, to_names
from dataset_rt.errors import InvalidInputError
from dataset_rt.samples import CacheInput
from dataset_rt.sources.inputs.files import FingerprintMaker, InputFile, list_files, to_patterns
from dataset_rt.sources.inputs.importer import Importer, ImporterOptions, Placed
from dataset_rt.sources.inputs.tar_members import Member, members_of

# The same endings mean the same to the library's own decoders.
_TEXT = {"txt", "text", "transcript"}
_INTEGER = {"cls", "cls2", "class", "count", "index", "inx", "id"}
_JSON = {"json", "jsn"}

# What metadata a sample may have in bytes: it is text, or somebody names a payload so.
_METADATA_BYTES_MAX = 64 * 1024 * 1024

# Longer ones are in no column.
_PLAIN_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,40}\s*", re.ASCII)
_KEY = "__key__"
_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}|\{([^{}]*,[^{}]*)\}")
# Files that speak of the archive, not of samples.
_ABOUT_ARCHIVE = re.compile(r"__[^/]*__($|/)")


class WebDatasetSource(Importer):
    """The samples of tar shards, in the order of the shards and their members.

    Neighbouring members with one key, the path up to the first dot of its last part, are one
    sample. Metadata columns are `__key__`, then in the order of the first sample: members with a
    last ending of `cls`, `index`, `id` and their like as integers, `txt` and `text` as text, and
    the entries of `json` objects; those of `meta.json` are named `meta.` and the entry. Every
    other member must be the payload or be ignored on purpose. Types are inferred; declare
    `schema` when a column begins with nulls or a key is not in every sample (it is null then).
    Lists and objects within JSON cannot be stored; a `transform` gets them, to make text of them.

    Args:
        name: Name of the source and of its cache directory.
        shards: Files (`.tar`, `.tar.gz`, `.tgz`), directories, glob patterns, with braces
            expanded: `train-{000..127}.tar`, `{a,b}.tar`.
        payload: Endings of the payload separated by `;`; the first one a sample has is taken.
            `None` gives every sample an empty payload.
        columns: Metadata columns in order; all by default. One that a sample lacks is null there.
        ignore: Endings of members to leave out. A member whose name has no dot or begins with one
            belongs to no sample: name it whole (`"README"`), or all of them with `"."`.
        **options: See `ImporterOptions`.

    Raises:
        NotFoundError: No shard is there.
        InvalidInputError: On iteration, for damaged shards, samples without payload, members that
            are neither payload nor metadata or belong to no sample, metadata that cannot be read.

    Example:
        >>> from dataset_rt.exporters import to_webdataset
        >>> from dataset_rt.sources import WebDatasetSource
        >>> shards = to_webdataset(cache, tmp_path / "shards", extension="txt")
        >>> source = WebDatasetSource("words", shards, payload="txt")
        >>> next(iter(source))
        CacheInput(data=b'a', metadata={'__key__': '000000000', 'position': 0})
    """

    kind = "webdataset"

    def __init__(
        self,
        name: str,
        shards: AnyPath | Iterable[AnyPath],
        *,
        payload: str | None,
        columns: Iterable[str] | None = None,
        ignore: Iterable[str] = (),
        **options: Unpack[ImporterOptions],
    ) -> None:
        """See the class."""
        super().__init__(name, **options)
        self._payload = () if payload is None else tuple(_ending(e) for e in payload.split(";"))
        self._columns = None if columns is None else tuple(to_names(columns, "columns"))
        self._ignore = frozenset(_ending(ending) for ending in to_names(ignore, "ignore"))
        patterns = to_patterns(shards, "shards")
        expanded = [path for pattern in patterns for path in expand_braces(pattern)]
        self._files = list_files(expanded, (".tar", ".tar.gz", ".tgz"))

    def iter_from(self, start: int) -> Iterator[CacheInput | Placed]:
        """Yield samples, or the items of `transform`, from number `start` on.

        What lies before is passed over unread.
        """
        groups = itertools.chain.from_iterable(self._groups(file) for file in self._files)
        for number, group in enumerate(groups):
            if number < start:
                group.pass_over()
            elif self._transform is None:
                yield self._sample(group)
            else:
                yield Placed(f"{group.shard}: sample {group.key!r}", self._sample(group))

    def _sample(self, group: _Group) -> CacheInput:
        values: dict[str, Any] = {_KEY: group.key}
        places: dict[str, str] = {}
        found: dict[str, bytes] = {}
        for ending, member in group.members():
            place = f"{group.shard}: member {member.name!r}"
            if ending in self._payload:
                found[ending] = member.read()
            elif ending not in self._ignore:
                for column, value in self._metadata(ending, member, place):
                    if column in values:
                        raise InvalidInputError(
                            f"{place}: column {column!r} comes from another member too; leave one "
                            "out with ignore=[...]"
                        )
                    values[column], places[column] = value, place
        if self._transform is None:
            self._refuse_nested(values, places)
        data = self._chosen(found, group)
        return CacheInput(data, self._selected(values, group))

    def _chosen(self, found: dict[str, bytes], group: _Group) -> bytes:
        if not self._payload:
            return b""
        for ending in self._payload:
            if ending in found:
                return found[ending]
        raise InvalidInputError(
            f"{group.shard}: sample {group.key!r}: expected a payload, a member that ends in "
            f"{' or '.join(self._payload)}, found {sorted(group.endings)}; say which with payload="
        )

    def _metadata(self, ending: str, member: Member, place: str) -> Iterator[tuple[str, Any]]:
        kind = ending.rpartition(".")[2]
        if kind not in _TEXT | _INTEGER | _JSON:
            raise InvalidInputError(
                f"{place}: expected the payload ({';'.join(self._payload)}) or metadata (json, "
                f"cls, txt), found {ending!r}; take it with payload={ending!r} or leave it out "
                f"with ignore=[{ending!r}]"
            )
        if member.size_bytes > _METADATA_BYTES_MAX:
            raise InvalidInputError(
                f"{place}: expected at most {_METADATA_BYTES_MAX} bytes of metadata, found "
                f"{member.size_bytes}; is it the payload?"
            )
        data = member.read()
        try:
            text = data.decode()
            if kind in _TEXT:
                yield ending, text
                return
            value = _integer(text) if kind in _INTEGER else _json(text)
        except (ValueError, RecursionError) as error:
            expected = {kind in _INTEGER: "an integer", kind in _JSON: "JSON"}.get(True, "text")
            raise InvalidInputError(
                f"{place}: expected {expected} in UTF-8, found {_told(error)}; mend the shard or "
                f"leave it out with ignore=[{ending!r}]"
            ) from error
        if isinstance(value, dict):
            prefix = ending.rpartition(".")[0]
            prefix = f"{prefix}." if prefix else ""
            for key, entry in value.items():
                yield f"{prefix}{key}", entry
        else:
            yield ending, value

    def _refuse_nested(self, values: dict[str, Any], places: dict[str, str]) -> None:
        is_nested = {name: isinstance(value, (dict, list)) for name, value in values.items()}
        for column, value in values.items():
            if is_nested[column] and (self._columns is None or column in self._columns):
                named = self._columns or (values if self._schema is None else self._schema.names)
                kept = [name for name in named if not is_nested.get(name)]
                raise InvalidInputError(
                    f"{places[column]}: column {column!r}: expected text, a number, true, false or "
                    f"null, found a JSON {'object' if isinstance(value, dict) else 'list'}, which "
                    f"cannot be stored; leave it out with columns={kept}, or keep it as text: a "
                    "transform= gets the value, and json.dumps makes text of it"
                )

    def _selected(self, values: dict[str, Any], group: _Group) -> dict[str, Any]:
        names: Iterable[str]
        if self._columns is not None:
            names = self._columns
        elif self._schema is not None and self._transform is None:
            names = self._schema.names
            unknown = values.keys() - set(names)
            if unknown:
                raise InvalidInputError(
                    f"{group.shard}: sample {group.key!r}: expected the columns of schema, "
                    f"{list(names)}, found {sorted(unknown)} too; add them, or leave them out "
                    f"with columns={list(names)}"
                )
        else:
            return values
        return {name: values.get(name) for name in names}

    def _groups(self, file: InputFile) -> Iterator[_Group]:
        """Yield the samples of one shard; they never reach into the next."""
        members = self._keyed(file)
        ahead = next(members, None)
        while ahead is not None:
            group = _Group(file.path, ahead, members)
            yield group
            ahead = group.pass_over()

    def _keyed(self, file: InputFile) -> Iterator[_Keyed]:
        """Yield the members that belong to samples; others must be ignored on purpose."""
        for member in members_of(file):
            if _ABOUT_ARCHIVE.match(member.name):
                continue
            name = member.name.rpartition("/")[2]
            stem, dot, ending = name.partition(".")
            if stem and dot:
                key = member.name[: len(member.name) - len(ending) - 1]
                yield _Keyed(key, ending.lower(), member)
            elif not self._ignore & {"", _ending(name)}:
                raise InvalidInputError(
                    f"{file.path}: member {member.name!r}: expected a key, a dot and an ending, "
                    f"found {name!r}; rename it, or leave it out with ignore=[{name!r}], all "
                    "whose names have no dot or begin with one with ignore=['.']"
                )

    def _computed_fingerprint(self, options: dict[str, object]) -> str:
        options |= {"payload": self._payload, "columns": self._columns}
        options |= {"ignore": sorted(self._ignore), "schema": str(self._schema)}
        maker = FingerprintMaker(self.kind, options)
        for file in self._files:
            maker.add_file(file.name, file.size_bytes, file.mtime_ns)
        return maker.text()

    def _origin(self) -> Mapping[str, str]:
        return {"shards": "\n".join(os.path.abspath(file.path) for file in self._files[:100])}


class _Keyed(NamedTuple):
    """A member of a sample."""

    key: str
    ending: str
    member: Member


class _Group:
    """Neighbouring members with one key, each read while it is at hand."""

    def __init__(self, shard: str, first: _Keyed, rest: Iterator[_Keyed]) -> None:
        self.shard = shard
        self.key = first.key
        self.endings: set[str] = set()
        self._next: _Keyed | None = first
        self._rest = rest

    def members(self) -> Iterator[tuple[str, Member]]:
        """Yield ending and member; endings come once."""
        while self._next is not None and self._next.key == self.key:
            _, ending, member = self._next
            if ending in self.endings:
                raise InvalidInputError(
                    f"{self.shard}: member {member.name!r}: sample {self.key!r} has a member "
                    f"{ending!r} already; keys must differ between neighbours"
                )
            self.endings.add(ending)
            yield ending, member
            self._next = next(self._rest, None)

    def pass_over(self) -> _Keyed | None:
        """Skip what was not read; return the first member of the next sample."""
        for _ in self.members():
            pass
        return self._next


def expand_braces(pattern: str) -> list[str]:
    """Return the paths of a pattern with `{000..127}` or `{a,b}`, in that order.

    A path that exists as it is stands for itself.
    """
    found = _BRACES.search(pattern)
    if found is None or os.path.lexists(pattern):
        return [pattern]
    first, last, listed = found.groups()
    if listed is None:
        width = len(first) if first.startswith("0") else 0
        step = 1 if int(first) <= int(last) else -1
        parts = [f"{n:0{width}}" for n in range(int(first), int(last) + step, step)]
    else:
        parts = listed.split(",")
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [path for part in parts for path in expand_braces(f"{before}{part}{after}")]


def _integer(text: str) -> int:
    # Python takes 1_000 and digits of all scripts, too.
    if not _PLAIN_INTEGER.fullmatch(text):
        shown = repr(text[:40]) + ("..." if len(text) > 40 else "")
        raise ValueError(f"{shown}, where only digits 0 to 9 behind a sign may be")
    return int(text)


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_without_doubles)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        double = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {double!r} twice in one object")
    return found


def _told(error: Exception) -> str:
    """Say what was found in words of the data, not of Python."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.object[error.start]:#04x} at {error.start}"
    if isinstance(error, RecursionError):
        return "lists or objects nested too deep"
    if isinstance(error, json.JSONDecodeError):
        return f"something else at line {error.lineno} column {error.colno}: {error.msg}"
    if "int_max_str_digits" in str(error):
        return "an integer of thousands of digits"
    return str(error)


def _ending(text: str) -> str:
    return text.strip().lower().removeprefix(".")

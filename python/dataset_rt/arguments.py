"""Turns what callers pass into plain values, or a TypeError that says what to pass.

Knows no file and no rule of the format; those are checked where they are enforced.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from dataset_rt.errors import InvalidInputError

if TYPE_CHECKING:
    from dataset_rt.sources import CacheSource

AnyPath = str | os.PathLike[str]
"""A path as callers pass it."""

_T = TypeVar("_T")

_U64_MAX = 2**64 - 1


def to_integer(value: object, argument: str) -> int:
    """Return any integer, NumPy's included, as `int`; bool and float are refused.

    Raises:
        TypeError: `value` is not an integer.
    """
    if type(value) is int:
        return value
    # True would silently mean row 1 where a mask was meant.
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise TypeError(f"{argument} must be an integer, found {type(value).__name__}: {value!r}")


def to_count(value: object, argument: str, *, minimum: int) -> int:
    """Return an integer between `minimum` and 2**64 - 1.

    Raises:
        TypeError: `value` is not an integer.
        InvalidInputError: it is out of range.
    """
    count = to_integer(value, argument)
    if not minimum <= count <= _U64_MAX:
        raise InvalidInputError(
            f"{argument} must be an integer from {minimum} to 2**64 - 1, found {count}"
        )
    return count


def to_flag(value: object, argument: str) -> bool:
    """Return a bool; what is only true or false in a condition, such as `"no"`, is refused.

    Raises:
        TypeError: `value` is not a bool.
    """
    if isinstance(value, bool):
        return value
    raise TypeError(f"{argument} must be True or False, found {type(value).__name__}: {value!r}")


def to_path(value: object, argument: str) -> str:
    """Return a path as `str`.

    Raises:
        TypeError: `value` is neither `str` nor a path object with text inside.
    """
    if isinstance(value, (str, os.PathLike)):
        path = os.fspath(value)
        if isinstance(path, str):
            return _usable(path, argument)
    raise TypeError(
        f"{argument} must be str or os.PathLike[str], found {type(value).__name__}: "
        f"{_path_of_ours(value, '[0]') or repr(value)}"
    )


def to_directory(value: object, argument: str) -> str:
    """Return the path of a directory to write into as `str`.

    Raises:
        TypeError: `value` is not a path.
        InvalidInputError: It is a cache, or lies in one.
    """
    path = to_path(value, argument)
    refuse_within_cache(path)
    return path


def refuse_within_cache(path: str, shown: str | None = None) -> None:
    """Refuse a place in a published cache, which nothing but a repair may change.

    Args:
        path: A directory, or what will be one.
        shown: What the message calls it; a file in it, say.

    Raises:
        InvalidInputError: `path` lies in one, or is one.
    """
    place, below = os.path.realpath(path), None
    while place != below:
        if _looks_like_a_cache(place):
            is_itself = below is None and shown is None
            how = "is a cache" if is_itself else f"lies in the cache {place}"
            raise InvalidInputError(
                f"{shown or path} {how}, which is never changed: choose another place"
            )
        place, below = os.path.dirname(place), place


def _looks_like_a_cache(path: str) -> bool:
    """Whether two of its files are there, since some get lost; others have manifests and shards."""

    def there(*names: str) -> int:
        return sum(os.path.exists(os.path.join(path, name)) for name in names)

    own = there("index.bin", "metadata.arrow", "digests.bin")
    return own > 0 and own + there("manifest.json", "shards") > 1


def _usable(path: str, argument: str) -> str:
    """Refuse what no system takes for a path.

    Raises:
        InvalidInputError: A NUL, or a letter that file names cannot hold.
    """
    try:
        if b"\0" not in os.fsencode(path):
            return path
    except UnicodeEncodeError:
        pass
    raise InvalidInputError(
        f"{argument} has a NUL or a lone surrogate in it, which no path holds: found {path!r}"
    )


def to_cache_path(value: object, argument: str) -> str:
    """Return the path of a cache as `str`.

    Raises:
        TypeError: `value` is neither `str` nor a path object with text inside.
        InvalidInputError: it is empty.
    """
    path = to_path(value, argument)
    if not path:
        raise InvalidInputError(f"{argument} is empty; expected the directory of a cache")
    return path


def to_paths(value: object, argument: str) -> list[str]:
    """Return the path of one cache or a sequence of them as a list.

    Raises:
        TypeError: `value` is neither.
        InvalidInputError: the sequence is empty.
    """
    return path_list(value, argument, to_cache_path, "cache directory")


def path_list(
    value: object, argument: str, to_one: Callable[[object, str], str], what: str
) -> list[str]:
    """Return one path or a sequence of them as a list.

    Args:
        value: What was passed.
        argument: Its name.
        to_one: Checks one path.
        what: What at least one must be named of.

    Raises:
        TypeError: `value` is neither.
        InvalidInputError: The sequence is empty, or what `to_one` raises.
    """
    if isinstance(value, (str, os.PathLike)):
        return [to_one(value, argument)]
    advice = _path_of_ours(value, "")
    if advice is not None:
        # Before it is iterated: a dataset would claim an epoch.
        raise TypeError(
            f"{argument} must be a path or a list of paths, found {type(value).__name__}: {advice}"
        )
    # A mapping or a file would iterate too, but nobody means its keys or lines as paths.
    if not isinstance(value, Iterable) or isinstance(value, (bytes, dict)):
        raise TypeError(
            f"{argument} must be a path or a list of paths, found {type(value).__name__}"
        )
    paths = [to_one(path, f"{argument}[{i}]") for i, path in enumerate(value)]
    if not paths:
        raise InvalidInputError(f"{argument} is empty: pass at least one {what}")
    return paths


def _path_of_ours(value: object, first: str) -> str | None:
    """Say where an object of this library has its path; `None` where it has none.

    Args:
        value: What was passed.
        first: What takes the first of several paths.
    """
    if not type(value).__module__.startswith("dataset_rt."):
        return None
    if hasattr(value, "cache_paths"):
        return f"pass its .cache_paths{first}"
    if hasattr(value, "dataset"):
        return f"pass its .dataset.cache_paths{first}"
    if hasattr(value, "path"):
        return "pass its .path"
    # A result that is a failure.
    return f"it has no path: {value.message}" if hasattr(value, "message") else None


def to_names(value: object, argument: str) -> list[str]:
    """Return an iterable of column names as a list; a bare `str` is refused.

    Raises:
        TypeError: `value` is a single name or holds something else than names.
        InvalidInputError: A name has a lone surrogate.
    """
    if isinstance(value, str):
        raise TypeError(f"{argument} must be a list of column names: pass [{value!r}]")
    if not isinstance(value, Iterable):
        raise TypeError(f"{argument} must be a list of column names, found {type(value).__name__}")
    if isinstance(value, Mapping):
        raise TypeError(
            f"{argument} must be a list of column names, found {type(value).__name__}: nothing is "
            "renamed here"
        )
    names = list(value)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"{argument} must hold column names (str), found {type(name).__name__}: {name!r}"
            )
        if not name.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in name):
            raise InvalidInputError(f"{argument} holds {name!r}, which is no Unicode text")
    return names


def to_json(value: object, argument: str) -> str:
    """Return a mapping of JSON values as JSON text.

    Raises:
        TypeError: `value` is no mapping, or holds what JSON has not.
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"{argument} must be a dict, found {type(value).__name__}")
    try:
        return json.dumps(dict(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{argument} must hold plain JSON values: {error}") from error


def to_config(value: object, kind: type[_T], argument: str) -> _T:
    """Return `value` if it is a config of this kind.

    Raises:
        TypeError: it is something else, for example a dict.
    """
    if isinstance(value, kind):
        return value
    raise TypeError(
        f"{argument} must be a {kind.__name__}, found {type(value).__name__}: "
        f"pass {kind.__name__}(...)"
    )


def to_sources(value: object) -> list[tuple[CacheSource, str]]:
    """Return one source or a list of sources, each with its name, read once.

    Raises:
        TypeError: something is not a source.
        InvalidInputError: the list is empty.
    """
    if isinstance(value, (list, tuple)) and not hasattr(value, "name"):
        if not value:
            raise InvalidInputError("sources is empty: pass at least one source")
        return [_to_source(source, f"sources[{i}]") for i, source in enumerate(value)]
    return [_to_source(value, "sources")]


def _to_source(value: Any, argument: str) -> tuple[CacheSource, str]:
    kind = type(value)
    if isinstance(value, type):
        raise TypeError(
            f"{argument} is the class {value.__name__}: pass an instance of it, "
            "or a list of instances"
        )
    missing = [
        member
        for member, is_there in (
            ("name", hasattr(value, "name")),
            ("__iter__", hasattr(kind, "__iter__")),
        )
        if not is_there
    ]
    if missing:
        advice = "pass an object with a str `name` and an `__iter__` that yields CacheInput"
        if hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__"):
            advice = "wrap it: ArrowSource(name, data, payload=...)"
        raise TypeError(
            f"{argument} is no source: {kind.__name__} has no {' and no '.join(missing)}; {advice}"
        )
    name = value.name
    if not isinstance(name, str):
        raise TypeError(f"{argument}.name must be str, found {type(name).__name__}: {name!r}")
    return value, name

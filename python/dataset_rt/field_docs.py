"""Fields of named tuples get the words of their class's docstring; knows none of the tuples."""

from __future__ import annotations

import inspect
import re
from typing import TypeVar

_Class = TypeVar("_Class", bound=type)
_FIELD = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def with_field_docs(cls: _Class) -> _Class:
    """Return `cls`, a named tuple, whose fields have the words of its *Attributes* as docstrings.

    Without it `help` shows "Alias for field number 0" for each. Nothing happens where Python was
    told to leave docstrings out.
    """
    _, _, attributes = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")
    for name, words in _FIELD.findall(attributes.partition("\n\n")[0]):
        getattr(cls, name).__doc__ = re.sub(r"\s+", " ", words)
    return cls

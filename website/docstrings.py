"""What Griffe has to be told of this project: examples and names in docstrings, constructors."""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)
NAMED = re.compile(r"(?<![\[`])`(?P<name>[A-Za-z_]\w*)(\.(?P<member>\w+))?(\([^`]*\))?`(?![\]`])")


class HouseStyle(griffe.Extension):
    """Names in backticks become links, and `Example` the section that Google's style calls so."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Change all docstrings of a package, once all of them are known."""
        self._public = {name: pkg[name] for name in pkg.exports or ()}
        self._change(pkg)

        for found in self._public.values():
            if found.is_class:
                _give_constructor(found.final_target if found.is_alias else found)

    def _change(self, found: griffe.Object) -> None:
        if found.docstring is not None:
            text = EXAMPLE.sub(r"\1Examples:", inspect.cleandoc(found.docstring.value))
            before, section, examples = text.partition("Examples:\n")
            found.docstring.value = NAMED.sub(self._linked, before) + section + examples
        for member in found.members.values():
            if not member.is_alias:
                self._change(member)

    def _linked(self, named: re.Match[str]) -> str:
        """Link a name, and a member that has an entry of its own; fields are in their class's."""
        target = self._public.get(named["name"])
        if target is None:
            return named[0]
        place = f"dataset_rt.{named['name']}"
        if named["member"]:
            member = target.all_members.get(named["member"])
            if member is None:
                raise LookupError(f"a docstring names {named[0]}, which there is not")
            if member.docstring is not None:
                place += f".{named['member']}"
        return f"[{named[0]}][{place}]"


def _give_constructor(cls: griffe.Class) -> None:
    """Show the constructor that fields stand for; hide those that refuse, and those of errors."""
    bases = {str(base) for base in cls.bases}
    own = cls.members.get("__init__")
    if own is not None:
        told = own.docstring.value if own.docstring is not None else ""
        refuses = told.startswith("Refuse") or "; use `" in told
        if refuses or any(base.endswith("Error") for base in bases):
            cls.del_member("__init__")
        return
    if not bases & {"FrozenConfig", "NamedTuple"}:
        return
    kinds = griffe.ParameterKind
    kind = kinds.keyword_only if "FrozenConfig" in bases else kinds.positional_or_keyword
    fields = [
        griffe.Parameter(name, annotation=field.annotation, kind=kind, default=field.value)
        for name, field in cls.members.items()
        if field.is_attribute
        and "property" not in field.labels
        and field.annotation is not None
        and not name.startswith("_")
    ]
    self_ = griffe.Parameter("self", kind=kinds.positional_or_keyword)
    made = griffe.Function("__init__", parameters=griffe.Parameters(self_, *fields), parent=cls)
    cls.set_member("__init__", made)

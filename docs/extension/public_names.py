"""What autodoc shows of the public names, which are defined in inner modules.

`sparkinesis.public` gives a public class the module from which a user imports it. Sphinx looks
there for the texts below its attributes and for its overloads, and does not find them.
"""

from __future__ import annotations

import enum
import inspect
import sys
from dataclasses import is_dataclass
from importlib import import_module
from types import FunctionType
from typing import Any

import msgspec
from sphinx.pycode import ModuleAnalyzer

MADE_INSIDE = {
    "ApplicationRun",
    "Checkpointer",
    "Fleet",
    "ParquetSink",
    "PreparedCheckpoint",
    "QueryRun",
    "QueryWatch",
    "QueueRun",
    "RecordBatch",
    "Worker",
}
"""Classes that no user makes an object of."""


def learn(page: str) -> None:
    """Let Sphinx find what the sources say of the classes of a public page."""
    shown = import_module(page)
    analyzer = ModuleAnalyzer.for_module(page)
    analyzer.analyze()
    for name in vars(shown)["__all__"]:
        thing = getattr(shown, name)
        for home in _homes(name, thing) if isinstance(thing, type) else ():
            inner = ModuleAnalyzer.for_module(home)
            inner.analyze()
            _copy(name, inner, analyzer)


def _homes(name: str, thing: type) -> list[str]:
    """Return the module that defines a class: the one whose source has it."""
    modules = [
        key
        for key, module in list(sys.modules.items())
        if key.startswith("sparkinesis.") and vars(module).get(name) is thing
    ]
    return [key for key in modules if f"\nclass {name}" in inspect.getsource(sys.modules[key])]


def _copy(name: str, inner: ModuleAnalyzer, analyzer: ModuleAnalyzer) -> None:
    for (owner, attribute), text in inner.attr_docs.items():
        if owner == name:
            analyzer.attr_docs[owner, attribute] = text
    for key, overloads in inner.overloads.items():
        if key.startswith(f"{name}."):
            analyzer.overloads[key] = overloads
    for key, place in inner.tagorder.items():
        if key.startswith(f"{name}."):
            analyzer.tagorder[key] = place


class _Default:
    """A default that has no short text."""

    def __repr__(self) -> str:
        return "..."


def signature_of(thing: type) -> str:
    """Return the parameters of a class with their defaults; the types are at its attributes."""
    if thing.__name__ in MADE_INSIDE or issubclass(thing, enum.Enum):
        return ""
    if issubclass(thing, (msgspec.Struct, tuple)) and thing.__module__ in _OF_VALUES:
        return ""
    if issubclass(thing, BaseException) and not isinstance(thing.__init__, FunctionType):
        return ""
    has_fields = is_dataclass(thing) or issubclass(thing, msgspec.Struct)
    parameters = inspect.signature(thing).parameters.values()
    shown = [_shown(each, with_type=not has_fields) for each in parameters]
    return str(inspect.Signature(shown))


_OF_VALUES = {"sparkinesis.events", "sparkinesis.status"}
"""Modules of values that a user receives."""


def _shown(parameter: inspect.Parameter, *, with_type: bool) -> inspect.Parameter:
    default = parameter.default
    if default is not parameter.empty and not isinstance(default, str | int | float | type(None)):
        parameter = parameter.replace(default=_Default())
    return parameter if with_type else parameter.replace(annotation=parameter.empty)


def repeats(thing: Any) -> bool:
    """Return True for a method that overrides another one and says nothing of its own."""
    if not isinstance(thing, FunctionType) or thing.__doc__:
        return False
    owner: Any = sys.modules[thing.__module__]
    for part in thing.__qualname__.split(".")[:-1]:
        owner = getattr(owner, part, None)
    return isinstance(owner, type) and any(
        thing.__name__ in vars(base) for base in owner.__mro__[1:]
    )

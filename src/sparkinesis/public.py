"""The public face of the package: its version, and decorators of its public names.

With the decorators, tracebacks and reprs show the name that a user imports.

A public class that is defined in an inner module is imported from ``sparkinesis`` or from one of
its pages, such as ``sparkinesis.sinks``. With `public` its ``__module__`` is that page, so that a
repr says ``sparkinesis.Application``, and a pickle refers to ``sparkinesis.WorkerOptions``: inner
modules may move without breaking either.

Python finds two more things by ``__module__``. The names in a class's annotations are looked up
there, so `public` resolves annotations that are text while the class's own module is known;
`typing.get_type_hints` then finds types. The source of a class is looked up there, too, which no
longer works: `inspect.getsource` of a public class raises OSError. That of its methods works.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable
from typing import Any, TypeVar

__version__ = "0.1.0"
"""Also of the package that is built; a text, because a package in a zip has no metadata."""

_T = TypeVar("_T", bound="type | Callable[..., Any]")


def public(thing: _T, page: str = "sparkinesis") -> _T:
    """Show a class or a function as a name of a public page, whose ``__all__`` lists it.

    Use it as the outermost decorator, above ``@dataclass``, which needs the module of the class.
    """
    if isinstance(thing, type):
        _resolve_annotations(thing)
        if "__firstlineno__" in vars(thing):
            # Python 3.13 and newer would show these lines of the page as the source.
            del thing.__firstlineno__  # type: ignore[attr-defined]
    thing.__module__ = page
    return thing


def public_sink(thing: _T) -> _T:
    """Show a class as a name of ``sparkinesis.sinks``."""
    return public(thing, "sparkinesis.sinks")


def public_metrics(thing: _T) -> _T:
    """Show a class as a name of ``sparkinesis.metrics``."""
    return public(thing, "sparkinesis.metrics")


def public_queue(thing: _T) -> _T:
    """Show a class as a name of ``sparkinesis.queue``."""
    return public(thing, "sparkinesis.queue")


def public_testing(thing: _T) -> _T:
    """Show a class as a name of ``sparkinesis.testing``."""
    return public(thing, "sparkinesis.testing")


def _resolve_annotations(cls: type) -> None:
    own = vars(cls).get("__annotations__")
    if not own:
        return
    names = dict(vars(sys.modules[cls.__module__]))
    names[cls.__name__] = cls  # its module does not know it yet
    hints = typing.get_type_hints(cls, localns=names, include_extras=True)
    cls.__annotations__ = {name: hints[name] for name in own}

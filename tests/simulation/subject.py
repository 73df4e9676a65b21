"""A subject of simulation: a part of the product, its histories, and planted bugs in it."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType
from typing import Any, Generic, TypeVar
from unittest import mock

from hypothesis import strategies as st

H = TypeVar("H")
"""The type of a history: a value that decides everything that happens."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one history."""

    wrong: list[str]
    """The violations of invariants: "name of the invariant: explanation"."""
    virtual_seconds: float
    records: int
    settled_after: float
    """Virtual seconds from the end of all faults until everything was in order."""


def outcome_of(world: Any, wrong: list[str], records: int) -> Outcome:
    """The outcome of a world that has run; one that was never in order has taken its patience."""
    settled_after = world.settled_after
    if settled_after is None:
        settled_after = world.history.patience
    return Outcome(wrong, world.scheduler.now, records, settled_after)


@dataclass(frozen=True)
class Bug:
    """A planted bug."""

    patch: Callable[[], AbstractContextManager[object]]
    """Gives the product the bug for a ``with`` block."""
    caught_by: str
    """The name of the invariant that it breaks."""
    is_rare: bool
    """True if few rough histories have what it takes to find it."""


def planted(table: str) -> dict[str, Bug]:
    """The bugs of a table, by name.

    Each begins with ``name | invariant``, and ``| rare`` if few histories find it. Indented below
    stand places of the package, ``module:name``, and what changes at each: a text of its source
    (``- old``) that becomes another (``+ new``), or, without an old text, the whole body of a
    function, in which ``was`` is the function as it was, or a number.
    """
    bugs = {}
    for bug in re.split(r"\n(?=\S)", table.strip()):
        head, *lines = bug.replace("\n    | ", " | ").splitlines()
        name, caught_by, *rare = head.split(" | ")
        assert rare in ([], ["rare"]), head
        places: list[tuple[str, list[str]]] = []
        for line in textwrap.dedent("\n".join(lines)).splitlines():
            if line.startswith(("- ", "+ ")):
                places[-1][1].append(line)
            else:
                places.append((line, []))
        changes = tuple((place, "\n".join(change)) for place, change in places)
        bugs[name] = Bug(functools.partial(_all_changed, changes), caught_by, bool(rare))
    return bugs


@contextmanager
def _all_changed(changes: Iterable[tuple[str, str]]) -> Iterator[None]:
    with ExitStack() as stack:
        for place, change in changes:
            stack.enter_context(_changed(place, change))
        yield


@contextmanager
def _changed(place: str, change: str) -> Iterator[None]:
    module, _, path = place.partition(":")
    *outer, name = path.split(".")
    owner: Any = functools.reduce(getattr, outer, import_module(f"sparkinesis.{module}"))
    function = _function_of(inspect.getattr_static(owner, name))
    if not inspect.isfunction(function):
        with mock.patch.object(owner, name, ast.literal_eval(change.removeprefix("+ "))):
            yield
        return
    known, made = function.__globals__, dict[str, Any]()
    was = FunctionType(function.__code__, known, function.__name__, function.__defaults__)
    was.__kwdefaults__ = function.__kwdefaults__
    exec(compile(_source_of(function, change), place, "exec"), known, made)
    known["was"], function.__code__ = was, _function_of(made[function.__name__]).__code__
    try:
        yield
    finally:
        function.__code__ = was.__code__
        known.pop("was", None)  # a change of the same module may have taken it


def _function_of(found: Any) -> Any:
    """The function itself of a property, a class method, or a function that another one wraps."""
    return inspect.unwrap(getattr(found, "fget", getattr(found, "__func__", found)))


def _source_of(function: FunctionType, change: str) -> str:
    """The source of a function, changed."""
    source = textwrap.dedent(inspect.getsource(function))
    for old, added in re.findall(r"(?:^- (.*)\n)?((?:^\+ .*\n?)+)", change, re.MULTILINE):
        new = re.sub(r"^\+ ", "", added, flags=re.MULTILINE).rstrip("\n")
        if old:
            before, *after = source.split(old)
            assert len(after) == 1, f"{function.__qualname__} has no {old!r} any more, or several"
            line = before.rpartition("\n")[2]
            indent = line[: len(line) - len(line.lstrip())]
            source = before + new.replace("\n", f"\n{indent}") + after[0]
        else:
            tree: Any = ast.parse(source)
            tree.body[0].body = ast.parse(new).body
            source = ast.unparse(tree)
    return source


@dataclass(frozen=True)
class Subject(Generic[H]):
    name: str
    histories: Callable[[], st.SearchStrategy[H]]
    rough: Callable[[int], H]
    """Returns the history of a number, drawn to find bugs within few histories."""
    play: Callable[[H], Outcome]
    tell: Callable[[H], str]
    """Returns the story of a history; its first lines are the history as Python source."""
    bugs: Mapping[str, Bug]

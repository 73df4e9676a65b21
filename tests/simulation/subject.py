"""A subject of simulation: a part of the product, its histories, and deliberate bugs in it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Bug:
    """A deliberate bug."""

    patch: Callable[[], AbstractContextManager[object]]
    """Gives the product the bug for a ``with`` block."""
    caught_by: str
    """The name of the invariant that it breaks."""
    rough: int | None = None
    """The number of a rough history in which it is found, if one is known."""
    misfits: list[str] = field(default_factory=list, compare=False)
    """Calls that the patch does not accept because the product has changed."""


def instead(
    owner: object, name: str, make: Callable[[Any], Any], caught_by: str, rough: int | None = None
) -> Bug:
    """A bug that replaces a function or a number of ``owner`` by ``make`` of the original."""
    assert hasattr(owner, name), f"{owner} has no {name} any more"
    misfits: list[str] = []

    def patch() -> AbstractContextManager[object]:
        return mock.patch.object(owner, name, _noting(make(getattr(owner, name)), misfits))

    return Bug(patch, caught_by, rough, misfits)


def _noting(replacement: Any, misfits: list[str]) -> Any:
    """The same function, which records calls that do not fit its parameters."""
    if not inspect.isfunction(replacement):
        return replacement
    parameters = inspect.signature(replacement)

    @functools.wraps(replacement)
    def call(*given: Any, **named: Any) -> Any:
        try:
            return replacement(*given, **named)
        except TypeError:
            try:
                parameters.bind(*given, **named)
            except TypeError as misfit:
                misfits.append(str(misfit))
            raise

    return call


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

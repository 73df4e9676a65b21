"""What is simulated: a part of the product, its histories, and deliberate bugs in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from unittest import mock

from hypothesis import strategies as st

H = TypeVar("H")
"""A history: a value, from which all that happens follows."""


@dataclass(frozen=True)
class Outcome:
    """Of one history."""

    wrong: list[str]
    """What contradicts an invariant: "name of the invariant: words"."""
    virtual_seconds: float
    records: int
    settled_after: float
    """Virtual seconds from the end of all faults until everything was in order."""


@dataclass(frozen=True)
class Bug:
    """A deliberate one."""

    patch: Callable[[], AbstractContextManager[object]]
    """Within it, the product has the bug."""
    caught_by: str
    """The name of the invariant that it breaks."""
    rough: int | None = None
    """The number of a rough history in which it is found, if one is known."""


def instead(
    owner: object, name: str, make: Callable[[Any], Any], caught_by: str, rough: int | None = None
) -> Bug:
    """A bug in place of a function, or a number, which it is given."""
    return Bug(lambda: mock.patch.object(owner, name, make(getattr(owner, name))), caught_by, rough)


@dataclass(frozen=True)
class Subject(Generic[H]):
    name: str
    histories: Callable[[], st.SearchStrategy[H]]
    rough: Callable[[int], H]
    """By number: such that find bugs soon."""
    play: Callable[[H], Outcome]
    tell: Callable[[H], str]
    """The story of a history, which begins with the history as Python has it."""
    bugs: Mapping[str, Bug]

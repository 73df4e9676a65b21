"""A finding of the doctor: what was checked, what was found, and what to mend. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

import msgspec

from sparkinesis.errors import SparkinesisError

_SENTENCE = re.compile(r"(?<=[.:;]) (?=[A-Z])")


class State(Enum):
    """The weight of a finding."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; workers run all the same."""
    PROBLEM = "problem"
    """Workers cannot run, or not as they should."""


class Finding(msgspec.Struct, frozen=True):
    """The result of one check."""

    check: str
    """The thing that was checked, in a word or two."""
    state: State
    what: str
    mend: str = ""
    """What to do about it; empty if there is nothing to do."""


def ok(check: str, what: str) -> Finding:
    """Return the finding that all is well."""
    return Finding(check, State.OK, what)


def note(check: str, what: str, mend: str = "") -> Finding:
    """Return a finding that is worth knowing."""
    return Finding(check, State.NOTE, what, mend)


def problem(check: str, what: str, mend: str) -> Finding:
    """Return a finding that keeps workers from running."""
    return Finding(check, State.PROBLEM, what, mend)


def problem_of(check: str, error: SparkinesisError) -> Finding:
    """Return the finding of an error, whose text says what happened, and then what to do."""
    what, *rest = _SENTENCE.split(str(error), maxsplit=1)
    return problem(check, what, *rest) if rest else problem(check, what, "")


def is_well(findings: Iterable[Finding]) -> bool:
    """Return True if there is no problem."""
    return all(one.state is not State.PROBLEM for one in findings)

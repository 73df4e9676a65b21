"""What the check asks of a service, what it answered, and the comparison. Values, without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

Value: TypeAlias = str | int | bool
"""An answer. A number is a figure in the question's unit."""


@dataclass(frozen=True, slots=True)
class Question:
    """One thing that the library assumes of the service."""

    key: str
    text: str
    assumed: str
    """What the code relies on."""
    modules: tuple[str, ...]
    """The files that rest on it, from the root of the checkout: where to look if it differs."""
    right: frozenset[Value] | None = None
    """The answers that the code copes with; None for a figure."""
    unit: str = ""
    least: int | None = None
    most: int | None = None
    """The bounds of a figure, both inclusive; None: none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was measured; ``value`` is None if nothing was, and ``note`` says why."""

    value: Value | None
    note: str = ""


def all_of(results: Sequence[bool], what: str) -> Answer:
    """Return whether all ``what`` (several) are so; nothing was measured if there are none."""
    if not results:
        return Answer(None, f"no {what} were seen")
    return Answer(all(results), f"{results.count(True)} of {len(results)} {what}")


class Verdict(Enum):
    """What an answer means for the library."""

    AS_ASSUMED = "as assumed"
    OTHERWISE = "NOT as assumed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Finding:
    """A question with the service's answer."""

    question: Question
    answer: Answer

    @property
    def verdict(self) -> Verdict:
        return judge(self.question, self.answer)


def judge(question: Question, answer: Answer) -> Verdict:
    """Compare an answer with what the code assumes."""
    value = answer.value
    if value is None:
        return Verdict.NOT_MEASURED
    if question.right is not None:
        is_right = value in question.right
    else:
        assert isinstance(value, int)
        is_right = (question.least is None or value >= question.least) and (
            question.most is None or value <= question.most
        )
    return Verdict.AS_ASSUMED if is_right else Verdict.OTHERWISE


def findings(questions: Sequence[Question], answers: Mapping[str, Answer]) -> list[Finding]:
    """Return a finding for each question, in order; one without an answer was not measured."""
    none = Answer(None, "no answer")
    return [Finding(question, answers.get(question.key, none)) for question in questions]

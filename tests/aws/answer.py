"""What a service answered to one question, and whether the code copes with it. No I/O."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Value: TypeAlias = str | int | bool

AS_ASSUMED, OTHERWISE, NOT_MEASURED = "as assumed", "NOT as assumed", "not measured"


@dataclass(frozen=True, slots=True)
class Answer:
    """One thing that the library assumes of the service, and what was measured."""

    key: str
    question: str
    value: Value | None
    """A number is a figure in the unit; None: nothing was measured, and ``note`` says why."""
    right: Container[Value] | None
    """The values that the code copes with; None: any."""
    assumed: str
    """What the code relies on."""
    rests_on: tuple[str, ...]
    """The files that rely on it, from the root of the checkout: where to look if it differs."""
    note: str = ""
    unit: str = ""

    @property
    def verdict(self) -> str:
        if self.value is None:
            return NOT_MEASURED
        return AS_ASSUMED if self.right is None or self.value in self.right else OTHERWISE

    @property
    def shown(self) -> str:
        if self.value is None:
            return "-"
        if isinstance(self.value, bool):
            return "yes" if self.value else "no"
        return f"{self.value:,} {self.unit}".rstrip() if isinstance(self.value, int) else self.value

    def __str__(self) -> str:
        return (
            f"`{self.key}`: {self.shown}{f' ({self.note})' if self.note else ''}. Assumed: "
            f"{self.assumed}. On this rest: {', '.join(f'`{file}`' for file in self.rests_on)}."
        )


def all_of(results: Sequence[bool], what: str) -> tuple[bool | None, str]:
    """Return whether all ``what`` (several) are so, and a note; None if there are none."""
    if not results:
        return None, f"no {what} were seen"
    return all(results), f"{results.count(True)} of {len(results)} {what}"


def markdown(answers: Sequence[Answer]) -> str:
    """Return a table of all answers, and what is said of those that are not as assumed."""
    rows = [("key", "question", "answer", "verdict")]
    rows += [(f"`{one.key}`", one.question, one.shown, one.verdict) for one in answers]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ("-" * widths[0], "-" * widths[1], "-" * widths[2], "-" * widths[3]))
    lines = [
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |"
        for row in rows
    ]
    for verdict in (OTHERWISE, NOT_MEASURED):
        lines += ["", *(f"- {verdict}: {one}" for one in answers if one.verdict == verdict)]
    lines += ["", "Notes:", *(f"- `{one.key}`: {one.note}" for one in answers if one.note)]
    return "\n".join(lines)

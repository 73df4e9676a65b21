"""One check of a release, its outcome, and the line that tells of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


class CheckError(Exception):
    """A check has failed; the message says why."""


@dataclass(frozen=True)
class Check:
    """A check: ``run`` returns a text that says what was found, or raises `CheckError`."""

    name: str
    run: Callable[[], str]


def run_all(checks: Iterable[Check], tell: Callable[[str], object]) -> bool:
    """Run the checks, tell each outcome in a line, and return True if none has failed."""
    checks = list(checks)
    width = max(len(check.name) for check in checks)
    is_good = True
    for check in checks:
        try:
            outcome, said = "ok", check.run()
        except CheckError as error:
            outcome, said, is_good = "failed", str(error), False
        tell(line(check.name, outcome, said, width))
    return is_good


def line(name: str, outcome: str, said: str, width: int) -> str:
    """Return the line of an outcome; what else was said follows in lines of its own, indented."""
    indent = "\n" + " " * (width + 10)
    return f"{name:{width}}  {outcome:6}  {indent.join(said.splitlines())}"


def require(problems: Iterable[str]) -> None:
    """Raise `CheckError` if there are problems, with one in each line."""
    found = list(problems)
    if found:
        raise CheckError("\n".join(found[:20]) + ("\n..." if len(found) > 20 else ""))

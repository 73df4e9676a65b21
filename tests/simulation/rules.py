"""How the invariants of a world are checked, and what a rule says that fails by itself."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

W = TypeVar("W")


def no_thread_ends_by_an_error(world: Any) -> Iterator[str]:
    for task, error in world.scheduler.failures:
        yield f"the thread {task.name} of {task.process} ended by {error!r}"


def broken(
    rules: Iterable[Callable[[W], Iterator[str]]], world: W, part: str = ""
) -> Iterator[str]:
    """Yields the violations of rules in a world: "name of the rule: explanation".

    A rule that raises is at fault itself: it says nothing of the world, and must be mended.
    """
    where = f"in {part}, " if part else ""
    for rule in rules:
        name = getattr(rule, "__name__", str(rule))
        try:
            for text in rule(world):
                yield f"{name}: {where}{text}"
        except Exception as error:  # noqa: BLE001 - whatever the rule was not made for
            at = traceback.extract_tb(error.__traceback__)[-1]
            yield (
                f"fault of the rule {name}: {where}{error!r} at "
                f"{Path(at.filename).name}:{at.lineno}; whether the invariant holds is not known"
            )

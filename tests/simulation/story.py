"""A world told in lines: what happened, who did what, and what was wrong in the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sparkinesis.lease.lease import Lease, decode_lease
from tests.simulation import storytelling
from tests.simulation.history import History
from tests.simulation.invariants import check
from tests.simulation.logs import logs_noted
from tests.simulation.world import World

W = TypeVar("W", bound=World)

_LONGEST = 400
"""Characters of a line."""


def tell(history: History) -> str:
    """The story of a history, which is run once more for it; and what is wrong with it."""
    return tell_world(World(history), check)


def tell_world(world: W, check: Callable[[W], list[str]]) -> str:
    """The story of a world that has not run yet."""

    def note(record: logging.LogRecord) -> None:
        task = world.scheduler.current
        thread = "" if task is None else task.name
        world.journal.write("", f"logs ({thread})", record.getMessage())

    with logs_noted(logging.INFO, note):
        world.run()
    wrong = check(world)
    told = [
        (entry.at, f"{entry.process:<18} {entry.shard} {entry.what} {entry.about or ''}")
        for entry in world.journal.entries
    ]
    for write in world.table.writes:
        change = _change(_lease(write.before), _lease(write.after))
        if change:
            told.append((write.at, f"{write.by and write.by.name!s:<18} {write.key} row: {change}"))
    told.sort(key=lambda line: line[0])
    names: dict[str, str] = {}
    for log in world.logs():
        for (number, sub), data in zip(log.places, log.data, strict=True):
            if not sub:
                names[number] = data
    lines = (f"{at:9.3f}  {text}" for at, text in told)
    return storytelling.page(world.history, lines, wrong, names, _LONGEST)


def _lease(row: Mapping[str, Any] | None) -> Lease | None:
    return None if row is None else decode_lease(row)


def _change(before: Lease | None, after: Lease | None) -> str:
    """The change that a write made, as text; empty for a mere renewal."""
    if after is None:
        return "deleted"
    fields = ("owner", "checkpoint_owner", "checkpoint", "pending", "child_ids")
    changes = [
        f"{name}={getattr(after, name)}"
        for name in fields
        if before is None or getattr(before, name) != getattr(after, name)
    ]
    is_life = before is not None and not changes
    return "" if is_life else f"{', '.join(changes)} (counter {after.counter})"

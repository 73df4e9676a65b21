"""Applications that consume a queue as a subject, and the story of one."""

from __future__ import annotations

import logging

from tests.simulation import storytelling
from tests.simulation.logs import logs_noted, quiet_logging
from tests.simulation.queues.bugs import BUGS
from tests.simulation.queues.histories import histories, rough_history
from tests.simulation.queues.history import History
from tests.simulation.queues.invariants import check
from tests.simulation.queues.world import World
from tests.simulation.subject import Outcome, Subject, outcome_of

_LONGEST = 300
"""Characters of a line."""


def play(history: History) -> Outcome:
    with quiet_logging():
        world = World(history).run()
    return outcome_of(world, check(world), len(world.service.put_at))


def tell(history: History) -> str:
    """The story of a history, which is run once more for it; and what is wrong with it."""
    world = World(history)

    def note(record: logging.LogRecord) -> None:
        task = world.scheduler.current
        by = "" if task is None else f"{task.process.name}, {task.name}"
        world.note(f"{by} logs: {record.getMessage()}")

    with logs_noted(logging.INFO, note):
        world.run()
    told = list(world.notes)
    for process, met in world.faults.items():
        told += [(at, f"{process}: {operation} meets {kind}") for at, operation, kind in met]
    for one in world.service.deliveries.values():
        what = f"{one.receive.process} gets {', '.join(one.names)} ({one.count}), which arrives at"
        told.append((one.at, f"{what} {one.arrived}; {one.end} (until {one.until:.3f})"))
    for run in world.journal.runs:
        what = f"{run.process} handles {run.name}: {run.outcome} {run.by_hand or ''}"
        told.append((run.began, f"{what} until {run.ended}"))
    lines = (f"{at:9.3f}  {text}" for at, text in sorted(told))
    return storytelling.page(history, lines, check(world), {}, _LONGEST)


QUEUES: Subject[History] = Subject("queues", histories, rough_history, play, tell, BUGS)

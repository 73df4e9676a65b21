"""Streaming queries as a subject: the source's planner and readers, driven like by Spark."""

from __future__ import annotations

from tests.simulation.query.bugs import BUGS
from tests.simulation.query.histories import histories, rough_history
from tests.simulation.query.history import History
from tests.simulation.query.invariants import check
from tests.simulation.query.story import tell
from tests.simulation.query.world import World
from tests.simulation.subject import Outcome, Subject, outcome_of


def play(history: History) -> Outcome:
    world = World(history).run()
    return outcome_of(world, check(world), len(world.streams.user_records))


SUBJECT: Subject[History] = Subject("queries", histories, rough_history, play, tell, BUGS)

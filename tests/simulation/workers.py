"""Record processors as a subject: an application's workers, their leases and their checkpoints."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.bugs import AWAY_BUGS, BUGS, FAN_OUT_BUGS, RELAXED_BUGS, WAYS_BUGS
from tests.simulation.histories import histories
from tests.simulation.history import History
from tests.simulation.invariants import check
from tests.simulation.logs import quiet_logging
from tests.simulation.outages import away_histories, rough_away
from tests.simulation.relaxed import relaxed_histories, rough_relaxed
from tests.simulation.rough import rough_history
from tests.simulation.story import W, tell
from tests.simulation.subject import Outcome, Subject
from tests.simulation.subscribing import rough_subscribing, subscribing_histories
from tests.simulation.ways import rough_ways, ways_histories
from tests.simulation.world import World


def play(history: History) -> Outcome:
    return play_world(World(history), check)


def play_world(world: W, check: Callable[[W], list[str]]) -> Outcome:
    """Runs a world; returns its outcome."""
    with quiet_logging():
        world.run()
    settled_after = world.settled_after
    return Outcome(
        check(world),
        world.scheduler.now,
        sum(len(log.places) for log in world.logs()),
        world.history.patience if settled_after is None else settled_after,
    )


WORKERS: Subject[History] = Subject("record processors", histories, rough_history, play, tell, BUGS)

SUBSCRIBERS: Subject[History] = Subject(
    "record processors, by enhanced fan-out",
    subscribing_histories,
    rough_subscribing,
    play,
    tell,
    FAN_OUT_BUGS,
)

AWAY: Subject[History] = Subject(
    "record processors that were away", away_histories, rough_away, play, tell, AWAY_BUGS
)

RELAXED: Subject[History] = Subject(
    "record processors that checkpoint automatically, or need no order",
    relaxed_histories,
    rough_relaxed,
    play,
    tell,
    RELAXED_BUGS,
)

WAYS: Subject[History] = Subject(
    "applications of every way to write one", ways_histories, rough_ways, play, tell, WAYS_BUGS
)

"""Record processors as a subject: an application's workers, their leases and their checkpoints."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.bugs import (
    AWAY_BUGS,
    BUGS,
    FAN_OUT_BUGS,
    HOLDING_BUGS,
    LED_BUGS,
    RELAXED_BUGS,
    STORE_BUGS,
    WAYS_BUGS,
)
from tests.simulation.histories import histories
from tests.simulation.history import History
from tests.simulation.holding import HOLDING as HOLDING_RULES
from tests.simulation.holding import holding_histories, rough_holding
from tests.simulation.invariants import INVARIANTS, check
from tests.simulation.led import led_histories, rough_led
from tests.simulation.logs import quiet_logging
from tests.simulation.outages import away_histories, rough_away
from tests.simulation.relaxed import relaxed_histories, rough_relaxed
from tests.simulation.rough import rough_history
from tests.simulation.rules import broken
from tests.simulation.store_rules import STORE
from tests.simulation.storing import rough_storing, storing_histories
from tests.simulation.story import W, tell
from tests.simulation.subject import Outcome, Subject
from tests.simulation.subscribing import rough_subscribing, subscribing_histories
from tests.simulation.ways import rough_ways, ways_histories
from tests.simulation.world import World


def play(history: History) -> Outcome:
    return play_world(World(history), check)


def play_storing(history: History) -> Outcome:
    return play_world(World(history), lambda world: list(broken((*INVARIANTS, *STORE), world)))


def play_holding(history: History) -> Outcome:
    return play_world(
        World(history), lambda world: list(broken((*INVARIANTS, *HOLDING_RULES), world))
    )


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

HOLDING: Subject[History] = Subject(
    "record processors whose shards are paused",
    holding_histories,
    rough_holding,
    play_holding,
    tell,
    HOLDING_BUGS,
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

LED: Subject[History] = Subject(
    "record processors with a leader", led_histories, rough_led, play, tell, LED_BUGS
)

STORING: Subject[History] = Subject(
    "record processors with a store of their own",
    storing_histories,
    rough_storing,
    play_storing,
    tell,
    STORE_BUGS,
)

"""Record processors as a subject: an application's workers, their leases and their checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis.strategies import SearchStrategy

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
from tests.simulation.holding import holding_histories, rough_holding
from tests.simulation.invariants import check
from tests.simulation.led import led_histories, rough_led
from tests.simulation.logs import quiet_logging
from tests.simulation.outages import away_histories, rough_away
from tests.simulation.relaxed import relaxed_histories, rough_relaxed
from tests.simulation.rough import rough_history
from tests.simulation.storing import rough_storing, storing_histories
from tests.simulation.story import W, tell
from tests.simulation.subject import Bug, Outcome, Subject, outcome_of
from tests.simulation.subscribing import rough_subscribing, subscribing_histories
from tests.simulation.ways import rough_ways, ways_histories
from tests.simulation.world import World


def play(history: History) -> Outcome:
    return play_world(World(history), check)


def play_world(world: W, check: Callable[[W], list[str]]) -> Outcome:
    """Runs a world; returns its outcome."""
    with quiet_logging():
        world.run()
    return outcome_of(world, check(world), sum(len(log.places) for log in world.logs()))


def _subject(
    name: str,
    histories: Callable[[], SearchStrategy[History]],
    rough: Callable[[int], History],
    bugs: Mapping[str, Bug],
) -> Subject[History]:
    return Subject(name, histories, rough, play, tell, bugs)


WORKERS = _subject("record processors", histories, rough_history, BUGS)
SUBSCRIBERS = _subject(
    "record processors, by enhanced fan-out", subscribing_histories, rough_subscribing, FAN_OUT_BUGS
)
AWAY = _subject("record processors that were away", away_histories, rough_away, AWAY_BUGS)
HOLDING = _subject(
    "record processors whose shards are paused", holding_histories, rough_holding, HOLDING_BUGS
)
RELAXED = _subject(
    "record processors that checkpoint automatically, or need no order",
    relaxed_histories,
    rough_relaxed,
    RELAXED_BUGS,
)
WAYS = _subject("applications of every way to write one", ways_histories, rough_ways, WAYS_BUGS)
STORING = _subject(
    "record processors with a store of their own", storing_histories, rough_storing, STORE_BUGS
)
LED = _subject("record processors with a leader", led_histories, rough_led, LED_BUGS)

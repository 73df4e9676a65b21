"""Record processors of several streams as a subject."""

from __future__ import annotations

from tests.simulation.history import History
from tests.simulation.logs import quiet_logging
from tests.simulation.several.bugs import SEVERAL_BUGS
from tests.simulation.several.histories import several_histories
from tests.simulation.several.invariants import check
from tests.simulation.several.rough import rough_several
from tests.simulation.several.world import SeveralWorld
from tests.simulation.story import tell_world
from tests.simulation.subject import Outcome, Subject


def play(history: History) -> Outcome:
    with quiet_logging():
        world = SeveralWorld(history).run()
    settled_after = world.settled_after
    return Outcome(
        check(world),
        world.scheduler.now,
        sum(len(life.producer.where) for life in world.all_lives()),
        history.patience if settled_after is None else settled_after,
    )


def tell(history: History) -> str:
    return tell_world(SeveralWorld(history), check)


SEVERAL: Subject[History] = Subject(
    "record processors of several streams",
    several_histories,
    rough_several,
    play,
    tell,
    SEVERAL_BUGS,
)

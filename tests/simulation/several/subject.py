"""Record processors of several streams as a subject."""

from __future__ import annotations

from tests.simulation.history import History
from tests.simulation.several.bugs import SEVERAL_BUGS
from tests.simulation.several.histories import several_histories
from tests.simulation.several.invariants import check
from tests.simulation.several.rough import rough_several
from tests.simulation.several.world import SeveralWorld
from tests.simulation.story import tell_world
from tests.simulation.subject import Subject
from tests.simulation.workers import play_world

SEVERAL: Subject[History] = Subject(
    "record processors of several streams",
    several_histories,
    rough_several,
    lambda history: play_world(SeveralWorld(history), check),
    lambda history: tell_world(SeveralWorld(history), check),
    SEVERAL_BUGS,
)

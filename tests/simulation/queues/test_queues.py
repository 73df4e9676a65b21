"""The histories of queues have what they are to have, and a world tells its story."""

from __future__ import annotations

from collections import Counter

from tests.simulation.queues.histories import rough_history
from tests.simulation.queues.history import KINDS, Behaviour, History, Put, Sleep
from tests.simulation.queues.invariants import check
from tests.simulation.queues.subject import QUEUES
from tests.simulation.queues.world import World

_HISTORIES = 36


def test_rough_histories_have_all_that_can_happen() -> None:
    met: Counter[str] = Counter()
    ends: Counter[str | None] = Counter()
    outcomes: Counter[str] = Counter()
    dead = expired = 0
    for number in range(_HISTORIES):
        world = World(rough_history(number)).run()
        assert check(world) == [], number
        met.update(kind for faults in world.faults.values() for _, _, kind in faults)
        ends.update(one.end for one in world.service.deliveries.values())
        outcomes.update(run.outcome for run in world.journal.runs)
        dead += len(world.dead_letters) + len(world.journal.dead)
        expired += sum(map(world.service.has_expired, world.service.put_at))
    assert met.keys() == set(KINDS)
    assert ends.keys() == {"acknowledged", "returned", None}
    assert outcomes.keys() == {"done", "failed", "cancelled", "running"}
    assert dead
    assert expired


def test_a_long_aggregate_that_expires_while_it_waits_is_dropped() -> None:
    events = (0.0, Put(800, is_packed=True)), (0.5, Sleep(0, 30.0))
    slow = Behaviour(slow=1.0)
    history = History(events=events, receivers=1, concurrency=1, is_async=True, behaviour=slow)
    world = World(history).run()
    assert check(world) == []
    assert len(world.journal.done) == 800


def test_a_story_tells_what_happened() -> None:
    story = QUEUES.tell(rough_history(3))
    assert story.startswith("History(seed=3")
    for part in (
        "gets n",
        "handles n",
        "meets",
        "logs: Receiving from queue",
        "Nothing was wrong.",
    ):
        assert part in story, part

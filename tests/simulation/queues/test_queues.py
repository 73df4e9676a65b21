"""Whatever happens to queues is in order, and a world tells its story."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.queues.histories import rough_history
from tests.simulation.queues.history import KINDS, Behaviour, History, Put, Sleep, Trouble
from tests.simulation.queues.invariants import check
from tests.simulation.queues.subject import QUEUES
from tests.simulation.queues.world import World


def test_all_that_can_happen_breaks_no_invariant() -> None:
    met: set[str] = set()
    seen: set[object] = set()
    numbers = iter(range(30))
    wanted = {"acknowledged", "returned", None, "done", "failed", "cancelled", "running"}
    wanted |= {"dead", "expired"}
    while (left := sorted(set(KINDS) - met)) or not seen >= wanted:
        history = rough_history(next(numbers))
        troubles = [(5.0 * n, Trouble(kind, 0.5, 5.0)) for n, kind in enumerate(left)]
        events = sorted([*troubles, *history.events], key=lambda event: event[0])
        world = World(replace(history, events=tuple(events))).run()
        assert check(world) == [], history.seed
        met |= {kind for faults in world.faults.values() for _, _, kind in faults}
        seen |= {one.end for one in world.service.deliveries.values()}
        seen |= {run.outcome for run in world.journal.runs}
        seen |= {"dead"} if world.dead_letters or world.journal.dead else set()
        seen |= {"expired"} if any(map(world.service.has_expired, world.service.put_at)) else set()


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

"""The invariants hold for workers by enhanced fan-out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.histories import in_order
from tests.simulation.history import Crash, Deregister, Event, History, Put, Start, Trouble
from tests.simulation.invariants import check
from tests.simulation.network import FAULTS
from tests.simulation.subscribing import rough_subscribing
from tests.simulation.world import World


def _played(*events: tuple[float, Event], puts: int = 50, **more: Any) -> World:
    """A world of one subscribed shard, into which a record is put each second; in order."""
    history = History(
        shards=1,
        events=(*events, *((5.0 + n, Put(0)) for n in range(puts))),
        options={"retrieval": "efo"},
    )
    world = World(replace(history, **more)).run()
    assert check(world) == []
    return world


def test_subscriptions_break_in_every_way_and_no_invariant() -> None:
    """Those that go wrong by themselves are refused, too: another reader, no such consumer."""
    ways = {*FAULTS, "ResourceInUseException", "ResourceNotFoundException"}
    ways -= {"slow", "statements", "batches"}
    met: set[str | None] = set()
    numbers = iter(range(20))
    while left := sorted(ways - met):
        history = rough_subscribing(next(numbers))
        faults = [kind for kind in left if kind in FAULTS]
        troubles = [
            (5.0 + 10.0 * n, Trouble(kind, 0.5, 10.0, "kinesis")) for n, kind in enumerate(faults)
        ]
        events = in_order([*troubles, (115.0, Deregister()), *history.events], history.duration)
        world = World(replace(history, events=events)).run()
        assert check(world) == [], history.seed
        met |= {connection.met for connection in world.subscriptions.connections}


def test_who_takes_a_dead_workers_shard_waits_for_nobody_to_let_go_of_it() -> None:
    """The service goes on to push to a dead reader, and gives a new one the shard all the same."""
    lives = ((0.0, Start(0)), (60.0, Crash(0)), (60.5, Start(1)))
    # A connection with little room holds what is pushed, and the service notices nothing: one of
    # three sizes is drawn, and any change of the product's threads draws another.
    for seed in range(20):
        world = _played(*lives, puts=110, seed=seed, duration=120.0)
        dead, *_ = [one for one in world.subscriptions.connections if one.process.is_killed]
        taken = next(one for one in world.subscriptions.connections if not one.process.is_killed)
        assert taken.opened is not None
        assert taken.opened < 60.5 + 2 * world.options.failover_time + 5.0
        if dead.met == "ResourceInUseException":
            break
    assert dead.met == "ResourceInUseException"
    assert dead.closed is None


def test_silence_on_a_connection_that_is_not_broken_is_noticed() -> None:
    world = _played((0.0, Start(0)), (20.0, Trouble("timeout", 1.0, 3.0, "kinesis")))
    silent, *_ = [one for one in world.subscriptions.connections if one.met == "timeout"]
    assert silent.closed is not None
    assert silent.closed < 20.0 + 3.0 + 31.0

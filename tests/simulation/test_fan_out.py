"""The invariants hold for workers by enhanced fan-out."""

from __future__ import annotations

import collections
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from sparkinesis.worker.options import FanOutOptions
from tests.simulation.history import Crash, Crowd, Event, History, Put, Start, Trouble
from tests.simulation.invariants import check
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


WAYS = {
    "throttle",
    "denied",
    "expired",
    "error",
    "error_after",
    "reset",
    "reset_after",
    "refused",
    "timeout",
    "timeout_after",
    "late",
    "ResourceInUseException",
    "ResourceNotFoundException",
}
"""The ways in which a subscription breaks, or is refused."""


@pytest.mark.parametrize(
    "plays_all", [False, pytest.param(True, marks=pytest.mark.long)], ids=["some", "a hundred"]
)
def test_rough_histories_break_subscriptions_in_every_way_and_no_invariant(plays_all: bool) -> None:
    met: collections.Counter[str | None] = collections.Counter()
    # These have met all ways; any change of the product's timing may ask for others.
    for number in range(100) if plays_all else (7, 10, 25, 27, 44, *range(100)):
        world = World(rough_subscribing(number)).run()
        assert check(world) == [], number
        met.update(connection.met for connection in world.subscriptions.connections)
        if met.keys() >= WAYS and not plays_all:
            return
    assert met.keys() >= WAYS


def test_an_undisturbed_subscription_is_renewed_after_four_minutes_and_before_five() -> None:
    puts = ((float(n), Put(n % 4)) for n in range(10, 1500, 20))
    world = _played((0.0, Start(0)), *puts, puts=0, shards=2, preempt=0.0, duration=1500.0)
    assert "GetRecords" not in {operation for _, operation in world.calls}
    for shard in world.producer.stream.shards:
        times = [call.at for call in world.subscriptions.calls if call.shard_id == shard.id]
        ages = [after - before for before, after in pairwise(times)]
        assert len(ages) >= 5
        assert all(240.0 <= age <= 291.0 for age in ages)


def test_a_shard_is_read_on_at_once_when_the_service_ends_its_subscription() -> None:
    even: dict[str, Any] = {"preempt": 0.0, "staleness": 0.0, "duration": 120.0}
    world = _played((0.0, Start(0)), puts=110, subscription_life=20.0, **even)
    assert len(world.subscriptions.calls) >= 6
    (handed,) = world.journal.handed.values()
    delays = [at - (5.0 + n) for n, at in enumerate(sorted(handed.values())[:110])]
    # But for those that were put before the worker had its first lease.
    assert max(delays[20:]) < 1.5


def test_who_takes_a_dead_workers_shard_waits_for_nobody_to_let_go_of_it() -> None:
    """The service goes on to push to a dead reader, and gives a new one the shard all the same."""
    # By its seed, the dead one's connection has room for all that is pushed until then.
    lives = ((0.0, Start(0)), (60.0, Crash(0)), (60.5, Start(1)))
    world = _played(*lives, puts=110, seed=8, duration=120.0)
    dead, *_ = [one for one in world.subscriptions.connections if one.process.is_killed]
    assert dead.met == "ResourceInUseException"
    assert dead.closed is None
    taken = next(one for one in world.subscriptions.connections if not one.process.is_killed)
    assert taken.opened is not None
    assert taken.opened < 60.5 + 2 * world.options.failover_time + 5.0


def test_who_may_not_register_a_consumer_polls() -> None:
    options = {"retrieval": "efo", "fan_out": FanOutOptions(fall_back_to_polling=True)}
    world = _played((0.0, Crowd(40.0)), (1.0, Start(0)), options=options)
    assert not world.subscriptions.calls


def test_silence_on_a_connection_that_is_not_broken_is_noticed() -> None:
    world = _played((0.0, Start(0)), (20.0, Trouble("timeout", 1.0, 3.0, "kinesis")))
    silent, *_ = [one for one in world.subscriptions.connections if one.met == "timeout"]
    assert silent.closed is not None
    assert silent.closed < 20.0 + 3.0 + 31.0

"""Histories that once showed a mistake of the product, made simple: each may not show it again."""

from __future__ import annotations

import pytest

from tests.simulation.history import Behaviour, History, Lag, Put, Split, Start
from tests.simulation.invariants import check
from tests.simulation.world import World

KEPT = {
    # A listing older than a shard made its finished lease go before that of its parent, which then
    # stayed for as long as records are kept.
    "ListShards is behind when leases are cleaned up": History(
        shards=1,
        events=(
            (0.0, Start(0)),
            (0.0, Put(0, 8)),
            (0.0, Lag(15.0, 16.0)),
            (0.1, Split(0.0)),
            (0.2, Put(0)),
            (0.2, Split(0.0)),
            (4.8, Put(1)),
        ),
        behaviour=Behaviour(slow=0.1, slowest=15.0),
        options={"idle_time": 2.0, "audit_interval": 20.0, "cleanup_interval": 15.0},
        preempt=0.0,
        staleness=0.0,
        duration=120.0,
    ),
}


@pytest.mark.parametrize("history", KEPT.values(), ids=KEPT)
def test_what_was_wrong_once_is_in_order(history: History) -> None:
    assert check(World(history).run()) == []

"""Histories in which something was wrong once, each as simple as it could be made."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.history import Behaviour, History, Merge, Put, Shutdown, Split, Start
from tests.simulation.workers import play

LEAVES_BEFORE_ITS_CHILDREN = History(
    seed=0,
    shards=2,
    events=(
        (0.0, Start(0)),
        *((3.0 + key / 10, Put(key, 2)) for key in range(8)),
        (5.0, Split(0.5)),
        (5.5, Merge(0.0)),
        (10.0, Shutdown(0)),
    ),
    behaviour=Behaviour(checkpoint=0.0, slow=1.0, slowest=15.0),
)


def test_who_leaves_a_shard_that_has_ended_may_checkpoint() -> None:
    """A merged child waited for its other parent's lease; the worker that was shut down meanwhile
    released its parent without a last chance to checkpoint, and all of its records came again."""
    for seed in range(4):
        assert play(replace(LEAVES_BEFORE_ITS_CHILDREN, seed=seed)).wrong == []

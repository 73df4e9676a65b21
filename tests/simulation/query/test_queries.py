"""Simplified histories of queries that once broke an invariant; none may break it again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.network import FAULTS
from tests.simulation.query.histories import HOUR, rough_history, subscribing
from tests.simulation.query.history import (
    CrashDriver,
    Event,
    History,
    Lag,
    Merge,
    Pause,
    Put,
    Recreate,
    Split,
    Stop,
    Trigger,
    Trouble,
)
from tests.simulation.query.invariants import check
from tests.simulation.query.world import World


def _history(*events: tuple[float, Event], **more: Any) -> History:
    """The history of a query of one shard, if none are given, from the start of which it reads."""
    options = {"initialPosition": "trim_horizon", **more.pop("options", {})}
    return History(events=events, options=options, **{"shards": (1,), **more})


def test_a_first_batch_that_is_not_done_is_not_begun_at_latest_instead() -> None:
    history = _history(
        (1.0, Put(1, 3)),
        (10.1, Stop(5.0, (("initialPosition", "latest"),))),
        options={"failOnDataLoss": "false"},
        trigger=Trigger("processing", 2.0),
    )
    world = World(history).run()
    assert check(world) == []
    (failure,) = world.failures
    assert "initialPosition was changed" in str(failure.error)


def test_subscriptions_break_in_every_way_and_no_invariant() -> None:
    ways = set(FAULTS) - {"slow", "error_after", "statements", "batches"}
    met: set[str | None] = set()
    numbers = iter(range(20))
    while left := sorted(ways - met):
        history = subscribing(rough_history(next(numbers)))
        troubles = [(8.0 * n, Trouble(kind, 0.5, 8.0, "executor")) for n, kind in enumerate(left)]
        events = sorted([*troubles, *history.events], key=lambda event: event[0])
        world = World(replace(history, events=tuple(events))).run()
        assert check(world) == [], history.seed
        met |= {connection.met for connection in world.subscriptions.connections}


def test_a_range_is_pushed_where_nothing_fails() -> None:
    history = _history(
        *((n / 2, Put(n % 5)) for n in range(2, 200)), trigger=Trigger("processing", 6.0)
    )
    world = World(subscribing(history)).run()
    assert check(world) == []
    assert len(world.subscriptions.connections) > 10
    readers = {by for by, operation in world.calls if operation == "GetRecords"}
    assert readers == {run.process.name for run in world.runs}


KEPT = {
    # The query stands in shards, when it is started again, that ListShards does not know of yet.
    **{
        f"a listing that lags behind a checkpoint loses and repeats nothing, {options}": (
            _history(
                (12.0, Put(0, 5)),
                (30.0, Lag(15.0, 30.0)),
                (31.0, Split(0.5)),
                *((32.0, Put(key, 3)) for key in range(1, 5)),
                (36.5, CrashDriver(0.2)),
                (60.0, Put(4, 3)),
                seed=1,
                options=options,
                trigger=Trigger("processing", 2.0),
            ),
            None,
        )
        for options in ({}, {"skipOlderThan": "1 hour"})
    },
    # All that the shard has arrived between the start of the query and its first look, and is gone,
    # and the shard with it, when the query is started again.
    "what available now leaves is not lost without a word": (
        _history(
            (10.53, Put(1, 2)),
            (11.0, Stop(60 * HOUR)),
            (11.5, Split(0.5)),
            options={"failOnDataLoss": "false"},
            trigger=Trigger("available now", 15.0),
            begins=10.5,
            duration=60 * HOUR + 60.0,
        ),
        1,
    ),
    # What is to come is older than the bound, and what was read is younger.
    "skipping repeats nothing where arrival times are out of order": (
        _history(
            (20.0, Put(1, 3, skew=15.0)),
            (26.0, Stop(1.0, (("skipOlderThan", "5 seconds"),))),
            (26.5, Put(1, 2, skew=-20.0)),
            (40.0, Put(1)),
            trigger=Trigger("processing", 2.0),
        ),
        None,
    ),
    "skipping holds in a stream that is created anew during a rest": (
        _history(
            *[(0.0, Put(0))] * 5,
            (0.0, Stop(1.0, (("skipOlderThan", "30 seconds"),))),
            (6.0, Stop(5 * HOUR)),
            (6.0, Put(0)),
            (6.0, Split(0.0)),
            (6.0, Recreate(0)),
            (14226.0, Put(1)),
            (18017.9, Put(0)),
            trigger=Trigger("processing", 3.0),
            begins=0.0,
            preempt=0.0,
            duration=18061.0,
        ),
        None,
    ),
    # The driver stands still when it has read all of a shard that is closed; what follows is in
    # its children, and gone, when it looks at them.
    "what a finished shard told a day ago is not believed": (
        _history(
            (15.0, Put(1, 3)),
            (16.0, Split(0.5)),
            (16.1, Put(2, 2)),
            (19.0, Pause(25 * HOUR)),
            (25 * HOUR + 25.0, Put(2)),
            options={"failOnDataLoss": "false"},
            trigger=Trigger("processing", 8.0),
            duration=25 * HOUR + 60.0,
        ),
        1,
    ),
    # The driver stands still before ListShards has told of two shards in which the query is by now.
    # They, and the one that was merged from them, are gone when it goes on.
    "shards that were announced a day ago are not believed in": (
        _history(
            (0.7, Split(0.5)),
            (1.3, Put(1, 2)),
            (11.9, Pause(60 * HOUR)),
            (11.9, Merge(0.0)),
            (11.9, Split(0.5)),
            *((60 * HOUR + 20.0, Put(key)) for key in range(4)),
            options={"failOnDataLoss": "false"},
            trigger=Trigger("processing", 3.0),
            begins=0.0,
            preempt=0.0,
            duration=60 * HOUR + 60.0,
        ),
        None,
    ),
    # One parent of a merge shows its end, and the other one, whose end comes a page later, has
    # looked open a moment before.
    "a batch ends before the first record of a child that waits for its other parent": (
        _history(
            *[(0.0, Put(0))] * 7,
            (18.1, Put(1)),
            (18.1, Merge(0.375)),
            (18.2, Put(1)),
            (18.3, Put(0)),
            shards=(3,),
            trigger=Trigger("processing", 3.0),
            begins=0.0,
            preempt=0.0,
            empty_pages=2,
            duration=61.0,
        ),
        None,
    ),
    # Both parents of a merge still look open when the driver, which stood still, goes on.
    "a batch ends before the first record of a shard that was merged during a pause": (
        _history(
            (12.7, Pause(40.0)),
            (20.8, Put(2, 3, aggregated=True)),
            (26.0, Put(1, 5)),
            (26.4, Merge(0.625)),
            (31.8, Put(4, 7, aggregated=True)),
            (45.1, Put(0, 2)),
            shards=(3,),
            trigger=Trigger("processing", 4.0),
            preempt=0.0,
            empty_pages=2,
            duration=61.0,
        ),
        None,
    ),
}
"""Histories that once broke an invariant, and the number of losses that is to be told."""


@pytest.mark.parametrize(("history", "losses"), KEPT.values(), ids=KEPT)
def test_what_was_wrong_once_is_in_order(history: History, losses: int | None) -> None:
    world = World(history).run()
    assert check(world) == []
    assert losses is None or len(world.losses) == losses

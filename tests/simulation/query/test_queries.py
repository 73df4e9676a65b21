"""The invariants hold in every history of a streaming query; worlds follow from histories.

``make simulate`` plays more of them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, note

from tests.simulation.drawn import drawn
from tests.simulation.query.histories import HOUR, histories
from tests.simulation.query.history import (
    CrashDriver,
    History,
    Lag,
    Merge,
    Pause,
    Put,
    Recreate,
    Split,
    Stop,
    Trigger,
)
from tests.simulation.query.invariants import check
from tests.simulation.query.story import Story as _Story
from tests.simulation.query.world import World


@drawn(histories=40)
@given(history=histories())
def test_the_invariants_hold_in_each_history(history: History) -> None:
    play(history)


@pytest.mark.long
@drawn(histories=400)
@given(history=histories())
def test_the_invariants_hold_in_each_of_many_histories(history: History) -> None:
    play(history)


def play(history: History) -> None:
    wrong = check(World(history).run())
    note(_Story(history))
    assert wrong == []


STALE_LISTING = History(
    seed=1,
    shards=(1,),
    events=(
        (12.0, Put(0, 5)),
        (30.0, Lag(15.0, 30.0)),
        (31.0, Split(0.5)),
        *((32.0, Put(key, 3)) for key in range(1, 5)),
        (36.5, CrashDriver(0.2)),
        (60.0, Put(4, 3)),
    ),
    options={"initialPosition": "trim_horizon"},
    trigger=Trigger("processing", 2.0),
)
"""The query stands in shards, when it is started again, that ListShards does not know of yet."""


@pytest.mark.parametrize("options", [{}, {"skipOlderThan": "1 hour"}])
def test_a_listing_that_lags_behind_a_checkpoint_loses_and_repeats_nothing(
    options: dict[str, str],
) -> None:
    history = replace(STALE_LISTING, options={**STALE_LISTING.options, **options})
    assert check(World(history).run()) == []


def test_each_stream_lists_its_own_shards_while_listings_lag() -> None:
    # One stream's child has the id of another's first shard.
    history = History(
        shards=(2, 1),
        events=(
            (0.0, Lag(15.0, 30.0)),
            (2.0, Split(0.5, stream=1)),
            *((20.0, Put(key)) for key in range(4)),
        ),
        options={"initialPosition": "latest"},
    )
    assert check(World(history).run()) == []


def test_what_available_now_leaves_is_not_lost_without_a_word() -> None:
    # All that the shard has arrived between the start of the query and its first look, and is gone,
    # and the shard with it, when the query is started again.
    history = History(
        shards=(1,),
        events=((10.53, Put(1, 2)), (11.0, Stop(60 * HOUR)), (11.5, Split(0.5))),
        options={"initialPosition": "trim_horizon", "failOnDataLoss": "false"},
        trigger=Trigger("available now", 15.0),
        begins=10.5,
        duration=60 * HOUR + 60.0,
    )
    world = World(history).run()
    assert check(world) == []
    assert len(world.losses) == 1


def test_skipping_repeats_nothing_where_arrival_times_are_out_of_order() -> None:
    # What is to come is older than the bound, and what was read is younger.
    history = History(
        shards=(1,),
        events=(
            (20.0, Put(1, 3, skew=15.0)),
            (26.0, Stop(1.0, (("skipOlderThan", "5 seconds"),))),
            (26.5, Put(1, 2, skew=-20.0)),
            (40.0, Put(1)),
        ),
        options={"initialPosition": "trim_horizon"},
        trigger=Trigger("processing", 2.0),
    )
    assert check(World(history).run()) == []


def test_skipping_holds_in_a_stream_that_is_created_anew_during_a_rest() -> None:
    history = History(
        shards=(1,),
        events=(
            *[(0.0, Put(0))] * 5,
            (0.0, Stop(1.0, (("skipOlderThan", "30 seconds"),))),
            (6.0, Stop(5 * HOUR)),
            (6.0, Put(0)),
            (6.0, Split(0.0)),
            (6.0, Recreate(0)),
            (14226.0, Put(1)),
            (18017.9, Put(0)),
        ),
        options={"initialPosition": "trim_horizon"},
        trigger=Trigger("processing", 3.0),
        begins=0.0,
        preempt=0.0,
        duration=18061.0,
    )
    assert check(World(history).run()) == []


def test_a_first_batch_that_is_not_done_is_not_begun_at_latest_instead() -> None:
    history = History(
        shards=(1,),
        events=((1.0, Put(1, 3)), (10.06, Stop(5.0, (("initialPosition", "latest"),)))),
        options={"initialPosition": "trim_horizon", "failOnDataLoss": "false"},
        trigger=Trigger("processing", 2.0),
    )
    world = World(history).run()
    assert check(world) == []
    (failure,) = world.failures
    assert "initialPosition was changed" in str(failure.error)


def test_what_a_finished_shard_told_a_day_ago_is_not_believed() -> None:
    # The driver stands still when it has read all of a shard that is closed; what follows is in
    # its children, and gone, when it looks at them.
    history = History(
        shards=(1,),
        events=(
            (15.0, Put(1, 3)),
            (16.0, Split(0.5)),
            (16.1, Put(2, 2)),
            (19.0, Pause(25 * HOUR)),
            (25 * HOUR + 25.0, Put(2)),
        ),
        options={"initialPosition": "trim_horizon", "failOnDataLoss": "false"},
        trigger=Trigger("processing", 8.0),
        duration=25 * HOUR + 60.0,
    )
    world = World(history).run()
    assert check(world) == []
    assert len(world.losses) == 1


def test_shards_that_were_announced_a_day_ago_are_not_believed_in() -> None:
    # The driver stands still before ListShards has told of two shards in which the query is by now.
    # They, and the one that was merged from them, are gone when it goes on.
    history = History(
        shards=(1,),
        events=(
            (0.7, Split(0.5)),
            (1.3, Put(1, 2)),
            (11.9, Pause(60 * HOUR)),
            (11.9, Merge(0.0)),
            (11.9, Split(0.5)),
            *((60 * HOUR + 20.0, Put(key)) for key in range(4)),
        ),
        options={"initialPosition": "trim_horizon", "failOnDataLoss": "false"},
        trigger=Trigger("processing", 3.0),
        begins=0.0,
        preempt=0.0,
        duration=60 * HOUR + 60.0,
    )
    assert check(World(history).run()) == []

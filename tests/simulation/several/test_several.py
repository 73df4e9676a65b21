"""The invariants hold in every history of an application of several streams.

``make simulate`` plays more of them.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, note

from tests.simulation import history as h
from tests.simulation.drawn import drawn
from tests.simulation.several.histories import several_histories
from tests.simulation.several.invariants import check
from tests.simulation.several.parts import is_former, parts_of
from tests.simulation.several.rough import rough_several
from tests.simulation.several.subject import tell
from tests.simulation.several.world import SeveralWorld
from tests.simulation.storytelling import Story


@drawn(histories=8)
@given(history=several_histories())
def test_the_invariants_hold_in_each_history(history: h.History) -> None:
    play(history)


@pytest.mark.long
@drawn(histories=300)
@given(history=several_histories())
def test_the_invariants_hold_in_each_of_many_histories(history: h.History) -> None:
    play(history)


def play(history: h.History) -> None:
    wrong = check(SeveralWorld(history).run())
    note(Story(tell, history))
    assert wrong == []


KEPT = {
    # A worker that did not lead kept the time since which a stream was out, although the stream had
    # returned, and deleted its leases a few seconds after it had left once more.
    "a stream leaves, returns, and leaves": rough_several(99),
    # The record processors of an epoch were given the records of the next one, as long as the
    # shards had no checkpoints. Only the elected worker noticed that a stream was gone.
    "streams are made anew after two seconds": rough_several(2),
    "a stream is never made anew": rough_several(9),
    # Not the product's: an answer of the tracker was on its way when leases were deleted.
    "a stream returns as its leases are deleted": rough_several(92),
    # Not the product's: a rule looked in vain for writes to a lease that had gone with its stream,
    # while its worker slept.
    "a worker sleeps while its leases are deleted": h.History(
        streams=(h.OneOf(2), h.OneOf(2)),
        events=(
            (0.0, h.Start(0)),
            (0.0, h.Start(1)),
            (19.9, h.Pause(1, 60.0)),
            (20.0, h.Track((0,))),
        ),
        former=h.Former(delete_after=0.0),
        duration=100.0,
    ),
    # A worker that had found no leases listed the shards only after a reshard. It began once more,
    # at a later LATEST, and the records in between were skipped.
    "the shards are listed half a minute after a look at an empty table": h.History(
        streams=(h.OneOf(1, "latest"), h.OneOf()),
        events=(
            *((0.0, h.Start(number)) for number in range(3)),
            (0.15, h.Trouble("error", 1.0, 30.0, "kinesis", None, 0)),
            (5.0, h.On(0, h.Split(0.0))),
            (10.0, h.On(0, h.Split(0.0))),
            *((15.0 + key, h.On(0, h.Put(key))) for key in range(8)),
        ),
    ),
}


@pytest.mark.parametrize("history", KEPT.values(), ids=list(KEPT))
def test_a_history_that_once_failed_is_in_order(history: h.History) -> None:
    assert check(SeveralWorld(history).run()) == []


def test_a_stream_that_returns_after_its_leases_were_deleted_begins_anew() -> None:
    """The world has two parts then, of which each is a world of one stream."""
    history = h.History(
        streams=(h.OneOf(), h.OneOf()),
        events=(
            (0.0, h.Start(0)),
            *((5.0 + n, h.On(n % 2, h.Put(0))) for n in range(10)),
            (20.0, h.Track((0,))),
            (80.0, h.Track((0, 1))),
        ),
        former=h.Former(delete_after=20.0),
        duration=100.0,
    )
    world = SeveralWorld(history).run()
    assert check(world) == []
    first, second = world.lives[0][0], world.lives[1][0]
    assert [len(parts_of(world, life)) for life in (first, second)] == [1, 2]
    deleted = [write for write in world.table.writes if write.after is None]
    assert [write.key for write in deleted] == [f"{second.prefix}shardId-000000000000"]
    assert is_former(world, second, deleted[0])
    given = Counter(
        place
        for entry in world.journal.entries
        if entry.what == "records" and entry.shard.startswith(second.prefix)
        for place in entry.about
    )
    places = second.producer.logs["shardId-000000000000"].places[:5]
    assert [given[place] for place in places] == [2] * 5


def test_rough_histories_reach_what_they_are_to_reach() -> None:
    """Streams come, go, return, fail and are made anew, with shards of the same ids."""
    met: Counter[str] = Counter()
    for number in range(14):
        history = rough_several(number)
        world = SeveralWorld(history).run()
        met.update(type(event).__name__ for _, event in history.events)
        met["failed calls"] += sum(world.failed_calls.values())
        for life in world.all_lives():
            met["lives"] += 1
            met["parts"] += len(parts_of(world, life))
            met["reshards"] += len(life.producer.shards) > len(life.producer.stream.open_shards)
        for write in world.table.writes:
            life_of = world.life_of(write.key)
            met["deleted"] += life_of is not None and is_former(world, life_of, write)
    for what in ("Track", "Anew", "Crash", "Pause", "Trouble", "failed calls", "reshards"):
        assert met[what], what
    assert met["parts"] > met["lives"]
    assert met["deleted"]

"""What becomes of the leases of streams that leave and return."""

from __future__ import annotations

from collections import Counter

from tests.simulation import history as h
from tests.simulation.several.invariants import check
from tests.simulation.several.parts import is_former, parts_of
from tests.simulation.several.world import SeveralWorld


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

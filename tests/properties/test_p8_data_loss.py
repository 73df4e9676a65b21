"""P8: data loss is loud: it names shard, position and the option that goes on; and only loss is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkinesis.errors import DataLossError
from tests.engine import MODES, Query
from tests.planners import Time, timed
from tests.properties.conftest import World
from tests.streams import merge_neighbours, put, put_at, split

pytestmark = pytest.mark.parametrize("mode", MODES)

HOUR = 3_600_000


def one_shard(world: World, hours: int = 24, **options: str) -> Query:
    """A query of a stream ``one`` of a single shard, which keeps records for so many hours."""
    world.kinesis.create_stream(StreamName="one", ShardCount=1)
    if hours > 24:
        keep_for(world, hours)
    return world.query(streamName="one", **options)


def keep_for(world: World, hours: int) -> None:
    change = world.kinesis.increase_stream_retention_period
    if hours == 24:
        change = world.kinesis.decrease_stream_retention_period
    change(StreamName="one", RetentionPeriodHours=hours)


def keep_for_a_day_meanwhile(world: World) -> None:
    keep_for(world, 24)
    keep_for(world, 72)


def datas(query: Query) -> list[bytes]:
    return sorted(query.rest())


def test_p8_a_position_that_retention_has_trimmed_stops_the_query(world: World) -> None:
    running = world.query()
    put(world.kinesis, "s", [b"a"], "k")
    assert datas(running) == [b"a"]
    world.clock.advance(1 * HOUR)
    put(world.kinesis, "s", [b"lost"], "k")
    world.clock.advance(25 * HOUR)
    put(world.kinesis, "s", [b"b"], "k")
    running.restart()
    with pytest.raises(DataLossError) as caught:
        running.plan()
    text = str(caught.value)
    assert "has expired" in text
    assert "shardId-0000" in text
    assert "stream 's' in us-east-1" in text
    assert "keeps records for 24 hours" in text
    assert "failOnDataLoss" in text
    assert "a new checkpoint location" in text
    running.restart(failOnDataLoss="false")
    assert datas(running) == [b"b"]


def test_p8_a_replay_whose_records_are_gone_stops_the_task(world: World) -> None:
    running = world.query()
    put(world.kinesis, "s", [b"a"], "k")
    start, end = running.plan()
    world.clock.advance(25 * HOUR)
    with pytest.raises(DataLossError, match="has expired"):
        running.read(start, end, is_replay=True)
    put(world.kinesis, "s", [b"b"], "k")
    with pytest.raises(DataLossError, match="has expired"):
        running.read(start, end, is_replay=True)
    running.restart(failOnDataLoss="false")
    assert running.read(start, end, is_replay=True).rows == []


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("position", ["trim_horizon", "latest"])
def test_p8_silence_is_no_loss(world: World, restarts: bool, position: str) -> None:
    """A weekend without a record trims the last one; nothing that followed it is lost."""
    running = world.query(initialPosition=position)
    if position == "latest":
        assert running.next_batch() is not None
    put(world.kinesis, "s", [b"a", b"b", b"c"])
    assert len(datas(running)) == 3
    stored = 0
    for _ in range(40):
        world.clock.advance(HOUR * 3 // 2)
        if restarts:
            running.restart()
        batch = running.next_batch()
        if batch is not None:
            assert batch.rows == []
            stored += 1
    assert 8 <= stored <= 10, "about one batch without rows in six hours"
    put(world.kinesis, "s", [b"d", b"e", b"f"])
    running.restart()
    assert datas(running) == [b"d", b"e", b"f"]


def test_p8_a_shard_that_disappeared_stops_the_query(world: World) -> None:
    running = world.query()
    put(world.kinesis, "s", [b"a", b"b", b"c", b"d"])
    assert len(datas(running)) == 4
    parent = split(world.kinesis, "s")
    world.clock.advance(30 * HOUR)
    put(world.kinesis, "s", [b"e"], "k")
    running.restart()
    timed(running, Time())
    with pytest.raises(DataLossError) as caught:
        running.plan()
    assert parent in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)
    running.restart(failOnDataLoss="false")
    timed(running, Time())
    assert datas(running) == [b"e"]


def test_p8_a_shard_that_goes_while_the_query_that_began_at_the_horizon_stands_still_is_told(
    world: World,
) -> None:
    running = world.query()
    put(world.kinesis, "s", [b"a"], "k")
    running.batch()
    put(world.kinesis, "s", [b"lost"], "k")
    split(world.kinesis, "s", index=0)
    split(world.kinesis, "s", index=2)
    world.clock.advance(50 * HOUR)
    put(world.kinesis, "s", [b"b"], "k")
    with pytest.raises(DataLossError):
        list(running.drain())


def test_p8_what_children_held_when_a_query_stopped_at_the_end_of_their_parent_is_told(
    world: World,
) -> None:
    running = one_shard(world)
    put(world.kinesis, "one", [b"a"], "k")
    parent = split(world.kinesis, "one")
    assert running.batch().datas == [b"a"]
    put(world.kinesis, "one", [b"lost"], "k")
    world.clock.advance(30 * HOUR)
    put(world.kinesis, "one", [b"b"], "k")
    running.restart()
    timed(running, Time())
    with pytest.raises(DataLossError, match=parent):
        running.plan()
    running.restart(failOnDataLoss="false")
    timed(running, Time())
    assert datas(running) == [b"b"]


def test_p8_a_beginning_behind_many_empty_pages_is_found(world: World) -> None:
    """Or the query would have to store a place that has no time."""
    world.server.kinesis.empty_pages = 12
    put(world.kinesis, "s", [b"a"], "k")
    assert world.query().batch().datas == [b"a"]


@pytest.mark.parametrize("looks", ["after a restart", "ten minutes apart"])
def test_p8_a_query_that_looks_seldom_gets_past_many_empty_pages(world: World, looks: str) -> None:
    """Each look has an iterator of its own. In the end its place would seem to have expired."""
    running = world.query(initialPosition="latest")
    assert running.next_batch() is not None
    put(world.kinesis, "s", [b"a"], "k")
    assert datas(running) == [b"a"]
    world.server.kinesis.empty_pages = 12
    put(world.kinesis, "s", [b"b%d" % n for n in range(8)])
    if looks == "after a restart":
        running.restart()
    else:
        world.clock.advance(600_000)
    batch = running.batch()
    assert len({row["shardId"] for row in batch.rows}) == 2, "behind a record, behind an instant"
    assert sorted(batch.datas) == [b"b%d" % n for n in range(8)]


@pytest.mark.parametrize("hours", [24, 72])
def test_p8_a_task_that_sleeps_within_its_range_is_told_what_it_missed(
    world: World, hours: int
) -> None:
    """A new iterator behind its last record would begin with the oldest record kept."""
    if hours > 24:
        world.kinesis.increase_stream_retention_period(StreamName="s", RetentionPeriodHours=hours)
    running = world.query(by="polling", maxRecordsPerFetch="1")
    put(world.kinesis, "s", [b"a", b"b", b"c", b"d"], "k")
    world.clock.advance(20 * HOUR)
    put(world.kinesis, "s", [b"e", b"f"], "k")
    start, end = running.plan()
    running.restart()  # the planner that has the records in hand is gone

    def read() -> Iterator[bytes]:
        (partition,) = running.reader.partitions(start, end)
        rows = (row for batch in running.reader.read(partition) for row in batch.to_pylist())
        for at, row in enumerate(rows):
            yield row["data"]
            if at == 0:
                world.clock.advance(10 * HOUR)

    if hours > 24:
        assert list(read()) == [b"a", b"b", b"c", b"d", b"e", b"f"]
        return
    with pytest.raises(DataLossError, match="has expired"):
        list(read())


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was told of lost records since the last time it was asked."""

    def told() -> list[str]:
        found = [r.getMessage() for r in caplog.records if "Resuming from" in r.getMessage()]
        caplog.clear()
        assert not any("Set the option" in text for text in found), "the query has set the option"
        return found

    return told


def texts(offset: Any) -> dict[str, str]:
    (shards,) = offset.values()
    return dict(shards)


def test_p8_a_replay_of_what_a_new_shard_had_is_told_when_its_first_records_are_gone(
    world: World, warnings: Callable[[], list[str]]
) -> None:
    running = one_shard(world)
    put(world.kinesis, "one", [b"parent"], "k")
    assert datas(running) == [b"parent"]
    split(world.kinesis, "one")
    first = put_at(world.kinesis, "one", b"c1")
    world.clock.advance(20 * HOUR)
    put_at(world.kinesis, "one", b"c2")
    world.clock.advance(1000)
    start, end = running.plan()
    assert running.read(start, end).datas == [b"c1", b"c2"]
    world.clock.advance(5 * HOUR)
    running.restart()
    with pytest.raises(DataLossError) as caught:
        running.read(start, end)
    text = str(caught.value)
    assert first in text
    assert "shardId-000000000001" in text
    assert "stream 'one'" in text
    assert "failOnDataLoss" in text
    running.restart(failOnDataLoss="false")
    assert running.read(start, end).datas == [b"c2"]
    (told,) = warnings()
    assert first in told


@pytest.mark.parametrize("position", ["trim_horizon", "2026-09-20T00:00:00Z"])
def test_p8_a_first_batch_of_one_record_is_owed_as_well(
    world: World, warnings: Callable[[], list[str]], position: str
) -> None:
    """Its first record is its end. At an instant that is kept, only the plan tells of it."""
    running = one_shard(world, 72, initialPosition=position)
    put(world.kinesis, "one", [b"a"], "k")
    start, end = running.plan()
    keep_for(world, 24)
    world.clock.advance(25 * HOUR)
    keep_for(world, 72)
    with pytest.raises(DataLossError, match="shardId-000000000000"):
        running.read(start, end, is_replay=True)
    running.restart(failOnDataLoss="false")
    assert running.read(start, end).rows == []
    assert len(warnings()) == 1


def test_p8_a_batch_that_was_planned_ahead_is_owed_from_its_first_record_on(world: World) -> None:
    running = one_shard(world, maxRecordsPerTrigger="2")
    put(world.kinesis, "one", [b"a", b"b"], "k")
    split(world.kinesis, "one")
    for number in range(12):
        put_at(world.kinesis, "one", b"%d" % number, (2**128 - 1) * (number % 2))
        world.clock.advance(HOUR)
    assert running.batch().datas == [b"a", b"b"]
    assert running.reader._planner is not None
    assert running.reader._planner._ahead is not None
    world.clock.advance(1000)
    start, end = running.plan()
    assert [text.count("^") for text in texts(end).values()] == [1, 1]
    world.clock.advance(13 * HOUR)
    with pytest.raises(DataLossError, match="was removed before the batch was read"):
        running.read(start, end, is_replay=True)


def test_p8_an_offset_does_not_grow_for_the_shards_that_its_start_lists(world: World) -> None:
    running = one_shard(world)
    put(world.kinesis, "one", [b"a"], "k")
    first = running.batch()
    assert "^" in texts(first.end)["shardId-000000000000"]
    split(world.kinesis, "one")
    put_at(world.kinesis, "one", b"b", 0)
    put_at(world.kinesis, "one", b"c", 2**128 - 1)
    world.clock.advance(1000)
    children = running.batch()
    assert all(text.count("^") == 1 for text in texts(children.end).values())
    put_at(world.kinesis, "one", b"d", 0)
    world.clock.advance(1000)
    last = running.batch()
    assert last.datas == [b"d"]
    assert all("^" not in text for text in texts(last.end).values()), "of quiet shards, too"


@pytest.mark.parametrize("position", ["trim_horizon", "latest"])
def test_p8_a_batch_that_an_older_version_planned_is_read_as_ever(
    world: World, position: str
) -> None:
    running = one_shard(world, initialPosition=position)
    if position == "latest":
        assert running.next_batch() is not None
    for data in (b"a", b"b"):
        put(world.kinesis, "one", [data], "k")
        world.clock.advance((20 if position == "trim_horizon" else 2) * HOUR)
        start, end = running.plan()
    old = {"one": {shard: re.sub("[~^][0-9]+", "", text) for shard, text in texts(end).items()}}
    assert old != end
    if position == "trim_horizon":
        # Such an offset tells nothing of its first record.
        assert running.read(start, old).datas == [b"b"]
    running.checkpoint = old
    put(world.kinesis, "one", [b"c"], "k")
    running.restart()
    assert datas(running) == [b"c"]


def test_p8_a_retention_period_that_was_shorter_for_a_while_is_noticed(world: World) -> None:
    running = one_shard(world, 72)
    put(world.kinesis, "one", [b"a"], "k")
    assert datas(running) == [b"a"]
    world.clock.advance(1 * HOUR)
    put(world.kinesis, "one", [b"lost"], "k")
    world.clock.advance(29 * HOUR)
    keep_for_a_day_meanwhile(world)
    put(world.kinesis, "one", [b"b"], "k")
    running.restart()
    with pytest.raises(DataLossError) as caught:
        running.plan()
    text = str(caught.value)
    assert "72 hours now, but kept them for a shorter time before" in text
    assert "shardId-000000000000" in text
    assert "failOnDataLoss" in text
    running.restart(failOnDataLoss="false")
    assert datas(running) == [b"b"]


def make_anew(world: World, datas: list[bytes]) -> None:
    """Delete the stream, and create another one of its name, which holds these records."""
    world.kinesis.delete_stream(StreamName="s", EnforceConsumerDeletion=True)
    world.clock.advance(10 * 60_000)
    world.kinesis.create_stream(StreamName="s", ShardCount=2)
    put(world.kinesis, "s", datas)
    world.clock.advance(1000)


def test_p8_a_stream_created_anew_is_noticed_where_the_query_stands_at_an_instant(
    world: World, warnings: Callable[[], list[str]]
) -> None:
    running = world.query(initialPosition="latest", by="polling")
    assert running.next_batch() is not None
    put(world.kinesis, "s", [b"lost"], "k")
    make_anew(world, [b"a", b"b", b"c", b"d"])
    running.restart()
    with pytest.raises(DataLossError) as caught:
        running.plan()
    text = str(caught.value)
    assert "belongs to a deleted stream of the same name" in text
    assert "shardId-000000000000 at AT_TIMESTAMP:1790000000000" in text
    assert "failOnDataLoss" in text
    assert "a new checkpoint location" in text
    running.restart(failOnDataLoss="false")
    assert datas(running) == [b"a", b"b", b"c", b"d"]
    assert len(warnings()) == 1
    put(world.kinesis, "s", [b"e"])
    running.restart(failOnDataLoss="true")
    assert datas(running) == [b"e"]


def test_p8_a_stream_created_anew_while_the_query_rests_is_noticed(world: World) -> None:
    """As a laptop that was shut: the query goes on with what it knows, without a start."""
    time = Time()
    running = timed(world.query(initialPosition="latest", by="polling"), time)
    assert running.next_batch() is not None
    put(world.kinesis, "s", [b"lost"], "k")
    make_anew(world, [b"a", b"b", b"c", b"d"])
    time.now += 601.0
    with pytest.raises(DataLossError, match="belongs to a deleted stream of the same name"):
        running.plan()


def test_p8_a_replay_on_a_stream_created_anew_is_noticed(world: World) -> None:
    running = world.query(initialPosition="latest", by="polling")
    assert running.next_batch() is not None
    put(world.kinesis, "s", [b"lost"], "k")
    world.clock.advance(1000)
    start, end = running.plan()
    make_anew(world, [b"a", b"b", b"c", b"d"])
    running.restart()
    with pytest.raises(DataLossError, match="shardId-00000000000"):
        running.read(start, end)


@pytest.mark.parametrize("position", ["trim_horizon", "latest", "2020-01-01T00:00:00Z"])
def test_p8_a_young_stream_is_no_other(world: World, position: str) -> None:
    """A query may begin before its stream was created, and be started again at once."""
    running = world.query(initialPosition=position)
    assert running.next_batch() is not None
    running.restart()
    assert running.next_batch() is None
    put(world.kinesis, "s", [b"a"], "k")
    world.clock.advance(1000)
    running.restart()
    assert datas(running) == [b"a"]


def test_p8_to_know_the_stream_costs_one_call_for_each_start_of_a_query(world: World) -> None:
    running = world.query(by="polling")

    def described() -> int:
        return len(list(world.server.kinesis.calls.select("DescribeStreamSummary")))

    def reads(data: bytes) -> None:
        put(world.kinesis, "s", [data], "k")
        world.clock.advance(1000)
        assert datas(running) == [data]

    before = described()
    reads(b"first")
    assert described() == before, "nothing is stored that could be of another stream"
    for restart in range(1, 4):
        running.restart()
        for number in range(3):
            reads(b"%d-%d" % (restart, number))
        assert described() == before + restart


@pytest.mark.parametrize("has_older", [False, True])
def test_p8_where_nothing_shows_whether_retention_was_shorter_a_warning_says_so(
    world: World, warnings: Callable[[], list[str]], has_older: bool
) -> None:
    """An older record in the shard shows that all is kept since."""
    running = one_shard(world, 72, initialPosition="latest")
    if has_older:
        put(world.kinesis, "one", [b"older"], "k")
        world.clock.advance(1 * HOUR)
    assert running.next_batch() is not None
    put(world.kinesis, "one", [b"a"], "k")
    world.clock.advance(30 * HOUR)
    if not has_older:
        keep_for_a_day_meanwhile(world)
    put(world.kinesis, "one", [b"b"], "k")
    running.restart()
    assert datas(running) == ([b"a", b"b"] if has_older else [b"b"])
    told = warnings()
    assert len(told) == (0 if has_older else 1)
    assert all("nothing shows whether it was" in text for text in told)
    assert all("in shard shardId-000000000000 of stream 'one'" in text for text in told)


def test_p8_no_place_of_a_deleted_stream_stays_in_an_offset(world: World) -> None:
    """The end of a shard has no time, and is of the deleted stream all the same."""
    ends = {0: b"left", 2**128 - 1: b"right"}
    running = world.query()
    for hash_key, data in ends.items():
        put_at(world.kinesis, "s", data, hash_key)
    world.clock.advance(1000)
    assert datas(running) == [b"left", b"right"]
    put_at(world.kinesis, "s", b"more", 2**128 - 1)
    world.clock.advance(1000)
    merge_neighbours(world.kinesis, "s")
    timed(running, Time())
    assert running.next_batch() is not None
    assert "SHARD_END" in str(running.plan()[0]), "one parent waits for the other"
    make_anew(world, [])
    for hash_key, data in ends.items():
        put_at(world.kinesis, "s", data, hash_key)
    world.clock.advance(1000)
    running.restart(failOnDataLoss="false")
    timed(running, Time())
    assert datas(running) == [b"left", b"right"]


def test_p8_a_plan_that_was_not_stored_notices_the_deleted_stream_again(world: World) -> None:
    running = world.query()
    put(world.kinesis, "s", [b"a", b"b", b"c", b"d"])
    assert len(datas(running)) == 4
    make_anew(world, [b"e", b"f", b"g", b"h"])
    running.restart()
    with pytest.raises(DataLossError, match="failOnDataLoss"):
        running.plan()
    running.restart(failOnDataLoss="false")
    timed(running, Time())
    assert running.plan() == running.plan()
    assert datas(running) == [b"e", b"f", b"g", b"h"]

"""P8: data loss is loud: it names shard, position and the option that goes on; and only loss is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkinesis.errors import DataLossError
from sparkinesis.local import LocalServer, ManualClock
from tests.engine import MODES, Query
from tests.planners import Time, timed
from tests.streams import merge_neighbours, put, put_at, split

pytestmark = pytest.mark.parametrize("mode", MODES)

HOUR = 3_600_000


def datas(query: Query) -> list[bytes]:
    return sorted(row["data"] for batch in query.drain() for row in batch.rows)


def test_p8_a_position_that_retention_has_trimmed_stops_the_query(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    running = query()
    put(kinesis, "s", [b"a"], "k")
    assert datas(running) == [b"a"]
    clock.advance(1 * HOUR)
    put(kinesis, "s", [b"lost"], "k")
    clock.advance(25 * HOUR)
    put(kinesis, "s", [b"b"], "k")
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


def test_p8_a_replay_whose_records_are_gone_stops_the_task(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    running = query()
    put(kinesis, "s", [b"a"], "k")
    start, end = running.plan()
    clock.advance(25 * HOUR)
    with pytest.raises(DataLossError, match="has expired"):
        running.read(start, end)
    put(kinesis, "s", [b"b"], "k")
    with pytest.raises(DataLossError, match="has expired"):
        running.read(start, end)
    running.restart(failOnDataLoss="false")
    assert running.read(start, end).rows == []


def test_p8_the_durable_form_of_latest_expires_too(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    running = query(initialPosition="latest")
    assert running.next_batch() is not None
    put(kinesis, "s", [b"lost"], "k")
    clock.advance(30 * HOUR)
    put(kinesis, "s", [b"b"], "k")
    running.restart()
    with pytest.raises(DataLossError, match="AT_TIMESTAMP"):
        running.plan()


def test_p8_a_longer_retention_period_is_believed(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    kinesis.increase_stream_retention_period(StreamName="s", RetentionPeriodHours=72)
    running = query(initialPosition="latest")
    assert running.next_batch() is not None
    put(kinesis, "s", [b"a"], "k")
    clock.advance(30 * HOUR)
    running.restart()
    assert datas(running) == [b"a"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("position", ["trim_horizon", "latest"])
def test_p8_silence_is_no_loss(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query], restarts: bool, position: str
) -> None:
    """A weekend without a record trims the last one; nothing that followed it is lost."""
    running = query(initialPosition=position)
    if position == "latest":
        assert running.next_batch() is not None
    put(kinesis, "s", [b"a", b"b", b"c"])
    assert len(datas(running)) == 3
    stored = 0
    for _ in range(40):
        clock.advance(HOUR * 3 // 2)
        if restarts:
            running.restart()
        batch = running.next_batch()
        if batch is not None:
            assert batch.rows == []
            stored += 1
    assert 8 <= stored <= 10, "about one batch without rows in six hours"
    put(kinesis, "s", [b"d", b"e", b"f"])
    running.restart()
    assert datas(running) == [b"d", b"e", b"f"]


def test_p8_an_initial_instant_before_the_oldest_record_is_no_loss(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    put(kinesis, "s", [b"a"])
    running = query(initialPosition="2020-01-01T00:00:00Z")
    assert datas(running) == [b"a"]


def test_p8_a_shard_that_disappeared_stops_the_query(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    running = query()
    put(kinesis, "s", [b"a", b"b", b"c", b"d"])
    assert len(datas(running)) == 4
    parent = split(kinesis, "s")
    clock.advance(30 * HOUR)
    put(kinesis, "s", [b"e"], "k")
    running.restart()
    timed(running, Time())
    with pytest.raises(DataLossError) as caught:
        running.plan()
    assert parent in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)
    running.restart(failOnDataLoss="false")
    timed(running, Time())
    assert datas(running) == [b"e"]


def test_p8_a_stream_created_anew_under_the_old_name_is_noticed(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    running = query()
    put(kinesis, "s", [b"a", b"b", b"c", b"d"])
    assert len(datas(running)) == 4
    kinesis.delete_stream(StreamName="s", EnforceConsumerDeletion=True)
    clock.advance(60_000)
    kinesis.create_stream(StreamName="s", ShardCount=2)
    put(kinesis, "s", [b"e", b"f", b"g", b"h"])
    running.restart()
    with pytest.raises(DataLossError, match="failOnDataLoss"):
        running.plan()
    running.restart(failOnDataLoss="false")
    assert datas(running) == [b"e", b"f", b"g", b"h"]


def test_p8_what_was_lost_is_told_also_while_a_shard_is_empty(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    kinesis.create_stream(StreamName="one", ShardCount=1)
    running = query(streamName="one")
    put(kinesis, "one", [b"a"], "k")
    assert datas(running) == [b"a"]
    clock.advance(1 * HOUR)
    put(kinesis, "one", [b"lost"], "k")
    clock.advance(40 * HOUR)
    running.restart()
    with pytest.raises(DataLossError, match="has expired"):
        running.next_batch()
    running.restart(failOnDataLoss="false")
    running.next_batch()
    put(kinesis, "one", [b"b"], "k")
    running.restart(failOnDataLoss="true")
    assert datas(running) == [b"b"]


def test_p8_a_shard_that_goes_while_the_query_that_began_at_the_horizon_stands_still_is_told(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    running = query()
    put(kinesis, "s", [b"a"], "k")
    batch = running.next_batch()
    assert batch is not None
    put(kinesis, "s", [b"lost"], "k")
    split(kinesis, "s", index=0)
    split(kinesis, "s", index=2)
    clock.advance(50 * HOUR)
    put(kinesis, "s", [b"b"], "k")
    with pytest.raises(DataLossError):
        list(running.drain())


@pytest.mark.parametrize("position", ["trim_horizon", "2020-01-01T00:00:00Z"])
def test_p8_what_came_after_a_look_at_an_empty_stream_is_not_lost_in_silence(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query], position: str
) -> None:
    running = query(initialPosition=position)
    batch = running.next_batch()
    assert batch is not None
    assert batch.rows == []
    assert running.next_batch() is None
    put(kinesis, "s", [b"lost"], "k")
    clock.advance(30 * HOUR)
    put(kinesis, "s", [b"b"], "k")
    running.restart()
    with pytest.raises(DataLossError, match="has expired"):
        running.plan()
    running.restart(failOnDataLoss="false")
    assert datas(running) == [b"b"]


def test_p8_what_children_held_when_a_query_stopped_at_the_end_of_their_parent_is_told(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    kinesis.create_stream(StreamName="one", ShardCount=1)
    running = query(streamName="one")
    put(kinesis, "one", [b"a"], "k")
    parent = split(kinesis, "one")
    batch = running.next_batch()
    assert batch is not None
    assert [row["data"] for row in batch.rows] == [b"a"]
    put(kinesis, "one", [b"lost"], "k")
    clock.advance(30 * HOUR)
    put(kinesis, "one", [b"b"], "k")
    running.restart()
    timed(running, Time())
    with pytest.raises(DataLossError, match=parent):
        running.plan()
    running.restart(failOnDataLoss="false")
    timed(running, Time())
    assert datas(running) == [b"b"]


def test_p8_what_a_query_that_stood_still_has_missed_is_told_without_anything_following(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    running = query()
    put(kinesis, "s", [b"a"], "k")
    assert datas(running) == [b"a"]
    put(kinesis, "s", [b"lost"], "k")
    clock.advance(30 * HOUR)
    with pytest.raises(DataLossError, match="has expired"):
        running.plan()


def test_p8_a_beginning_behind_many_empty_pages_is_found(
    kinesis: Any, server: LocalServer, query: Callable[..., Query]
) -> None:
    """Or the query would have to store a place that has no time."""
    server.kinesis.empty_pages = 12
    put(kinesis, "s", [b"a"], "k")
    batch = query().next_batch()
    assert batch is not None
    assert [row["data"] for row in batch.rows] == [b"a"]


@pytest.mark.parametrize("looks", ["after a restart", "ten minutes apart"])
def test_p8_a_query_that_looks_seldom_gets_past_many_empty_pages(
    server: LocalServer,
    kinesis: Any,
    clock: ManualClock,
    query: Callable[..., Query],
    looks: str,
) -> None:
    """Each look has an iterator of its own. In the end its place would seem to have expired."""
    running = query(initialPosition="latest")
    assert running.next_batch() is not None
    put(kinesis, "s", [b"a"], "k")
    assert datas(running) == [b"a"]
    server.kinesis.empty_pages = 12
    put(kinesis, "s", [b"b%d" % n for n in range(8)])
    if looks == "after a restart":
        running.restart()
    else:
        clock.advance(600_000)
    batch = running.next_batch()
    assert batch is not None
    assert len({row["shardId"] for row in batch.rows}) == 2, "behind a record, behind an instant"
    assert sorted(row["data"] for row in batch.rows) == [b"b%d" % n for n in range(8)]


@pytest.mark.parametrize("hours", [24, 72])
def test_p8_a_task_that_sleeps_within_its_range_is_told_what_it_missed(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query], hours: int
) -> None:
    """A new iterator behind its last record would begin with the oldest record kept."""
    if hours > 24:
        kinesis.increase_stream_retention_period(StreamName="s", RetentionPeriodHours=hours)
    running = query(by="polling", maxRecordsPerFetch="1")
    put(kinesis, "s", [b"a", b"b", b"c", b"d"], "k")
    clock.advance(20 * HOUR)
    put(kinesis, "s", [b"e", b"f"], "k")
    start, end = running.plan()

    def read() -> Iterator[bytes]:
        (partition,) = running.reader.partitions(start, end)
        rows = (row for batch in running.reader.read(partition) for row in batch.to_pylist())
        for at, row in enumerate(rows):
            yield row["data"]
            if at == 0:
                clock.advance(10 * HOUR)

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


def one_shard(kinesis: Any, query: Callable[..., Query], **options: str) -> Query:
    kinesis.create_stream(StreamName="one", ShardCount=1)
    return query(streamName="one", **options)


def texts(offset: Any) -> dict[str, str]:
    (shards,) = offset.values()
    return dict(shards)


def test_p8_a_replay_of_what_a_new_shard_had_is_told_when_its_first_records_are_gone(
    kinesis: Any,
    clock: ManualClock,
    query: Callable[..., Query],
    warnings: Callable[[], list[str]],
) -> None:
    running = one_shard(kinesis, query)
    put(kinesis, "one", [b"parent"], "k")
    assert datas(running) == [b"parent"]
    split(kinesis, "one")
    first = put_at(kinesis, "one", b"c1")
    clock.advance(20 * HOUR)
    put_at(kinesis, "one", b"c2")
    clock.advance(1000)
    start, end = running.plan()
    assert [row["data"] for row in running.read(start, end).rows] == [b"c1", b"c2"]
    clock.advance(5 * HOUR)
    running.restart()
    with pytest.raises(DataLossError) as caught:
        running.read(start, end)
    text = str(caught.value)
    assert first in text
    assert "shardId-000000000001" in text
    assert "stream 'one'" in text
    assert "failOnDataLoss" in text
    running.restart(failOnDataLoss="false")
    assert [row["data"] for row in running.read(start, end).rows] == [b"c2"]
    (told,) = warnings()
    assert first in told


@pytest.mark.parametrize("position", ["trim_horizon", "2026-09-21T00:00:00Z"])
def test_p8_what_the_first_plan_saw_is_owed_to_a_replay_and_what_expired_before_is_not(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query], position: str
) -> None:
    running = one_shard(kinesis, query, initialPosition=position)
    put(kinesis, "one", [b"gone before"], "k")
    clock.advance(25 * HOUR)
    put(kinesis, "one", [b"a"], "k")
    clock.advance(20 * HOUR)
    put(kinesis, "one", [b"b"], "k")
    clock.advance(1000)
    start, end = running.plan()
    running.restart()
    assert [row["data"] for row in running.read(start, end).rows] == [b"a", b"b"]
    clock.advance(5 * HOUR)
    with pytest.raises(DataLossError, match="was removed before the batch was read"):
        running.read(start, end)


@pytest.mark.parametrize("position", ["trim_horizon", "2026-09-20T00:00:00Z"])
def test_p8_a_first_batch_of_one_record_is_owed_as_well(
    kinesis: Any,
    clock: ManualClock,
    query: Callable[..., Query],
    warnings: Callable[[], list[str]],
    position: str,
) -> None:
    """Its first record is its end. At an instant that is kept, only the plan tells of it."""
    kinesis.create_stream(StreamName="one", ShardCount=1)
    kinesis.increase_stream_retention_period(StreamName="one", RetentionPeriodHours=72)
    running = query(streamName="one", initialPosition=position)
    put(kinesis, "one", [b"a"], "k")
    start, end = running.plan()
    kinesis.decrease_stream_retention_period(StreamName="one", RetentionPeriodHours=24)
    clock.advance(25 * HOUR)
    kinesis.increase_stream_retention_period(StreamName="one", RetentionPeriodHours=72)
    with pytest.raises(DataLossError, match="shardId-000000000000"):
        running.read(start, end)
    running.restart(failOnDataLoss="false")
    assert running.read(start, end).rows == []
    assert len(warnings()) == 1


def test_p8_a_batch_that_was_planned_in_several_looks_is_owed_from_its_first_record_on(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    """What one shard leaves of the limit goes to the other, in another look behind the first."""
    for number in range(12):
        put_at(kinesis, "s", b"%d" % number, 0)
        clock.advance(HOUR)
    put_at(kinesis, "s", b"other", 2**128 - 1)
    running = query(maxRecordsPerTrigger="8")
    start, end = running.plan()
    assert len(running.read(start, end).rows) == 8
    clock.advance(13 * HOUR)
    with pytest.raises(DataLossError, match="was removed before the batch was read"):
        running.read(start, end)


def test_p8_a_batch_that_was_planned_ahead_is_owed_from_its_first_record_on(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    running = one_shard(kinesis, query, maxRecordsPerTrigger="2")
    put(kinesis, "one", [b"a", b"b"], "k")
    split(kinesis, "one")
    for number in range(12):
        put_at(kinesis, "one", b"%d" % number, (2**128 - 1) * (number % 2))
        clock.advance(HOUR)
    batch = running.next_batch()
    assert batch is not None
    assert [row["data"] for row in batch.rows] == [b"a", b"b"]
    assert running.reader._planner is not None
    assert running.reader._planner._ahead is not None
    clock.advance(1000)
    start, end = running.plan()
    assert [text.count("^") for text in texts(end).values()] == [1, 1]
    clock.advance(13 * HOUR)
    with pytest.raises(DataLossError, match="was removed before the batch was read"):
        running.read(start, end)


def test_p8_an_offset_does_not_grow_for_the_shards_that_its_start_lists(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    running = one_shard(kinesis, query)
    put(kinesis, "one", [b"a"], "k")
    first = running.next_batch()
    assert first is not None
    assert "^" in texts(first.end)["shardId-000000000000"]
    split(kinesis, "one")
    put_at(kinesis, "one", b"b", 0)
    put_at(kinesis, "one", b"c", 2**128 - 1)
    clock.advance(1000)
    children = running.next_batch()
    assert children is not None
    assert all(text.count("^") == 1 for text in texts(children.end).values())
    put_at(kinesis, "one", b"d", 0)
    clock.advance(1000)
    last = running.next_batch()
    assert last is not None
    assert [row["data"] for row in last.rows] == [b"d"]
    assert all("^" not in text for text in texts(last.end).values()), "of quiet shards, too"


@pytest.mark.parametrize("position", ["trim_horizon", "latest"])
def test_p8_a_batch_that_an_older_version_planned_is_read_as_ever(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query], position: str
) -> None:
    running = one_shard(kinesis, query, initialPosition=position)
    if position == "latest":
        assert running.next_batch() is not None
    for data in (b"a", b"b"):
        put(kinesis, "one", [data], "k")
        clock.advance((20 if position == "trim_horizon" else 2) * HOUR)
        start, end = running.plan()
    old = {"one": {shard: re.sub("[~^][0-9]+", "", text) for shard, text in texts(end).items()}}
    assert old != end
    if position == "trim_horizon":
        # Such an offset tells nothing of its first record.
        assert [row["data"] for row in running.read(start, old).rows] == [b"b"]
    running.checkpoint = old
    put(kinesis, "one", [b"c"], "k")
    running.restart()
    assert datas(running) == [b"c"]


def test_p8_a_retention_period_that_was_shorter_for_a_while_is_noticed(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    kinesis.create_stream(StreamName="one", ShardCount=1)
    kinesis.increase_stream_retention_period(StreamName="one", RetentionPeriodHours=72)
    running = query(streamName="one")
    put(kinesis, "one", [b"a"], "k")
    assert datas(running) == [b"a"]
    clock.advance(1 * HOUR)
    put(kinesis, "one", [b"lost"], "k")
    clock.advance(29 * HOUR)
    kinesis.decrease_stream_retention_period(StreamName="one", RetentionPeriodHours=24)
    kinesis.increase_stream_retention_period(StreamName="one", RetentionPeriodHours=72)
    put(kinesis, "one", [b"b"], "k")
    running.restart()
    with pytest.raises(DataLossError) as caught:
        running.plan()
    text = str(caught.value)
    assert "72 hours now, but kept them for a shorter time before" in text
    assert "shardId-000000000000" in text
    assert "failOnDataLoss" in text
    running.restart(failOnDataLoss="false")
    assert datas(running) == [b"b"]


def test_p8_a_shorter_retention_period_that_removed_only_what_was_read_is_no_loss(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    kinesis.create_stream(StreamName="one", ShardCount=1)
    kinesis.increase_stream_retention_period(StreamName="one", RetentionPeriodHours=72)
    running = query(streamName="one")
    put(kinesis, "one", [b"a"], "k")
    assert datas(running) == [b"a"]
    clock.advance(10 * HOUR)
    assert running.next_batch() is not None, "silence is stored"
    clock.advance(16 * HOUR)
    kinesis.decrease_stream_retention_period(StreamName="one", RetentionPeriodHours=24)
    kinesis.increase_stream_retention_period(StreamName="one", RetentionPeriodHours=72)
    put(kinesis, "one", [b"b"], "k")
    running.restart()
    assert datas(running) == [b"b"]


def recreated(kinesis: Any, clock: ManualClock, after_ms: int = 10 * 60_000) -> None:
    kinesis.delete_stream(StreamName="s", EnforceConsumerDeletion=True)
    clock.advance(after_ms)
    kinesis.create_stream(StreamName="s", ShardCount=2)


def test_p8_a_stream_created_anew_is_noticed_where_the_query_stands_at_an_instant(
    kinesis: Any,
    clock: ManualClock,
    query: Callable[..., Query],
    warnings: Callable[[], list[str]],
) -> None:
    running = query(initialPosition="latest", by="polling")
    assert running.next_batch() is not None
    put(kinesis, "s", [b"lost"], "k")
    recreated(kinesis, clock)
    put(kinesis, "s", [b"a", b"b", b"c", b"d"])
    clock.advance(1000)
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
    put(kinesis, "s", [b"e"])
    running.restart(failOnDataLoss="true")
    assert datas(running) == [b"e"]


def test_p8_a_stream_created_anew_while_the_query_rests_is_noticed(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    """As a laptop that was shut: the query goes on with what it knows, without a start."""
    time = Time()
    running = timed(query(initialPosition="latest", by="polling"), time)
    assert running.next_batch() is not None
    put(kinesis, "s", [b"lost"], "k")
    recreated(kinesis, clock)
    put(kinesis, "s", [b"a", b"b", b"c", b"d"])
    clock.advance(1000)
    time.now += 601.0
    with pytest.raises(DataLossError, match="belongs to a deleted stream of the same name"):
        running.plan()


def test_p8_a_replay_on_a_stream_created_anew_is_noticed(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    running = query(initialPosition="latest", by="polling")
    assert running.next_batch() is not None
    put(kinesis, "s", [b"lost"], "k")
    clock.advance(1000)
    start, end = running.plan()
    recreated(kinesis, clock)
    put(kinesis, "s", [b"a", b"b", b"c", b"d"])
    running.restart()
    with pytest.raises(DataLossError, match="shardId-00000000000"):
        running.read(start, end)


@pytest.mark.parametrize("position", ["trim_horizon", "latest", "2020-01-01T00:00:00Z"])
def test_p8_a_young_stream_is_no_other(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query], position: str
) -> None:
    """A query may begin before its stream was created, and be started again at once."""
    running = query(initialPosition=position)
    assert running.next_batch() is not None
    running.restart()
    assert running.next_batch() is None
    put(kinesis, "s", [b"a"], "k")
    clock.advance(1000)
    running.restart()
    assert datas(running) == [b"a"]


def test_p8_to_know_the_stream_costs_one_call_for_each_start_of_a_query(
    kinesis: Any, server: LocalServer, clock: ManualClock, query: Callable[..., Query]
) -> None:
    running = query(by="polling")

    def described() -> int:
        return len(list(server.kinesis.calls.select("DescribeStreamSummary")))

    def reads(data: bytes) -> None:
        put(kinesis, "s", [data], "k")
        clock.advance(1000)
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
    kinesis: Any,
    clock: ManualClock,
    query: Callable[..., Query],
    warnings: Callable[[], list[str]],
    has_older: bool,
) -> None:
    """An older record in the shard shows that all is kept since."""
    kinesis.create_stream(StreamName="one", ShardCount=1)
    kinesis.increase_stream_retention_period(StreamName="one", RetentionPeriodHours=72)
    if has_older:
        put(kinesis, "one", [b"older"], "k")
        clock.advance(1 * HOUR)
    running = query(streamName="one", initialPosition="latest")
    assert running.next_batch() is not None
    put(kinesis, "one", [b"a"], "k")
    clock.advance(30 * HOUR)
    if not has_older:
        kinesis.decrease_stream_retention_period(StreamName="one", RetentionPeriodHours=24)
        kinesis.increase_stream_retention_period(StreamName="one", RetentionPeriodHours=72)
    put(kinesis, "one", [b"b"], "k")
    running.restart()
    assert datas(running) == ([b"a", b"b"] if has_older else [b"b"])
    told = warnings()
    assert len(told) == (0 if has_older else 1)
    assert all("nothing shows whether it was" in text for text in told)
    assert all("in shard shardId-000000000000 of stream 'one'" in text for text in told)


def test_p8_no_place_of_a_deleted_stream_stays_in_an_offset(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    """The end of a shard has no time, and is of the deleted stream all the same."""
    ends = {0: b"left", 2**128 - 1: b"right"}
    running = query()
    for hash_key, data in ends.items():
        put_at(kinesis, "s", data, hash_key)
    clock.advance(1000)
    assert datas(running) == [b"left", b"right"]
    put_at(kinesis, "s", b"more", 2**128 - 1)
    clock.advance(1000)
    merge_neighbours(kinesis, "s")
    timed(running, Time())
    assert running.next_batch() is not None
    assert "SHARD_END" in str(running.plan()[0]), "one parent waits for the other"
    recreated(kinesis, clock)
    for hash_key, data in ends.items():
        put_at(kinesis, "s", data, hash_key)
    clock.advance(1000)
    running.restart(failOnDataLoss="false")
    timed(running, Time())
    assert datas(running) == [b"left", b"right"]


def test_p8_a_plan_that_was_not_stored_notices_the_deleted_stream_again(
    kinesis: Any, clock: ManualClock, query: Callable[..., Query]
) -> None:
    running = query()
    put(kinesis, "s", [b"a", b"b", b"c", b"d"])
    assert len(datas(running)) == 4
    recreated(kinesis, clock)
    put(kinesis, "s", [b"e", b"f", b"g", b"h"])
    clock.advance(1000)
    running.restart(failOnDataLoss="false")
    timed(running, Time())
    assert running.plan() == running.plan()
    assert datas(running) == [b"e", b"f", b"g", b"h"]

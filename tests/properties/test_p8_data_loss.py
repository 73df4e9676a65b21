"""P8: data loss is loud: it names shard, position and the option that goes on; and only loss is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis.errors import DataLossError
from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.source.planner import SourcePlanner
from tests.engine import MODES, Query
from tests.streams import put, split

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
    for _ in range(60):
        clock.advance(1 * HOUR)
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


def without_pauses(running: Query) -> None:
    running.reader._planner = SourcePlanner(running.reader._options, sleep=lambda _: None)


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
    without_pauses(running)
    with pytest.raises(DataLossError) as caught:
        running.plan()
    assert parent in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)
    running.restart(failOnDataLoss="false")
    without_pauses(running)
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
    without_pauses(running)
    with pytest.raises(DataLossError, match=parent):
        running.plan()
    running.restart(failOnDataLoss="false")
    without_pauses(running)
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

"""Servers that answer otherwise than the service, where its reference permits that or not.

The ends of shards name no children, iterators and subscriptions begin too early, and answers of
open shards look like the last ones of closed ones.
"""

from __future__ import annotations

import random
from datetime import datetime, timezone
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from sparkinesis.errors import ServiceError
from sparkinesis.local import Fault, LocalServer, ManualClock
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.source.planning.stream_planner import StreamPlanner
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.page import Fetched
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord
from sparkinesis.stream.reading.shard_end import WARN_AFTER
from sparkinesis.stream.shard import Shard
from tests.engine import MODES
from tests.planners import Time, next_end, stream_planner
from tests.properties.conftest import World
from tests.streams import merge_neighbours, put, put_at, split

ODD = Fault(omit=frozenset({"ChildShards"}), begins_early=3)
LIKE_ENDS = Fault(
    omit=frozenset({"ChildShards", "NextShardIterator", "ContinuationSequenceNumber"})
)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("begin", ["trim_horizon", "instant"])
@pytest.mark.parametrize("fault", [ODD, LIKE_ENDS], ids=["odd", "like ends"])
def test_each_row_is_read_once(world: World, begin: str, fault: Fault) -> None:
    rng = random.Random(1)
    put(world.kinesis, "s", [b"old %d" % n for n in range(20)])
    world.clock.advance(60_000)
    since = world.clock()
    # A stream whose answers all lack the iterator has ended.
    world.server.kinesis.faults = lambda call: fault if fault is ODD or call.ordinal % 2 else None
    expected = [b"new %02d" % n for n in range(60)]
    if begin == "instant":
        begin = datetime.fromtimestamp(since / 1000, timezone.utc).isoformat()
    else:
        expected = [*(b"old %d" % n for n in range(20)), *expected]
    running = world.query(initialPosition=begin)
    rows: list[bytes] = []
    for step in range(6):
        put(world.kinesis, "s", [b"new %02d" % n for n in range(10 * step, 10 * step + 10)])
        world.clock.advance(10_000)
        rows += running.rest()
        (split, merge_neighbours)[step % 2](world.kinesis, "s", rng)
        # A listing is due: those of real time are five seconds apart.
        running.restart()
    rows += running.rest()
    assert sorted(rows) == sorted(expected)


class Lagging(StreamClient):
    """Lists the shards of ``before`` until an instant."""

    def __init__(self, address: StreamAddress, time: Time, before: list[Shard], until: float):
        super().__init__(address)
        self._listed_before = (time, before, until)

    def list_shards(self, *given: Any, **named: Any) -> Any:
        time, before, until = self._listed_before
        shards, now_ms = super().list_shards(*given, **named)
        return (before if time.now < until else shards), now_ms


def ended_without_children(
    kinesis: Any, server: LocalServer, clock: ManualClock, *, until: float, is_batch_read: bool
) -> tuple[StreamPlanner, Time, list[str]]:
    """A planner that ends at present; the records of a split shard and of its first child."""
    first = put_at(kinesis, "s", b"1", 0)
    address = StreamAddress("s", None, "us-east-1", server.endpoint_url)
    before, _ = StreamClient(address).list_shards()
    kinesis.split_shard(StreamName="s", ShardToSplit=before[0].id, NewStartingHashKey=str(2**126))
    second = put_at(kinesis, "s", b"2", 0)
    clock.advance(5_000)
    server.kinesis.faults = lambda call: ODD
    time = Time()
    planner = stream_planner(
        Lagging(address, time, before, until),
        is_batch_read=is_batch_read,
        timing=time.timing,
    )
    planner.stop_at_present()
    return planner, time, [first, second]


def ends_of(planner: StreamPlanner, at: Positions) -> list[str]:
    """The sequence numbers at which the planner's batches end, until there is none any more."""
    ends: list[str] = []
    while (following := next_end(planner, at)) is not at:
        at = following
        ends += [one.sequence_number for one in at.values() if isinstance(one, AfterRecord)]
    return ends


def test_available_now_waits_until_children_are_listed(
    kinesis: Any, server: LocalServer, clock: ManualClock
) -> None:
    """What was there when the query started lies in shards of which nobody tells for a while."""
    planner, time, put = ended_without_children(
        kinesis, server, clock, until=20, is_batch_read=False
    )
    assert ends_of(planner, {ANY_SHARD: TRIM_HORIZON}) == put
    assert 20 <= time.now < 60


def test_a_batch_read_whose_children_are_not_listed_fails_and_gives_no_part(
    kinesis: Any, server: LocalServer, clock: ManualClock
) -> None:
    planner, time, _ = ended_without_children(kinesis, server, clock, until=300, is_batch_read=True)
    with pytest.raises(ServiceError, match=r"has not returned its children for 60 seconds"):
        ends_of(planner, {ANY_SHARD: TRIM_HORIZON})
    assert 55 <= time.now < 75


def test_available_now_leaves_unlisted_children_to_the_next_query(
    kinesis: Any, server: LocalServer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    planner, _, put = ended_without_children(kinesis, server, clock, until=300, is_batch_read=False)
    assert ends_of(planner, {ANY_SHARD: TRIM_HORIZON}) == put[:1]
    assert "The next query that resumes from this checkpoint reads them." in caplog.text


class Endless(StreamClient):
    """A client of a server whose closed shards never tell their end."""

    def get_records(self, shard_id: str, iterator: str, *of: Any, **how: Any) -> Fetched:
        fetched = super().get_records(shard_id, iterator, *of, **how)
        page = fetched.page
        if page.next_shard_iterator is None:
            page = msgspec.structs.replace(page, next_shard_iterator=iterator, child_shards=None)
        return replace(fetched, page=page)


def test_a_query_warns_once_of_a_closed_shard_that_never_ends(
    kinesis: Any, server: LocalServer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    closed = split(kinesis, "s")
    clock.advance(5_000)
    time = Time()
    client = Endless(StreamAddress("s", None, "us-east-1", server.endpoint_url))
    planner = stream_planner(client, timing=time.timing)
    at = next_end(planner, {ANY_SHARD: TRIM_HORIZON})
    for _ in range(5):
        at = next_end(planner, at)
        time.sleep(WARN_AFTER / 2)
    warnings = [text for text in caplog.messages if "Its child shards are not read" in text]
    assert len(warnings) == 1
    assert closed in warnings[0]

"""A batch begins at positions of the present stream, in shards that exist; what is lost is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparkinesis.errors import DataLossError
from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.source.planning.batch_start import (
    latest_start,
    present_start,
    with_forgotten_shards,
    without_lost_shards,
)
from sparkinesis.source.planning.kept import ListedShards
from sparkinesis.source.planning.stream_planner import StreamPlanner
from sparkinesis.source.planning.stream_tools import StreamTools
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
)
from sparkinesis.stream.shard import Shard
from tests.planners import Time, planner_options
from tests.streams import split

T = 1_790_000_000_000
HOUR = 3_600_000
IDS = [f"shardId-{n:012}" for n in range(6)]


class Stale(StreamClient):
    """Lists the shards as they were, for a while."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.stale: list[list[Shard]] = []

    def list_shards(self, *given: Any, **named: Any) -> Any:
        shards, now_ms = super().list_shards(*given, **named)
        return (self.stale.pop() if self.stale else shards), now_ms


@dataclass
class Stream:
    """A stream of two shards, and what plans it."""

    server: LocalServer
    clock: ManualClock
    kinesis: Any
    client: Stale = field(init=False)

    def __post_init__(self) -> None:
        self.kinesis.create_stream(StreamName="s", ShardCount=2)
        address = StreamAddress("s", None, "us-east-1", self.server.endpoint_url)
        self.client = Stale(address, wall_clock_ms=self.clock)

    def tools(self, *, fails: bool = True) -> StreamTools:
        options = planner_options("s", failOnDataLoss=str(fails).lower())
        return StreamTools(self.client, options, timing=Time().timing)


def listing(tools: StreamTools) -> ListedShards:
    made = ListedShards(tools, Backoff())
    made.ensure()
    return made


@pytest.fixture
def stream() -> Iterator[Stream]:
    clock = ManualClock(T)
    with LocalServer(port=0, limits=False, clock=clock) as server:
        yield Stream(server, clock, server.client("kinesis"))


def test_shards_that_did_not_change_stay_the_same_object(stream: Stream) -> None:
    """What is concluded from thousands of shards is kept for that object."""
    known = listing(stream.tools())
    before = known.lineage
    known.renew_now()
    assert known.lineage is before
    split(stream.kinesis, "s")
    known.renew_now()
    assert set(known.lineage.shards) == set(IDS[:4])


def test_an_initial_start_is_of_no_deleted_stream_and_costs_no_call(stream: Stream) -> None:
    tools = stream.tools()
    known = listing(tools)
    for position in (LATEST, AtTimestamp(1)):
        start: Positions = {ANY_SHARD: position}
        assert present_start(tools, known, start, None) == (start, 0)
    assert stream.server.kinesis.calls.count("DescribeStreamSummary") == 0


def test_a_start_in_the_present_stream_stays_and_its_creation_is_known(stream: Stream) -> None:
    tools = stream.tools()
    start: Positions = {ANY_SHARD: AtTimestamp(1), IDS[0]: AtTimestamp(T), IDS[1]: SHARD_END}
    found, created_ms = present_start(tools, listing(tools), start, None)
    assert found is start
    assert created_ms == T
    assert tools.losses.count == 0


@pytest.mark.parametrize(
    ("hours", "oldest_ms"),
    [
        (1, T),
        # The oldest records are about to expire: whoever reads them may find them gone.
        (30, T + 6 * HOUR + 60_000),
    ],
)
def test_a_start_in_a_deleted_stream_is_a_loss_and_all_of_the_present_one_follows(
    stream: Stream, hours: int, oldest_ms: int
) -> None:
    split(stream.kinesis, "s")
    stream.clock.advance(hours * HOUR)
    start: Positions = {IDS[0]: AtTimestamp(T - HOUR), IDS[5]: SHARD_END}
    tools = stream.tools()
    with pytest.raises(DataLossError, match=f"position of shard {IDS[0]} at .* a deleted stream"):
        present_start(tools, listing(tools), start, None)
    accepting = stream.tools(fails=False)
    found, created_ms = present_start(accepting, listing(accepting), start, None)
    roots = IDS[:2] if hours < 24 else IDS[1:4]
    assert found == dict.fromkeys(roots, AtTimestamp(oldest_ms))
    assert created_ms == T
    assert (tools.losses.count, accepting.losses.count) == (0, 1)
    skipping, _ = present_start(tools, listing(tools), start, 60.0)
    assert skipping == found, "what is older than wanted is no loss"


def test_latest_is_the_present_time_in_each_open_shard(stream: Stream) -> None:
    split(stream.kinesis, "s")
    stream.clock.advance(5_123)
    known = listing(stream.tools())
    now = AtTimestamp(T + 5_123)
    assert latest_start(known) == (dict.fromkeys(IDS[1:4], now), T + 5_123)


def test_no_plan_asks_for_the_present_within_its_second(stream: Stream) -> None:
    time = Time()
    planner = StreamPlanner(StreamTools(stream.client, planner_options("s"), timing=time.timing))
    present: Positions = dict.fromkeys(IDS[:2], AtTimestamp(T))
    assert planner.begin({ANY_SHARD: LATEST}) == present
    planner.begin(present)
    assert time.now == 1.0


def test_a_shard_that_is_gone_is_a_loss_and_the_others_go_on(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    there: Positions = {IDS[0]: AfterRecord("7"), IDS[1]: TRIM_HORIZON}
    tools, accepting = stream.tools(), stream.tools(fails=False)
    assert without_lost_shards(tools, listing(tools), there) is there
    start: dict[str, Position] = {IDS[5]: AtTimestamp(9), IDS[4]: AfterRecord("8"), **there}
    gone = (
        f"no longer has shard {IDS[4]}, {IDS[5]}, which the query has read up to 8, AT_TIMESTAMP:9"
    )
    with pytest.raises(DataLossError) as caught:
        without_lost_shards(tools, listing(tools), start)
    assert f"stream 's' in us-east-1 at {stream.server.endpoint_url} {gone}" in str(caught.value)
    assert "Set the option failOnDataLoss to false to resume" in str(caught.value)
    assert caplog.messages == []
    assert without_lost_shards(accepting, listing(accepting), start) == there
    (told,) = caplog.messages
    assert f"{gone}: its records were older" in told
    assert (tools.losses.count, accepting.losses.count) == (0, 1)


def test_a_shard_that_a_stale_listing_lacks_is_not_lost(stream: Stream) -> None:
    before, _ = stream.client.list_shards()
    split(stream.kinesis, "s")
    stream.client.stale = [before, before]
    start: Positions = {IDS[1]: AfterRecord("7"), IDS[2]: TRIM_HORIZON, IDS[3]: TRIM_HORIZON}
    tools = stream.tools()
    assert without_lost_shards(tools, listing(tools), start) is start
    assert stream.client.stale == []


def test_shards_that_an_offset_forgot_are_read_from_their_start(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    stream.kinesis.create_stream(StreamName="wide", ShardCount=6)
    address = StreamAddress("wide", None, "us-east-1", stream.server.endpoint_url)
    tools = StreamTools(StreamClient(address), planner_options("wide"), timing=Time().timing)
    known = listing(tools)
    whole: Positions = dict.fromkeys(IDS, AfterRecord("7"))
    assert with_forgotten_shards(tools, known, whole) is whole
    assert caplog.messages == []
    edited: Positions = {IDS[3]: AfterRecord("7")}
    found = with_forgotten_shards(tools, known, edited)
    assert found == {**dict.fromkeys(IDS, TRIM_HORIZON), **edited}
    (told,) = caplog.messages
    forgotten = ", ".join(one for one in IDS if one != IDS[3])
    assert f"the checkpoint has no position for shard {forgotten}, nor" in told

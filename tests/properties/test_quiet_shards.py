"""One thread asks a plan's quiet shards, with many requests in flight; that changes no plan."""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from typing import Any

import pytest

from sparkinesis.local import Fault, LocalServer, ManualClock
from sparkinesis.metrics.catalogue import CALL_DURATION
from sparkinesis.metrics.tally import Tally
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.source.planning import stream_plan
from sparkinesis.source.planning.probing.records_in_hand import UNLIMITED
from sparkinesis.source.planning.probing.shard_calls import ShardFront
from sparkinesis.source.planning.stream_planner import StreamPlanner
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.caller import SentCall, call_client
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.page import Fetched, Page
from sparkinesis.stream.position import LATEST, TRIM_HORIZON
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.retention import RetentionCheck
from sparkinesis.stream.reading.shard_cursor import ShardCursor
from tests.failing import Failing
from tests.planners import Time, next_end, stream_planner
from tests.properties.test_p2_faults import FAULTS, POLLING
from tests.streams import active_shards, put_at, split
from tests.tallies import seconds

SHARDS = 40
BEGIN: Positions = {ANY_SHARD: TRIM_HORIZON}
SHARD = "shardId-000000000000"


class Asking(StreamClient):
    """Notes which requests are sent ahead of their turn, and which threads take answers."""

    def __init__(self, address: StreamAddress, clock: ManualClock) -> None:
        super().__init__(address, Backoff(sleep=no_wait), wall_clock_ms=clock)
        self.ends_at = ""
        """The shard at which the user ends the plan."""
        self.forget()

    def forget(self) -> None:
        self.ahead: list[str] = []
        self.threads: set[int] = set()
        self.taken = self.most_in_flight = 0

    def send_get_records(self, shard_id: str, *of: Any) -> SentCall | None:
        if shard_id == self.ends_at:
            raise KeyboardInterrupt
        sent = super().send_get_records(shard_id, *of)
        if sent is not None:
            self.ahead.append(shard_id)
            self.most_in_flight = max(self.most_in_flight, len(self.ahead) - self.taken)
        return sent

    def get_records(self, *of: Any, sent: SentCall | None = None, **how: Any) -> Fetched:
        self.threads.add(threading.get_ident())
        self.taken += sent is not None
        return super().get_records(*of, sent=sent, **how)


def no_wait(seconds: float) -> None:
    """Let a retry follow at once."""


class OneByOne(StreamClient):
    """Sends no request ahead."""

    def send_get_records(self, *of: Any) -> None:
        return None


class Scene:
    """A stream of quiet shards."""

    def __init__(self, server: LocalServer, clock: ManualClock) -> None:
        self.server, self.clock = server, clock
        self.kinesis = server.client("kinesis")
        self.kinesis.create_stream(StreamName="s", ShardCount=SHARDS)
        self.address = StreamAddress("s", region="us-east-1", endpoint=server.endpoint_url)
        self.client = Asking(self.address, clock)

    @property
    def shards(self) -> set[str]:
        return {shard["ShardId"] for shard in active_shards(self.kinesis, "s")}

    def put_everywhere(self) -> None:
        """Put a record into each shard."""
        for at in range(SHARDS):
            put_at(self.kinesis, "s", b"x", 2**128 * at // SHARDS + 1)
        self.clock.advance(1000)

    def one_by_one(self) -> StreamPlanner:
        """A planner that sends no request ahead."""
        return stream_planner(
            OneByOne(self.address, Backoff(sleep=no_wait), wall_clock_ms=self.clock)
        )


@pytest.fixture
def scene(server: LocalServer, clock: ManualClock) -> Scene:
    return Scene(server, clock)


def keep_connections(client: StreamClient, count: int) -> None:
    """Let the process keep so many connections to the server, as threads leave them."""
    pools = call_client(client.address)._pools
    (pool,) = pools.by_url.values()
    pool._idle.extend(pool._connect() for _ in range(count - len(pool._idle)))


def test_one_thread_asks_all_quiet_shards_with_many_requests_in_flight(scene: Scene) -> None:
    client = scene.client
    planner = stream_planner(client)
    start = next_end(planner, BEGIN)
    assert client.ahead == []
    keep_connections(client, 16)  # as many as threads
    client.forget()
    scene.clock.advance(1000)
    assert next_end(planner, start) is start
    assert Counter(client.ahead) == Counter(scene.shards)
    assert client.threads == {threading.get_ident()}
    assert client.most_in_flight == 16


def test_with_few_connections_the_threads_ask_and_open_others(scene: Scene) -> None:
    client = scene.client
    planner = stream_planner(client)
    start = next_end(planner, BEGIN)
    call_client(client.address).close()
    client.forget()
    scene.clock.advance(1000)
    assert next_end(planner, start) is start
    assert client.ahead == []


@pytest.mark.parametrize("kind", [None, *POLLING])
@pytest.mark.parametrize("most", [stream_plan.MOST_RECEIVED, 1])
def test_plans_are_those_of_shards_that_are_asked_one_by_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, kind: str | None, most: int
) -> None:
    """Whatever fails, arrives or ends between two plans."""
    monkeypatch.setattr(stream_plan, "MOST_RECEIVED", most)
    rng = random.Random(kind)
    client = scene.client
    planner = stream_planner(client)
    control = scene.one_by_one()
    start = BEGIN
    for _ in range(12):
        keep_connections(client, 16) if start is not BEGIN else None
        scene.server.kinesis.faults = FAULTS[kind] if kind else None
        ours = next_end(planner, start)
        scene.server.kinesis.faults = None
        assert ours == next_end(control, start)
        start = ours
        for _ in range(rng.choice([0, 1, 5])):
            put_at(scene.kinesis, "s", b"x", rng.randrange(2**128))
        if rng.random() < 0.3:
            split(scene.kinesis, "s", rng)
        scene.clock.advance(rng.choice([10, 1000, 10_000, 400_000]))
    assert len(client.ahead) > 100


def test_an_answer_is_as_old_as_its_request(scene: Scene) -> None:
    """What arrives between request and answer is not known to be absent."""
    cursor = ShardCursor(scene.client, ShardBudget(Pace(0, 0)), SHARD, TRIM_HORIZON)
    assert not cursor.send_ahead(10)  # it has no iterator yet
    cursor.fetch()
    sent_ms = scene.clock()
    assert cursor.send_ahead(10)
    scene.clock.advance(300)
    cursor.receive()
    scene.clock.advance(600)
    fetched = cursor.fetch()
    assert fetched.asked_ms == fetched.service_time_ms == sent_ms


def test_where_the_clocks_differ_an_answer_is_as_old_as_its_request_too(scene: Scene) -> None:
    """Only seconds of the service's clock are known then; the request was sent four earlier."""
    ahead = ManualClock(scene.clock() + 100_000)
    client = StreamClient(scene.address, wall_clock_ms=ahead)
    cursor = ShardCursor(client, ShardBudget(Pace(0, 0)), SHARD, TRIM_HORIZON)
    cursor.fetch()
    assert cursor.send_ahead(10)
    ahead.advance(4_300)
    cursor.receive()
    ahead.advance(50_000)
    fetched = cursor.fetch()
    assert fetched.service_time_ms == scene.clock()
    assert fetched.asked_ms == scene.clock() - 4_000


class Behind(StreamClient):
    """Gets an empty page that is not the tip, as Kinesis may send it."""

    def send_get_records(self, *of: Any) -> SentCall:
        page = Page(next_shard_iterator="i", millis_behind_latest=1000, records=[])
        answer = {"Page": page, "Size": 0}
        return SentCall(lambda: answer, 0, 0.0, lambda: 0.0, lambda: 0)


def test_an_empty_page_behind_the_tip_is_not_that_of_an_idle_shard(scene: Scene) -> None:
    """More calls follow it, which are not for the one thread of all shards."""
    cursor = ShardCursor(Behind(scene.address), ShardBudget(Pace(0, 0)), SHARD, TRIM_HORIZON)
    cursor.fetch()
    assert cursor.send_ahead(10)
    assert cursor.receive() > 0


@pytest.mark.parametrize(("most", "asked"), [(stream_plan.MOST_RECEIVED, SHARDS), (1, 16)])
def test_pages_that_wait_for_a_thread_are_bounded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, most: int, asked: int
) -> None:
    monkeypatch.setattr(stream_plan, "MOST_RECEIVED", most)
    planner = stream_planner(scene.client)
    start = next_end(planner, BEGIN)
    keep_connections(scene.client, 16)
    scene.put_everywhere()
    scene.client.forget()
    assert set(next_end(planner, start)) >= scene.shards
    assert len(scene.client.ahead) == asked


def test_a_shard_whose_budget_is_used_up_is_not_asked_ahead(scene: Scene) -> None:
    time = Time()
    budget = ShardBudget(Pace(1.0, 0), time, time.sleep)
    front = ShardFront(scene.client, SHARD, budget)
    front.probe(TRIM_HORIZON, RetentionCheck(scene.client), UNLIMITED, 10, math.inf)
    assert front.is_quiet
    assert not front.may_send_ahead(TRIM_HORIZON)
    time.sleep(1.0)
    assert front.may_send_ahead(TRIM_HORIZON)
    assert not front.may_send_ahead(LATEST)  # it was quiet after another position
    put_at(scene.kinesis, "s", b"x", 0)
    front.probe(TRIM_HORIZON, RetentionCheck(scene.client), UNLIMITED, 10, math.inf)
    time.sleep(1.0)
    assert not front.may_send_ahead(TRIM_HORIZON)  # its next probe may need no call


def test_a_call_lasts_from_its_request_to_its_answer(scene: Scene) -> None:
    """Not until its turn comes."""
    time, tally = Time(), Tally()
    client = StreamClient(scene.address, Backoff(clock=time, sleep=time.sleep), metrics=tally)
    cursor = ShardCursor(client, ShardBudget(Pace(0, 0)), SHARD, TRIM_HORIZON)
    cursor.fetch()
    assert cursor.send_ahead(10)
    time.sleep(3.0)
    assert cursor.receive() == 0
    time.sleep(7.0)
    cursor.fetch()
    scene.server.kinesis.faults = Failing("GetRecords", Fault.error("InternalFailure", status=500))
    assert cursor.send_ahead(10)
    time.sleep(2.0)
    cursor.receive()
    time.sleep(7.0)
    cursor.fetch()
    found = {labels[1:]: value for labels, value in seconds(tally, CALL_DURATION).items()}
    assert found["GetRecords", "ok"] == 3.0
    assert found["GetRecords", "retryable"] == 2.0


def test_a_plan_that_fails_leaves_no_answer_to_the_next_one(scene: Scene) -> None:
    """It would be from before the records that have arrived in between."""
    planner = stream_planner(scene.client)
    start = next_end(planner, BEGIN)
    keep_connections(scene.client, 16)
    scene.put_everywhere()
    scene.client.ends_at = sorted(scene.shards)[20]
    with pytest.raises(KeyboardInterrupt):
        next_end(planner, start)
    assert len(scene.client.ahead) == 20
    scene.client.ends_at = ""
    scene.put_everywhere()
    scene.clock.advance(1000)
    assert next_end(planner, start) == next_end(scene.one_by_one(), start)

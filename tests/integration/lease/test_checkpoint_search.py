"""The place that an instant leads to, in shards whose arrivals a test knows, over HTTP."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkinesis.errors import AccessDeniedError
from sparkinesis.lease.checkpoint_search import checkpoint_at
from sparkinesis.lease.extended_sequence_number import TRIM_HORIZON, ExtendedSequenceNumber
from sparkinesis.local import Call, Fault, LocalServer, ManualClock
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Retry
from sparkinesis.stream.kpl.pack import aggregate
from tests.streams import split

Wait = Callable[[float], object]

START_MS = 1_790_000_000_000
SHARD = "shardId-000000000000"
OLDEST = ExtendedSequenceNumber(TRIM_HORIZON)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest.fixture
def kinesis_server(clock: ManualClock) -> Iterator[LocalServer]:
    with LocalServer(clock=clock, empty_pages=1) as running:
        yield running


@pytest.fixture
def kinesis(kinesis_server: LocalServer) -> Any:
    client = kinesis_server.client("kinesis")
    client.create_stream(StreamName="s", ShardCount=1)
    return client


@pytest.fixture
def client(kinesis_server: LocalServer, kinesis: Any, clock: ManualClock) -> StreamClient:
    del kinesis
    address = StreamAddress("s", None, "us-east-1", kinesis_server.endpoint_url)
    return StreamClient(address, Retry(sleep=too_fast), wall_clock_ms=clock)


def too_fast(seconds: float) -> None:
    pytest.fail(f"a call was refused, and tried again after {seconds} s")


@pytest.fixture
def wait(clock: ManualClock) -> Wait:
    """The server's clock stands still but for this: it counts calls in its limits."""
    return lambda seconds: clock.advance(round(seconds * 1000))


def put(kinesis: Any, data: bytes = b"x") -> str:
    return str(kinesis.put_record(StreamName="s", Data=data, PartitionKey="k")["SequenceNumber"])


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_record_before_the_first_one_since(
    kinesis: Any, client: StreamClient, clock: ManualClock, wait: Wait, seed: int
) -> None:
    """Bursts, trickles, and silences of minutes and hours between them."""
    rng = random.Random(seed)
    arrivals: list[tuple[int, str]] = []
    for _ in range(rng.randint(1, 5)):
        pause = rng.choice((0, 1, 30, 900, 40_000))
        for _ in range(rng.randint(1, 30)):
            arrivals.append((clock(), put(kinesis)))
            clock.advance(round(pause * rng.random()))
        clock.advance(rng.choice((1, 5_000, 300_000, 7_200_000)))
    times = [at for at, _ in arrivals]
    instants = {START_MS, clock(), *rng.sample(times, min(6, len(times)))}
    instants |= {rng.randint(START_MS, clock()) for _ in range(4)}
    for instant in sorted({*instants, *(one + 1 for one in instants)}):
        older = [number for at, number in arrivals if at < instant]
        wanted = ExtendedSequenceNumber(older[-1]) if older else OLDEST
        assert checkpoint_at(client, SHARD, instant, wait) == wanted, instant - START_MS


def test_a_burst_longer_than_a_look_is_halved_and_read_through(
    kinesis: Any, client: StreamClient, clock: ManualClock, wait: Wait
) -> None:
    numbers = []
    for _ in range(8):
        entries = [{"Data": b"x", "PartitionKey": "k"}] * 500
        answer = kinesis.put_records(StreamName="s", Records=entries)
        numbers.append(answer["Records"][-1]["SequenceNumber"])
        clock.advance(700)
    clock.advance(3_600_000)
    assert checkpoint_at(client, SHARD, clock(), wait) == ExtendedSequenceNumber(numbers[-1])
    assert checkpoint_at(client, SHARD, START_MS + 5 * 700, wait) == ExtendedSequenceNumber(
        numbers[4]
    )


def test_all_user_records_of_an_aggregate_before_the_instant_are_done(
    kinesis: Any, client: StreamClient, clock: ManualClock, wait: Wait
) -> None:
    """A Java KCL drops what it de-aggregates up to the sub-sequence number."""
    (packed,) = aggregate([("k", None, b"%d" % n) for n in range(5)])
    before = put(kinesis, packed.data)
    clock.advance(10)
    put(kinesis)
    assert checkpoint_at(client, SHARD, clock(), wait) == ExtendedSequenceNumber(before, 4)


def test_nothing_older_is_the_oldest_record(
    kinesis: Any, client: StreamClient, clock: ManualClock, wait: Wait
) -> None:
    assert checkpoint_at(client, SHARD, clock(), wait) == OLDEST, "the shard is empty"
    put(kinesis)
    assert checkpoint_at(client, SHARD, START_MS, wait) == OLDEST
    assert checkpoint_at(client, "shardId-000000000007", clock(), wait) == OLDEST, (
        "the shard is gone"
    )
    clock.advance(25 * 3_600_000)
    assert checkpoint_at(client, SHARD, clock(), wait) == OLDEST, "what was older has expired"


def test_a_closed_shard_goes_on_at_its_end(
    kinesis: Any, client: StreamClient, clock: ManualClock, wait: Wait
) -> None:
    last = put(kinesis)
    clock.advance(5_000)
    split(kinesis, "s")
    clock.advance(60_000)
    assert checkpoint_at(client, SHARD, clock(), wait) == ExtendedSequenceNumber(last)
    assert checkpoint_at(client, "shardId-000000000001", clock(), wait) == OLDEST


def test_who_may_not_read_is_told(
    kinesis_server: LocalServer,
    kinesis: Any,
    client: StreamClient,
    clock: ManualClock,
    wait: Wait,
) -> None:
    put(kinesis)

    def deny(call: Call) -> Fault | None:
        if call.operation == "GetRecords":
            return Fault(code="AccessDeniedException", message="no", status=400)
        return None

    kinesis_server.kinesis.faults = deny
    with pytest.raises(AccessDeniedError, match="GetRecords"):
        checkpoint_at(client, SHARD, clock(), wait)

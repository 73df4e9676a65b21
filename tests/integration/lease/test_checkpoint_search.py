"""The place that an instant leads to, in shards whose arrivals a test knows, over HTTP."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sparkinesis.errors import AccessDeniedError
from sparkinesis.lease.extended_sequence_number import TRIM_HORIZON, ExtendedSequenceNumber
from sparkinesis.lease.moving.checkpoint_search import checkpoint_at
from sparkinesis.local import Fault, LocalServer, ManualClock
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.kpl.pack import aggregate
from tests.failing import Failing
from tests.streams import split

START_MS = 1_790_000_000_000
SHARD = "shardId-000000000000"
OLDEST = ExtendedSequenceNumber(TRIM_HORIZON)


@dataclass
class Searched:
    """A stream of one shard, whose clock stands still but for the pauses of a search."""

    server: LocalServer
    kinesis: Any
    client: StreamClient
    clock: ManualClock

    def put(self, data: bytes = b"x") -> str:
        answer = self.kinesis.put_record(StreamName="s", Data=data, PartitionKey="k")
        return str(answer["SequenceNumber"])

    def at(self, instant_ms: int, shard_id: str = SHARD) -> ExtendedSequenceNumber:
        return checkpoint_at(
            self.client, shard_id, instant_ms, lambda pause: self.clock.advance(round(pause * 1000))
        )

    def now(self, shard_id: str = SHARD) -> ExtendedSequenceNumber:
        return self.at(self.clock(), shard_id)


@pytest.fixture
def shard() -> Iterator[Searched]:
    clock = ManualClock(START_MS)
    with LocalServer(clock=clock, empty_pages=1) as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName="s", ShardCount=1)
        address = StreamAddress("s", None, "us-east-1", server.endpoint_url)
        client = StreamClient(address, Backoff(sleep=too_fast), wall_clock_ms=clock)
        yield Searched(server, kinesis, client, clock)


def too_fast(seconds: float) -> None:
    pytest.fail(f"a call was refused, and tried again after {seconds} s")


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_record_before_the_first_one_since(shard: Searched, seed: int) -> None:
    """Bursts, trickles, and silences of minutes and hours between them."""
    rng = random.Random(seed)
    arrivals: list[tuple[int, str]] = []
    for _ in range(rng.randint(1, 5)):
        pause = rng.choice((0, 1, 30, 900, 40_000))
        for _ in range(rng.randint(1, 30)):
            arrivals.append((shard.clock(), shard.put()))
            shard.clock.advance(round(pause * rng.random()))
        shard.clock.advance(rng.choice((1, 5_000, 300_000, 7_200_000)))
    times = [at for at, _ in arrivals]
    instants = {START_MS, shard.clock(), *rng.sample(times, min(6, len(times)))}
    instants |= {rng.randint(START_MS, shard.clock()) for _ in range(4)}
    for instant in sorted({*instants, *(one + 1 for one in instants)}):
        older = [number for at, number in arrivals if at < instant]
        wanted = ExtendedSequenceNumber(older[-1]) if older else OLDEST
        assert shard.at(instant) == wanted, instant - START_MS


def test_a_burst_longer_than_a_look_is_halved_and_read_through(shard: Searched) -> None:
    numbers = []
    for _ in range(8):
        entries = [{"Data": b"x", "PartitionKey": "k"}] * 500
        answer = shard.kinesis.put_records(StreamName="s", Records=entries)
        numbers.append(answer["Records"][-1]["SequenceNumber"])
        shard.clock.advance(700)
    shard.clock.advance(3_600_000)
    assert shard.now() == ExtendedSequenceNumber(numbers[-1])
    assert shard.at(START_MS + 5 * 700) == ExtendedSequenceNumber(numbers[4])


def test_all_user_records_of_an_aggregate_before_the_instant_are_done(shard: Searched) -> None:
    """A Java KCL drops what it de-aggregates up to the sub-sequence number."""
    (packed,) = aggregate([("k", None, b"%d" % n) for n in range(5)])
    before = shard.put(packed.data)
    shard.clock.advance(10)
    shard.put()
    assert shard.now() == ExtendedSequenceNumber(before, 4)


def test_nothing_older_is_the_oldest_record(shard: Searched) -> None:
    assert shard.now() == OLDEST, "the shard is empty"
    shard.put()
    assert shard.at(START_MS) == OLDEST
    assert shard.now("shardId-000000000007") == OLDEST, "the shard is gone"
    shard.clock.advance(25 * 3_600_000)
    assert shard.now() == OLDEST, "what was older has expired"


def test_a_closed_shard_goes_on_at_its_end(shard: Searched) -> None:
    last = shard.put()
    shard.clock.advance(5_000)
    split(shard.kinesis, "s")
    shard.clock.advance(60_000)
    assert shard.now() == ExtendedSequenceNumber(last)
    assert shard.now("shardId-000000000001") == OLDEST


def test_who_may_not_read_is_told(shard: Searched) -> None:
    shard.put()
    shard.server.kinesis.faults = Failing("GetRecords", then=Fault.error("AccessDeniedException"))
    with pytest.raises(AccessDeniedError, match="GetRecords"):
        shard.now()

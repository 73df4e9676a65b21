"""Enhanced fan-out in batches: a range is read by a subscription, and by GetRecords where not."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from sparkinesis.errors import AccessDeniedError, ConsumerLimitError
from sparkinesis.local import Call, Fault, LocalServer, ManualClock
from sparkinesis.source.reading.read_task import ToRead
from sparkinesis.stream.position import AfterRecord
from tests.engine import MODES, Query, query_of
from tests.failing import Failing
from tests.properties.conftest import World
from tests.streams import arn_of, put

EFO = MODES["efo"]


@pytest.fixture
def mode() -> str:
    return "efo"


@pytest.fixture
def one(world: World) -> World:
    """With a stream ``one`` of a single shard."""
    world.kinesis.create_stream(StreamName="one", ShardCount=1)
    return world


@pytest.fixture
def limited(clock: ManualClock) -> Iterator[LocalServer]:
    """A server with the service's limits, whose clock stands still: five seconds never pass."""
    with LocalServer(port=0, clock=clock) as running:
        running.client("kinesis").create_stream(StreamName="one", ShardCount=1)
        yield running


def paced(server: LocalServer) -> tuple[Query, Any, Any]:
    """A query of a record, and the offsets of its batch."""
    put(server.client("kinesis"), "one", [b"a"])
    running = query_of(server, "one", shardCallsPerSecond="5", **EFO)
    return running, *running.plan()


def data(batches: Iterator[pa.RecordBatch]) -> list[bytes]:
    return [row for batch in batches for row in batch.column("data").to_pylist()]


def rows(running: Query) -> list[bytes]:
    return sorted(running.batch().datas)


def test_a_range_within_five_seconds_of_a_subscription_is_read_by_get_records(
    limited: LocalServer,
) -> None:
    calls = limited.kinesis.calls
    running, start, end = paced(limited)
    calls.clear()
    assert running.read(start, end).datas == [b"a"]
    assert calls.count("SubscribeToShard") == 1
    assert calls.count("GetRecords") == 0
    assert running.read(start, end).datas == [b"a"]
    assert calls.count("SubscribeToShard") == 1, "it would have been refused"
    assert calls.count("GetRecords") == 1


@pytest.fixture
def released(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """How many subscriptions' clients have gone, as the server sees it."""
    gone = threading.Semaphore(0)
    release = server.kinesis.release

    def count(subscription: Any) -> None:
        release(subscription)
        gone.release()

    monkeypatch.setattr(server.kinesis, "release", count)
    return gone


def test_a_range_that_is_given_up_ends_its_subscription_at_once(
    one: World, released: threading.Semaphore
) -> None:
    put(one.kinesis, "one", [b"a"])
    running = one.query(streamName="one")
    (task,) = running.reader.partitions(*running.plan())
    (shard_range,) = (each.shard_range for each in task.to_read)
    assert isinstance(shard_range.end, AfterRecord)
    later = str(int(shard_range.end.sequence_number) + 1)
    unfinished = replace(
        task, to_read=[ToRead(msgspec.structs.replace(shard_range, end=AfterRecord(later)))]
    )
    before = one.server.kinesis.calls.count("GetRecords")
    reading = running.reader.read(unfinished)
    assert data(iter([next(reading)])) == [b"a"]
    # The next event is being waited for, and does not come: the server's clock stands still.
    ending = threading.Thread(target=reading.close)  # type: ignore[attr-defined]
    ending.start()
    ending.join(10)
    assert not ending.is_alive()
    assert released.acquire(timeout=10)
    assert one.server.kinesis.calls.count("GetRecords") == before


def test_the_consumer_is_registered_before_anything_is_read_and_kept(one: World) -> None:
    put(one.kinesis, "one", [b"a"])
    start, end = one.query(streamName="one").plan()
    calls = one.server.kinesis.calls
    calls.clear()
    for _ in range(2):  # a restart begins with the batch that was interrupted
        running = query_of(one.server, "one", **{**EFO, "consumerName": "new"})
        assert running.read(start, end).datas == [b"a"]
        running.reader.stop()
    assert calls.count("RegisterStreamConsumer") == 1
    assert calls.count("SubscribeToShard") == 2
    assert "new" in consumers(one.kinesis, "one")


@pytest.fixture
def sigterm() -> Iterator[None]:
    """What a process of Spark does when it is told to end; afterwards, what this one did."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm")
def test_the_consumer_of_every_stream_is_deregistered_if_asked_for(one: World) -> None:
    put(one.kinesis, "one", [b"a"])
    put(one.kinesis, "s", [b"b"])
    running = one.query(streamName="one,s", requireConsumerDeregistration="true")
    assert rows(running) == [b"a", b"b"]
    assert consumers(one.kinesis, "one") == consumers(one.kinesis, "s") == [EFO["consumerName"]]
    running.reader.stop()
    assert consumers(one.kinesis, "one") == consumers(one.kinesis, "s") == []


@pytest.mark.usefixtures("sigterm")
def test_a_consumer_is_deregistered_if_the_query_is_stopped_while_it_is_being_created(
    clock: ManualClock,
) -> None:
    def stop_while_creating(call: Call) -> None:
        """As Spark stops the process that plans, once there is something to deregister."""
        if call.operation == "DescribeStreamConsumer" and call.ordinal > 1:
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
            os.kill(os.getpid(), signal.SIGTERM)

    with LocalServer(port=0, clock=clock, consumer_delay_ms=60_000) as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName="one", ShardCount=1)
        put(kinesis, "one", [b"a"])
        running = deregistering(server, "one")
        server.kinesis.faults = stop_while_creating
        with pytest.raises(SystemExit):
            running.plan()
        server.kinesis.faults = None
        assert consumers(kinesis, "one") == [EFO["consumerName"]]
        running.reader.stop()
        clock.advance(60_000)
        assert consumers(kinesis, "one") == []


@pytest.mark.usefixtures("sigterm")
def test_consumers_are_deregistered_if_one_of_several_streams_takes_no_more(one: World) -> None:
    arn = arn_of(one.kinesis, "s")
    others = [f"other-{n:02}" for n in range(20)]
    for other in others:
        one.kinesis.register_stream_consumer(StreamARN=arn, ConsumerName=other)
    running = deregistering(one.server, "one,s")
    with pytest.raises(ConsumerLimitError, match="other-07"):
        running.plan()
    assert consumers(one.kinesis, "one") == [EFO["consumerName"]]
    running.reader.stop()
    assert consumers(one.kinesis, "one") == []
    assert consumers(one.kinesis, "s") == others


def deregistering(server: LocalServer, streams: str) -> Query:
    return query_of(server, streams, requireConsumerDeregistration="true", **EFO)


def consumers(kinesis: Any, stream: str) -> list[str]:
    found = kinesis.list_stream_consumers(StreamARN=arn_of(kinesis, stream))["Consumers"]
    return [consumer["ConsumerName"] for consumer in found]


def test_a_query_whose_consumer_somebody_deregistered_goes_on_and_says_so(
    one: World, caplog: pytest.LogCaptureFixture
) -> None:
    put(one.kinesis, "one", [b"a"])
    running = one.query(streamName="one")
    assert rows(running) == [b"a"]
    arn = arn_of(one.kinesis, "one")
    one.kinesis.deregister_stream_consumer(StreamARN=arn, ConsumerName=EFO["consumerName"])
    put(one.kinesis, "one", [b"b"])
    with caplog.at_level(logging.WARNING):
        assert rows(running) == [b"b"]
    assert "restart the query to register it again" in caplog.text
    assert one.server.kinesis.calls.count("SubscribeToShard") == 2


def test_a_permission_that_is_missing_is_named(one: World) -> None:
    put(one.kinesis, "one", [b"a"])
    running = one.query(streamName="one")
    start, end = running.plan()
    denied = Fault.error("AccessDeniedException")
    one.server.kinesis.faults = Failing("SubscribeToShard", then=denied)
    with pytest.raises(AccessDeniedError, match="kinesis:SubscribeToShard"):
        running.read(start, end)

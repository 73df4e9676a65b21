"""The fan-out cursor on the local Kinesis: every record once, whatever happens to subscriptions."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from sparkinesis.errors import ConsumerNotFoundError
from sparkinesis.local import Call, Fault, LocalServer, ManualClock
from sparkinesis.stream.calls.answers.event_stream import EventStreamDecoder
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.direct.streamed_body import StreamedBody
from sparkinesis.stream.calls.subscription import Subscription
from sparkinesis.stream.calls.transport import call_client
from sparkinesis.stream.fan_out.registration import deregister_consumer
from sparkinesis.stream.position import AfterRecord, AtTimestamp
from tests.event_stream import INITIAL_RESPONSE, records_event
from tests.fetching import FetchingCursor
from tests.integration.stream.conftest import SHARD, START_MS, OpenCursor
from tests.streams import put, put_at


def read_up_to(cursor: FetchingCursor, last: bytes) -> list[bytes]:
    """The data of all records up to one that a test put last."""
    datas: list[bytes] = []
    while last not in datas:
        fetched = cursor.fetch()
        assert fetched is not None
        datas.extend(record.data for record in fetched.page.records)
    return datas


def once(fault: Fault) -> Any:
    """A fault plan that does this to the next subscription alone."""
    faults = [fault]

    def plan(call: Call) -> Fault | None:
        return faults.pop() if faults and call.operation == "SubscribeToShard" else None

    return plan


def body_length(client: StreamClient, consumer: str, position: AfterRecord) -> int:
    """Bytes of an event stream up to the end of its first event."""
    body = call_client(client.address).subscribe_to_shard(
        ConsumerARN=consumer,
        ShardId=SHARD,
        StartingPosition={
            "Type": "AFTER_SEQUENCE_NUMBER",
            "SequenceNumber": position.sequence_number,
        },
    )["Body"]
    decoder, length, messages = EventStreamDecoder(), 0, 0
    while messages < 2:
        data = body.read(decoder.missing)
        length += len(data)
        messages += len(list(decoder.feed(data)))
    assert decoder.is_between_messages
    body.close()
    return length


@pytest.mark.parametrize("inclusive", [False, True])
@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.long)])
def test_cut_at_every_byte(
    server: LocalServer,
    kinesis: Any,
    client: StreamClient,
    consumer: str,
    *,
    open_cursor: OpenCursor,
    clock: ManualClock,
    inclusive: bool,
    step: int,
) -> None:
    """At every byte in the long form, at every eleventh in the short one."""
    start = AfterRecord(put_at(kinesis, "s", b"start"))
    put(kinesis, "s", [b"1", b"2", b"3"], "k")
    length = body_length(client, consumer, start)
    assert length > 400
    expected = [b"start"] * inclusive + [b"1", b"2", b"3", b"last"]
    cuts = 0
    # Behind the event, too: numbers and times have more digits in some events than in others.
    for cut_after in range(0, length + 200, step):
        clock.advance(5000)
        server.kinesis.faults = once(Fault(cut_after=cut_after))
        cursor = open_cursor(start, inclusive=inclusive)
        found = read_up_to(cursor, b"3")
        last = put_at(kinesis, "s", b"last")
        found += read_up_to(cursor, b"last")
        assert found == expected, cut_after
        cursor.stop()
        cuts += server.kinesis.calls.count("SubscribeToShard") - 1
        server.kinesis.calls.clear()
        start = AfterRecord(put_at(kinesis, "s", b"start") if inclusive else last)
        put(kinesis, "s", [b"1", b"2", b"3"], "k")
        clock.advance(1000)
    assert cuts > length / step


def test_an_hour_of_silence_costs_a_renewal_every_few_minutes(
    server: LocalServer, kinesis: Any, open_cursor: OpenCursor, clock: ManualClock
) -> None:
    cursor = open_cursor()
    while clock() < START_MS + 3_600_000:
        fetched = cursor.fetch()
        assert fetched is not None
        assert not fetched.page.records
        assert fetched.service_time_ms == pytest.approx(clock(), abs=1000)
        clock.advance(5000)
    put(kinesis, "s", [b"at last"], "k")
    assert read_up_to(cursor, b"at last") == [b"at last"]
    calls = server.kinesis.calls.select("SubscribeToShard")
    assert 3600 / 290 - 1 <= len(calls) <= 3600 / 240 + 1
    assert {call.error for call in calls} == {None}


def test_a_newer_subscription_takes_over_and_both_see_every_record(
    server: LocalServer, kinesis: Any, open_cursor: OpenCursor, clock: ManualClock
) -> None:
    older, newer = open_cursor(), open_cursor()
    put(kinesis, "s", [b"1"], "k")
    assert read_up_to(older, b"1") == [b"1"]
    assert read_up_to(newer, b"1") == [b"1"]  # refused for five seconds, then it takes over
    put(kinesis, "s", [b"2"], "k")
    taken_over = clock()
    assert read_up_to(older, b"2") == [b"2"]
    assert clock() >= taken_over + 10_000
    put(kinesis, "s", [b"3"], "k")
    assert read_up_to(newer, b"3") == [b"2", b"3"]
    refused = [c.error for c in server.kinesis.calls.select("SubscribeToShard") if c.error]
    assert set(refused) <= {"ResourceInUseException"}
    assert len(refused) < 20


def test_it_begins_at_an_instant(kinesis: Any, open_cursor: OpenCursor, clock: ManualClock) -> None:
    for number in range(4):
        put(kinesis, "s", [b"%d" % number], "k")
        clock.advance(1)  # a millisecond counts
    cursor = open_cursor(AtTimestamp(START_MS + 2))
    assert read_up_to(cursor, b"3") == [b"2", b"3"]


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_a_deregistered_consumer(
    server: LocalServer,
    client: StreamClient,
    consumer: str,
    open_cursor: OpenCursor,
    delay_ms: int,
) -> None:
    cursor = open_cursor()
    assert cursor.fetch() is not None
    server.kinesis.consumer_delay_ms = delay_ms
    deregister_consumer(client, consumer)
    with pytest.raises(ConsumerNotFoundError) as told:
        cursor.fetch()
    for part in (consumer, "stream 's'", SHARD, "DELETING" if delay_ms else "not registered"):
        assert part in str(told.value)


def test_large_records_in_large_numbers(server: LocalServer, open_cursor: OpenCursor) -> None:
    server.kinesis.limits = None
    datas = [bytes([n]) * 500_000 for n in range(60)]
    for data in datas:
        server.kinesis.call("PutRecord", StreamName="s", Data=data, PartitionKey="k")
    cursor = open_cursor()
    found: list[bytes] = []
    size = 0
    while len(found) < len(datas):
        fetched = cursor.fetch()
        assert fetched is not None
        found += [record.data for record in fetched.page.records]
        size += fetched.size
    assert found == datas
    assert size == pytest.approx(60 * 500_001, rel=0.01)
    assert server.kinesis.calls.count("SubscribeToShard") == 1


def test_little_is_read_ahead_of_the_reader() -> None:
    """A slow reader slows the service down: what it does not take stays in the socket."""
    events = [records_event(range(n * 2000, n * 2000 + 2000), n * 2000 + 1999) for n in range(20)]
    data = b"".join([INITIAL_RESPONSE, *events])
    ours, theirs = socket.socketpair()

    def write() -> None:
        with theirs:
            theirs.sendall(data)

    writer = threading.Thread(target=write)
    writer.start()
    taken = Counted(ours)
    subscription = Subscription(StreamedBody("", taken, b"", {}), START_MS)
    given = len(INITIAL_RESPONSE)
    for event in events:
        received = subscription.next_event()
        assert received is not None
        assert len(received.event.records) == 2000
        given += len(event)
        assert given <= taken.count < given + 16_384
    assert subscription.next_event() is None
    writer.join()


class Counted(socket.socket):
    """Counts the bytes that are read."""

    def __init__(self, other: socket.socket) -> None:
        super().__init__(other.family, other.type, other.proto, other.detach())
        self.count = 0

    def recv(self, most: int, /, *args: Any) -> bytes:
        data = super().recv(most, *args)
        self.count += len(data)
        return data

    def recv_into(self, buffer: Any, /, *args: Any) -> int:
        count = super().recv_into(buffer, *args)
        self.count += count
        return count

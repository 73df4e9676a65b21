"""The fan-out cursor on the local Kinesis: every record once, whatever happens to subscriptions."""

from __future__ import annotations

import math
import socket
import threading
from typing import Any

import pytest

from sparkinesis.local import Fault, LocalServer, ManualClock
from sparkinesis.stream.calls.caller import call_client
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.direct.http_answer import StreamedBody
from sparkinesis.stream.calls.subscription import EventStreamDecoder, Subscription
from sparkinesis.stream.position import AfterRecord
from tests.event_stream import INITIAL_RESPONSE, records_event
from tests.failing import Failing
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
        data = body.read(decoder.missing, math.inf)
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
        server.kinesis.faults = Failing("SubscribeToShard", Fault(cut_after=cut_after))
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

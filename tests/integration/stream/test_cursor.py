"""A page of which a part is kept: the others are fetched again, each once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkinesis.errors import PositionNotFoundError, ServiceError
from sparkinesis.local import Fault, LocalServer, ManualClock
from sparkinesis.local.encoding.codec import JsonCodec
from sparkinesis.local.faults import Call
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Retry
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord, AtTimestamp, Position
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.cursor import ShardCursor
from tests.integration.stream.conftest import SHARD, START_MS
from tests.streams import put

STARTS = ["horizon", "instant", "record", "record itself"]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("counts", [[2, 1, 1], [9]])
def test_what_is_not_kept_comes_again_and_nothing_else(
    server: LocalServer, kinesis: Any, start: str, counts: list[int]
) -> None:
    """From wherever reading began, and though the shard ends with the page."""
    put(kinesis, "s", [b"%d" % number for number in range(8)], "k")
    kinesis.split_shard(StreamName="s", ShardToSplit=SHARD, NewStartingHashKey=str(2**127))
    client = StreamClient(StreamAddress("s", region="us-east-1", endpoint=server.endpoint_url))
    first = client.get_records(SHARD, client.shard_iterator(SHARD, TRIM_HORIZON), 1).page.records[0]
    positions: dict[str, Position] = {
        "horizon": TRIM_HORIZON,
        "instant": AtTimestamp(START_MS - 1_000),
        "record": AfterRecord(first.sequence_number),
        "record itself": AfterRecord(first.sequence_number),
    }
    budget = ShardBudget(Pace(0.0, 0.0))
    inclusive = start == "record itself"
    cursor = ShardCursor(client, budget, SHARD, positions[start], inclusive=inclusive)
    given: list[bytes] = []
    for count in [*counts, None, None]:
        if cursor.at_end:
            break
        fetched = cursor.fetch()
        if count is not None:
            fetched = cursor.keep(fetched, count)
            if count < 8:
                assert not cursor.at_end
                assert fetched.page.millis_behind_latest, "more is to come"
                assert not fetched.page.child_shards
        given += [record.data for record in fetched.page.records]
    expected = [b"%d" % number for number in range(8)]
    assert given == (expected[1:] if start == "record" else expected)
    assert cursor.at_end
    assert len(fetched.page.child_shards or ()) == 2


@pytest.mark.parametrize("named", ["NextShardIterator", "ChildShards"], ids=["named", "unnamed"])
def test_only_a_closed_shard_ends(
    server: LocalServer,
    clock: ManualClock,
    kinesis: Any,
    caplog: pytest.LogCaptureFixture,
    named: str,
) -> None:
    """Though no answer has an iterator, and the end names its children or does not."""
    lost = Fault(omit=frozenset({"NextShardIterator", named}))
    server.kinesis.faults = lambda call: lost if call.operation == "GetRecords" else None
    put(kinesis, "s", [b"0", b"1", b"2"], "k")
    client = StreamClient(StreamAddress("s", region="us-east-1", endpoint=server.endpoint_url))
    cursor = ShardCursor(client, ShardBudget(Pace(0.0, 0.0)), SHARD, TRIM_HORIZON)
    given = [record.data for _ in range(4) for record in cursor.fetch(1).page.records]
    assert given == [b"0", b"1", b"2"]
    ended_while_open = cursor.at_end
    assert caplog.text.count("ListShards shows the shard as open. Reading goes on at") == 1
    kinesis.split_shard(StreamName="s", ShardToSplit=SHARD, NewStartingHashKey=str(2**127))
    clock.advance(2_001)
    assert not cursor.fetch().page.records
    assert (ended_while_open, cursor.at_end) == (False, True)
    assert server.kinesis.calls.count("ListShards") == (1 if named == "NextShardIterator" else 2)


@pytest.mark.parametrize("is_inclusive", [False, True])
def test_a_sequence_number_that_is_refused_once_is_asked_for_again(
    server: LocalServer, kinesis: Any, is_inclusive: bool
) -> None:
    """Each way to read at a record asks by this call: queries, workers, `tail`, `leases`."""
    put(kinesis, "s", [b"0", b"1"], "k")
    waits: list[float] = []
    retry = Retry(sleep=waits.append)
    address = StreamAddress("s", region="us-east-1", endpoint=server.endpoint_url)
    client = StreamClient(address, retry)
    page = client.get_records(SHARD, client.shard_iterator(SHARD, TRIM_HORIZON), 1).page
    position = AfterRecord(page.records[0].sequence_number)
    refusals = 1

    def refuse(call: Call) -> Fault | None:
        nonlocal refusals
        if call.operation != "GetShardIterator" or not refusals:
            return None
        refusals -= 1
        return Fault.error("InvalidArgumentException", "no such number")

    server.kinesis.faults = refuse
    try:
        budget = ShardBudget(Pace(0.0, 0.0))
        cursor = ShardCursor(client, budget, SHARD, position, inclusive=is_inclusive)
        read = [record.data for record in cursor.fetch().page.records]
        assert read == ([b"0", b"1"] if is_inclusive else [b"1"])
        assert waits == [0.5]
        refusals = 2
        with pytest.raises(PositionNotFoundError, match=r"asked twice.*no such number"):
            client.shard_iterator(SHARD, position)
        assert waits == [0.5, 0.5]
    finally:
        server.kinesis.faults = None


def test_a_page_that_stays_bad_is_an_error_that_names_its_place_and_is_fetched_anew(
    server: LocalServer, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(kinesis, "s", [b"%d" % number for number in range(4)], "k")
    encode = JsonCodec._page
    bad = [True, True]

    def encode_page(codec: JsonCodec, page: Any) -> bytes:
        answer = json.loads(encode(codec, page))
        if len(answer["Records"]) == 3 and bad:
            bad.pop()
            answer["Records"][1]["SequenceNumber"] = ""
        return json.dumps(answer).encode()

    monkeypatch.setattr(JsonCodec, "_page", encode_page)
    address = StreamAddress("s", region="us-east-1", endpoint=server.endpoint_url)
    client = StreamClient(address, Retry(give_up_after=0))
    cursor = ShardCursor(client, ShardBudget(Pace(0.0, 0.0)), SHARD, TRIM_HORIZON)
    (first,) = cursor.fetch(1).page.records
    place = f"SequenceNumber is not a number.*{SHARD} of stream 's'.* {first.sequence_number}"
    for _ in range(2):
        with pytest.raises(ServiceError, match=place):
            cursor.fetch()
    assert [record.data for record in cursor.fetch().page.records] == [b"1", b"2", b"3"]

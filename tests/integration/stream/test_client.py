"""What a client asks a service for, and what it makes of the answers, call by call."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis.errors import AccessDeniedError, ServiceError, StreamNotFoundError
from sparkinesis.metrics.catalogue import BYTES_FETCHED, RECORDS_FETCHED
from sparkinesis.metrics.tally import Tally
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient, StreamSummary
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.calls.stream_identity import list_streams
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AfterRecord, AtTimestamp
from sparkinesis.stream.put_entry import PutEntry, PutResult
from sparkinesis.stream.shard import Shard
from tests.integration.stream.conftest import SHARD, STREAM_ARN
from tests.planners import Time
from tests.scripted import DATE_MS, Script, answer, refusal
from tests.tallies import counted

Open = Callable[..., StreamClient]
ANOTHER_CLOCK = DATE_MS + 3_600_000


@pytest.fixture
def open_client(script: Script) -> Open:
    """Clients of the script, whose own clock says these times, one after the other."""

    def open_one(*local_ms: int, arn: str | None = None, **options: Any) -> StreamClient:
        times = iter(local_ms)
        address = StreamAddress("s", arn, "us-east-1", script.endpoint)
        time = Time()
        retry = Backoff(clock=time, sleep=time.sleep, uniform=lambda _, most: most)
        return StreamClient(
            address, retry, lambda: next(times) if local_ms else ANOTHER_CLOCK, **options
        )

    return open_one


def page_of(*datas: bytes) -> dict[str, Any]:
    records = [
        {
            "Data": base64.b64encode(data).decode(),
            "PartitionKey": "k",
            "SequenceNumber": str(number),
            "ApproximateArrivalTimestamp": 1.79e9,
        }
        for number, data in enumerate(datas, 10)
    ]
    return {"Records": records, "NextShardIterator": "next", "MillisBehindLatest": 0}


@pytest.mark.parametrize(
    ("local_ms", "told_ms", "asked_ms"),
    [
        ([300, 450], 450, 300),
        ([-10, 450], 450, -10),
        ([300, 1100], 300, 300),
        ([3_600_000, 3_602_999], 0, -2000),
        ([3_600_000, 3_599_000], 0, 0),
    ],
    ids=["one clock", "a second begins", "a second ends", "two clocks", "a clock is put back"],
)
def test_a_page_tells_the_services_time_and_the_latest_at_which_it_was_asked_for(
    open_client: Open, script: Script, local_ms: list[int], told_ms: int, asked_ms: int
) -> None:
    """What arrives later than that may be missing in it."""
    script.on("GetRecords", answer(page_of(b"a")))
    fetched = open_client(*[DATE_MS + ms for ms in local_ms]).get_records(SHARD, "i", 7)
    told, asked = fetched.service_time_ms - DATE_MS, fetched.asked_ms - DATE_MS
    assert (told, asked) == (told_ms, asked_ms)


def test_a_page_is_asked_for_when_the_attempt_was_sent_that_returned_it(
    open_client: Open, script: Script
) -> None:
    script.on("GetRecords", refusal("ThrottlingException"), answer(page_of(b"a")))
    client = open_client(*[DATE_MS + ms for ms in (100, 700, 800, 810)])
    assert client.get_records(SHARD, "i", 7).asked_ms == DATE_MS + 700


@pytest.mark.parametrize("arn", [None, STREAM_ARN])
def test_a_page_is_that_of_its_iterator_and_is_counted(
    open_client: Open, script: Script, arn: str | None
) -> None:
    tally = Tally()
    client = open_client(arn=arn, metrics=tally)
    script.on("GetRecords", answer(page_of(b"a" * 3000, b"b" * 50)), answer(page_of()))
    fetched = client.get_records(SHARD, "i", 7)
    asked = {"ShardIterator": "i", "Limit": 7, **({"StreamARN": arn} if arn else {})}
    assert script.of("GetRecords") == [asked]
    assert [record.data for record in fetched.page.records] == [b"a" * 3000, b"b" * 50]
    assert fetched.page.next_shard_iterator == "next"
    assert abs(fetched.size - 3052) < 60, "about the data and the keys"
    assert client.get_records(SHARD, "i", 7).size == 0
    assert counted(tally, RECORDS_FETCHED) == {("s",): 2}
    assert counted(tally, BYTES_FETCHED) == {("s",): fetched.size}


def test_a_stream_says_how_long_and_how_it_keeps_records(open_client: Open, script: Script) -> None:
    described = {
        "StreamName": "s",
        "StreamARN": STREAM_ARN,
        "StreamStatus": "UPDATING",
        "RetentionPeriodHours": 25,
        "RecordDistributionStrategy": "AUTO",
        "StreamCreationTimestamp": 1.79e9 - 0.25,
    }
    bare = {"StreamName": "s", "StreamARN": STREAM_ARN, "RetentionPeriodHours": 24}
    script.on(
        "DescribeStreamSummary",
        *[answer({"StreamDescriptionSummary": one}) for one in (described, bare)],
    )
    client = open_client()
    hours = 3_600_000
    assert client.describe() == StreamSummary(25 * hours, DATE_MS, True, DATE_MS - 250, "UPDATING")
    assert client.describe() == StreamSummary(24 * hours, DATE_MS, False, 0, "")
    assert script.calls == [("DescribeStreamSummary", {"StreamName": "s"})] * 2
    assert client.stream_arn() == STREAM_ARN
    assert len(script.calls) == 2, "an ARN never changes"


def test_an_arn_that_is_known_is_not_asked_for(open_client: Open, script: Script) -> None:
    assert open_client(arn=STREAM_ARN).stream_arn() == STREAM_ARN
    client = open_client()
    client.learn_arn("arn:other")
    assert client.stream_arn() == "arn:other"
    assert script.calls == []
    script.on("DescribeStreamSummary", refusal("ResourceNotFoundException"))
    with pytest.raises(StreamNotFoundError):
        open_client().stream_arn()


CLOSED = {
    "ShardId": "shardId-2",
    "ParentShardId": "shardId-0",
    "AdjacentParentShardId": "shardId-1",
    "HashKeyRange": {"StartingHashKey": "5", "EndingHashKey": "9"},
    "SequenceNumberRange": {"StartingSequenceNumber": "3", "EndingSequenceNumber": "8"},
}
OPEN = {
    "ShardId": "shardId-3",
    "ParentShardId": "shardId-2",
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "4"},
    "SequenceNumberRange": {"StartingSequenceNumber": "9"},
}


def test_all_pages_of_shards_are_listed_as_of_the_first_one(
    open_client: Open, script: Script
) -> None:
    """A shard of a later reshard may be missing."""
    script.on("ListShards", answer({"Shards": [CLOSED], "NextToken": "t"}))
    script.on("ListShards", answer({"Shards": [OPEN]}))
    client = open_client(DATE_MS + 100, DATE_MS + 200, DATE_MS + 900)
    shards, listed_ms = client.list_shards()
    assert shards == [
        Shard("shardId-2", ("shardId-0", "shardId-1"), False, (5, 9), "3", "8"),
        Shard("shardId-3", ("shardId-2",), True, (0, 4), "9", None),
    ]
    assert listed_ms == DATE_MS + 200
    assert script.of("ListShards") == [{"StreamName": "s"}, {"NextToken": "t"}]


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, None),
        ({"at": LATEST}, {"Type": "AT_LATEST"}),
        ({"at": TRIM_HORIZON}, {"Type": "AT_TRIM_HORIZON"}),
        ({"at": AtTimestamp(1500)}, {"Type": "AT_TIMESTAMP", "Timestamp": 1.5}),
        ({"since": AtTimestamp(1500)}, {"Type": "FROM_TIMESTAMP", "Timestamp": 1.5}),
    ],
)
def test_shards_may_be_those_of_an_instant(
    open_client: Open, script: Script, options: dict[str, Any], asked: object
) -> None:
    script.on("ListShards", answer({"Shards": [OPEN]}))
    open_client(arn=STREAM_ARN).list_shards_created(**options)
    (sent,) = script.of("ListShards")
    assert (sent["StreamARN"], sent.get("ShardFilter")) == (STREAM_ARN, asked)


def test_a_position_within_a_shard_is_no_instant_of_a_stream(open_client: Open) -> None:
    with pytest.raises(ValueError, match="no filter for position 5"):
        open_client().list_shards(at=AfterRecord("5"))


def test_a_listing_waits_for_a_new_stream_and_for_nothing_else(
    open_client: Open, script: Script
) -> None:
    summary = {"StreamARN": STREAM_ARN, "RetentionPeriodHours": 24, "StreamStatus": "ACTIVE"}
    script.on("ListShards", refusal("ResourceInUseException"), answer({"Shards": [OPEN]}))
    script.on("DescribeStreamSummary", answer({"StreamDescriptionSummary": summary}))
    shards, _ = open_client().list_shards_created(at=LATEST)
    assert [shard.id for shard in shards] == ["shardId-3"]
    assert [one["ShardFilter"] for one in script.of("ListShards")] == [{"Type": "AT_LATEST"}] * 2
    script.on("ListShards", refusal("ValidationException"))
    with pytest.raises(ServiceError, match="ValidationException"):
        open_client().list_shards_created()
    assert len(script.of("DescribeStreamSummary")) == 1


def test_an_iterator_is_that_of_a_shards_position(open_client: Open, script: Script) -> None:
    script.on("GetShardIterator", *[answer({"ShardIterator": "i"})] * 3)
    client = open_client()
    assert client.shard_iterator(SHARD, AfterRecord("5")) == "i"
    assert client.shard_iterator(SHARD, AfterRecord("5"), inclusive=True) == "i"
    assert client.shard_iterator(SHARD, LATEST) == "i"
    place = {"StreamName": "s", "ShardId": SHARD}
    assert script.of("GetShardIterator") == [
        {**place, "ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": "5"},
        {**place, "ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": "5"},
        {**place, "ShardIteratorType": "LATEST"},
    ]


@pytest.mark.parametrize("given", [{}, {"ShardIterator": ""}, {"ShardIterator": None}])
def test_no_iterator_is_an_error(open_client: Open, script: Script, given: dict[str, Any]) -> None:
    script.on("GetShardIterator", answer(given))
    with pytest.raises(ServiceError, match=f"no iterator for shard {SHARD} of .* position 5"):
        open_client().shard_iterator(SHARD, AfterRecord("5"))


def test_a_shard_is_there_if_it_has_an_iterator(open_client: Open, script: Script) -> None:
    script.on("GetShardIterator", answer({"ShardIterator": "i"}))
    script.on("GetShardIterator", refusal("ResourceNotFoundException"))
    script.on("GetShardIterator", refusal("AccessDeniedException"))
    client = open_client()
    assert client.has_shard(SHARD)
    assert not client.has_shard(SHARD)
    with pytest.raises(AccessDeniedError):
        client.has_shard(SHARD)
    for name in ("", "a b", "x" * 129, "shard\n"):
        assert not client.has_shard(name), "the service would refuse to say"
    assert len(script.of("GetShardIterator")) == 3
    assert {one["ShardIteratorType"] for one in script.of("GetShardIterator")} == {"TRIM_HORIZON"}


def test_each_entry_of_a_put_has_its_own_result(open_client: Open, script: Script) -> None:
    results = [
        {"ShardId": SHARD, "SequenceNumber": "7"},
        {"ErrorCode": "InternalFailure", "ErrorMessage": "no"},
        {"ShardId": SHARD, "SequenceNumber": "8"},
    ]
    script.on("PutRecords", answer({"FailedRecordCount": 1, "Records": results}))
    entries = [
        PutEntry("k", None, b"a", ()),
        PutEntry("", None, b"b", ()),
        PutEntry("k", "0", b"c", ()),
    ]
    assert open_client().put_records(entries) == [
        PutResult(SHARD),
        PutResult(None, "InternalFailure", "no"),
        PutResult(SHARD),
    ]
    assert script.of("PutRecords") == [
        {
            "StreamName": "s",
            "Records": [
                {"Data": "YQ==", "PartitionKey": "k"},
                {"Data": "Yg=="},
                {"Data": "Yw==", "PartitionKey": "k", "ExplicitHashKey": "0"},
            ],
        }
    ]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_results_that_are_not_those_of_the_entries_are_no_answer(
    open_client: Open, script: Script, count: int
) -> None:
    """Else a record that was refused could be taken for stored."""
    wrong = answer({"Records": [{"ShardId": SHARD, "SequenceNumber": "7"}] * count})
    right = answer({"Records": [{"ShardId": SHARD, "SequenceNumber": "7"}] * 2})
    script.on("PutRecords", wrong, right)
    entries = [PutEntry("k", None, b"a", ()), PutEntry("k", None, b"b", ())]
    assert open_client().put_records(entries) == [PutResult(SHARD)] * 2
    assert len(script.of("PutRecords")) == 2, "it is put again"


def test_streams_are_listed_until_all_that_are_wanted_are_found(
    open_client: Open, script: Script
) -> None:
    def listed(*names: str, token: str | None, **status: str) -> Any:
        streams = [
            {
                "StreamName": name,
                "StreamARN": f"arn:{name}",
                "StreamStatus": status.get(name, "ACTIVE"),
                "StreamCreationTimestamp": 1.79e9,
            }
            for name in names
        ]
        return answer({"StreamSummaries": streams, **({"NextToken": token} if token else {})})

    pages = [
        listed("a", "b", token="1", b="CREATING"),
        listed("c", "d", token="2", c="UPDATING", d="DELETING"),
        listed("e", token=None),
    ]
    for wanted, most, expected in [
        ({"a"}, 9, "a"),
        ({"a", "c"}, 9, "ac"),
        ({"a", "z"}, 9, "ace"),
        ({"z"}, 2, "ac"),
        ({"b"}, 9, "ace"),
    ]:
        script.answers.clear()
        script.on("ListStreams", *pages)
        found = list_streams(open_client(), wanted, most)
        assert found == [(f"arn:{name}", DATE_MS, DATE_MS) for name in expected]
    assert script.of("ListStreams")[:3] == [
        {"Limit": 100},
        {"Limit": 100},
        {"Limit": 100, "NextToken": "1"},
    ]


def test_the_size_of_a_page_is_about_that_of_its_records(open_client: Open, script: Script) -> None:
    """The bytes of a page are those of its JSON, less what is around the data."""
    for sizes in ([0], [1] * 50, [5000], [300] * 20):
        page = page_of(*[bytes(size) for size in sizes])
        script.on("GetRecords", answer(page))
        size = open_client().get_records(SHARD, "i", 7).size
        spaces = len(json.dumps(page)) - len(json.dumps(page, separators=(",", ":")))
        assert abs(size - sum(sizes) - len(sizes)) <= 100 + spaces

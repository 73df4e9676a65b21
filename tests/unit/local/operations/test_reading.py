"""Iterators: the start of each type, the size of pages, and the end of a shard."""

from __future__ import annotations

import pytest

from sparkinesis.local import Fault, KinesisError, LocalKinesis, ManualClock
from tests.unit.local.calls import SHARD_0, SHARD_1, SHARD_2, SHARD_3, Stream, data


@pytest.mark.parametrize("kind", ["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"])
def test_the_range_of_a_shard_can_be_started_from(stream: Stream, kind: str) -> None:
    stream.put("a")
    stream.split()
    range_ = stream.shards()[0]["SequenceNumberRange"]
    assert stream.read(kind, StartingSequenceNumber=range_["StartingSequenceNumber"]) == ["a"]
    assert stream.read(kind, StartingSequenceNumber=range_["EndingSequenceNumber"]) == []


def test_a_number_between_two_records_begins_at_the_later_one(stream: Stream) -> None:
    first, _ = stream.put("a"), stream.put("b")
    between = str(int(first) + (1 << 36))  # the same counter, one second on
    before = str(int(first) - (1 << 36))
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        assert stream.read(kind, StartingSequenceNumber=between) == ["b"]
        assert stream.read(kind, StartingSequenceNumber=before) == ["a", "b"]


def test_at_timestamp_begins_at_the_first_record_not_older(
    stream: Stream, clock: ManualClock
) -> None:
    start = clock()
    for name in "abc":
        stream.put(name)
        stream.put(name.upper())
        clock.advance(10)

    def read(ms: float) -> str:
        return "".join(stream.read("AT_TIMESTAMP", Timestamp=(start + ms) / 1000))

    assert read(-1e308) == "aAbBcC"
    assert read(-5000) == "aAbBcC"
    assert read(0) == "aAbBcC"
    assert read(1) == "bBcC"
    assert read(10) == "bBcC"
    assert read(20) == "cC"
    assert read(21) == ""


def test_at_timestamp_of_arrival_times_out_of_order_is_the_first_such_record(
    kinesis: LocalKinesis, stream: Stream, clock: ManualClock
) -> None:
    start = clock()
    for name, skew in (("a", 0), ("late", -50), ("early", 70), ("d", 0)):
        kinesis.faults = lambda _, skew=skew: Fault(arrival_skew_ms=skew)
        stream.put(name)
        clock.advance(20)
    kinesis.faults = None
    clock.advance(500)
    arrivals = [
        round(record["ApproximateArrivalTimestamp"] * 1000) - start
        for record in stream.get(stream.iterator())["Records"]
    ]
    assert arrivals == [0, -30, 110, 60]
    assert stream.read("AT_TIMESTAMP", Timestamp=(start + 1) / 1000) == ["early", "d"]
    assert stream.read("AT_TIMESTAMP", Timestamp=(start + 111) / 1000) == []


def test_a_sequence_number_of_another_shard_or_stream_is_refused(
    kinesis: LocalKinesis, clock: ManualClock
) -> None:
    stream = Stream(kinesis, shards=2)
    other = stream.put("x", ExplicitHashKey="0")
    with pytest.raises(KinesisError, match=r"encodes shardId-000000000000.*shardId-000000000001"):
        stream.iterator("AT_SEQUENCE_NUMBER", SHARD_1, StartingSequenceNumber=other)
    clock.advance(1000)
    foreign = Stream(kinesis, shards=1, name="foreign").put("x")
    with pytest.raises(KinesisError, match="did not come from this stream"):
        stream.iterator("AT_SEQUENCE_NUMBER", SHARD_0, StartingSequenceNumber=foreign)


def test_a_page_holds_at_most_the_limit_and_the_next_one_goes_on(stream: Stream) -> None:
    for name in "abcde":
        stream.put(name)
    page = stream.get(stream.iterator(), Limit=2)
    assert data(page) == ["a", "b"]
    assert data(stream.get(page["NextShardIterator"], Limit=2)) == ["c", "d"]
    # An iterator is a position, not a cursor: it can be used again.
    assert data(stream.get(page["NextShardIterator"])) == ["c", "d", "e"]


def test_a_page_holds_at_most_10_000_records(stream: Stream) -> None:
    entries = [{"Data": b"", "PartitionKey": "k"}] * 500
    for _ in range(21):
        stream("PutRecords", Records=entries)
    page = stream.get(stream.iterator())
    assert len(page["Records"]) == 10_000
    assert len(stream.get(page["NextShardIterator"])["Records"]) == 500
    with pytest.raises(KinesisError, match="less than or equal to 10000"):
        stream.get(stream.iterator(), Limit=10_001)


def test_millis_behind_latest_is_the_age_of_the_next_record_and_0_at_the_tip(
    stream: Stream, clock: ManualClock
) -> None:
    stream.put("a")
    clock.advance(300)
    stream.put("b")
    clock.advance(50)
    page = stream.get(stream.iterator(), Limit=1)
    assert page["MillisBehindLatest"] == 50
    assert stream.get(page["NextShardIterator"])["MillisBehindLatest"] == 0
    stream.put("c")
    page = stream.get(page["NextShardIterator"], Limit=1)
    assert page["MillisBehindLatest"] == 1  # a record is waiting, however young


def test_an_iterator_expires_after_5_minutes(stream: Stream, clock: ManualClock) -> None:
    stream.put("a")
    iterator = stream.iterator()
    clock.advance(300_000)
    following = stream.get(iterator, Limit=1)["NextShardIterator"]
    clock.advance(1)
    with pytest.raises(KinesisError, match=r"ExpiredIteratorException.*300000 milliseconds"):
        stream.get(iterator)
    stream.get(following)


def test_an_invented_iterator_is_invalid_and_a_mangled_one_and_that_of_another_region(
    stream: Stream,
) -> None:
    token = stream.iterator()
    mangled = token[:40] + ("A" if token[40] != "A" else "B") + token[41:]
    for invalid in ("AAAAAAAAAAE=", "nonsense", "x" * 300, mangled):
        with pytest.raises(KinesisError, match="InvalidArgumentException: Invalid ShardIterator"):
            stream.get(invalid)
    with pytest.raises(KinesisError, match="Invalid ShardIterator"):
        stream.kinesis.call("GetRecords", region="eu-west-1", ShardIterator=token)


def test_an_iterator_does_not_outlive_its_stream(stream: Stream, clock: ManualClock) -> None:
    iterator = stream.iterator()
    stream("DeleteStream")
    with pytest.raises(KinesisError, match=r"ResourceNotFoundException.*does not exist"):
        stream.get(iterator)
    clock.advance(1)
    Stream(stream.kinesis, shards=1)
    with pytest.raises(KinesisError, match=r"ResourceNotFoundException.*does not exist"):
        stream.get(iterator)


def test_a_closed_shard_ends_with_its_children_on_its_last_page(stream: Stream) -> None:
    stream.put("a")
    stream.put("b")
    stream.split()
    first = stream.get(stream.iterator(), Limit=1)
    assert "ChildShards" not in first
    last = stream.get(first["NextShardIterator"])
    assert data(last) == ["b"]
    assert "NextShardIterator" not in last
    assert last["MillisBehindLatest"] == 0
    assert [(c["ShardId"], c["ParentShards"]) for c in last["ChildShards"]] == [
        (SHARD_1, [SHARD_0]),
        (SHARD_2, [SHARD_0]),
    ]
    assert last["ChildShards"][1]["HashKeyRange"]["StartingHashKey"] == str(2**127)


def test_both_parents_of_a_merge_name_the_child(kinesis: LocalKinesis) -> None:
    stream = Stream(kinesis, shards=2)
    tip = stream.get(stream.iterator(shard=SHARD_1))["NextShardIterator"]
    stream.merge(SHARD_0, SHARD_1)
    for page in (stream.get(stream.iterator(shard=SHARD_0)), stream.get(tip)):
        assert [c["ParentShards"] for c in page["ChildShards"]] == [[SHARD_0, SHARD_1]]
    with pytest.raises(KinesisError, match="does not exist"):
        stream.iterator(shard=SHARD_3)


def test_empty_pages_come_first_and_say_that_there_is_more(
    kinesis: LocalKinesis, stream: Stream, clock: ManualClock
) -> None:
    kinesis.empty_pages = 2
    stream.put("a")
    clock.advance(10)
    iterator = stream.iterator()
    for _ in range(2):
        page = stream.get(iterator)
        assert page["Records"] == []
        assert page["MillisBehindLatest"] == 10
        iterator = page["NextShardIterator"]
    assert data(stream.get(iterator)) == ["a"]


def test_with_empty_pages_the_end_of_a_shard_comes_after_its_last_records(
    kinesis: LocalKinesis, stream: Stream
) -> None:
    stream.put("a")
    iterator = stream.iterator()
    kinesis.empty_pages = 1
    stream.split(SHARD_0)
    page = stream.get(iterator)
    assert data(page) == ["a"]
    assert "ChildShards" not in page
    last = stream.get(page["NextShardIterator"])
    assert last["Records"] == []
    assert "NextShardIterator" not in last
    assert len(last["ChildShards"]) == 2


def test_empty_pages_do_not_delay_an_iterator_at_the_tip(kinesis: LocalKinesis) -> None:
    kinesis.empty_pages = 2
    stream = Stream(kinesis, shards=1)
    page = stream.get(stream.iterator("LATEST"))
    assert page["MillisBehindLatest"] == 0
    stream.put("a")
    assert data(stream.get(page["NextShardIterator"])) == ["a"]

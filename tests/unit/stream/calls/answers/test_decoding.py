"""A page is decoded as botocore would, and what is no page is an error that says so."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkinesis.errors import ServiceError
from sparkinesis.stream.calls.answers.decoding import decode_event, decode_page
from sparkinesis.stream.page import ChildShard, Page, Record

RECORD = Record(
    data=b"x", partition_key="k", sequence_number="1", approximate_arrival_timestamp=1.5
)


def wire(record: Record) -> dict[str, Any]:
    """A record as the service writes it: without what it has not."""
    members = {
        "SequenceNumber": record.sequence_number,
        "ApproximateArrivalTimestamp": record.approximate_arrival_timestamp,
        "Data": base64.b64encode(record.data).decode(),
        "PartitionKey": record.partition_key,
    }
    return {name: value for name, value in members.items() if value is not None}


records = st.builds(
    Record,
    data=st.binary(max_size=50),
    partition_key=st.none()
    | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
    sequence_number=st.integers(0, 2**186).map(str),
    approximate_arrival_timestamp=st.none() | st.integers(0, 10**13).map(lambda ms: ms / 1000),
)


@settings(deadline=None)
@given(st.lists(records), st.booleans())
def test_records_come_out_as_they_were_written(expected: list[Record], ascii_only: bool) -> None:
    answer = {
        "Records": [wire(record) for record in expected],
        "NextShardIterator": "AAAA==",
        "MillisBehindLatest": 12,
    }
    body = json.dumps(answer, ensure_ascii=ascii_only).encode()
    assert decode_page(body) == Page(expected, "AAAA==", 12, None)
    assert decode_event(body).records == expected


def test_the_service_writes_seconds_with_an_exponent() -> None:
    body = (
        b'{"Records":[{"ApproximateArrivalTimestamp":1.763705123456E9,"Data":"",'
        b'"PartitionKey":"k","SequenceNumber":"1"}]}'
    )
    assert decode_page(body).records[0].approximate_arrival_timestamp == 1763705123.456


def test_unknown_fields_are_skipped() -> None:
    record = {**wire(RECORD), "EncryptionType": "KMS", "New": [{"a": None}]}
    page = decode_page(json.dumps({"New": {"b": 1}, "Records": [record]}).encode())
    assert page == Page([RECORD])


def test_the_last_page_of_a_closed_shard_names_its_children() -> None:
    child = {
        "ShardId": "shardId-000000000002",
        "ParentShards": ["shardId-000000000000", "shardId-000000000001"],
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)},
    }
    page = decode_page(json.dumps({"Records": [], "ChildShards": [child]}).encode())
    assert page.next_shard_iterator is None
    assert page.child_shards is not None
    (decoded,) = page.child_shards
    assert isinstance(decoded, ChildShard)
    assert decoded.shard_id == "shardId-000000000002"
    assert decoded.parent_shards == ["shardId-000000000000", "shardId-000000000001"]
    assert int(decoded.hash_key_range.starting_hash_key) == 0
    assert int(decoded.hash_key_range.ending_hash_key) == 2**128 - 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "0 bytes"),
        (b"{}", "Records"),
        (b"<html>Bad Gateway</html>", "<html>Bad Gateway"),
        (b'{"Records":[{"Data":"!","PartitionKey":"k","SequenceNumber":"1"}]}', "Data"),
        (b'{"Records":[{"Data":"","PartitionKey":"k"}]}', "SequenceNumber"),
        (b'{"Records":[{"Data":"","PartitionKey":"\xff","SequenceNumber":"1"}]}', "utf-8"),
        (b'{"Records":[{"Data":"","PartitionKey":"\\ud800","SequenceNumber":"1"}]}', "surrogate"),
        (b'{"a":' + b"[" * 100_000, "recursion|truncated"),  # Python 3.14 nests deeper
    ],
)
def test_what_is_no_page_is_an_error_that_says_why(body: bytes, says: str) -> None:
    with pytest.raises(ServiceError, match=says):
        decode_page(body)


def test_the_error_shows_no_user_data() -> None:
    body = b'{"Records":[{"Data":"c2VjcmV0","PartitionKey":"secret","SequenceNumber":1}]}'
    with pytest.raises(ServiceError) as error:
        decode_page(body)
    assert "c2VjcmV0" not in str(error.value)
    assert "secret" not in str(error.value)

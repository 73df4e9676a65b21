"""Aggregates are full, and both we and the aggregation library read what the other one packs."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from aws_kinesis_agg.aggregator import RecordAggregator
from aws_kinesis_agg.deaggregator import deaggregate_records
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkinesis.errors import RecordTooLargeError
from sparkinesis.stream.kpl.pack import OutgoingRecord, aggregate
from sparkinesis.stream.page import Record
from tests.unit.stream.kpl.aggregates import GOLDEN, GOLDEN_USERS, rows

partition_keys = st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20
) | st.sampled_from(["a", "b", "\U0001f600" * 256])
hash_keys = st.integers(0, 2**128 - 1).map(str)
data = st.binary(max_size=300)


def users(hash_key: st.SearchStrategy[Any]) -> st.SearchStrategy[list[OutgoingRecord]]:
    return st.lists(st.tuples(partition_keys, hash_key, data), max_size=40)


# The library gives a record without an explicit hash key the first of the table, if there is one.
all_or_none = users(st.none()) | users(hash_keys)
sizes = st.integers(1500, 4000)


def with_library(records: list[bytes]) -> Iterator[OutgoingRecord]:
    given = [
        {
            "kinesis": {
                "kinesisSchemaVersion": "1.0",
                "partitionKey": "outer",
                "sequenceNumber": "1",
                "approximateArrivalTimestamp": 1.5,
                "data": base64.b64encode(record),
            }
        }
        for record in records
    ]
    for record in deaggregate_records(given):
        user = record["kinesis"]
        yield user["partitionKey"], user["explicitHashKey"], base64.b64decode(user["data"])


@settings(deadline=None)
@given(all_or_none, sizes)
def test_aws_kinesis_agg_reads_what_we_pack(packed: list[OutgoingRecord], size: int) -> None:
    assert list(with_library([blob.data for blob in aggregate(packed, size)])) == packed


@settings(deadline=None)
@given(all_or_none, sizes)
def test_we_read_what_aws_kinesis_agg_packs(packed: list[OutgoingRecord], size: int) -> None:
    aggregator = RecordAggregator(size)
    full = [aggregator.add_user_record(key, data, hash_key) for key, hash_key, data in packed]
    blobs = [blob for blob in [*full, aggregator.clear_and_get()] if blob is not None]
    records = [
        Record(data=blob.get_contents()[2], partition_key="outer", sequence_number="1")
        for blob in blobs
    ]
    assert [(key, hash_key, data) for _, key, data, _, hash_key in rows(records)] == packed


@settings(deadline=None)
@given(users(st.none() | hash_keys), sizes)
def test_aggregates_are_filled_to_the_byte(packed: list[OutgoingRecord], size: int) -> None:
    blobs = list(aggregate(packed, size))
    assert sum(blob.count for blob in blobs) == len(packed)
    first = 0
    for blob in blobs:
        end = first + blob.count
        assert len(blob.data) <= size
        assert (blob.partition_key, blob.explicit_hash_key) == packed[first][:2]
        found = rows([Record(data=blob.data, partition_key="outer", sequence_number="1")])
        assert [(key, hash_key, data) for _, key, data, _, hash_key in found] == packed[first:end]
        if end < len(packed):
            (one_more,) = aggregate(packed[first : end + 1], 1 << 20)
            assert len(one_more.data) > size
        first = end


@settings(deadline=None)
@given(st.tuples(partition_keys, st.none() | hash_keys, data))
def test_a_record_fits_to_the_byte(user: OutgoingRecord) -> None:
    (blob,) = aggregate([user], 1 << 20)
    assert list(aggregate([user], len(blob.data))) == [blob]
    with pytest.raises(RecordTooLargeError, match=str(len(blob.data))):
        aggregate([user], len(blob.data) - 1)


def test_sizes_stay_right_where_varints_grow() -> None:
    # Over 128 distinct keys make indices of two bytes; data of 127 and 128 bytes, lengths of two.
    packed: list[OutgoingRecord] = [(f"k{n}", str(n), bytes(n % 130)) for n in range(300)]
    (whole,) = aggregate(packed, 1 << 20)
    assert len(list(aggregate(packed, len(whole.data)))) == 1
    assert len(list(aggregate(packed, len(whole.data) - 1))) == 2


def test_golden_bytes_are_packed() -> None:
    (blob,) = aggregate(GOLDEN_USERS)
    assert blob.data == GOLDEN.data
    assert (blob.partition_key, blob.explicit_hash_key, blob.count) == ("k1", None, 3)


def test_a_record_too_large_is_an_error_before_any_aggregate() -> None:
    with pytest.raises(RecordTooLargeError, match=r"record 1 .*'big'.* 1048576"):
        aggregate([("small", None, b""), ("big", None, bytes(1 << 20))], 1 << 20)


@pytest.mark.parametrize(
    "user",
    [
        ("", None, b""),
        ("k" * 257, None, b""),
        ("k", "", b""),
        ("k", "-1", b""),
        ("k", "0x1", b""),
        ("k", "1_0", b""),
        ("k", "\u0661", b""),
        ("k", str(2**128), b""),
    ],
)
def test_keys_that_kinesis_refuses_are_refused(user: OutgoingRecord) -> None:
    with pytest.raises(ValueError, match="record 0"):
        aggregate([user])


@pytest.mark.parametrize("size", [0, 20, (1 << 20) + 1])
def test_sizes_that_no_aggregate_has_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="max_size"):
        aggregate([], size)

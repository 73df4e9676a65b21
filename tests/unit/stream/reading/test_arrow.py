"""Arrow batches hold what the records hold, column by column."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkinesis.stream.calls.answers.decoding import decode_page
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.stream.page import Record
from sparkinesis.stream.reading.arrow import USER_RECORD_SCHEMA, to_arrow

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def test_a_mixed_page_row_by_row() -> None:
    (blob,) = aggregate([("a", None, b"1"), ("b", "99", b"2")])
    given = [
        (b"first", "\u00e9", "100", 1763705123.456),
        (blob.data, "outer", "200", 1763705124.0),
        (b"", "last", "300", None),
    ]
    records = [
        Record(
            data=data,
            partition_key=key,
            sequence_number=number,
            approximate_arrival_timestamp=arrival,
        )
        for data, key, number, arrival in given
    ]
    batch = to_arrow(records, stream="s", shard_id="shardId-000000000000")
    batch.validate(full=True)
    assert batch.schema == USER_RECORD_SCHEMA
    first = datetime(2025, 11, 21, 6, 5, 23, 456_000, tzinfo=timezone.utc)
    second = datetime(2025, 11, 21, 6, 5, 24, tzinfo=timezone.utc)
    shard = ("s", "shardId-000000000000")
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        ("\u00e9", b"first", *shard, "100", first, 0, None),
        ("a", b"1", *shard, "200", second, 0, None),
        ("b", b"2", *shard, "200", second, 1, "99"),
        ("last", b"", *shard, "300", None, 0, None),
    ]


@pytest.mark.parametrize("size", [1, 5000])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_one_aggregate_anywhere_among_small_or_large_records(size: int, place: int) -> None:
    (blob,) = aggregate([("a", None, b"1"), ("b", None, b"2")])
    plain = [bytes([n]) * (size + n) for n in range(3)]
    data = [*plain[:place], blob.data, *plain[place:]]
    records = [
        Record(data=each, partition_key="k", sequence_number=str(n)) for n, each in enumerate(data)
    ]
    unpacked = to_arrow(records, stream="s", shard_id="i")
    unpacked.validate(full=True)
    expected = [*plain[:place], b"1", b"2", *plain[place:]]
    assert unpacked.column("data").to_pylist() == expected
    stored = to_arrow(records, stream="s", shard_id="i", deaggregate=False)
    stored.validate(full=True)
    assert stored.schema == unpacked.schema == USER_RECORD_SCHEMA
    assert stored.column("data").to_pylist() == data


@given(st.permutations(USER_RECORD_SCHEMA.names), st.integers(1, 8), st.integers(0, 2))
def test_some_columns_are_those_of_all(names: list[str], count: int, aggregated: int) -> None:
    (blob,) = aggregate([("a", None, b"1"), ("b", "99", b"2")])
    records = [
        Record(
            data=blob.data if number < aggregated else b"plain",
            partition_key=f"k{number}",
            sequence_number=str(number),
            approximate_arrival_timestamp=1763705123.0 + number,
        )
        for number in (2, 1, 0)
    ]
    for rows in (records, []):
        whole = to_arrow(rows, stream="s", shard_id="i")
        some = to_arrow(rows, stream="s", shard_id="i", columns=names[:count])
        some.validate(full=True)
        assert some.equals(whole.select(names[:count]))


@pytest.mark.parametrize("deaggregate", [True, False])
def test_no_records_are_a_batch_without_rows(deaggregate: bool) -> None:
    batch = to_arrow([], stream="s", shard_id="i", deaggregate=deaggregate)
    assert batch.num_rows == 0
    assert batch.schema == USER_RECORD_SCHEMA


@settings(deadline=None)
@given(st.lists(st.integers(0, 253_402_300_799_999), min_size=1))
@example([1001, 1763705123001, 1763705123999, 4102444799999])
def test_arrival_times_are_the_milliseconds_that_the_service_wrote(times: list[int]) -> None:
    records = ",".join(
        f'{{"Data":"","PartitionKey":"k","SequenceNumber":"{number}",'
        f'"ApproximateArrivalTimestamp":{ms // 1000}.{ms % 1000:03d}}}'
        for number, ms in enumerate(times)
    )
    page = decode_page(f'{{"Records":[{records}]}}'.encode())
    batch = to_arrow(page.records, stream="s", shard_id="i")
    expected = [EPOCH + timedelta(milliseconds=ms) for ms in times]
    assert batch.column("approximateArrivalTimestamp").to_pylist() == expected

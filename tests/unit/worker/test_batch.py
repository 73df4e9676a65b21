"""Batches: the same records as objects and as columns, and cut where processing has come to."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.stream.page import Record
from sparkinesis.worker.batch import RecordBatch, make_batch

SHARD = "shardId-000000000007"


def batch_of(*records: Record, hash_range: tuple[int, int] | None = None) -> RecordBatch:
    return make_batch(
        records, stream="s", shard_id=SHARD, millis_behind_latest=5, hash_range=hash_range
    )[0]


def aggregated(sequence_number: str, *datas: bytes) -> Record:
    (packed,) = aggregate([(data.decode(), None, data) for data in datas])
    return Record(
        data=packed.data,
        partition_key="a",
        sequence_number=sequence_number,
        approximate_arrival_timestamp=1_790_000_000.123,
    )


def test_objects_and_columns_say_the_same() -> None:
    batch = batch_of(
        Record(
            data=b"x",
            partition_key="k",
            sequence_number="100",
            approximate_arrival_timestamp=1_790_000_000.123,
        ),
        aggregated("200", b"0", b"1"),
    )
    assert [(r.data, r.sequence_number, r.sub_sequence_number) for r in batch.records] == [
        (b"x", "100", 0),
        (b"0", "200", 0),
        (b"1", "200", 1),
    ]
    first = batch.records[0]
    assert first.approximate_arrival_timestamp == datetime.fromtimestamp(
        1_790_000_000, timezone.utc
    ).replace(microsecond=123_000)
    assert (first.partition_key, first.explicit_hash_key, first.shard_id) == ("k", None, SHARD)
    assert batch.to_arrow().column("data").to_pylist() == [r.data for r in batch.records]
    assert batch.millis_behind_latest == 5


def test_a_record_without_an_arrival_time_has_none() -> None:
    assert (
        batch_of(Record(data=b"x", partition_key="k", sequence_number="1"))
        .records[0]
        .approximate_arrival_timestamp
        is None
    )


@pytest.mark.parametrize(
    ("done", "left"),
    [
        (ExtendedSequenceNumber("TRIM_HORIZON"), [b"x", b"0", b"1", b"2", b"y"]),
        (ExtendedSequenceNumber("100"), [b"0", b"1", b"2", b"y"]),
        (ExtendedSequenceNumber("200", 1), [b"2", b"y"]),
        (ExtendedSequenceNumber("200", 2), [b"y"]),
        (ExtendedSequenceNumber("1000"), []),
    ],
)
def test_what_is_left_after_a_place_inside_of_a_record(
    done: ExtendedSequenceNumber, left: list[bytes]
) -> None:
    batch = batch_of(
        Record(data=b"x", partition_key="k", sequence_number="100"),
        aggregated("200", b"0", b"1", b"2"),
        Record(data=b"y", partition_key="k", sequence_number="1000"),
    )
    assert [record.data for record in batch.after(done).records] == left


def test_the_hash_range_filter_drops_user_records_and_not_the_aggregate() -> None:
    (packed,) = aggregate([("k", "5", b"mine"), ("k", "50", b"not mine"), ("k", "9", b"mine too")])
    records = [Record(data=packed.data, partition_key="a", sequence_number="200")]
    batch, dropped = make_batch(
        records, stream="s", shard_id=SHARD, millis_behind_latest=0, hash_range=(0, 10)
    )
    assert [record.data for record in batch.records] == [b"mine", b"mine too"]
    assert [record.sub_sequence_number for record in batch.records] == [0, 2]
    assert dropped == 1
    assert len(batch_of(*records)) == 3


def test_halves_are_the_whole() -> None:
    batch = batch_of(
        *(Record(data=b"%d" % n, partition_key="k", sequence_number=str(n + 1)) for n in range(5))
    )
    first, second = batch.halves()
    assert [r.data for r in first.records + second.records] == [b"0", b"1", b"2", b"3", b"4"]
    assert len(first) == 2

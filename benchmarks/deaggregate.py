"""KPL aggregates to Arrow columns, against aws_kinesis_agg's deaggregate_records to its dicts.

Both unpack the same aggregates in the same process. Ours begins with the bytes that decoding a page
gave, and checks digests by two threads; what it does by one is shown beside. aws_kinesis_agg takes
and returns data in base64, as Lambda does, which is part of its time. Its Boto3 format spares it
half of that and is shown, too.
"""

from __future__ import annotations

import base64
import random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from aws_kinesis_agg.deaggregator import deaggregate_records, iter_deaggregate_records

from benchmarks.report import Result, medians, print_table
from sparkinesis.stream.kpl import envelope
from sparkinesis.stream.kpl.envelope import message_of
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.stream.page import Record
from sparkinesis.stream.reading.arrow import to_arrow

AGGREGATES = 200
USER_RECORD_SIZE = 200
KEYS_PER_AGGREGATE = 20
REQUIRED = 5


def aggregated_records(seed: int = 1, *, with_hash_keys: bool = False) -> list[Record]:
    """Aggregates of about 50 KB, as many as one page of 10 MB holds.

    with_hash_keys: each user record has an explicit hash key of its own.
    """
    rng = random.Random(seed)
    records: list[Record] = []
    while len(records) < AGGREGATES:
        keys = [f"{rng.getrandbits(64):016x}" for _ in range(KEYS_PER_AGGREGATE)]
        users = [
            (
                rng.choice(keys),
                str(rng.getrandbits(127)) if with_hash_keys else None,
                rng.randbytes(USER_RECORD_SIZE),
            )
            for _ in range(300)
        ]
        blob = next(aggregate(users))
        number = 10**55 + len(records)
        records.append(
            Record(
                data=blob.data,
                partition_key=blob.partition_key,
                sequence_number=str(number),
                approximate_arrival_timestamp=1_790_000_000.123,
            )
        )
    return records


def as_lambda_gets_them(records: list[Record]) -> list[dict[str, Any]]:
    return [
        {
            "kinesis": {
                "kinesisSchemaVersion": "1.0",
                "partitionKey": record.partition_key,
                "sequenceNumber": record.sequence_number,
                "data": base64.b64encode(record.data).decode(),
                "approximateArrivalTimestamp": record.approximate_arrival_timestamp,
            }
        }
        for record in records
    ]


def as_boto3_gives_them(records: list[Record]) -> list[dict[str, Any]]:
    return [
        {
            "PartitionKey": record.partition_key,
            "SequenceNumber": record.sequence_number,
            "Data": record.data,
            "ApproximateArrivalTimestamp": record.approximate_arrival_timestamp,
        }
        for record in records
    ]


def to_batch(records: list[Record]) -> pa.RecordBatch:
    return to_arrow(records, stream="orders", shard_id="shardId-000000000000")


def to_batch_by_one_thread(records: list[Record]) -> pa.RecordBatch:
    with patch.object(envelope, "_MIN_SIZE_FOR_THREAD", float("inf")):
        return to_batch(records)


def check(records: list[Record]) -> int:
    """Both give the same user records, or there is nothing to compare. Returns how many."""
    ours = [
        (row["sequenceNumber"], row["subSequenceNumber"], row["partitionKey"], row["data"])
        for row in to_batch(records).to_pylist()
    ]
    theirs = [
        (
            user["kinesis"]["sequenceNumber"],
            user["kinesis"]["subSequenceNumber"],
            user["kinesis"]["partitionKey"],
            base64.b64decode(user["kinesis"]["data"]),
        )
        for user in deaggregate_records(as_lambda_gets_them(records))
    ]
    assert ours == theirs
    return len(ours)


def run() -> list[Result]:
    records = aggregated_records()
    count = check(records)
    for_lambda, for_boto3 = as_lambda_gets_them(records), as_boto3_gives_them(records)
    ours, alone, theirs, theirs_boto3, digests = medians(
        lambda: to_batch(records),
        lambda: to_batch_by_one_thread(records),
        lambda: deaggregate_records(for_lambda),
        lambda: list(iter_deaggregate_records(for_boto3, data_format="Boto3")),
        lambda: sum(message_of(record.data) is None for record in records),
        rounds=15,
    )
    unit = "user records/s"
    return [
        Result(
            "de-aggregate to Arrow",
            count / ours,
            unit,
            theirs / ours,
            REQUIRED,
            f"{count:,} of {USER_RECORD_SIZE} B in {len(records)} aggregates",
        ),
        Result(
            "the same, by one thread",
            count / alone,
            unit,
            theirs / alone,
            note=f"MD5 is {digests / alone:.0%} of the time",
        ),
        Result("aws_kinesis_agg, deaggregate_records", count / theirs, unit),
        Result(
            "aws_kinesis_agg, Boto3 format",
            count / theirs_boto3,
            unit,
            note=f"ours is {theirs_boto3 / ours:.1f}x this",
        ),
    ]


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()

"""User records as objects and as columns, of a page's body, against botocore's parser and protobuf.

Both begin with the same bytes and end with an object for each user record; CPU time counts, of all
threads. Ours decodes the page and makes a `UserRecord` of each. The peer is what a fair loop over
boto3 does: botocore's parser makes a dict of each record; an aggregate's MD5 is checked, a class
that protobuf makes of the KPL's message parses it in one call, and a dict of each user record gets
its data, partition key, explicit hash key, sequence number, sub-sequence number and arrival time.
"Bare" is the least that a loop can do: no MD5, and nothing but a list of the data.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from benchmarks.deaggregate import aggregated_records
from benchmarks.decode import botocore_parser, page_body
from benchmarks.report import Result, medians, print_table
from sparkinesis.stream.calls.answers.decoding import data_size, decode_page
from sparkinesis.stream.kpl.envelope import messages_of
from sparkinesis.stream.kpl.magic import DIGEST_SIZE, MAGIC
from sparkinesis.stream.kpl.message_types import AggregatedRecord
from sparkinesis.stream.page import Fetched, Record
from sparkinesis.worker.batches.batch import RecordBatch, make_batch
from sparkinesis.worker.batches.page_rows import objects_of
from sparkinesis.worker.options import DEFAULT_HELD_BYTES
from sparkinesis.worker.retrieval.batch_cutter import BatchCutter
from sparkinesis.worker.retrieval.memory import MemoryBudget
from sparkinesis.worker.retrieval.waiting_pages import FetchedPage

REQUIRED = 1.2
ROUNDS = 5
PLAIN = {200: 10_000, 1_000: 5_000}
"""The records of a page that are not aggregated, by their bytes."""


def body_of(records: list[Record]) -> bytes:
    return json.dumps(
        {
            "MillisBehindLatest": 0,
            "NextShardIterator": "x",
            "Records": [
                {
                    "ApproximateArrivalTimestamp": record.approximate_arrival_timestamp,
                    "Data": base64.b64encode(record.data).decode(),
                    "PartitionKey": record.partition_key,
                    "SequenceNumber": record.sequence_number,
                }
                for record in records
            ],
        },
        separators=(",", ":"),  # as the services write it
    ).encode()


def batch_of(body: bytes) -> RecordBatch:
    batch, _ = make_batch(
        decode_page(body).records,
        stream="orders",
        shard_id="shardId-000000000000",
        millis_behind_latest=0,
    )
    return batch


def cut(fetched: Fetched) -> RecordBatch:
    """What a worker does between a decoded page and a batch of which nothing is asked for yet."""
    cutter = BatchCutter(MemoryBudget(DEFAULT_HELD_BYTES))
    part = cutter.next_part(lambda: FetchedPage(fetched, False, 0.0))
    assert part is not None
    batch, _ = make_batch(
        part.records,
        stream="orders",
        shard_id="shardId-000000000000",
        millis_behind_latest=0,
        aggregates=part.aggregates,
    )
    cutter.measure_batch(part)
    return batch


def columns_of(body: bytes) -> pa.RecordBatch:
    return batch_of(body).to_arrow()


def peer(parse: Callable[[bytes], dict[str, Any]], body: bytes) -> list[dict[str, Any]]:
    users: list[dict[str, Any]] = []
    for record in parse(body)["Records"]:
        data = record["Data"]
        message = data[len(MAGIC) : -DIGEST_SIZE]
        digest = data[-DIGEST_SIZE:]
        if not data.startswith(MAGIC) or hashlib.md5(message).digest() != digest:
            users.append({**record, "SubSequenceNumber": 0, "ExplicitHashKey": None})
            continue
        aggregate = AggregatedRecord.FromString(message)
        keys = aggregate.partition_key_table[:]
        hash_keys = aggregate.explicit_hash_key_table[:]
        sequence_number = record["SequenceNumber"]
        arrival = record["ApproximateArrivalTimestamp"]
        for sub, user in enumerate(aggregate.records):
            hash_key = None
            if user.HasField("explicit_hash_key_index"):
                hash_key = hash_keys[user.explicit_hash_key_index]
            users.append(
                {
                    "Data": user.data,
                    "PartitionKey": keys[user.partition_key_index],
                    "ExplicitHashKey": hash_key,
                    "SequenceNumber": sequence_number,
                    "SubSequenceNumber": sub,
                    "ApproximateArrivalTimestamp": arrival,
                }
            )
    return users


def bare(parse: Callable[[bytes], dict[str, Any]], body: bytes) -> list[bytes]:
    users: list[bytes] = []
    for record in parse(body)["Records"]:
        data = record["Data"]
        if data.startswith(MAGIC):
            aggregate = AggregatedRecord.FromString(data[len(MAGIC) : -DIGEST_SIZE])
            users += [user.data for user in aggregate.records]
        else:
            users.append(data)
    return users


def check(parse: Callable[[bytes], dict[str, Any]], body: bytes) -> int:
    """All give the same user records, or there is nothing to compare. Returns how many."""
    ours = batch_of(body).records
    assert ours == objects_of(columns_of(body))
    assert [record.data for record in ours] == bare(parse, body)
    assert [
        {
            "Data": record.data,
            "PartitionKey": record.partition_key,
            "ExplicitHashKey": record.explicit_hash_key,
            "SequenceNumber": record.sequence_number,
            "SubSequenceNumber": record.sub_sequence_number,
            "ApproximateArrivalTimestamp": record.approximate_arrival_timestamp,
        }
        for record in ours
    ] == peer(parse, body)
    return len(ours)


def run() -> list[Result]:
    parse = botocore_parser()
    results: list[Result] = []
    for kind, body in (
        ("KPL", body_of(aggregated_records())),
        ("KPL, explicit hash keys", body_of(aggregated_records(with_hash_keys=True))),
        *((f"plain, {size:,} B", page_body(size, count)) for size, count in PLAIN.items()),
    ):
        count = check(parse, body)
        page = decode_page(body)
        records, fetched = page.records, Fetched(page, data_size(len(body), page), 0)
        ours, columns, theirs, least, decoding, digests, cutting = medians(
            lambda: batch_of(body).records,  # noqa: B023
            lambda: columns_of(body),  # noqa: B023
            lambda: peer(parse, body),  # noqa: B023
            lambda: bare(parse, body),  # noqa: B023
            lambda: decode_page(body),  # noqa: B023
            lambda: messages_of(records),  # noqa: B023
            lambda: cut(fetched),  # noqa: B023
            rounds=ROUNDS,
            clock=time.process_time,
        )
        parts = (
            f"{columns / ours:.2f} of objects; either has {decoding / count * 1e6:.2f} of decoding"
        )
        if kind.startswith("KPL"):
            parts += f" and {digests / count * 1e6:.2f} of MD5"
        unit = "CPU s per million"
        results += [
            Result(
                f"objects, {kind}",
                ours / count * 1e6,
                unit,
                theirs / ours,
                REQUIRED,
                f"{count:,} user records from the body of a page",
            ),
            Result(
                f"the same as Arrow columns, {kind}",
                columns / count * 1e6,
                unit,
                note=parts,
            ),
            Result(
                f"between a page and its batch, {kind}",
                cutting / count * 1e6,
                unit,
                note="aggregates are found, and memory is reserved",
            ),
            Result(f"botocore and protobuf, {kind}", theirs / count * 1e6, unit),
            Result(
                f"the same, bare, {kind}",
                least / count * 1e6,
                unit,
                note=f"{least / ours:.2f} of ours; no MD5, no keys",
            ),
        ]
    return results


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()

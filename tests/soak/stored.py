"""Reads the contents of a stream with independent code: boto3 and aws-kinesis-agg."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aws_kinesis_agg.deaggregator import iter_deaggregate_records

from tests.soak.setting import STREAM

Row = tuple[str, str, int, str, int]
"""A user record: shard, sequence number, sub-sequence number, key, number."""


@dataclass
class Stored:
    rows: set[Row] = field(default_factory=set)
    records: int = 0
    """The number of Kinesis records: an aggregate is one."""

    @property
    def copies(self) -> Counter[tuple[str, int]]:
        """The number of copies of each number of each key: two if an answer was lost."""
        return Counter((key, number) for *_, key, number in self.rows)


def read_all(kinesis: Any) -> Stored:
    """Every record of every shard."""
    stored = Stored()
    for shard in kinesis.list_shards(StreamName=STREAM)["Shards"]:
        for record in _records(kinesis, shard["ShardId"]):
            stored.records += 1
            stored.rows.update(_rows(shard["ShardId"], record))
    return stored


def _records(kinesis: Any, shard: str) -> Iterator[dict[str, Any]]:
    iterator = kinesis.get_shard_iterator(
        StreamName=STREAM, ShardId=shard, ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    while iterator:
        page = kinesis.get_records(ShardIterator=iterator)
        yield from page["Records"]
        # An open shard has no last page: nobody puts any more, so its tip is the end.
        at_tip = not page["Records"] and not page["MillisBehindLatest"]
        iterator = None if at_tip else page.get("NextShardIterator")


def _rows(shard: str, record: dict[str, Any]) -> Iterator[Row]:
    sequence = record["SequenceNumber"]
    for sub, user in enumerate(iter_deaggregate_records([record], data_format="Boto3")):
        what = user["kinesis"]
        # It encodes what it has unpacked, and nothing else.
        data = base64.b64decode(what["data"]) if what.get("aggregated") else what["data"]
        key, number, _ = data.decode().split(":")
        yield shard, sequence, sub, key, int(number)

"""A stream of `LocalKinesis` for tests: fills in the stream's name and shortens responses."""

from __future__ import annotations

import base64
from typing import Any

from sparkinesis.local import LocalKinesis

SHARD_0 = "shardId-000000000000"
SHARD_1 = "shardId-000000000001"
SHARD_2 = "shardId-000000000002"
SHARD_3 = "shardId-000000000003"
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
SCALING = "UNIFORM_SCALING"
ON_DEMAND: dict[str, Any] = {"StreamModeDetails": {"StreamMode": "ON_DEMAND"}}
HOUR = 3_600_000
DAY = 24 * HOUR
TOP = 2**128 - 1


class Stream:
    def __init__(
        self, kinesis: LocalKinesis, shards: int | None = None, name: str = "s", **request: Any
    ) -> None:
        self.kinesis = kinesis
        self.name = name
        self("CreateStream", ShardCount=shards, **request)

    def __call__(self, operation: str, **request: Any) -> dict[str, Any]:
        return self.kinesis.call(operation, StreamName=self.name, **request)

    def put(self, data: str, key: str = "k", **request: Any) -> str:
        """Put one record and return its sequence number."""
        answer = self("PutRecord", Data=data.encode(), PartitionKey=key, **request)
        number: str = answer["SequenceNumber"]
        return number

    def iterator(self, kind: str = "TRIM_HORIZON", shard: str = SHARD_0, **request: Any) -> str:
        answer = self("GetShardIterator", ShardId=shard, ShardIteratorType=kind, **request)
        token: str = answer["ShardIterator"]
        return token

    def get(self, iterator: str, **request: Any) -> dict[str, Any]:
        return self.kinesis.call("GetRecords", ShardIterator=iterator, **request)

    def read(self, kind: str = "TRIM_HORIZON", shard: str = SHARD_0, **request: Any) -> list[str]:
        """Return the data of one page from a new iterator."""
        return data(self.get(self.iterator(kind, shard, **request)))

    def split(self, shard: str = SHARD_0, at: int = 2**127) -> None:
        self("SplitShard", ShardToSplit=shard, NewStartingHashKey=str(at))

    def rescale(self, count: int) -> None:
        self("UpdateShardCount", TargetShardCount=count, ScalingType=SCALING)

    def merge(self, first: str, second: str) -> None:
        self("MergeShards", ShardToMerge=first, AdjacentShardToMerge=second)

    def summary(self) -> dict[str, Any]:
        return dict(self("DescribeStreamSummary")["StreamDescriptionSummary"])

    def shards(self, **request: Any) -> list[dict[str, Any]]:
        shards: list[dict[str, Any]] = self("ListShards", **request)["Shards"]
        return shards

    def listed(self, kind: str, **rest: Any) -> list[int]:
        """Return the numbers of the shards that a ShardFilter selects."""
        return numbers(self.shards(ShardFilter={"Type": kind, **rest}))


def data(page: dict[str, Any]) -> list[str]:
    return [base64.b64decode(record["Data"]).decode() for record in page["Records"]]


def numbers(shards: list[dict[str, Any]]) -> list[int]:
    return [int(shard["ShardId"].rpartition("-")[2]) for shard in shards]


def hash_range(shard: dict[str, Any]) -> tuple[int, int]:
    keys = shard["HashKeyRange"]
    return int(keys["StartingHashKey"]), int(keys["EndingHashKey"])


def sequence_range(shard: dict[str, Any]) -> tuple[int, int | None]:
    range_ = shard["SequenceNumberRange"]
    ending = range_.get("EndingSequenceNumber")
    return int(range_["StartingSequenceNumber"]), None if ending is None else int(ending)

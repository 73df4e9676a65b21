"""Puts numbered records at a pace, on a server that applies the service's limits."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Iterable
from typing import Any

from benchmarks.local_server import Client
from benchmarks.peers.spark.records import HASH_KEYS

PER_CALL = 50


def put_numbers(client: Client, stream: str, numbers: Iterable[int], per_second: float) -> None:
    """Put the numbers as decimal text, on random hash keys; refused records once more."""
    rng = random.Random(17)
    at = time.monotonic()
    waiting: list[dict[str, Any]] = []
    for number in numbers:
        waiting.append(entry(str(number), rng.randrange(HASH_KEYS)))
        if len(waiting) == PER_CALL:
            put_all(client, stream, waiting)
            waiting = []
            at += PER_CALL / per_second
            time.sleep(max(0.0, at - time.monotonic()))
    put_all(client, stream, waiting)


def entry(data: str, hash_key: int) -> dict[str, Any]:
    return {
        "Data": base64.b64encode(data.encode()).decode(),
        "PartitionKey": "key",
        "ExplicitHashKey": str(hash_key),
    }


def put_all(client: Client, stream: str, entries: list[dict[str, Any]]) -> None:
    while entries:
        answer = client.call("PutRecords", StreamName=stream, Records=entries)
        told = answer["Records"]
        entries = [
            each
            for each, its in zip(entries, told, strict=True)
            if its.get("ErrorCode") is not None
        ]
        if entries:
            time.sleep(0.1)


def split(client: Client, stream: str) -> None:
    """Split the first open shard in two, in the middle."""
    shard = open_shards(client, stream)[0]
    keys = shard["HashKeyRange"]
    middle = (int(keys["StartingHashKey"]) + int(keys["EndingHashKey"])) // 2
    client.call(
        "SplitShard",
        StreamName=stream,
        ShardToSplit=shard["ShardId"],
        NewStartingHashKey=str(middle),
    )


def merge(client: Client, stream: str) -> None:
    """Merge the two first open shards."""
    left, right = open_shards(client, stream)[:2]
    client.call(
        "MergeShards",
        StreamName=stream,
        ShardToMerge=left["ShardId"],
        AdjacentShardToMerge=right["ShardId"],
    )


def open_shards(client: Client, stream: str) -> list[dict[str, Any]]:
    """The open shards, in the order of their hash keys."""
    shards: list[dict[str, Any]] = client.call("ListShards", StreamName=stream)["Shards"]
    ours = [each for each in shards if "EndingSequenceNumber" not in each["SequenceNumberRange"]]
    return sorted(ours, key=lambda each: int(each["HashKeyRange"]["StartingHashKey"]))

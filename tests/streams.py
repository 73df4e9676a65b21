"""Operations of tests on a stream through the public API: put, split, merge, make anew."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

from tests.pace import eventually


def active_shards(kinesis: Any, stream: str) -> list[dict[str, Any]]:
    """The open shards, sorted by hash range."""
    shards: list[dict[str, Any]] = kinesis.list_shards(StreamName=stream)["Shards"]
    return sorted(
        (s for s in shards if "EndingSequenceNumber" not in s["SequenceNumberRange"]),
        key=lambda s: int(s["HashKeyRange"]["StartingHashKey"]),
    )


def split(kinesis: Any, stream: str, rng: random.Random | None = None, index: int = 0) -> str:
    """Split an open shard in the middle; returns its id."""
    shards = active_shards(kinesis, stream)
    shard = rng.choice(shards) if rng else shards[index]
    hashes = shard["HashKeyRange"]
    middle = (int(hashes["StartingHashKey"]) + int(hashes["EndingHashKey"])) // 2
    kinesis.split_shard(
        StreamName=stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle)
    )
    return str(shard["ShardId"])


def merge_neighbours(
    kinesis: Any, stream: str, rng: random.Random | None = None, index: int = 0
) -> tuple[str, str]:
    """Merge two neighbouring open shards; returns their ids."""
    shards = active_shards(kinesis, stream)
    at = rng.randrange(len(shards) - 1) if rng else index
    left, right = shards[at]["ShardId"], shards[at + 1]["ShardId"]
    kinesis.merge_shards(StreamName=stream, ShardToMerge=left, AdjacentShardToMerge=right)
    return left, right


def put(kinesis: Any, stream: str, datas: list[bytes], key: str | None = None) -> None:
    """Put records, keyed by their data unless a key is given, in order."""
    put_all(kinesis, stream, [{"Data": d, "PartitionKey": key or d.decode()} for d in datas])


def put_all(kinesis: Any, stream: str, entries: Sequence[dict[str, Any]]) -> None:
    """Put the entries of PutRecords, however many, in order."""
    for at in range(0, len(entries), 500):
        answer = kinesis.put_records(StreamName=stream, Records=entries[at : at + 500])
        assert answer["FailedRecordCount"] == 0, answer


def arn_of(kinesis: Any, stream: str) -> str:
    summary = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    return str(summary["StreamARN"])


def create_auto(kinesis: Any, stream: str) -> str:
    """A stream that distributes records itself, over four shards; returns its ARN."""
    kinesis.create_stream(
        StreamName=stream,
        StreamModeDetails={"StreamMode": "ON_DEMAND"},
        RecordDistributionStrategy="AUTO",
    )
    return arn_of(kinesis, stream)


def create_queue(kinesis: Any, stream: str, name: str, **attributes: Any) -> str:
    """A queue of all records of a stream, which is made if it is not there; returns its ARN."""
    if stream not in kinesis.list_streams()["StreamNames"]:
        kinesis.create_stream(StreamName=stream, StreamModeDetails={"StreamMode": "ON_DEMAND"})
    start = {"StreamARN": arn_of(kinesis, stream), "StartingPosition": {"Type": "TRIM_HORIZON"}}
    made = kinesis.create_queue(
        QueueName=name, StreamConfigurationList=[start], QueueAttributes=attributes
    )
    return str(made["QueueDescription"]["QueueARN"])


def records_of(kinesis: Any, stream: str, shard: str) -> list[dict[str, Any]]:
    """The first page of a shard, from its oldest record."""
    iterator = kinesis.get_shard_iterator(
        StreamName=stream, ShardId=shard, ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    records: list[dict[str, Any]] = kinesis.get_records(ShardIterator=iterator)["Records"]
    return records


def shard_ids(kinesis: Any, stream: str) -> list[str]:
    return [s["ShardId"] for s in kinesis.list_shards(StreamName=stream)["Shards"]]


def put_at(kinesis: Any, stream: str, data: bytes, hash_key: int = 0, key: str = "k") -> str:
    """Put one record into the shard that ``hash_key`` belongs to; returns its sequence number."""
    answer = kinesis.put_record(
        StreamName=stream, Data=data, PartitionKey=key, ExplicitHashKey=str(hash_key)
    )
    return str(answer["SequenceNumber"])


def identifier(kinesis: Any, stream: str) -> str:
    """The stream as the keys of leases name it: ``<account>:<stream>:<creation epoch>``."""
    summary = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    created = int(summary["StreamCreationTimestamp"].timestamp())
    return f"{summary['StreamARN'].split(':')[4]}:{stream}:{created}"


def make_anew(kinesis: Any, stream: str, shards: int = 1) -> tuple[str, str]:
    """Delete and create a stream; return its identifiers, the old one first."""
    before = identifier(kinesis, stream)
    kinesis.delete_stream(StreamName=stream, EnforceConsumerDeletion=True)
    return before, create_anew(kinesis, stream, before, shards)


def create_anew(kinesis: Any, stream: str, before: str, shards: int = 1) -> str:
    """Create a stream that was deleted; return its identifier, which differs from ``before``."""
    while int(time.time()) <= int(before.rpartition(":")[2]):
        time.sleep(0.05)  # the identifier counts whole seconds
    kinesis.create_stream(StreamName=stream, ShardCount=shards)
    return identifier(kinesis, stream)


def create_when_permitted(kinesis: Any, name: str) -> None:
    """Create a stream of one shard, as soon as the account may: five a second, for all tests."""

    def is_created() -> bool:
        try:
            kinesis.create_stream(StreamName=name, ShardCount=1)
        except kinesis.exceptions.LimitExceededException:
            return False
        return True

    eventually(is_created)

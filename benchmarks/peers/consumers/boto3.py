"""A plain loop over GetRecords for each shard, and protobuf for aggregated records.

No leases, no checkpoints, no reshards: the least that a program can do. Digests are not checked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import boto3

from benchmarks.peers.consumers.task import REGION, Tally, Task

IDLE_SECONDS = 1.0
MAGIC = b"\xf3\x89\x9a\xc2"
DIGEST_BYTES = 16


def aggregated_record() -> Any:
    """The class of the KPL's message."""
    from google.protobuf import descriptor_pb2, message_factory  # noqa: PLC0415

    field = descriptor_pb2.FieldDescriptorProto
    kinds = {"s": field.TYPE_STRING, "b": field.TYPE_BYTES, "u": field.TYPE_UINT64}
    file = descriptor_pb2.FileDescriptorProto(name="kpl.proto", package="kpl", syntax="proto2")

    def message(name: str, *fields: tuple[str, int, str, bool]) -> None:
        made = file.message_type.add(name=name)
        for title, number, kind, is_repeated in fields:
            label = field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL
            added = made.field.add(name=title, number=number, label=label)
            if kind in kinds:
                added.type = kinds[kind]
            else:
                added.type, added.type_name = field.TYPE_MESSAGE, f".kpl.{kind}"

    message(
        "Record",
        ("partition_key_index", 1, "u", False),
        ("explicit_hash_key_index", 2, "u", False),
        ("data", 3, "b", False),
    )
    message(
        "AggregatedRecord",
        ("partition_key_table", 1, "s", True),
        ("explicit_hash_key_table", 2, "s", True),
        ("records", 3, "Record", True),
    )
    return message_factory.GetMessages([file])["kpl.AggregatedRecord"]


def user_records(decode: Callable[[bytes], Any], data: bytes) -> list[bytes]:
    if not data.startswith(MAGIC):
        return [data]
    message = decode(data[len(MAGIC) : -DIGEST_BYTES])
    return [record.data for record in message.records]


def read(
    kinesis: Any, task: Task, shard: str, tally: Tally, decode: Callable[[bytes], Any]
) -> None:
    kind = "LATEST" if task.from_latest else "TRIM_HORIZON"
    iterator = kinesis.get_shard_iterator(
        StreamName=task.stream, ShardId=shard, ShardIteratorType=kind
    )["ShardIterator"]
    idle = IDLE_SECONDS if task.idle_seconds is None else task.idle_seconds
    while iterator:
        page = kinesis.get_records(ShardIterator=iterator, Limit=10_000)
        data = [record["Data"] for record in page["Records"]]
        if task.aggregated:
            data = [user for record in data for user in user_records(decode, record)]
        if data:
            tally.add(data)
        iterator = page.get("NextShardIterator")
        if page["MillisBehindLatest"] == 0:
            time.sleep(idle)


def main() -> None:
    task = Task.from_arguments()
    decode = aggregated_record().FromString if task.aggregated else bytes
    tally = Tally(task)
    kinesis = boto3.client("kinesis", region_name=REGION, endpoint_url=task.endpoint)
    shards = kinesis.list_shards(StreamName=task.stream)["Shards"]
    threads = [
        threading.Thread(target=read, args=(kinesis, task, each["ShardId"], tally, decode))
        for each in shards
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()

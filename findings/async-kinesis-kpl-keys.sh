#!/usr/bin/env bash
# async-kinesis' KPL format gives each user record the key "a", and each aggregate a random key.
#
# async-kinesis 3.0.1, seen on 2026-11-29: KPLAggregator takes no keys: all user records have "a", whose hash key belongs
# to one shard. The aggregate is put with a random key, into any shard.
# Hurt: readers that drop the user records of other shards, as the Java KCL does: of a stream with several shards they
# keep the aggregates alone that came into the shard of "a". With two shards, about half is dropped without an error.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check async-kinesis==3.0.1 aws-kinesis-agg==1.2.3 protobuf==7.36.2 six==1.17.0 aiobotocore==3.10.0
"$work/venv/bin/python" - <<'PY'
import asyncio
import hashlib

from kinesis import Producer
from kinesis.aggregators import KPLAggregator, aws_kinesis_agg
from kinesis.processors import Processor, StringSerializer


class Packed(Processor, KPLAggregator, StringSerializer):
    pass


put = []


class Service:  # in place of the network
    async def put_records(self, Records, StreamName):
        put.extend(Records)
        return {"FailedRecordCount": 0, "Records": [{"SequenceNumber": "1"} for _ in Records]}


def shard(key):
    """The shard of a key in a stream of two."""
    return hashlib.md5(key.encode()).digest()[0] >> 7


async def main():
    producer = Producer(stream_name="s", region_name="us-east-1", processor=Packed())
    producer.client, producer.stream_status = Service(), producer.ACTIVE
    for number in range(40):
        for output in producer.processor.add_item(str(number)):
            await producer.queue.put(output)
        await producer.flush()  # an aggregate for each record


asyncio.run(main())
inner = set()
for one in put:
    packed = aws_kinesis_agg.messages_pb2.AggregatedRecord()
    packed.ParseFromString(one["Data"][4:-16])
    inner.update(packed.partition_key_table)
outer = {one["PartitionKey"] for one in put}
elsewhere = sum(shard(key) != shard("a") for key in outer)
print("keys of the user records:", inner, "- of the", len(put), "aggregates:", len(outer))
print("aggregates in the other shard of two:", elsewhere)
assert inner == {"a"} and len(outer) == 40 and 0 < elsewhere < 40
PY

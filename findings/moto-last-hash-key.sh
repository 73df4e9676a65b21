#!/usr/bin/env bash
# moto fails for a record that is put at the last hash key of a shard.
#
# moto 5.2.5, seen on 2026-11-29. Expected: an ExplicitHashKey that ListShards names as a shard's EndingHashKey puts the record into
# that shard. Seen: PutRecord and PutRecords raise an AttributeError (HTTP 500 from moto's server), for each of the
# stream's shards; one less works. In a stream of 2 shards, 2 keys of 2**128 are in no shard.
# Hurt: tests that place a record in each shard by the range that the service gives, or at 2**128 - 1 for the last one.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check 'moto[kinesis]==5.2.5' boto3==1.44.8
"$work/venv/bin/python" - <<'PY'
import boto3
from moto import mock_aws


def put(kinesis, key):
    record = {"Data": b"data", "PartitionKey": "key", "ExplicitHashKey": str(key)}
    outcomes = []
    for call in (
        lambda: kinesis.put_record(StreamName="s", **record)["ShardId"],
        lambda: kinesis.put_records(StreamName="s", Records=[record])["Records"][0]["ShardId"],
    ):
        try:
            outcomes.append(call()[-1])
        except AttributeError as error:
            outcomes.append(type(error).__name__)
    return outcomes


with mock_aws():
    kinesis = boto3.client(
        "kinesis", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    kinesis.create_stream(StreamName="s", ShardCount=2)
    for number, shard in enumerate(kinesis.list_shards(StreamName="s")["Shards"]):
        first, last = (int(shard["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
        seen = [put(kinesis, key) for key in (first, last - 1, last)]
        print(f"shard {number}, {first} to {last}: first, last but one, last key ->", seen)
        assert seen == [[str(number)] * 2, [str(number)] * 2, ["AttributeError"] * 2]
PY

#!/usr/bin/env bash
# moto puts records into the closed parent of a split, and none into its children.
#
# moto 5.2.5, seen on 2026-11-29: after SplitShard, PutRecord answers with the parent's shard id, and the parent's
# EndingSequenceNumber grows with each record; both children stay empty, and the parent never ends
# (NextShardIterator stays). Kinesis puts every record that follows a split into the children.
# Hurt: whoever tests a consumer's resharding with moto. The test never sees a record of a child.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check 'moto[kinesis]==5.2.5' boto3==1.44.8
"$work/venv/bin/python" - <<'PY'
import boto3
from moto import mock_aws

with mock_aws():
    kinesis = boto3.client(
        "kinesis", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    kinesis.create_stream(StreamName="s", ShardCount=1)
    (parent,) = kinesis.list_shards(StreamName="s")["Shards"]
    before = kinesis.put_record(StreamName="s", Data=b"before", PartitionKey="key")
    kinesis.split_shard(
        StreamName="s", ShardToSplit=parent["ShardId"], NewStartingHashKey=str(2**127)
    )
    end = kinesis.list_shards(StreamName="s")["Shards"][0]["SequenceNumberRange"]
    after = [
        kinesis.put_record(StreamName="s", Data=b"after", PartitionKey=f"key-{number}")
        for number in range(20)
    ]
    parent, *children = kinesis.list_shards(StreamName="s")["Shards"]
    later_end = parent["SequenceNumberRange"]

    def read(shard):
        iterator = kinesis.get_shard_iterator(
            StreamName="s", ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        return kinesis.get_records(ShardIterator=iterator)

    print("shards of the 20 records put after the split:", {put["ShardId"] for put in after})
    print("the parent ends at", end["EndingSequenceNumber"], "after the split")
    print("the parent ends at", later_end["EndingSequenceNumber"], "after 20 more records")
    print("records in the children:", [len(read(child)["Records"]) for child in children])
    print("the parent goes on:", bool(read(parent).get("NextShardIterator")))
    assert {put["ShardId"] for put in after} == {before["ShardId"]} == {parent["ShardId"]}
    assert (end["EndingSequenceNumber"], later_end["EndingSequenceNumber"]) == ("1", "21")
    assert [len(read(child)["Records"]) for child in children] == [0, 0]
    assert read(parent).get("NextShardIterator")
PY

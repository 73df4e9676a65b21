#!/usr/bin/env bash
# moto's ListShards gives all shards, whatever the filter and the exclusive start.
#
# moto 5.2.5, seen on 2026-11-29. Expected, after a split of one shard of two: with ShardFilter AT_LATEST the 3 open shards, with
# AFTER_SHARD_ID and with ExclusiveStartShardId of shard 1 the 2 behind it. Seen: 4 shards each time, the closed one
# among them. No error says that a parameter is left out.
# Hurt: tests of consumers that start with the open shards, or look for new ones behind the last that they know: they
# begin a closed shard, or each known one again, on moto alone.
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
    kinesis.create_stream(StreamName="s", ShardCount=2)
    first, second = (shard["ShardId"] for shard in kinesis.list_shards(StreamName="s")["Shards"])
    kinesis.split_shard(StreamName="s", ShardToSplit=second, NewStartingHashKey=str(3 * 2**126))
    everything = kinesis.list_shards(StreamName="s")["Shards"]
    closed = [s["ShardId"] for s in everything if s["SequenceNumberRange"].get("EndingSequenceNumber")]
    print("closed:", closed, "of", len(everything))
    assert closed == [second] and len(everything) == 4
    for request in (
        {"ShardFilter": {"Type": "AT_LATEST"}},
        {"ShardFilter": {"Type": "AFTER_SHARD_ID", "ShardId": second}},
        {"ExclusiveStartShardId": second},
    ):
        found = kinesis.list_shards(StreamName="s", **request)["Shards"]
        print(request, "->", len(found), "shards")
        assert found == everything
PY

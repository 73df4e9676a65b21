#!/usr/bin/env bash
# async-kinesis lets DynamoDB delete the position of a consumer that is stopped for a day.
#
# async-kinesis 3.0.1, seen on 2026-11-29. Expected: an item that holds a shard's position has no time to live, or one
# beyond the stream's retention of up to 365 days. Seen: the checkpointer switches the table's TTL on, and each item,
# that of a consumer which closed in good order too, ends 24 hours after its last write (`ttl_hours`). Once
# DynamoDB has deleted it, allocate() answers as for a new shard: no position.
# Hurt: consumers that are stopped for a weekend. They begin at their iterator type: TRIM_HORIZON repeats all that
# the stream has, LATEST loses what came meanwhile.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check async-kinesis==3.0.1 'moto[server,dynamodb]==5.2.5' aioboto3==15.5.0 aiobotocore==2.25.1 boto3==1.40.61 botocore==1.40.61
export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_DEFAULT_REGION=us-east-1
"$work/venv/bin/python" - <<'PY'
import asyncio
import logging
import time

import boto3
from kinesis.dynamodb import DynamoDBCheckPointer
from moto.server import ThreadedMotoServer

logging.disable(logging.CRITICAL)
SHARD = "shardId-000000000000"
TABLE = "kinesis-checkpoints-app"


async def run(url):
    checkpointer = DynamoDBCheckPointer("app", id="A", endpoint_url=url)
    start = await checkpointer.allocate(SHARD)
    await checkpointer.checkpoint(SHARD, "10")
    await checkpointer.close()
    return start


server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
url = f"http://{host}:{port}"
asyncio.run(run(url))
table = boto3.resource("dynamodb", endpoint_url=url).Table(TABLE)
setting = table.meta.client.describe_time_to_live(TableName=TABLE)["TimeToLiveDescription"]
item = table.get_item(Key={"shard_id": SHARD})["Item"]
hours = (float(item["ttl"]) - time.time()) / 3600
print("the table's time to live:", setting["TimeToLiveStatus"], setting["AttributeName"])
print("of a consumer that closed:", {name: item[name] for name in ("ref", "sequence")}, f"deleted in {hours:.1f} hours")
table.delete_item(Key={"shard_id": SHARD})  # in place of DynamoDB's deletion of expired items
again = asyncio.run(run(url))
print("the next start:", again)
assert setting["TimeToLiveStatus"] == "ENABLED" and setting["AttributeName"] == "ttl"
assert item["ref"] is None and item["sequence"] == "10" and 23.9 < hours <= 24
assert again == (True, None)
server.stop()
PY

#!/usr/bin/env bash
# An async-kinesis consumer that lost its shard still writes its old position over that of the new owner.
#
# async-kinesis 3.0.1, seen on 2026-11-29. Expected: consumer B takes the shard of consumer A, whose session has expired, and goes
# on from 10 to 20; whatever A does afterwards, the table keeps B and 20. Seen: with the DynamoDB checkpointer, A's
# close() sets the owner to nobody and the position to 10, without a condition. With Redis, A's checkpoint is written first
# and checked afterwards: A gets the error, but the table has A and 11. Then B, the owner, gets an error with its
# next checkpoint (and with Redis, its own is written as well), and a third consumer begins at the older position.
# Hurt: whoever runs several consumers. After a pause of one of them, another one fails, and records are repeated.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check async-kinesis==3.0.1 'moto[server,dynamodb]==5.2.5' aioboto3==15.5.0 aiobotocore==2.25.1 boto3==1.40.61 botocore==1.40.61 fakeredis==2.32.1 redis==8.1.0
export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_DEFAULT_REGION=us-east-1
"$work/venv/bin/python" - <<'PY'
import asyncio
import json
import logging
import warnings

import boto3
import fakeredis
from kinesis.checkpointers import RedisCheckPointer
from kinesis.dynamodb import DynamoDBCheckPointer
from moto.server import ThreadedMotoServer

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
SHARD = "shardId-000000000000"


async def attempt(call):
    try:
        await call
        return "done"
    except Exception as error:
        return str(error)


async def dynamodb(url):
    table = boto3.resource("dynamodb", endpoint_url=url).Table("kinesis-checkpoints-app")

    def stored():
        item = table.get_item(Key={"shard_id": SHARD})["Item"]
        return item["ref"], item["sequence"]

    first = DynamoDBCheckPointer("app", id="A", session_timeout=-1, endpoint_url=url)
    second = DynamoDBCheckPointer("app", id="B", session_timeout=-1, endpoint_url=url)
    await first.allocate(SHARD)
    await first.checkpoint(SHARD, "10")
    taken = await second.allocate(SHARD)
    await second.checkpoint(SHARD, "20")
    before = stored()
    await first.close()
    after = stored()
    return taken, before, after, await attempt(second.checkpoint(SHARD, "30"))


async def redis():
    server = fakeredis.FakeServer()
    checkpointers = [RedisCheckPointer("app", id=name, session_timeout=-1) for name in "AB"]
    for one in checkpointers:
        one.client = fakeredis.FakeAsyncRedis(server=server)
    first, second = checkpointers

    async def stored():
        value = json.loads(await first.client.get(first.get_key(SHARD)))
        return value["ref"], value["sequence"]

    await first.allocate(SHARD)
    await first.checkpoint(SHARD, "10")
    taken = await second.allocate(SHARD)
    await second.checkpoint(SHARD, "20")
    before = await stored()
    error = await attempt(first.checkpoint(SHARD, "11"))
    after = await stored()
    return taken, before, error, after, await attempt(second.checkpoint(SHARD, "30")), await stored()


server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
taken, before, after, owner = asyncio.run(dynamodb(f"http://{host}:{port}"))
print("DynamoDB: B allocates:", taken, "- stored:", before, "- after A's close():", after)
print("          B's next checkpoint:", owner)
assert (taken, before, after) == ((True, "10"), ("app/B", "20"), (None, "10"))
assert "does not own it" in owner
taken, before, error, after, owner, last = asyncio.run(redis())
print("Redis:    B allocates:", taken, "- stored:", before, "- after A's checkpoint:", after)
print("          A's checkpoint:", error)
print("          B's next checkpoint:", owner, "- stored:", last)
assert (taken, before, after, last) == ((True, "10"), ("app/B", "20"), ("app/A", "11"), ("app/B", "30"))
assert "ref is different app/B" in error and "ref is different app/A" in owner
server.stop()
PY

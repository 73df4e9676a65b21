#!/usr/bin/env bash
# native-aws-kcl-py refuses the checkpoint in shutdown_requested that its own example makes.
#
# native-aws-kcl-py 0.1.1, seen on 2026-11-29. Expected: `await input.checkpointer.checkpoint()` in shutdown_requested, as
# in its README, stores the last record's number before the lease is released. Seen: Scheduler.shutdown() first marks
# the checkpointer as shut down. Each checkpoint in shutdown_requested raises a ShutdownException, which is only
# logged, and the lease keeps TRIM_HORIZON.
# Hurt: processors that checkpoint now and then and rely on the last chance. Each deployment repeats the records since.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check native-aws-kcl-py==0.1.1 aioboto3==13.4.0 aiobotocore==2.18.0 boto3==1.36.1 botocore==1.36.1 'moto[server,dynamodb]==5.2.5'
export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_DEFAULT_REGION=us-east-1
"$work/venv/bin/python" - <<'PY'
import asyncio
import logging

import boto3
import native_aws_kcl_py as kcl
from moto.server import ThreadedMotoServer

logging.disable(logging.CRITICAL)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
URL = f"http://{host}:{port}"
events = []


class Processor(kcl.ShardRecordProcessor):
    async def initialize(self, input):
        pass

    async def process_records(self, input):
        events.append([record.data.decode() for record in input.records])

    async def lease_lost(self, input):
        events.append("lease lost")

    async def shard_ended(self, input):
        events.append("shard ended")

    async def shutdown_requested(self, input):
        try:
            await input.checkpointer.checkpoint()
            events.append("checkpointed")
        except kcl.ShutdownException as error:
            events.append(str(error))


class Factory(kcl.ShardRecordProcessorFactory):
    def create_processor(self):
        return Processor()


async def main():
    kinesis = boto3.client("kinesis", endpoint_url=URL)
    kinesis.create_stream(StreamName="s", ShardCount=1)
    for data in "abc":
        kinesis.put_record(StreamName="s", Data=data.encode(), PartitionKey="key")
    scheduler = kcl.Scheduler(
        kcl.KinesisConsumerConfig(
            aws=kcl.AwsConfig("us-east-1", kinesis_endpoint=URL, dynamodb_endpoint=URL),
            application_name="application",
            stream_name="s",
            record_processor_factory=Factory(),
            coordinator=kcl.CoordinatorConfig(lease_acquisition_interval_millis=500),
        )
    )
    running = asyncio.create_task(scheduler.run())
    while not events:
        await asyncio.sleep(0.05)
    await scheduler.shutdown()
    await running


asyncio.run(main())
(lease,) = boto3.client("dynamodb", endpoint_url=URL).scan(TableName="application")["Items"]
print("seen by the processor:", events)
print("the lease's checkpoint:", lease["checkpoint"]["S"])
assert events == [["a", "b", "c"], "Cannot checkpoint - shard shardId-000000000000 is shutting down"]
assert lease["checkpoint"] == {"S": "TRIM_HORIZON"}
server.stop()
PY

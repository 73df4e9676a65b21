#!/usr/bin/env bash
# A lone native-aws-kcl-py worker loses its lease when a checkpoint and a renewal are on their way at the same time.
#
# native-aws-kcl-py 0.1.1, seen on 2026-11-29. Expected: with one worker, no checkpoint is refused and no lease is lost. Seen: a
# checkpoint and a renewal read one counter and write each with the condition that the table still has it; nothing
# keeps them apart. In most rounds one of the two fails: the checkpoint raises "lease may have been stolen", or the
# renewal gives the lease up, which stops the shard's processor until the lease expires and is taken again.
# Hurt: processors that checkpoint after each batch. Leases are renewed every 3 seconds: the longer a call of
# DynamoDB takes, the more often both meet.
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
from moto.server import ThreadedMotoServer
from native_aws_kcl_py.exceptions import LeaseConditionalCheckFailedException
from native_aws_kcl_py.leases import LeaseCoordinator
from native_aws_kcl_py.types import ExtendedSequenceNumber, Lease, LeaseManagementConfig

logging.disable(logging.CRITICAL)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
URL = f"http://{host}:{port}"
boto3.client("dynamodb", endpoint_url=URL).create_table(
    TableName="leases",
    KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
    AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
    BillingMode="PAY_PER_REQUEST",
)


async def outcome(number):
    """What becomes of a checkpoint and a renewal of one worker's lease."""
    config = LeaseManagementConfig(table_name="leases", worker_identifier="worker", lease_duration_millis=10000)
    coordinator = LeaseCoordinator(config, region_name="us-east-1", endpoint_url=URL)
    key, position = f"shard-{number}", ExtendedSequenceNumber("TRIM_HORIZON")
    await coordinator.create_lease(Lease(lease_key=key, lease_counter=0, checkpoint=position))
    (lease,) = [one for one in await coordinator.list_leases() if one.lease_key == key]
    await coordinator.get_lease_refresher().take_lease(lease, "worker")
    renewer = coordinator._lease_renewer
    renewer.add_lease(lease)
    renewed, checkpointed = await asyncio.gather(
        renewer.renew_leases(), coordinator.checkpoint(key, "1", 0), return_exceptions=True
    )
    if renewed == [key]:
        return "lease lost"
    return "checkpoint refused" if isinstance(checkpointed, LeaseConditionalCheckFailedException) else "both done"


async def main():
    found = [await outcome(number) for number in range(10)]
    print({kind: found.count(kind) for kind in ("lease lost", "checkpoint refused", "both done")})
    assert found.count("both done") < len(found), found


asyncio.run(main())
server.stop()
PY

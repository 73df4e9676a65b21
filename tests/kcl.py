"""What a KCL application leaves behind, for tests: its lease table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def create_table(dynamodb: Any, name: str) -> None:
    """An empty lease table, as a KCL 2.x creates it."""
    dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


def put_lease(
    dynamodb: Any,
    table: str,
    key: str,
    checkpoint: str,
    sub_sequence_number: int = 0,
    *,
    attributes: Mapping[str, Any] | None = None,
) -> None:
    """A lease in the shape of a Java KCL's, over an older one of the same key."""
    item = {
        "leaseKey": {"S": key},
        "checkpoint": {"S": checkpoint},
        "checkpointSubSequenceNumber": {"N": str(sub_sequence_number)},
        "leaseCounter": {"N": "29"},
        "leaseOwner": {"S": "09f1d43d-cf6f-46f5-9430-8a9fdcca9baa"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "throughputKBps": {"N": "2.2E-5"},
        **(attributes or {}),
    }
    dynamodb.put_item(TableName=table, Item=item)


def put_rows_of_coordination(dynamodb: Any, table: str) -> None:
    """What KCL 3.5 keeps beside the leases; none of it is a lease."""
    leader = {"leaseKey": {"S": "Leader"}, "entityType": {"S": "LEADER"}, "ownerName": {"S": "w"}}
    metrics = {"leaseKey": {"S": "w"}, "entityType": {"S": "WORKER_METRIC_STATS"}}
    for item in (leader, {**metrics, "lut": {"N": "1763713014"}}):
        dynamodb.put_item(TableName=table, Item=item)

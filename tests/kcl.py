"""The lease table that a Java KCL application leaves behind, for tests; and any table's rows."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FIXTURES = Path(__file__).parent / "fixtures"


def recorded(name: str) -> Any:
    """A fixture with rows as DynamoDB's API gives them: JSON has no bytes."""

    def with_bytes(value: dict[str, Any]) -> dict[str, Any]:
        return {"B": base64.b64decode(value["B"])} if set(value) == {"B"} else value

    return json.loads((_FIXTURES / name).read_text(), object_hook=with_bytes)


def create_table(
    dynamodb: Any, name: str, key: str = "leaseKey", kind: str = "S", **billing: Any
) -> None:
    """An empty lease table, as a KCL 2.x creates it; with another key, any table."""
    dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": kind}],
        **(billing or {"BillingMode": "PAY_PER_REQUEST"}),
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


_HALF = 170141183460469231731687303715884105726
_SECOND = "49680417772080139964390719210533025828023069882475085842"

KCL_2: list[dict[str, Any]] = [
    {
        "leaseKey": {"S": "shardId-000000000000"},
        "leaseOwner": {"S": "worker-1"},
        "leaseCounter": {"N": "412"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "checkpoint": {"S": "SHARD_END"},
        "checkpointSubSequenceNumber": {"N": "0"},
        "childShardIds": {"SS": ["shardId-000000000003", "shardId-000000000002"]},
        "startingHashKey": {"S": "0"},
        "endingHashKey": {"S": str(_HALF)},
    },
    {
        "leaseKey": {"S": "shardId-000000000001"},
        "leaseOwner": {"S": "worker-2"},
        "leaseCounter": {"N": "1311"},
        "ownerSwitchesSinceCheckpoint": {"N": "2"},
        "checkpoint": {"S": _SECOND},
        "checkpointSubSequenceNumber": {"N": "7"},
        "pendingCheckpoint": {"S": _SECOND[:-2] + "50"},
        "pendingCheckpointSubSequenceNumber": {"N": "3"},
        "pendingCheckpointState": {"B": b"state\x00"},
        "startingHashKey": {"S": str(_HALF + 1)},
        "endingHashKey": {"S": str(2**128 - 1)},
    },
    {
        "leaseKey": {"S": "shardId-000000000002"},
        "leaseCounter": {"N": "0"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "checkpoint": {"S": "TRIM_HORIZON"},
        "checkpointSubSequenceNumber": {"N": "0"},
        "parentShardId": {"SS": ["shardId-000000000000"]},
    },
]
"""Rows as a KCL 2.x writes them: an ended parent, a prepared checkpoint, a child nobody owns."""

KCL_3: list[dict[str, Any]] = [
    {
        "leaseKey": {"S": "shardId-000000000000"},
        "leaseOwner": {"S": "worker-2"},
        "checkpointOwner": {"S": "worker-1"},
        "leaseCounter": {"N": "40"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "checkpoint": {"S": "LATEST"},
        "checkpointSubSequenceNumber": {"N": "0"},
        "throughputKBps": {"N": "12.345678"},
        "startingHashKey": {"S": "0"},
        "endingHashKey": {"S": str(_HALF)},
        "entityType": {"S": "LEASE"},
    },
    {
        "leaseKey": {"S": "shardId-000000000001"},
        "leaseCounter": {"N": "1"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "checkpoint": {"S": "AT_TIMESTAMP"},
        "checkpointSubSequenceNumber": {"N": "0"},
        "pendingCheckpoint": {"S": "49"},
        "pendingCheckpointSubSequenceNumber": {"N": "2"},
        # What a Java KCL writes for a state when it creates a row.
        "pendingCheckpointState": {"N": "0"},
        "startingHashKey": {"S": str(_HALF + 1)},
        "endingHashKey": {"S": str(2**128 - 1)},
        "entityType": {"S": "LEASE"},
    },
]
"""Rows as a KCL 3.x writes them: one that is being handed over, one that was just created."""

COORDINATION: list[dict[str, Any]] = [
    {
        "leaseKey": {"S": "Leader"},
        "entityType": {"S": "LEADER"},
        "ownerName": {"S": "worker-1"},
        "leaseDuration": {"S": "120000"},
        "recordVersionNumber": {"S": "f4bc4850-5b31-4de2-98a8-86ba7c423730"},
    },
    {
        "leaseKey": {"S": "Migration3.0"},
        "entityType": {"S": "CLIENT_VERSION_MIGRATION"},
        "cv": {"S": "CLIENT_VERSION_3X"},
        "mb": {"S": "worker-1"},
        "mts": {"N": "1795232870753"},
        "h": {"L": [{"M": {"cv": {"S": "CLIENT_VERSION_INIT"}, "mts": {"N": "1795232870752"}}}]},
    },
    {
        "leaseKey": {"S": "worker-1"},
        "entityType": {"S": "WORKER_METRIC_STATS"},
        "lut": {"N": "1795233097"},
        "sts": {"M": {"C": {"L": [{"N": "12.5"}]}}},
        "opr": {"M": {"C": {"L": [{"N": "100"}]}}},
    },
    {
        "leaseKey": {"S": "123456789012:flights:1763700000"},
        "entityType": {"S": "STREAM"},
        "streamId": {"S": "stream-1"},
    },
]
"""The rows that KCL 3.5 keeps in the lease table beside its leases."""

_JAVA_TYPES = {
    "leaseKey": "S",
    "leaseOwner": "S",
    "leaseCounter": "N",
    "ownerSwitchesSinceCheckpoint": "N",
    "checkpoint": "S",
    "checkpointSubSequenceNumber": "N",
    "parentShardId": "SS",
    "childShardIds": "SS",
    "pendingCheckpoint": "S",
    "pendingCheckpointSubSequenceNumber": "N",
    "pendingCheckpointState": "B",
    "startingHashKey": "S",
    "endingHashKey": "S",
    "checkpointOwner": "S",
    "throughputKBps": "N",
    "entityType": "S",
    "streamName": "S",
    "shardId": "S",
}
_JAVA_NEEDS = ("leaseKey", "leaseCounter", "ownerSwitchesSinceCheckpoint", "checkpoint")


def java_refuses(row: Mapping[str, Any]) -> list[str]:
    """Why ``DynamoDBLeaseSerializer.fromDynamoRecord`` could not read a row, one text a reason."""
    problems = [f"{name} is missing" for name in _JAVA_NEEDS if name not in row]
    for name, value in row.items():
        kind = _JAVA_TYPES.get(name)
        if kind is None:
            continue
        if list(value) != [kind]:
            problems.append(f"{name} is {value}, not of type {kind}")
        elif value[kind] in ("", b"", [], set()):
            problems.append(f"{name} is empty")
        elif kind == "N" and name != "throughputKBps" and not value[kind].isdecimal():
            problems.append(f"{name} is {value[kind]!r}, no whole number")
    return problems


def put_rows(dynamodb: Any, table: str, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        dynamodb.put_item(TableName=table, Item=row)


def rows_of(dynamodb: Any, table: str, key: str = "leaseKey") -> dict[str, dict[str, Any]]:
    """All rows of a table, by key."""
    pages = dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    return {item[key]["S"]: item for page in pages for item in page["Items"]}

"""Lease tables as an application leaves them that has read nothing yet, put back for each round."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import boto3

from benchmarks.peers.consumers.task import REGION

OWNED = ("leaseOwner", "checkpointOwner", "ref", "ts")
"""Attributes that name a lease's owner: the KCL's, and async-kinesis' own."""
LEASES = ("checkpoint", "sequence")
"""Attributes that only leases have."""


def dynamodb(endpoint: str) -> Any:
    return boto3.client(
        "dynamodb",
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )


@dataclass(frozen=True)
class LeaseTables:
    """The rows of an application's tables."""

    client: Any
    rows: dict[str, list[dict[str, Any]]]

    def restore(self) -> None:
        for table, rows in self.rows.items():
            keys = self.client.describe_table(TableName=table)["Table"]["KeySchema"]
            for row in rows_of(self.client, table):
                key = {each["AttributeName"]: row[each["AttributeName"]] for each in keys}
                self.client.delete_item(TableName=table, Key=key)
            for row in rows:
                self.client.put_item(TableName=table, Item=row)


def rows_of(client: Any, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = client.scan(TableName=table, ConsistentRead=True)["Items"]
    return rows


def is_lease(row: dict[str, Any]) -> bool:
    return any(name in row for name in LEASES)


def lease_count(client: Any, table: str) -> int:
    """The number of leases; 0 if the table does not exist."""
    if table not in client.list_tables()["TableNames"]:
        return 0
    return sum(is_lease(row) for row in rows_of(client, table))


def taken(client: Any, application: str) -> LeaseTables:
    """The tables whose names begin with the application's, with leases that nobody owns."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for table in client.list_tables()["TableNames"]:
        if table == application or table.startswith(f"{application}-"):
            its = rows_of(client, table)
            leases = [
                {name: value for name, value in row.items() if name not in OWNED}
                for row in its
                if is_lease(row)
            ]
            rows[table] = leases if table == application else []
    return LeaseTables(client, rows)


def wait_for_leases(client: Any, table: str, shards: int, patience: float) -> bool:
    until = time.monotonic() + patience
    while lease_count(client, table) < shards:
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True

"""Creates a lease table, or checks that an existing table is a lease table.

A table that was deleted while this process used it is never created again. An application without
leases begins at its initial position, by default at the latest record: with a new table, a worker
would silently skip all records that are still to be processed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from botocore.exceptions import ClientError

from sparkinesis.errors import LeaseTableError, LeaseTableNotFoundError
from sparkinesis.lease.table.client import TableAddress
from sparkinesis.stream.calls.answers.guards import text, understood
from sparkinesis.stream.calls.retry import Backoff, error_code

_USABLE = {"ACTIVE", "UPDATING"}

_vanished: set[tuple[str, str | None, str | None]] = set()
"""Name, region and endpoint of the tables that were deleted while this process used them. One
operation on a set is atomic, so it needs no lock."""


class ProvisionOptions(Protocol):
    """The options of a table to create; see `sparkinesis.worker.aws_options.LeaseTableOptions`."""

    @property
    def billing_mode(self) -> str: ...
    @property
    def read_capacity(self) -> int: ...
    @property
    def write_capacity(self) -> int: ...
    @property
    def point_in_time_recovery(self) -> bool: ...
    @property
    def deletion_protection(self) -> bool: ...
    @property
    def tags(self) -> tuple[tuple[str, str], ...]: ...


class Patience(msgspec.Struct, frozen=True):
    """The waits for a table that is being created, in seconds; the limit is the KCL's."""

    interval: float = 1.0
    give_up_after: float = 600.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def provision(
    client: Any,
    table: TableAddress,
    options: ProvisionOptions,
    *,
    retry: Backoff,
    patience: Patience,
) -> bool:
    """Create ``table`` if it is missing, and wait until it is usable. Return True if created here.

    Raises `LeaseTableError` for a table that is not a lease table or does not become usable,
    `LeaseTableNotFoundError` for a table that was deleted while this process used it, and
    botocore's errors for failed calls.
    """
    description = _describe(client, table, retry)
    created = False
    if description is None:
        require_not_vanished(table)
        created = _create(client, table, options, retry)
    else:
        _require_lease_table(description, table)
    _wait(client, table, retry, patience)
    if options.point_in_time_recovery:
        _recoverable(client, table, retry, patience)
    return created


def creation(name: str, options: ProvisionOptions) -> dict[str, Any]:
    """Return the arguments of CreateTable."""
    request: dict[str, Any] = {
        "TableName": name,
        "KeySchema": [{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "leaseKey", "AttributeType": "S"}],
        "BillingMode": options.billing_mode,
    }
    if options.billing_mode == "PROVISIONED":
        request["ProvisionedThroughput"] = {
            "ReadCapacityUnits": options.read_capacity,
            "WriteCapacityUnits": options.write_capacity,
        }
    if options.deletion_protection:
        request["DeletionProtectionEnabled"] = True
    if options.tags:
        request["Tags"] = [{"Key": key, "Value": value} for key, value in options.tags]
    return request


def keys_of(description: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return name, type (S, N, B) and role (HASH, RANGE) of each attribute of the primary key."""
    types = {a["AttributeName"]: a["AttributeType"] for a in description["AttributeDefinitions"]}
    return [
        (key["AttributeName"], types[key["AttributeName"]], key["KeyType"])
        for key in description["KeySchema"]
    ]


def _describe(client: Any, table: TableAddress, retry: Backoff) -> dict[str, Any] | None:
    def call(client: Any) -> dict[str, Any]:
        description: dict[str, Any] = client.describe_table(TableName=table.name)["Table"]
        text(description["TableStatus"])
        return description

    try:
        return retry.call(lambda: understood(call, client))
    except ClientError as error:
        if error_code(error) == "ResourceNotFoundException":
            return None
        raise


def _create(client: Any, table: TableAddress, options: ProvisionOptions, retry: Backoff) -> bool:
    try:
        retry.call(lambda: client.create_table(**creation(table.name, options)))
    except ClientError as error:
        # Another worker was faster: the table exists.
        if error_code(error) == "ResourceInUseException":
            return False
        raise
    return True


def _require_lease_table(description: dict[str, Any], table: TableAddress) -> None:
    keys = keys_of(description)
    if keys == [("leaseKey", "S", "HASH")]:
        return
    found = ", ".join(f"{name} ({kind}, {role})" for name, kind, role in keys)
    raise LeaseTableError(
        f"The {table} is no lease table: its key is {found}, and a KCL's is leaseKey (S, HASH). "
        "Nothing was written. Give the application another name, or delete that table if it is "
        "not needed."
    )


def _wait(client: Any, table: TableAddress, retry: Backoff, patience: Patience) -> None:
    deadline = patience.clock() + patience.give_up_after
    while True:
        description = _describe(client, table, retry)
        status = "missing" if description is None else description["TableStatus"]
        if description is not None and status in _USABLE:
            _require_lease_table(description, table)
            return
        if patience.clock() >= deadline or status.startswith(("INACCESSIBLE", "ARCHIV")):
            raise LeaseTableError(
                f"The {table} cannot be used: it is {status}. Look at it in the DynamoDB console, "
                "and start the worker again once it is ACTIVE."
            )
        patience.sleep(patience.interval)


def _recoverable(client: Any, table: TableAddress, retry: Backoff, patience: Patience) -> None:
    """Enable point-in-time recovery. The KCL does so at each start, too."""
    deadline = patience.clock() + patience.give_up_after
    while True:
        try:
            retry.call(
                lambda: client.update_continuous_backups(
                    TableName=table.name,
                    PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
                )
            )
        except ClientError as error:
            # The service refuses the call for a table that is seconds old.
            passing = error_code(error) == "ContinuousBackupsUnavailableException"
            if not passing or patience.clock() >= deadline:
                raise
        else:
            return
        patience.sleep(patience.interval)


def remember_vanished(table: TableAddress) -> LeaseTableNotFoundError:
    """Remember for the rest of this process that the table was deleted; return the error."""
    _vanished.add(_place(table))
    return LeaseTableNotFoundError(
        f"The {table} was deleted while this process used it. This process does not create it "
        "again: the application would begin anew at its initial position (by default at the latest "
        "record) and skip the records that are not processed yet. Restore the table from a backup "
        "under the same name: workers that still run resume at its checkpoints. Or, to begin anew, "
        "stop all workers and start new processes."
    )


def require_not_vanished(table: TableAddress) -> None:
    """Raise `LeaseTableNotFoundError` if the table was deleted while this process used it."""
    if _place(table) in _vanished:
        raise remember_vanished(table)


def _place(table: TableAddress) -> tuple[str, str | None, str | None]:
    return table.name, table.region, table.endpoint

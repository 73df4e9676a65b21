"""A lease table: its key, its rows, and the permissions to write them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sparkinesis.errors import SparkinesisError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.row_streams import require_no_others, streams_of_rows
from sparkinesis.lease.table.address import TableAddress
from sparkinesis.lease.table.explain import explain
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.monitor.doctor import judge
from sparkinesis.monitor.doctor.finding import Finding, note, ok, problem, problem_of
from sparkinesis.monitor.doctor.service import RETRY, RefusedError, Service, permissions
from sparkinesis.stream.address import StreamMark
from sparkinesis.stream.calls.session import open_client

NOBODY = "sparkinesis doctor: no lease has this key"
_KEY = {"leaseKey": {"S": NOBODY}}
_REFUSED = "ConditionalCheckFailedException"
_CONDITION = {"ConditionExpression": "attribute_exists(leaseKey)"}
"""Never holds for this key, so that nothing is written."""


def dynamodb(table: TableAddress) -> Service:
    """Return the DynamoDB of a table. Raises botocore's errors for a missing region or profile."""
    client = open_client(
        "dynamodb", table.credentials, table.region, table.endpoint, read_timeout=10
    )
    return Service(client, lambda error, operation: explain(error, operation, table))


def checks(
    service: Service,
    table: LeaseTable,
    shards: dict[str, Collection[str]],
    mark: StreamMark | None = None,
    *,
    is_new: bool,
) -> Iterator[Finding]:
    """Yield the findings about a lease table. Nothing is written.

    shards: the ids of each stream's shards, by the stream's name. mark: the only stream. is_new:
    the application has not run yet.
    """
    try:
        described = service.call("DescribeTable", TableName=table.name)["Table"]
    except RefusedError as refused:
        yield _no_table(table, refused, is_new=is_new)
        return
    wrong = judge.key_schema(table.name, _key_of(described))
    if wrong is not None:
        yield wrong
        return
    status = described["TableStatus"]
    if status not in {"ACTIVE", "UPDATING"}:
        yield problem("table", f"the lease table is {status}", "Wait until it is ACTIVE.")
        return
    yield from _rows(table, described, shards, mark if len(shards) == 1 else None)
    yield from _permissions(service, table)


def _no_table(table: TableAddress, refused: RefusedError, *, is_new: bool) -> Finding:
    if refused.code == "ResourceNotFoundException" and is_new:
        return ok("table", f"there is no {table} yet: the first worker creates it")
    return problem_of("table", refused.explained)


def _key_of(described: dict[str, Any]) -> list[tuple[str, str, str]]:
    types = {
        one["AttributeName"]: one["AttributeType"] for one in described["AttributeDefinitions"]
    }
    return [
        (key["AttributeName"], key["KeyType"], types.get(key["AttributeName"], "?"))
        for key in described["KeySchema"]
    ]


def _rows(
    table: LeaseTable,
    described: dict[str, Any],
    shards: dict[str, Collection[str]],
    mark: StreamMark | None,
) -> Iterator[Finding]:
    try:
        scan = table.scan(RETRY)
    except SparkinesisError as error:
        yield problem_of("table", error)
        return
    yield from judge.leases(table.name, scan.leases)
    if mark is not None:
        yield from _other_streams(table, scan.single_stream.leases, mark)
    unfinished = [lease for lease in scan.leases if not lease.is_finished]
    for row in scan.broken:
        yield problem(
            "leases",
            f"the row {row.key!r} cannot be read: {row.why}",
            "Repair the row. Or delete it: within minutes the shard is read again, from the "
            "application's initial position or its oldest record.",
        )
    streams = {one.stream.name for one in unfinished if one.stream is not None}
    for stream, ids in shards.items():
        named = {
            one.shard_id for one in unfinished if one.stream is None or one.stream.name == stream
        }
        other = judge.shards(f"stream {stream!r}", ids, named, streams) if ids else None
        if other is not None:
            yield other
    throughput = described.get("ProvisionedThroughput", {}).get("WriteCapacityUnits", 0)
    is_on_demand = (
        described.get("BillingModeSummary", {}).get("BillingMode") == "PAY_PER_REQUEST"
        or not throughput
    )
    yield judge.capacity(None if is_on_demand else throughput, len(unfinished))


def _other_streams(
    table: LeaseTable, leases: Sequence[Lease], mark: StreamMark
) -> Iterator[Finding]:
    """Yield what is wrong with rows that are not of the application's only stream."""
    found = streams_of_rows(leases, (), mark)
    try:
        require_no_others(found, mark, str(table))
    except SparkinesisError as error:
        yield problem_of("leases", error)
    if found.former:
        yield note(
            "leases",
            f"{len(found.former)} leases are of a stream {mark.name!r} that was deleted and made "
            "anew: the next worker that starts begins the new one's shards",
        )


def _permissions(service: Service, table: TableAddress) -> Iterator[Finding]:
    """Make each of a worker's calls on a row that is not there, by a condition that it exists."""
    name = {"TableName": table.name}
    calls: dict[str, dict[str, Any]] = {
        "GetItem": {**name, "Key": _KEY},
        "DeleteItem": {**name, "Key": _KEY, **_CONDITION},
        "PutItem": {**name, "Item": _KEY, **_CONDITION},
        "UpdateItem": {
            **name,
            "Key": _KEY,
            "UpdateExpression": "REMOVE nothing",
            **_CONDITION,
        },
    }
    yield from permissions("permissions", service, calls, {_REFUSED})
    statement = f"UPDATE \"{table.name}\" REMOVE nothing WHERE leaseKey = '{NOBODY}'"
    try:
        answer = service.call("BatchExecuteStatement", Statements=[{"Statement": statement}])
        code = answer["Responses"][0].get("Error", {}).get("Code", "")
    except RefusedError as refused:
        code = refused.code
    if code.startswith("AccessDenied"):
        yield note(
            "permissions",
            "PartiQLUpdate is not permitted: each lease is renewed by a call of its own",
            "With many leases, give the credentials dynamodb:PartiQLUpdate.",
        )

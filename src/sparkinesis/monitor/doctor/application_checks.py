"""The application: its lease table, the progress of its shards, and the status of its workers.

The table is checked for its key, its rows and the permissions to write them, progress by the
checkpoints, and a worker by its ``/status``.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from sparkinesis.errors import SparkinesisError, listed
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.row_streams import require_no_others, streams_of_rows
from sparkinesis.lease.table.calls import explain
from sparkinesis.lease.table.client import TableAddress
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.monitor.doctor import judge
from sparkinesis.monitor.doctor.judge import Finding, note, ok, problem, problem_of
from sparkinesis.monitor.doctor.service import RETRY, FailedCallError, Service, permissions
from sparkinesis.monitor.lags import lag_client, lag_of
from sparkinesis.stream.address import StreamAddress, StreamMark
from sparkinesis.stream.calls.session import open_client

_NOBODY = "sparkinesis doctor: no lease has this key"
_KEY = {"leaseKey": {"S": _NOBODY}}
_REFUSED = "ConditionalCheckFailedException"
_CONDITION = {"ConditionExpression": "attribute_exists(leaseKey)"}
"""Never holds for this key, so that nothing is written."""


def dynamodb_of(table: TableAddress) -> Service:
    """Return the DynamoDB of a table. Raises botocore's errors for a missing region or profile."""
    client = open_client(
        "dynamodb", table.credentials, table.region, table.endpoint, read_timeout=10
    )
    return Service(client, lambda error, operation: explain(error, operation, table))


def table_checks(
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
    except FailedCallError as refused:
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


def _no_table(table: TableAddress, refused: FailedCallError, *, is_new: bool) -> Finding:
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
    statement = f"UPDATE \"{table.name}\" REMOVE nothing WHERE leaseKey = '{_NOBODY}'"
    try:
        answer = service.call("BatchExecuteStatement", Statements=[{"Statement": statement}])
        code = answer["Responses"][0].get("Error", {}).get("Code", "")
    except FailedCallError as refused:
        code = refused.code
    if code.startswith("AccessDenied"):
        yield note(
            "permissions",
            "PartiQLUpdate is not permitted: each lease is renewed by a call of its own",
            "With many leases, give the credentials dynamodb:PartiQLUpdate.",
        )


_MOST_SHARDS = 100
"""The most shards whose first records are read: each takes two calls."""
_SECOND_LOOK = 5.0
"""Seconds until the next scan of the table, if a shard is late."""


def progress_checks(
    table: LeaseTable,
    streams: Sequence[StreamAddress],
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[Finding]:
    """Yield what is lost unread, and which shards stand still. Nothing is written.

    Reads a record or two at each checkpoint, as `sparkinesis leases` does. Says nothing of a call
    that is refused: another check does.
    """
    late: dict[str, int] = {}
    try:
        before = table.scan(RETRY).leases
        of_streams = [
            (address, lease)
            for address in streams
            for lease in before
            if not lease.is_finished and (lease.stream is None or lease.stream.name == address.name)
        ]
        clients = {address: lag_client(address, give_up_after=5.0) for address in streams}
        is_well = True
        for address, lease in of_streams[:_MOST_SHARDS]:
            lag = lag_of(clients[address], lease)
            if lag.lost:
                is_well = False
                yield judge.lost(lease.key, lag.lost)
            elif (lag.millis_behind_latest or 0) >= judge.LATE_MS:
                late[lease.key] = lag.millis_behind_latest or 0
        if late:
            wait(_SECOND_LOOK)
            found = judge.standing(late, before, table.scan(RETRY).leases)
            if found is not None:
                is_well = False
                yield found
    except SparkinesisError:
        return
    if is_well and of_streams:
        yield ok("progress", "no shard stands still, and nothing has expired unread")
    if len(of_streams) > _MOST_SHARDS:
        yield note("progress", f"of {len(of_streams)} shards, {_MOST_SHARDS} were looked at")


_TIMEOUT = 5.0
_MOST_BYTES = 64 * 1_048_576
STANDING_AFTER = 60.0
"""Seconds without progress after which a shard is a problem."""


def worker_checks(url: str, application: str) -> Iterator[Finding]:
    """Ask a worker, and yield the findings about it. ``url``: the address of its option http."""
    base = url.rstrip("/") if "://" in url else f"http://{url.rstrip('/')}"
    check = f"worker {base.partition('://')[2]}"
    if not base.startswith(("http://", "https://")):
        yield problem(check, f"{url} is no address of a worker", "Give HOST:PORT.")
        return
    try:
        with urllib.request.urlopen(f"{base}/status", timeout=_TIMEOUT) as answer:  # noqa: S310
            status = json.loads(answer.read(_MOST_BYTES))
    except (OSError, ValueError) as error:
        yield problem(
            check,
            f"{base}/status does not tell a worker's state: {error}",
            "Check the address, which the worker has by its option http, and that the worker runs.",
        )
        return
    yield from worker_findings(check, application, status)


def worker_findings(check: str, application: str, status: Any) -> Iterator[Finding]:
    """Yield the findings of a worker's ``/status``. Pure."""
    if not isinstance(status, dict) or "worker" not in status or "shards" not in status:
        yield problem(check, "the answer is not a worker's", "Give the option http of a worker.")
        return
    if status["application"] != application:
        yield problem(
            check,
            f"it is a worker of {status['application']!r}",
            f"Give the address of a worker of {application!r}.",
        )
        return
    found = [*_troubles(check, status), *_standing(check, status), *_lost(check, status)]
    count = len(status["shards"])
    text = f"{status['worker']} reads {count} shard{'s' * (count != 1)}, and none stands still"
    yield from found or [ok(check, text)]
    if failures := [one for one in status["failures"] if not _is_loss(one)]:
        last = failures[-1]
        yield note(
            check,
            f"different failures: {len(failures)}. The last, {last['count']} times: "
            f"{last['what']}: {last['error']}",
            "The worker's log has its traceback.",
        )


def _troubles(check: str, status: Mapping[str, Any]) -> Iterator[Finding]:
    for why in status["not_live"]:
        yield problem(check, f"it is not live: {why}", "Start the worker again.")
    for why in status["not_ready"]:
        yield problem(check, f"it is not ready: {why}", "Once that is mended, the worker goes on.")
    if stopped := status["stopped_shards"]:
        yield problem(
            check,
            f"on_error has stopped {listed(sorted(stopped))}: {next(iter(stopped.values()))}",
            "Mend the cause, then run `sparkinesis restart`.",
        )


def _standing(check: str, status: Mapping[str, Any]) -> Iterator[Finding]:
    for shard in status["shards"]:
        seconds = shard.get("standing_for") or 0.0
        if seconds >= STANDING_AFTER:
            yield problem(
                check,
                f"{shard['lease']} stands still for {seconds:,.0f} s: {shard['standing_because']}",
                "Look for the error in the worker's log, and let calls to other systems time out: "
                'see the runbook "A shard stands still".',
            )


def _lost(check: str, status: Mapping[str, Any]) -> Iterator[Finding]:
    for one in filter(_is_loss, status["failures"]):
        yield problem(
            check,
            f"records were lost unread on {listed(one['shard_ids'])}, {one['count']} times; the "
            f"last: {one['error'].partition(': ')[2]}",
            "They cannot be read any more. A longer retention period of the stream gives more time "
            "for the next ones.",
        )


def _is_loss(failure: Mapping[str, Any]) -> bool:
    return str(failure["error"]).startswith("DataLossError: ")

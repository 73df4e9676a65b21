"""Scans of a worker's own rows, in place of the whole table, while a leader lives.

If a leader assigns the leases, a worker adopts those that it is given, and its own rows name them.
It need not read the rows of the others as long as the leader lives. Of the leader it reads the lock
and some leases, whose counters move while the leader renews them.

The index by owner is the one that a KCL 3.x makes. It holds only keys, so a renewal, which changes
neither key nor owner, costs no write to it. Reads of an index are as of a moment ago.
"""

# What grew with workers times leases was that each worker read the whole table as often as it
# renews. With 10,000 leases and 200 workers, these scans take 240 read units a worker and minute in
# place of 6,860.
#
# A crash must still cost one failover time, whoever crashed, the leader included. So two other
# workers, the standbys, read the whole table as the leader does: they know at once which leases
# have expired, and take them as soon as where all workers read everything. All workers compute the
# same standbys. A worker that has read only its own rows does not stand for election until it has
# observed the whole table for a failover time (`Assignment._knows_all`): elected at once, it would
# take a crashed worker's leases for fresh ones.
#
# Any doubt ends in a scan of the whole table: no index, a broken row, a write without an answer, a
# leader that has missed a renewal. Nothing is decided by rows that were not read, but what is known
# of them from the last scan stays in the snapshot, for consumers that wait for parents.

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from sparkinesis.errors import (
    AccessDeniedError,
    LeaseTableNotFoundError,
    LeaseTableUnavailableError,
    ServiceError,
    SparkinesisError,
)
from sparkinesis.lease.assignment.coordinator_state import LOCK_KEY, VERSION_KEY
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.observations import Observation
from sparkinesis.lease.table.rows import TableScan, read_rows
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.stream.timing import second_of

_log = logging.getLogger(__name__)

WORTHWHILE = 100
"""From this number of leases on, own rows cost less to read than all rows."""
FULL_EVERY = 300.0
"""Seconds after which a worker reads the whole table nevertheless: standbys may have ended."""
STANDBYS = 2
WITNESSES = 3
"""The number of the leader's leases that are read."""
OWNER_INDEX = "LeaseOwnerToLeaseKeyIndex"
MOST_KEYS = 100
"""The most keys of a BatchGetItem call (API reference)."""
_QUIET = 1 / 2
"""A counter that stands still for this part of the failover time has missed a renewal."""
_OWNER, _KEY = "leaseOwner", "leaseKey"


class PartialScan(msgspec.Struct, frozen=True):
    """What a worker reads in place of the whole table."""

    leader: str
    witnesses: tuple[str, ...]
    """Keys of leases of the leader."""
    until: float
    """The time of the next scan of the whole table, by the worker's clock."""


def standbys(alive: Iterable[str], leader: str) -> frozenset[str]:
    """Return the workers that read the whole table besides the leader. ``alive``: all workers."""
    return frozenset(sorted(set(alive) - {leader})[:STANDBYS])


def next_partial_scan(
    leases: Iterable[Lease],
    observations: Mapping[str, Observation],
    leader: str,
    now: float,
    failover_time: float,
) -> PartialScan | None:
    """Return what a worker reads from now on; None (the whole table) without a live leader.

    Each lease needs an observation.
    """
    its = [
        row
        for row in leases
        if (row.owner, row.checkpoint_owner) == (leader, None) and not row.is_finished
    ][:WITNESSES]
    scan = PartialScan(leader, tuple(row.key for row in its), now + FULL_EVERY)
    return scan if leader_lives(scan, its, observations, now, failover_time) else None


def leader_lives(
    scan: PartialScan,
    leases: Iterable[Lease],
    observations: Mapping[str, Observation],
    now: float,
    failover_time: float,
) -> bool:
    """Return True if the leader has renewed one of its leases in time. Sooner than a lease expires.

    ``leases``: the witnesses as they were read now, and others.
    """
    return any(
        row.key in scan.witnesses
        and row.owner == scan.leader
        and now - observations[row.key].since <= _QUIET * failover_time
        for row in leases
    )


def rows_to_read(
    scan: PartialScan,
    owned: Iterable[str],
    held: Mapping[str, Collection[str]],
    unfinished: Collection[str],
) -> list[str]:
    """Return the keys of the leases to read in a partial scan.

    ``owned``: the leases that name this worker. ``held``: those that it holds, with the keys of
    their parents, for which a consumer may wait. ``unfinished``: the shards that are not finished
    as far as it is known.
    """
    parents = {parent for each in held.values() for parent in each}
    new = set(owned) - held.keys()
    return sorted({*scan.witnesses, *new, *(parents & set(unfinished) - held.keys())})


class PartialScans:
    """Reads a worker's own rows as long as partial scans are planned. For one thread."""

    def __init__(
        self,
        table: LeaseTable,
        worker_id: str,
        clock: Callable[[], float],
        *,
        is_possible: bool,
    ) -> None:
        """``is_possible``: False if the application never reads only its own rows."""
        self._table = table
        self._worker_id = worker_id
        self._clock = clock
        self._is_possible = is_possible
        self.next: PartialScan | None = None
        """What the next scan reads; None: the whole table."""
        self._again_at = -math.inf
        """The time from which partial scans may be tried again."""

    def may_be_tried(self, now: float) -> bool:
        """Return False if partial scans are impossible, and for a while after one has failed."""
        return self._is_possible and now >= self._again_at

    def pop(self, now: float) -> PartialScan | None:
        """Return what the scan at ``now`` reads, and plan to read the whole table after it."""
        due, self.next = self.next, None
        return due if due is not None and now < due.until else None

    def read(
        self, scan: PartialScan, held: Mapping[str, Collection[str]], unfinished: Collection[str]
    ) -> tuple[Sequence[str], TableScan] | None:
        """Return the keys of the leases that were read, and the rows; None if that is impossible.

        The arguments are those of `rows_to_read`. Raises `LeaseTableUnavailableError`.
        """
        try:
            owned = keys_of(self._table, self._worker_id)
            keys = rows_to_read(scan, owned, held, unfinished)
            rows = read_some(self._table, [*keys, LOCK_KEY, VERSION_KEY])
        except LeaseTableUnavailableError:
            raise
        except (AccessDeniedError, LeaseTableNotFoundError, ServiceError) as error:
            # There is no index: not yet, or not for this worker.
            self._again_at = self._clock() + FULL_EVERY
            _log.info("The whole lease table is read in place of this worker's rows: %s", error)
            return None
        return keys, rows


def keys_of(table: LeaseTable, owner: str) -> list[str]:
    """Return the keys of the rows that name an owner, by the index.

    Raises what `LeaseTable` does; `ServiceError` if there is no such index, or not yet.
    """
    answers = table.pages(
        "Query",
        IndexName=OWNER_INDEX,
        KeyConditionExpression=f"{_OWNER} = :owner",
        ExpressionAttributeValues={":owner": {"S": owner}},
    )
    return [item[_KEY]["S"] for answer in answers for item in answer["Items"]]


def read_some(table: LeaseTable, keys: Iterable[str]) -> TableScan:
    """Return the rows of these keys that exist, by BatchGetItem; a row may be as of a moment ago.

    Raises what `LeaseTable` does.
    """
    wanted = [{_KEY: {"S": key}} for key in keys]
    items: list[Mapping[str, Any]] = []
    headers: Mapping[str, str] = {}
    for start in range(0, len(wanted), MOST_KEYS):
        headers = _read(table, wanted[start : start + MOST_KEYS], items)
    return msgspec.structs.replace(read_rows(items), second=second_of(headers.get("date")))


def _read(
    table: LeaseTable, keys: Sequence[Mapping[str, Any]], items: list[Mapping[str, Any]]
) -> Mapping[str, str]:
    """Add the rows of at most 100 keys to ``items``; return the headers of the last answer."""
    left: Sequence[Mapping[str, Any]] = keys

    def read(client: Any) -> Mapping[str, str]:
        nonlocal left
        answer = client.batch_get_item(RequestItems={table.name: {"Keys": left}})
        items.extend(answer["Responses"].get(table.name, ()))
        left = answer.get("UnprocessedKeys", {}).get(table.name, {}).get("Keys", ())
        if left:
            said = f"{len(left)} of {len(keys)} keys were not read"
            error = {"Code": "ProvisionedThroughputExceededException", "Message": said}
            raise ClientError({"Error": error}, "BatchGetItem")
        headers: Mapping[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
        return headers

    return table.call("BatchGetItem", read)


class OwnerIndex:
    """Creates the index by owner that partial scans read; the leader does. For one thread."""

    def __init__(self, table: LeaseTable) -> None:
        self._table = table
        self._asked_at: float | None = None
        self._is_lacking = False
        """True once a failure was logged."""

    def ensure(self, now: float) -> None:
        """Create the index if it is missing; asks at most every `FULL_EVERY` seconds."""
        if self._asked_at is not None and now - self._asked_at < FULL_EVERY:
            return
        self._asked_at = now
        try:
            create_index(self._table)
        except SparkinesisError as error:
            if not self._is_lacking:
                _log.warning(
                    "The index of the lease table by owner is not created, so each worker reads "
                    "the whole table: %s",
                    error,
                )
            self._is_lacking = True


def create_index(table: LeaseTable) -> bool:
    """Create the index by owner, unless there is one; return False if it is not to be created.

    The service fills it in the background. In a table with provisioned capacity, an index has a
    capacity, and a price, of its own: there, an operator creates it by hand. Raises what
    `LeaseTable` does.
    """
    request = {"TableName": table.name}
    found = table.call("DescribeTable", lambda client: client.describe_table(**request))["Table"]
    if any(one["IndexName"] == OWNER_INDEX for one in found.get("GlobalSecondaryIndexes", ())):
        return True
    if found.get("BillingModeSummary", {}).get("BillingMode") != "PAY_PER_REQUEST":
        return False
    index = {
        "IndexName": OWNER_INDEX,
        "KeySchema": [
            {"AttributeName": _OWNER, "KeyType": "HASH"},
            {"AttributeName": _KEY, "KeyType": "RANGE"},
        ],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }
    types = [{"AttributeName": name, "AttributeType": "S"} for name in (_KEY, _OWNER)]
    update = {"AttributeDefinitions": types, "GlobalSecondaryIndexUpdates": [{"Create": index}]}
    table.call("UpdateTable", lambda client: client.update_table(**request, **update))
    return True

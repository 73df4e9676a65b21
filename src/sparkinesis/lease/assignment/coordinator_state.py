"""The rows of the KCL's coordinator state: the version, and the lock of the leader. Pure.

The version, ``Migration3.0``, says whether a leader assigns the leases, or each worker takes its
own. It is that of the KCL's ``MigrationState``: ``cv`` version, ``mb`` and ``mts`` by whom and when
(epoch ms) it was written, ``h`` up to ten earlier ones, the newest first.

The lock is an item of the DynamoDB lock client, which KCL 3.x uses. Its attributes are texts:
``ownerName``, ``leaseDuration`` (ms), ``recordVersionNumber`` (new with each heartbeat), and
``isReleased``, if its owner left it so. A lock has expired once an observer has seen the same
version for longer than the duration in the item, by the observer's own monotonic clock. Wall clocks
play no part. A leader here writes the failover time as its duration, so that its end is noticed as
soon as a lease's; a Java leader writes 120 seconds, which are waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import replace

from sparkinesis.lease.lease import AttributeValue

VERSION_KEY = "Migration3.0"
VERSION_ENTITY = "CLIENT_VERSION_MIGRATION"

INIT = "CLIENT_VERSION_INIT"
VERSION_2X = "CLIENT_VERSION_2X"
UPGRADE_FROM_2X = "CLIENT_VERSION_UPGRADE_FROM_2X"
VERSION_3X_WITH_ROLLBACK = "CLIENT_VERSION_3X_WITH_ROLLBACK"
VERSION_3X = "CLIENT_VERSION_3X"

_VERSIONS_KEPT = 10
"""The earlier versions in the row."""


class Sharing(Enum):
    """Who decides which worker reads which shard."""

    ASSIGNED = "assigned"
    """A leader assigns the leases; nobody takes or steals any."""
    TAKEN = "taken"
    """Each worker takes and steals leases, as workers of KCL 2.x do."""


class Version(msgspec.Struct, frozen=True):
    """The version of an application, and which worker has set it."""

    name: str
    by: str
    at_ms: int


class VersionRow(msgspec.Struct, frozen=True):
    """The row: the present version, and up to ten earlier ones, the newest first."""

    now: Version
    earlier: tuple[Version, ...] = ()

    def changed(self, name: str, by: str, at_ms: int) -> VersionRow:
        """Return the row after a change."""
        return VersionRow(Version(name, by, at_ms), (self.now, *self.earlier)[:_VERSIONS_KEPT])


def sharing_of(row: VersionRow | None) -> Sharing:
    """Return who decides about the leases. The row decides that, whatever this application wants.

    Workers of both kinds on one table would take leases from each other without end. Without a row,
    nobody leads. A version that is unknown here is none of 2.x.
    """
    if row is None or row.now.name in {INIT, VERSION_2X, UPGRADE_FROM_2X}:
        return Sharing.TAKEN
    return Sharing.ASSIGNED


def missing_row(
    row: VersionRow | None, worker_id: str, now_ms: int, *, by_load: bool
) -> VersionRow | None:
    """Return the row to create, on condition that there is none; None: nothing to create.

    by_load: whether this application wants a leader. As in Java, the row says that nothing was
    there before.
    """
    if row is not None or not by_load:
        return None
    nothing = VersionRow(Version(INIT, worker_id, now_ms))
    return nothing.changed(VERSION_3X, worker_id, now_ms)


def encode_version(row: VersionRow) -> dict[str, AttributeValue]:
    """Return the attributes of the row besides its key, as DynamoDB's API accepts them."""
    found: dict[str, AttributeValue] = {"entityType": {"S": VERSION_ENTITY}, **_encoded(row.now)}
    if row.earlier:
        found["h"] = {"L": [{"M": _encoded(each)} for each in row.earlier]}
    return found


def decode_version(item: Mapping[str, Any], key: str = "leaseKey") -> VersionRow | None:
    """Read the row, as DynamoDB's API returns it; None for any other row.

    key: the attribute that is the table's key. A KCL before 3.5 writes no ``entityType``. A row
    that someone has damaged still counts as a row: what cannot be read of it is empty.
    """
    if item.get(key) != {"S": VERSION_KEY}:
        return None
    earlier = (_decoded(each.get("M", {})) for each in item.get("h", {}).get("L", ()))
    return VersionRow(_decoded(item), tuple(earlier))


def _encoded(version: Version) -> dict[str, AttributeValue]:
    return {"cv": {"S": version.name}, "mb": {"S": version.by}, "mts": {"N": str(version.at_ms)}}


def _decoded(found: Mapping[str, Any]) -> Version:
    name, by = (str(found.get(each, {}).get("S", "")) for each in ("cv", "mb"))
    try:
        at_ms = int(Decimal(found["mts"]["N"]))
    except (ArithmeticError, KeyError, ValueError):
        at_ms = 0
    return Version(name, by, at_ms)


LOCK_KEY = "Leader"
LOCK_ENTITY = "LEADER"

_MOST_UNANSWERED = 100
"""Heartbeats of five minutes: all but the last few are of an outage that has lasted too long."""

Expected = Mapping[str, AttributeValue | None]


class LeaderLock(msgspec.Struct, frozen=True):
    """The lock as it is in the table."""

    owner: str
    duration_ms: int
    version: str
    is_released: bool = False


class SeenLock(msgspec.Struct, frozen=True):
    """The lock as one worker has observed it."""

    lock: LeaderLock
    since: float
    """The time at which this version was first seen, by the observer's clock in seconds."""

    def is_expired(self, now: float) -> bool:
        """Return True if the owner has released the lock, or missed all of its heartbeats."""
        return self.lock.is_released or now - self.since > self.lock.duration_ms / 1000


class HeldLock(msgspec.Struct, frozen=True):
    """The lock while this worker holds it."""

    lock: LeaderLock
    since: float
    """The time just before the last heartbeat was sent, by this worker's clock in seconds."""
    unanswered: tuple[str, ...] = ()
    """The versions of heartbeats that were sent since, any of which may have been written."""

    def with_heartbeat(self, version: str) -> HeldLock:
        """Return the lock before a heartbeat is sent; ``version``: a random UUID."""
        return replace(self, unanswered=(*self.unanswered, version)[-_MOST_UNANSWERED:])

    def wrote(self, lock: LeaderLock) -> bool:
        """Return True if this process has written the row, and not another one of the same id."""
        return lock.version in {self.lock.version, *self.unanswered} and not lock.is_released

    def leads(self, now: float) -> bool:
        """Return True if no other worker can have taken the lock."""
        return now - self.since <= self.lock.duration_ms / 1000


def observe(known: SeenLock | None, lock: LeaderLock | None, now: float) -> SeenLock | None:
    """Return what is known of the lock after it was read at ``now``; None: there is no lock.

    ``now`` is the time after the read, so that no lock seems older than it is.
    """
    if lock is None:
        return None
    if known is not None and known.lock.version == lock.version:
        # Its owner may have released it since, which leaves the version as it is.
        return replace(known, lock=lock)
    return SeenLock(lock, now)


def can_acquire(seen: SeenLock | None, now: float) -> bool:
    """Return True if a worker may try to become the leader."""
    return seen is None or seen.is_expired(now)


def new_lock(owner: str, failover_time: float, version: str) -> LeaderLock:
    """Return the lock of a worker that becomes the leader; ``version``: a random UUID."""
    return LeaderLock(owner, round(failover_time * 1000), version)


def acquire_expects(known: LeaderLock | None) -> Expected | None:
    """Return what the row must have for its acquisition; None: there must be no row.

    The conditions are those of Java's client.
    """
    if known is None:
        return None
    if known.is_released:
        return {"isReleased": {"S": "1"}}
    return {"recordVersionNumber": {"S": known.version}}


def owner_expects(held: LeaderLock) -> Expected:
    """Return what the row must have for a heartbeat or the release of the lock.

    Java's conditions, and that no user has released the lock: another worker may take it then.
    """
    return {
        "recordVersionNumber": {"S": held.version},
        "ownerName": {"S": held.owner},
        "isReleased": None,
    }


def heartbeat(held: LeaderLock, version: str) -> dict[str, AttributeValue]:
    """Return the attributes that a heartbeat changes; ``version``: a random UUID."""
    return {
        "leaseDuration": {"S": str(held.duration_ms)},
        "recordVersionNumber": {"S": version},
    }


def encode_lock(lock: LeaderLock) -> dict[str, AttributeValue]:
    """Return the attributes of the row besides its key, as DynamoDB's API accepts them."""
    found: dict[str, AttributeValue] = {
        "entityType": {"S": LOCK_ENTITY},
        "ownerName": {"S": lock.owner},
        "leaseDuration": {"S": str(lock.duration_ms)},
        "recordVersionNumber": {"S": lock.version},
    }
    return {**found, "isReleased": {"S": "1"}} if lock.is_released else found


def decode_lock(item: Mapping[str, Any], key: str = "leaseKey") -> LeaderLock | None:
    """Read the row, as DynamoDB's API returns it; None for any other row, or one that is broken.

    key: the attribute that is the table's key. A KCL before 3.5 writes no ``entityType``.
    """
    if item.get(key) != {"S": LOCK_KEY}:
        return None
    try:
        return LeaderLock(
            owner=item["ownerName"]["S"],
            duration_ms=int(item["leaseDuration"]["S"]),
            version=item["recordVersionNumber"]["S"],
            is_released="isReleased" in item,
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None

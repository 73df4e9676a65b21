"""Whether a leader assigns the leases, or each worker takes its own: the version row. Pure.

The row, ``Migration3.0``, is that of the KCL's ``MigrationState``: ``cv`` version, ``mb`` and
``mts`` by whom and when (epoch ms) it was written, ``h`` up to ten earlier ones, the newest first.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec

from sparkinesis.lease.lease import AttributeValue

KEY = "Migration3.0"
ENTITY = "CLIENT_VERSION_MIGRATION"

INIT = "CLIENT_VERSION_INIT"
VERSION_2X = "CLIENT_VERSION_2X"
UPGRADE_FROM_2X = "CLIENT_VERSION_UPGRADE_FROM_2X"
VERSION_3X_WITH_ROLLBACK = "CLIENT_VERSION_3X_WITH_ROLLBACK"
VERSION_3X = "CLIENT_VERSION_3X"

_KEPT = 10


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
        return VersionRow(Version(name, by, at_ms), (self.now, *self.earlier)[:_KEPT])


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
    found: dict[str, AttributeValue] = {"entityType": {"S": ENTITY}, **_encoded(row.now)}
    if row.earlier:
        found["h"] = {"L": [{"M": _encoded(each)} for each in row.earlier]}
    return found


def decode_version(item: Mapping[str, Any], key: str = "leaseKey") -> VersionRow | None:
    """Read the row, as DynamoDB's API returns it; None for any other row.

    key: the attribute that is the table's key. A KCL before 3.5 writes no ``entityType``. A row
    that someone has damaged still counts as a row: what cannot be read of it is empty.
    """
    if item.get(key) != {"S": KEY}:
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

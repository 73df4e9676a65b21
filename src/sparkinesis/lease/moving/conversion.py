"""The plan by which rows of one stream become rows of several streams, and the reverse. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from sparkinesis.errors import LeaseTableError, OptionError
from sparkinesis.lease.lease import Lease, lease_key
from sparkinesis.lease.rules.lease_start import last_known_position
from sparkinesis.lease.rules.reset import require_recent, require_same_stream
from sparkinesis.lease.table.rows import CONVERTED_TO
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.reading.retention import is_of_another_stream
from sparkinesis.stream.shard import Lineage, Shard

_OF_OWNER = ("leaseOwner", "checkpointOwner")
_OF_STREAM = ("streamName", "shardId", "streamMark")
_MAY_DIFFER = {
    *_OF_OWNER,
    CONVERTED_TO,
    "leaseCounter",
    "ownerSwitchesSinceCheckpoint",
    "throughputKBps",
    "checkpointPosition",
    "fencingToken",
    "streamMark",
}
"""Attributes in which two rows of the same checkpoint may differ: a worker had one of them."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """The leases of one stream that get other keys."""

    stream: StreamIdentifier
    to_several: bool
    """True for rows that are to name the stream; False for rows that are not to."""
    leases: tuple[Lease, ...] = ()
    """The rows to convert, parents before children."""

    @property
    def names(self) -> StreamIdentifier | None:
        """The stream that the new rows name."""
        return self.stream if self.to_several else None

    def new_key(self, lease: Lease) -> str:
        """Return the key of the row that takes the place of a lease's."""
        return lease_key(self.names, lease.shard_id)

    def new_item(self, item: Mapping[str, Any], lease: Lease) -> dict[str, Any]:
        """Return the new row for an item: all attributes but the owners, and those of the kind."""
        dropped = {*_OF_OWNER, *_OF_STREAM, CONVERTED_TO}
        new = {name: value for name, value in item.items() if name not in dropped}
        new["leaseKey"] = {"S": self.new_key(lease)}
        if self.names is not None:
            new["streamName"], new["shardId"] = {"S": str(self.stream)}, {"S": lease.shard_id}
        return new


def plan_conversion(
    leases: Iterable[Lease],
    stream: StreamIdentifier,
    shards: Iterable[Shard],
    created_ms: int,
    *,
    to_several: bool,
) -> Conversion:
    """Return the conversion of a table's leases.

    ``leases``: the rows of the other kind, of this stream or of none. ``shards`` and
    ``created_ms``: those of the stream, by the service.

    Raises `OptionError` if the leases are not of this stream.
    """
    rows = sorted(leases, key=lambda lease: lease.shard_id)
    lineage = Lineage.of(shards)
    require_same_stream(rows, lineage, None if to_several else stream)
    require_recent({lease.shard_id: lease for lease in rows}, lineage)
    for lease in rows:
        position = last_known_position(lease)
        if lease.mark is not None:
            mine = replace(lease.mark, account=stream.account, name=stream.name)
            is_other = not lease.mark.is_stream(replace(mine, created_ms=created_ms))
            if is_other:
                raise OptionError(
                    f"The lease {lease.key} is of stream {lease.mark.identifier}, and not of "
                    f"{stream}. Nothing was written. Check the names of the application and of the "
                    "stream."
                )
        elif position is not None and is_of_another_stream(position, created_ms):
            raise OptionError(
                f"The lease {lease.key} is older than the stream {stream}: it is one of a deleted "
                "stream of the same name. Nothing was written."
            )
    return Conversion(stream, to_several, tuple(rows))


def require_unmoved(before: Iterable[Lease], after: Iterable[Lease]) -> None:
    """Raise `LeaseTableError` if a lease changed between two scans: a worker runs."""
    counters = {lease.key: lease.counter for lease in before}
    moved = [row for row in after if counters.get(row.key) != row.counter]
    if moved:
        owner = moved[0].actual_owner
        by = f" by {owner}" if owner is not None else ""
        raise LeaseTableError(
            f"Workers of the application run: {', '.join(row.key for row in moved[:5])} "
            f"{'was' if len(moved) == 1 else 'were'} renewed or created{by}. Nothing was written. "
            "Stop all workers, and run the command again."
        )


def is_same(item: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True if two rows mean the same, whoever owns them."""
    return _essence(item) == _essence(other)


def _essence(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {kind: set(found) if kind == "SS" else found for kind, found in value.items()}
        for name, value in item.items()
        if name not in _MAY_DIFFER
    }

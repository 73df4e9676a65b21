"""A lease: the row of a KCL lease table that says how far an application has come in a shard.

The attributes are those of the KCL's ``DynamoDBLeaseSerializer`` (Java, 1.x to 3.x).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any


@dataclass(frozen=True, slots=True)
class StreamIdentifier:
    """The stream of a lease in the table of an application that reads several streams."""

    account: str
    name: str
    creation_epoch: int
    """Seconds; tells a stream from an earlier one of the same name."""

    @classmethod
    def parse(cls, text: str) -> StreamIdentifier:
        """Read ``<account>:<stream>:<creation epoch>``. Raises ValueError."""
        account, name, epoch = text.split(":")
        return cls(account, name, int(epoch))


@dataclass(frozen=True, slots=True)
class Lease:
    """What a lease says of its shard. Who holds it matters to workers only."""

    key: str
    shard_id: str
    stream: StreamIdentifier | None
    """None in the table of an application that reads one stream."""
    checkpoint: str
    """A sequence number, or TRIM_HORIZON, LATEST, AT_TIMESTAMP or SHARD_END."""
    sub_sequence_number: int
    """The last user record that is done in the record of the checkpoint; 0 if not aggregated."""
    parent_ids: tuple[str, ...]
    """Shard ids, also where the key is longer than that; sorted."""


def decode_lease(item: Mapping[str, Any]) -> Lease | None:
    """Read a row, as DynamoDB's API gives it; None for a row that is not a lease.

    Other attributes are of no concern, whoever wrote them. As of KCL 3.5 the table also holds its
    coordination (``entityType`` LEADER, WORKER_METRIC_STATS, ...).
    """
    if _text(item, "entityType") not in {None, "LEASE"}:
        return None
    key, checkpoint = _text(item, "leaseKey"), _text(item, "checkpoint")
    if key is None or checkpoint is None:
        return None
    identifier, _, shard_id = key.rpartition(":")
    try:
        stream = StreamIdentifier.parse(identifier) if identifier else None
        sub_sequence_number = int(Decimal(_text(item, "checkpointSubSequenceNumber", "N") or 0))
    except (ValueError, ArithmeticError):
        return None
    parent_ids = tuple(sorted(item.get("parentShardId", {}).get("SS", ())))
    return Lease(key, shard_id, stream, checkpoint, sub_sequence_number, parent_ids)


def _text(item: Mapping[str, Any], name: str, kind: str = "S") -> str | None:
    """An attribute of the type ``kind``; None where it is missing or of another type."""
    value = item.get(name, {}).get(kind)
    return value if isinstance(value, str) else None

"""Leases of several streams, for tests of the rules."""

from __future__ import annotations

from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, lease_key
from sparkinesis.stream.address import StreamIdentifier


def lease_of(
    stream: StreamIdentifier,
    owner: str | None = None,
    shard_id: str = "shardId-000000000000",
    *,
    is_finished: bool = False,
) -> Lease:
    return Lease(
        key=lease_key(stream, shard_id),
        shard_id=shard_id,
        stream=stream,
        owner=owner,
        checkpoint=ExtendedSequenceNumber(SHARD_END if is_finished else "TRIM_HORIZON"),
    )

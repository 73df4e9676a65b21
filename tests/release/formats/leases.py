"""Lease rows: each was made by the writes of workers, leaders and operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, PendingCheckpoint
from sparkinesis.lease.rules.lease_start import new_lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.rows import read_row, read_rows
from sparkinesis.lease.table.update import Update
from sparkinesis.stream.address import StreamIdentifier, StreamMark
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    InitialPosition,
)
from sparkinesis.stream.shard import Shard
from tests.release.formats import items
from tests.release.formats.offsets import INSTANT, LATER, NUMBERS, SHARDS, meaning

Write = Callable[[Lease], Update]

STREAM = StreamIdentifier("123456789012", "flights", 1_763_700_000)
MARK = StreamMark("eu-west-1", "123456789012", "flights", 1_763_700_000_123)
_TOKEN = 1_790_000_000_123_456
_HALF = 2**127
_SHARDS = {
    SHARDS[0]: Shard(SHARDS[0], hash_range=(0, _HALF - 1)),
    SHARDS[1]: Shard(SHARDS[1], hash_range=(_HALF, 2**128 - 1)),
    SHARDS[2]: Shard(SHARDS[2], (SHARDS[0],), hash_range=(0, 2**126 - 1)),
    SHARDS[3]: Shard(SHARDS[3], (SHARDS[0], SHARDS[1]), hash_range=(0, 2**128 - 1)),
}
_END = ExtendedSequenceNumber.of(SHARD_END)


def _new(at: InitialPosition = TRIM_HORIZON, shard: str = SHARDS[0]) -> Lease:
    return new_lease(_SHARDS[shard], at, INSTANT, made_ms=INSTANT)


def _at(number: str, sub_sequence_number: int = 0) -> ExtendedSequenceNumber:
    return ExtendedSequenceNumber(number, sub_sequence_number)


def _take(worker: str = "worker-1") -> Write:
    return partial(requests.take, worker_id=worker, at_least=_TOKEN)


def _renew(lease: Lease) -> Update:
    return requests.with_throughput(requests.renew(lease), 12.3456789)


def _checkpoint(number: str, sub_sequence_number: int = 0) -> Write:
    known = AfterRecord(number, INSTANT, arrived_ms=LATER)
    return lambda lease: requests.with_throughput(
        requests.checkpoint(lease, _at(number, sub_sequence_number), known=known), 12.5
    )


def _release(lease: Lease) -> Update:
    return requests.release(lease, "worker-1")


def _stop(lease: Lease) -> Update:
    return requests.with_stop(lease, _release(lease), "worker-1")


_ROWS: dict[str, tuple[Lease, tuple[Write, ...]]] = {
    "new, at the oldest records": (_new(), ()),
    "new, at LATEST": (replace(_new(LATEST), application_ms=INSTANT), ()),
    "new, at an instant": (_new(AtTimestamp(INSTANT)), ()),
    "new, without hash keys": (replace(_new(), hash_range=None), ()),
    "new, and nothing arrived before an instant": (
        replace(_new(), known=AtTimestamp(INSTANT), application_ms=0),
        (),
    ),
    "the child of a split": (_new(shard=SHARDS[2]), ()),
    "the child of a merge": (_new(shard=SHARDS[3]), ()),
    "of one of several streams": (_new().in_stream(STREAM), (_take(), _checkpoint(NUMBERS[0]))),
    "of an only stream, which the row names": (replace(_new(), mark=MARK), (_take(),)),
    "owned": (_new(), (_take(),)),
    "owned and renewed": (_new(), (_take(), _renew)),
    "checkpointed behind a record": (_new(), (_take(), _checkpoint(NUMBERS[0]))),
    "checkpointed inside an aggregated record": (_new(), (_take(), _checkpoint(NUMBERS[0], 3))),
    "checkpointed, of an application that began at LATEST": (
        replace(_new(LATEST), application_ms=INSTANT),
        (_take(), _checkpoint(NUMBERS[0])),
    ),
    "a checkpoint is prepared, with a state": (
        _new(),
        (
            _take(),
            _checkpoint(NUMBERS[0]),
            partial(
                requests.prepare, pending=PendingCheckpoint(_at(NUMBERS[2], 2), b"state\0\xff")
            ),
        ),
    ),
    "a checkpoint is prepared, without a state": (
        _new(),
        (_take(), partial(requests.prepare, pending=PendingCheckpoint(_at(NUMBERS[0])))),
    ),
    "a handoff is under way": (
        _new(),
        (
            _take(),
            _checkpoint(NUMBERS[0]),
            partial(requests.initiate_handoff, new_owner="worker-2"),
        ),
    ),
    "handed over": (
        _new(),
        (
            _take(),
            _checkpoint(NUMBERS[0]),
            partial(requests.initiate_handoff, new_owner="worker-2"),
            _release,
        ),
    ),
    "released": (_new(), (_take(), _checkpoint(NUMBERS[0]), _release)),
    "assigned by a leader": (_new(), (partial(requests.assign_vacant, new_owner="worker-2"),)),
    "taken from a dead worker": (
        _new(),
        (_take(), _checkpoint(NUMBERS[0]), _take("worker-2")),
    ),
    "ended, with children": (
        _new(),
        (
            _take(),
            partial(requests.add_children, child_ids=SHARDS[2:]),
            lambda lease: requests.checkpoint(lease, _END),
            _release,
        ),
    ),
    "ended, without children": (
        _new(),
        (_take(), lambda lease: requests.checkpoint(lease, _END), _release),
    ),
    "stopped by on_error": (_new(), (_take(), _checkpoint(NUMBERS[0]), _stop)),
    "restarted by an operator": (
        _new(),
        (_take(), _checkpoint(NUMBERS[0]), _stop, requests.restart),
    ),
    "moved to LATEST by its processor": (
        _new(),
        (
            _take(),
            lambda lease: requests.checkpoint(
                lease, ExtendedSequenceNumber.of(LATEST), LATER, moved_ms=LATER
            ),
        ),
    ),
    "moved to an instant by its processor": (
        _new(),
        (
            _take(),
            lambda lease: requests.checkpoint(
                lease, ExtendedSequenceNumber.of(AtTimestamp(LATER)), LATER, moved_ms=LATER
            ),
        ),
    ),
    "reset to the oldest records by an operator": (
        _new(),
        (
            _take(),
            _checkpoint(NUMBERS[0]),
            lambda lease: requests.reset(
                lease, ExtendedSequenceNumber.of(TRIM_HORIZON), now_ms=LATER
            ),
        ),
    ),
    "reset to LATEST by an operator": (
        _new(),
        (
            _take(),
            lambda lease: requests.reset(
                lease, ExtendedSequenceNumber.of(LATEST), LATER, LATER, LATER
            ),
        ),
    ),
    "reset to a user record by an operator": (
        _new(),
        (_take(), lambda lease: requests.reset(lease, _at(NUMBERS[2], 1), now_ms=LATER)),
    ),
    "being converted to a row of several streams": (
        _new(),
        (
            _take(),
            _checkpoint(NUMBERS[0]),
            partial(requests.mark_converted, new_key=f"{STREAM}:{SHARDS[0]}"),
        ),
    ),
}


def write() -> dict[str, Any]:
    """Return rows, by a name of each, as DynamoDB has them."""
    return {
        name: items.as_json(items.row(lease, *writes)) for name, (lease, writes) in _ROWS.items()
    }


def read(item: Any) -> dict[str, Any]:
    """Return the meaning of a row."""
    row = items.from_json(item)
    lease = read_row(row)
    assert isinstance(lease, Lease), f"it is no lease: {lease}"
    position = lease.position()
    return {
        "shard": lease.shard_id,
        "stream": lease.stream and str(lease.stream),
        "parents": list(lease.parent_ids),
        "children": list(lease.child_ids),
        "hash_keys": lease.hash_range and list(map(str, lease.hash_range)),
        "checkpoint": [lease.checkpoint.sequence_number, lease.checkpoint.sub_sequence_number],
        "position": position and meaning(position),
        "known_at_checkpoint": lease.known and meaning(lease.known),
        "pending": lease.pending
        and {
            "checkpoint": [lease.pending.at.sequence_number, lease.pending.at.sub_sequence_number],
            "state": lease.pending.state and lease.pending.state.hex(),
        },
        "owner": lease.owner,
        "reader_until_handoff": lease.checkpoint_owner,
        "counter": lease.counter,
        "owner_switches": lease.owner_switches,
        "fencing_token": lease.fencing_token,
        "kbps": lease.throughput_kbps,
        "stopped_by": list(lease.stopped_by),
        "sentinel_means_ms": lease.timestamp_ms,
        "application_began_ms": lease.application_ms,
        "made_ms": lease.made_ms,
        "is_being_converted": read_rows([row]).is_converting,
    }

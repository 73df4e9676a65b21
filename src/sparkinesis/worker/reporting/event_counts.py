"""The counters that follow from a worker's events."""

from __future__ import annotations

from typing import NamedTuple

from sparkinesis.events import (
    BatchFailed,
    DataLost,
    DeadLettersStored,
    Event,
    FormerStreamDeleted,
    HandoffRequested,
    LeaseCreated,
    LeaseDeleted,
    LeaseEnded,
    LeaseTaken,
    ParentsLost,
    RecordsSkipped,
)
from sparkinesis.lease.lease import parse_lease_key
from sparkinesis.metrics.catalogue import (
    BATCHES_FAILED,
    DATA_LOSS,
    DEAD_LETTERS,
    LEASES_CREATED,
    LEASES_DELETED,
    LEASES_LOST,
    LEASES_RELEASED,
    LEASES_REQUESTED,
    LEASES_TAKEN,
    RECORDS_SKIPPED,
    STREAMS_DELETED,
)
from sparkinesis.metrics.metric import Metric
from sparkinesis.metrics.metrics import Labels


class Count(NamedTuple):
    """An amount to add to a counter."""

    metric: Metric
    labels: Labels
    amount: float = 1.0


def count_of(event: Event, only_stream: str) -> Count | None:
    """Return what an event adds to which counter; None if it adds nothing. Pure.

    only_stream: the name of the application's stream, if it reads one: its leases name no stream.
    """
    if isinstance(event, LeaseTaken | LeaseEnded | HandoffRequested):
        return _of_lease(event, (_stream_of(event.lease, only_stream), event.shard_id))
    if isinstance(event, LeaseCreated):
        return Count(LEASES_CREATED, (_stream_of(event.lease, only_stream),))
    if isinstance(event, LeaseDeleted):
        return Count(LEASES_DELETED, (_stream_of(event.lease, only_stream),))
    if isinstance(event, BatchFailed):
        return Count(BATCHES_FAILED, (event.stream, event.shard_id, event.action.value))
    if isinstance(event, RecordsSkipped):
        return Count(RECORDS_SKIPPED, (event.stream, event.shard_id), event.records)
    if isinstance(event, DeadLettersStored):
        return Count(DEAD_LETTERS, (event.stream, event.shard_id), event.records)
    if isinstance(event, DataLost | ParentsLost):
        return Count(DATA_LOSS, (event.stream, event.shard_id))
    if isinstance(event, FormerStreamDeleted):
        return Count(STREAMS_DELETED, ())
    return None


def _stream_of(lease: str, only_stream: str) -> str:
    stream, _ = parse_lease_key(lease)
    return only_stream if stream is None else stream.name


def _of_lease(event: LeaseTaken | LeaseEnded | HandoffRequested, labels: tuple[str, str]) -> Count:
    if isinstance(event, LeaseTaken):
        return Count(LEASES_TAKEN, (*labels, event.origin.value))
    if isinstance(event, HandoffRequested):
        return Count(LEASES_REQUESTED, labels)
    metric = LEASES_RELEASED if event.reason.is_planned else LEASES_LOST
    return Count(metric, (*labels, event.reason.value))

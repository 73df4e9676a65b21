"""The log lines of a worker's events: a level and a text for each, and nothing else logs them.

An operator reads these lines. INFO is the course of a healthy application; a WARNING is worth a
look: a lease that ended without this worker's intention, or a worker that no longer renews.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from sparkinesis.lease.events import (
    Event,
    HandoffRequested,
    LeaseEnd,
    LeaseEnded,
    LeaseOrigin,
    LeaseTaken,
    OwnerSilent,
    RenewalFailed,
    ShutdownBegan,
    WorkerEnded,
    WorkerReport,
    WorkerStarted,
)

_log = logging.getLogger(__name__)

_SHARDS = 5
"""The most shards that a line lists."""

_RELEASED = {
    LeaseEnd.HANDED_OVER: "another worker requested it",
    LeaseEnd.SHARD_FINISHED: "the shard has ended, and all of its records are processed",
    LeaseEnd.SHUTDOWN: "this worker shuts down",
    LeaseEnd.STREAM_LEFT: "this worker no longer reads its stream",
    LeaseEnd.STOPPED: "on_error stopped the shard on this worker",
    LeaseEnd.PROCESSING_TIME: "process_records exceeded processing_time_limit",
    LeaseEnd.CONSUMER_DIED: "the thread that read the shard has died",
}


class EventLog:
    """Logs the events of one worker, whichever thread raises them. A `Listener`.

    Each log record names application, worker and shard as `LogContext` does, and has the event as
    its attribute ``sparkinesis_event``.
    """

    def __init__(self, application: str, worker_id: str) -> None:
        self._application = application
        self._worker_id = worker_id

    def __call__(self, event: Event) -> None:
        if not _log.isEnabledFor(level_of(event)):
            return
        extra = {
            "application": self._application,
            "worker": self._worker_id,
            "shard": _lease_of(event),
            "sparkinesis_event": event,
        }
        _log.log(*line_of(event), extra=extra)


def _lease_of(event: Event) -> str:
    """Return the key of the one lease that the event is about, which names the shard; or "-"."""
    if isinstance(event, LeaseTaken | LeaseEnded | HandoffRequested):
        return event.lease
    return "-"


class Line(NamedTuple):
    """A log line."""

    level: int
    text: str


def line_of(event: Event) -> Line:
    """Return the log line of an event. Pure."""
    return Line(level_of(event), _text(event))


def level_of(event: Event) -> int:
    """Return the level of an event's log line. Pure."""
    if isinstance(event, LeaseEnded):
        is_normal = event.reason.is_planned and event.error is None
    elif isinstance(event, WorkerEnded):
        is_normal = event.error is None and not event.was_forced
    elif isinstance(event, ShutdownBegan):
        is_normal = event.error is None
    else:
        is_normal = not isinstance(event, OwnerSilent | RenewalFailed)
    return logging.INFO if is_normal else logging.WARNING


def _text(event: Event) -> str:
    if isinstance(event, WorkerStarted):
        return (
            f"Worker {event.worker_id} has started: application {event.application!r} reads "
            f"{event.stream} ({event.retrieval}), from {event.initial_position} where a shard has "
            f"no lease; failover_time is {event.failover_time:g} s"
        )
    if isinstance(event, WorkerReport):
        return (
            f"{_count(event.shards, 'shard')}, {event.records_per_second:,.1f} records/s, "
            f"{_lag(event)}"
        )
    if isinstance(event, ShutdownBegan):
        why = f": {event.error}" if event.error is not None else ""
        return f"Worker {event.worker_id} shuts down; it reads {_count(event.shards, 'shard')}{why}"
    if isinstance(event, WorkerEnded):
        return _worker_ended(event)
    if isinstance(event, LeaseTaken):
        return f"Took {event.lease}{_origin(event)}; its checkpoint is {event.checkpoint}"
    if isinstance(event, LeaseEnded):
        return _lease_ended(event)
    if isinstance(event, HandoffRequested):
        return f"Requested {event.lease} from worker {event.owner}, which has more than its share"
    if isinstance(event, OwnerSilent):
        return (
            f"Worker {event.owner} has not renewed {_list(event.leases)} for "
            f"{event.silent_for:.1f} s: it has died or cannot write to the lease table, and other "
            "workers take its shards"
        )
    return (
        f"{event.leases} of {event.of} leases could not be renewed now, and will be retried: "
        f"{event.error}"
    )


def _worker_ended(event: WorkerEnded) -> str:
    text = (
        f"Worker {event.worker_id} has ended after {_seconds(event.seconds)}: "
        f"{_count(event.records, 'record')} processed"
    )
    if event.was_forced:
        text += (
            "; the shutdown did not wait for all record processors, so records without a "
            "checkpoint are processed again"
        )
    return text if event.error is None else f"{text}; {event.error}"


def _origin(event: LeaseTaken) -> str:
    owner = f" from worker {event.previous_owner}"
    waited = f"{event.waited or 0.0:.1f} s"
    return {
        LeaseOrigin.UNOWNED: ", which had no owner",
        LeaseOrigin.HANDED_OVER: f"{owner}, which has released it at this worker's request",
        LeaseOrigin.EXPIRED: f"{owner}, which has not renewed its lease for {waited}",
        LeaseOrigin.LATE_HANDOVER: f"{owner}, which has not released it within {waited}",
        LeaseOrigin.LEGACY_OWNER: f"{owner}, which does not support handoffs",
        LeaseOrigin.OWN: ", which the lease table assigns to this worker",
    }[event.origin]


def _lease_ended(event: LeaseEnded) -> str:
    held = f"after {_seconds(event.held_for)}"
    end = f"its checkpoint is {event.checkpoint}"
    why = _RELEASED.get(event.reason)
    if why is None:
        error = f". The last renewal failed: {event.error}" if event.error is not None else ""
        return (
            f"Lost {event.lease} {held}: {event.detail}; {end}, and records after it are "
            f"processed again{error}"
        )
    if event.error is not None:
        return (
            f"Gave up {event.lease} {held}: {why}; {end}. Its lease could not be released, and "
            f"has to expire before another worker takes it: {event.error}"
        )
    to = "" if event.other_worker is None else f" to worker {event.other_worker}"
    return f"Released {event.lease}{to} {held}: {why}; {end}"


def _lag(event: WorkerReport) -> str:
    if event.millis_behind_latest is None:
        return "lag unknown"
    return f"{event.millis_behind_latest / 1000:,.1f} s behind ({event.furthest_behind})"


def _list(leases: tuple[str, ...]) -> str:
    more = len(leases) - _SHARDS
    return ", ".join(leases[:_SHARDS]) + (f" and {more} more" if more > 0 else "")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds < 100 else f"{seconds:,.0f} s"

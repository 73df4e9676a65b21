"""The log lines of a worker's events: a level and a text for each, and nothing else logs them.

An operator reads these lines. INFO is the course of a healthy application; a WARNING is worth a
look: a lease that ended without this worker's intention, or a worker that no longer renews.
"""

from __future__ import annotations

import logging
from typing import NamedTuple, TypeAlias

from sparkinesis.lease.events import (
    ChildrenUnlisted,
    ChildrenWaiting,
    HandoffRequested,
    LeaseCreated,
    LeaseDeleted,
    LeaseEnd,
    LeaseEnded,
    LeaseOrigin,
    LeaseReadable,
    LeasesMissing,
    LeaseTaken,
    LeaseUnreadable,
    LeaseUnwritable,
    LegacyWorkerSeen,
    OwnerSilent,
    ParentsLost,
    RenewalFailed,
    RenewalRecovered,
    ShutdownBegan,
    WorkerEnded,
    WorkerReport,
    WorkerStarted,
)
from sparkinesis.worker.reporting.events import (
    BatchAction,
    BatchFailed,
    CheckpointRefused,
    ConsumerDeregistered,
    DataLost,
    DeadLettersStored,
    Event,
    FormerStreamDeleted,
    FormerStreamKept,
    OldRecordsSkipped,
    PollingInstead,
    ProcessingTimeExceeded,
    RecordsSkipped,
    ShardEnded,
    ShardEvent,
    ShardStarted,
    ShardStopped,
    ShardSyncFailed,
    ShardSyncRecovered,
    ShutdownOverdue,
    Span,
    StreamEvent,
    StreamFailing,
    StreamMadeAnew,
    StreamReadable,
    TableFound,
    TableMissing,
    TakingFailed,
    TakingRecovered,
    TaskFailed,
    TroubleBegan,
    TroubleEnded,
    WorkerFailed,
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
    """Logs the events of one worker, whichever thread raises them.

    Each log record names application, worker and shard as `LogContext` does, and has the event as
    its attribute ``sparkinesis_event``.
    """

    def __init__(self, application: str, worker_id: str) -> None:
        self._application = application
        self._worker_id = worker_id

    def __call__(self, event: Event, cause: BaseException | None = None) -> None:
        """Log an event, with the traceback of ``cause``."""
        if not _log.isEnabledFor(level_of(event)):
            return
        extra = {
            "application": self._application,
            "worker": self._worker_id,
            "shard": _lease_of(event),
            "sparkinesis_event": event,
        }
        _log.log(*line_of(event), exc_info=cause, extra=extra)


def _lease_of(event: Event) -> str:
    """Return the key of the one lease that the event is about, which names the shard; or "-"."""
    lease: str = getattr(event, "lease", "-")
    return lease


class Line(NamedTuple):
    """A log line."""

    level: int
    text: str


def line_of(event: Event) -> Line:
    """Return the log line of an event. Pure."""
    return Line(level_of(event), _text(event))


def level_of(event: Event) -> int:
    """Return the level of an event's log line. Pure."""
    if isinstance(event, ShardEvent):
        return _shard_level(event)
    if isinstance(event, _ERRORS):
        return logging.ERROR
    if isinstance(event, LeaseEnded):
        is_normal = event.reason.is_planned and event.error is None
    elif isinstance(event, WorkerEnded):
        is_normal = event.error is None and not event.was_forced
    elif isinstance(event, ShutdownBegan | ConsumerDeregistered):
        is_normal = event.error is None
    else:
        is_normal = not isinstance(event, _WARNINGS)
    return logging.INFO if is_normal else logging.WARNING


_ERRORS = (WorkerFailed, TableMissing, LeaseUnreadable, LeaseUnwritable)
_WARNINGS = (
    OwnerSilent,
    RenewalFailed,
    ParentsLost,
    ShutdownOverdue,
    TakingFailed,
    ShardSyncFailed,
    StreamFailing,
    StreamMadeAnew,
    LeasesMissing,
    ChildrenUnlisted,
    TroubleBegan,
    PollingInstead,
)


def _shard_level(event: ShardEvent) -> int:
    if isinstance(event, ShardStarted | ShardEnded | OldRecordsSkipped):
        return logging.INFO
    is_warning = isinstance(event, CheckpointRefused | DataLost)
    if isinstance(event, BatchFailed):
        is_warning = event.is_again or event.action is BatchAction.RELEASE
    elif isinstance(event, TaskFailed):
        is_warning = event.is_again
    return logging.WARNING if is_warning else logging.ERROR


def _text(event: Event) -> str:
    if isinstance(event, ShardEvent):
        return _shard_text(event)
    if isinstance(event, StreamEvent):
        return _stream_text(event)
    if isinstance(event, _OfTheWorker):
        return _worker_text(event)
    if isinstance(event, _OfTheTable):
        return _table_text(event)
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
    return _trouble(event)


_OfTheWorker: TypeAlias = (
    WorkerStarted | WorkerReport | ShutdownBegan | ShutdownOverdue | WorkerEnded
)


def _worker_text(event: _OfTheWorker) -> str:
    if isinstance(event, WorkerStarted):
        return (
            f"Worker {event.worker_id} has started: application {event.application!r} reads "
            f"{event.streams} ({event.retrieval}), from {event.initial_position} where a shard has "
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
    if isinstance(event, ShutdownOverdue):
        return (
            "The time for the shutdown is up, and the record processors of "
            f"{_list(event.leases)} have not finished. Their leases are released: other workers "
            "process the records since the last checkpoint again. If the processors need longer, "
            "raise shutdown_timeout."
        )
    return _worker_ended(event)


_OfTheTable: TypeAlias = (
    LeaseCreated
    | LeaseDeleted
    | LeasesMissing
    | ChildrenWaiting
    | ChildrenUnlisted
    | LeaseUnreadable
    | LeaseReadable
    | LeaseUnwritable
    | LegacyWorkerSeen
    | ParentsLost
)


def _table_text(event: _OfTheTable) -> str:
    if isinstance(event, LeaseCreated):
        return f"Created the lease {event.lease} at {event.checkpoint}"
    if isinstance(event, LeaseDeleted):
        return (
            f"Deleted the lease {event.lease}: its shard and the parents of the shard are finished"
        )
    if isinstance(event, LeasesMissing):
        stream = "" if event.stream is None else f" in stream {event.stream}"
        return (
            f"No lease of the {event.table} covers the hash keys {event.hash_keys}{stream}: "
            "creating the missing leases"
        )
    if isinstance(event, ChildrenWaiting):
        waited_for = ", ".join(event.parents)
        return f"{event.lease} has ended; its children wait for the leases of {waited_for}"
    if isinstance(event, ChildrenUnlisted):
        return (
            f"{event.shard_id} of {event.place} ended {event.seconds:.0f} s ago without naming "
            "its children, and ListShards does not show its end yet. The children are not read "
            "until it does."
        )
    if isinstance(event, LeaseUnreadable):
        return (
            f"The lease {event.lease} in the {event.table} cannot be read: {event.why}. No worker "
            "takes the lease, and the children of the shard wait; other shards are not affected. "
            "Repair the row, or delete it to read the shard from its start again."
        )
    if isinstance(event, LeaseReadable):
        return f"The lease {event.lease} in the {event.table} can be read again"
    if isinstance(event, LeaseUnwritable):
        return f"The lease {event.lease} cannot be written and is skipped: {event.error}"
    if isinstance(event, LegacyWorkerSeen):
        return (
            f"The worker {event.other_worker} of the {event.table} does not support handoffs, like "
            "a KCL before 3.0: its leases are taken without a request, and records that it has not "
            "checkpointed are processed again"
        )
    return event.what


def _trouble(
    event: RenewalFailed
    | WorkerFailed
    | TableMissing
    | TableFound
    | RenewalRecovered
    | TakingFailed
    | TakingRecovered
    | TroubleBegan
    | TroubleEnded
    | ConsumerDeregistered,
) -> str:
    if isinstance(event, TroubleBegan):
        return f"{event.what}; {event.meanwhile}: {event.error}"
    if isinstance(event, TroubleEnded):
        return f"{event.what} no longer"
    if isinstance(event, ConsumerDeregistered):
        return _deregistered(event)
    if isinstance(event, RenewalFailed):
        return (
            f"{event.leases} of {event.of} leases could not be renewed now, and will be retried: "
            f"{event.error}"
        )
    if isinstance(event, RenewalRecovered):
        return f"All leases can be renewed again, after {event.seconds:.1f} s"
    if isinstance(event, WorkerFailed):
        return f"The worker {event.worker_id} shuts down: {event.error}"
    if isinstance(event, TableMissing):
        return f"The worker {event.worker_id} keeps running, but without leases: {event.error}"
    if isinstance(event, TableFound):
        return f"The lease table has leases again: the worker {event.worker_id} resumes"
    if isinstance(event, TakingFailed):
        return f"Taking leases failed and will be retried: {event.error}"
    return f"Leases can be taken again, after {event.seconds:.1f} s"


def _polling_instead(event: PollingInstead) -> str:
    return (
        f"Registering the consumer {event.consumer} of {event.place} was refused. Until this "
        "worker is restarted, records are fetched by polling, as fall_back_to_polling asks: "
        f"{event.error}"
    )


def _deregistered(event: ConsumerDeregistered) -> str:
    if event.error is None:
        return f"Deregistered the consumer {event.consumer_arn}"
    return (
        f"Deregistering the consumer {event.consumer_arn} failed; it stays registered and is "
        f"billed: {event.error}"
    )


def _stream_text(event: StreamEvent) -> str:
    if isinstance(event, FormerStreamDeleted):
        return (
            f"Deleted {event.leases} leases of {event.place}, which left the application, and "
            f"which no worker has read for {event.seconds:.0f} s"
        )
    if isinstance(event, FormerStreamKept):
        return f"Another worker has begun to read {event.place}: its leases stay"
    if isinstance(event, StreamFailing):
        return (
            f"{event.place} cannot be read now, and is tried again; other streams are not "
            f"affected: {event.error}"
        )
    if isinstance(event, StreamReadable):
        return f"{event.place} can be read now"
    if isinstance(event, StreamMadeAnew):
        return (
            f"{event.place} was deleted and made anew: it is read as {event.now} from now on. "
            f"What was not read of {event.before} is gone with that stream."
        )
    if isinstance(event, ShardSyncFailed):
        return f"Shard sync of {event.place} failed and will be retried: {event.error}"
    if isinstance(event, ShardSyncRecovered):
        return f"Shard sync of {event.place} succeeds again"
    if isinstance(event, PollingInstead):
        return _polling_instead(event)
    return f"{event.place} is no longer among the streams of the application"


def _shard_text(event: ShardEvent) -> str:
    if isinstance(event, BatchFailed | TaskFailed):
        return _failed(event)
    if isinstance(event, RecordsSkipped | DeadLettersStored):
        records = Span(event.records, event.first, event.last)
        if isinstance(event, RecordsSkipped):
            return f"Skipped {records} of {event.place}, as on_error asks."
        return f"Stored {records} of {event.place} as dead letters."
    if isinstance(event, ShardStarted):
        return f"Began to read {event.lease} at {event.position}"
    if isinstance(event, ShardEnded):
        children = f"; its children are {_list(event.children)}" if event.children else ""
        return (
            f"Finished {event.lease}: the shard has ended, and all of its records are "
            f"checkpointed{children}"
        )
    if isinstance(event, DataLost):
        return event.what
    if isinstance(event, OldRecordsSkipped):
        return f"Skipping to {event.until_ms} (epoch ms) in {event.place}, as skip_older_than asks"
    if isinstance(event, ProcessingTimeExceeded):
        end = ". The shard's lease is released." if event.gives_up else "."
        return (
            f"process_records has taken {event.seconds:.1f} s on {event.place}; "
            f"processing_time_limit is {event.limit:g} s{end}"
        )
    if isinstance(event, CheckpointRefused):
        return f"The last automatic checkpoint of {event.place} was refused: {event.error}"
    if isinstance(event, ShardStopped):
        return f"Stopped {event.place}, as on_error asks."
    return f"The consumer of {event.place} died without shutting down."


def _failed(event: BatchFailed | TaskFailed) -> str:
    failure = event.failure
    if isinstance(event, TaskFailed):
        what = event.what
    else:
        records = Span(event.records, event.first, event.last)
        what = f"process_records raised on {records} of {event.place}"
        if event.action is BatchAction.RELEASE:
            what += ", while the shard was being released"
        if failure is None:
            return f"{what}: {event.error}"
    assert failure is not None
    again = ", again" if event.is_again else ""
    return f"{what}{again}: {failure.error} [failure {failure.fingerprint}]"


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

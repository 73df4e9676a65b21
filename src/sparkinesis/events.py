"""The events in the life of a worker, of its leases, shards and streams, as ``on_event`` gets them.

    def on_event(event):
        match event:
            case LeaseEnded(reason=reason) if not reason.is_planned:
                page_somebody(f"{event.lease}: {event.detail}")
            case DataLost():
                page_somebody(event.what)

The worker
    `WorkerStarted`, `WorkerReport` once a minute, `ShutdownBegan`, `ShutdownOverdue`,
    `EventLoopBlocked`,
    `WorkerFailed`, `WorkerEnded`; `ConsumerDeregistered` by the last worker, with enhanced fan-out
Its leases (`LeaseEvent`)
    `LeaseTaken`, `LeaseEnded`, `HandoffRequested`; `OwnerSilent` and `LegacyWorkerSeen` of other
    workers; `RenewalFailed`, `RenewalRecovered`, `TakingFailed`, `TakingRecovered`; in a fleet with
    a leader: `LeadershipChanged`, `LeaseAssigned`, `FleetRowsFailed`, `FleetRowsRecovered`
The rows of the lease table
    `LeaseCreated`, `LeaseDeleted`, `LeasesMissing`, `LeaseUnreadable`, `LeaseReadable`,
    `LeaseUnwritable`, `TableMissing`, `TableFound`; of shards that have ended: `ChildrenWaiting`,
    `ChildrenUnlisted`, `ParentsLost`
Shards that the worker reads (`ShardEvent`)
    `ShardStarted`, `ShardEnded`, `ShardStopped`, `ReaderDied`; of their records: `BatchFailed`,
    `RecordsSkipped`, `DeadLettersStored`, `DataLost`, `OldRecordsSkipped`; `TaskFailed`,
    `CheckpointRefused`, `ProcessingTimeExceeded`, `ShardStandsStill`, `ShardWentOn`
Streams (`StreamEvent`)
    `ShardSyncFailed`, `ShardSyncRecovered`, `PollingInstead`; of several streams: `StreamFailing`,
    `StreamReadable`, `StreamMadeAnew`, `StreamRemoved`, `FormerStreamDeleted`, `FormerStreamKept`,
    `TroubleBegan`, `TroubleEnded`
Queues (`QueueEvent`)
    `HandlerFailed`, `DeadLetterStored`, `DeadLetterRefused`, `HoldLost`; `ReceivingFailed`,
    `ReceivingRecovered`. An error that ends the application is a `WorkerFailed`, as with leases

Each event is raised at a single place in the code, and published once: as a log line, which
is its `Event.line`, the counters that follow from it, and a call of ``on_event``. So these cannot
differ. Durations are in seconds by the worker's clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from logging import ERROR, INFO, WARNING
from typing import ClassVar, NamedTuple, TypeAlias

import msgspec

from sparkinesis.errors import listed
from sparkinesis.status import Failure


class Line(NamedTuple):
    """A log line, which an operator reads."""

    level: int
    """INFO is the course of a healthy application; a WARNING is worth a look: a lease that ended
    without this worker's intention, or a worker that no longer renews."""
    text: str


class Event(msgspec.Struct, frozen=True):
    """An event; each is of one of the classes below."""

    _level: ClassVar[int] = INFO
    _text: ClassVar[str]
    """The text of the event's log line, with the names of fields."""

    def line(self) -> Line:
        """Return the event's log line."""
        return Line(self._level, self._text.format_map(msgspec.structs.asdict(self)))


Listener: TypeAlias = Callable[[Event], object]
"""Takes events, in the thread that raises them, which may hold a lock: a listener returns at once
and raises nothing."""


def ignore(_: Event) -> None:
    """Listen to nothing."""


# ---- The worker ----


class WorkerStarted(Event, frozen=True):
    """A worker's threads run: it takes leases from now on."""

    worker_id: str
    application: str
    streams: str
    """The stream's name and place, or the names of several, for people."""
    retrieval: str
    initial_position: str
    failover_time: float

    _text = (
        "Worker {worker_id} has started: application {application!r} reads {streams} "
        "({retrieval}), from {initial_position} where a shard has no lease; failover_time is "
        "{failover_time:g} s"
    )


class WorkerReport(Event, frozen=True):
    """The progress of a worker since its last report."""

    seconds: float
    """The seconds since the last report, or since the start."""
    shards: int
    records: int
    """User records processed in that time."""
    millis_behind_latest: int | None
    """The largest known lag of the shards that the worker reads; None if no lag is known."""
    furthest_behind: str | None
    """The shard with that lag."""
    standing: tuple[tuple[str, float], ...] = ()
    """The shards that stand still, as by `ShardStandsStill`, and for how many seconds; the longest
    first."""

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0

    def line(self) -> Line:
        lag = "lag unknown"
        if self.millis_behind_latest is not None:
            lag = f"{self.millis_behind_latest / 1000:,.1f} s behind ({self.furthest_behind})"
        shards = _count(self.shards, "shard")
        text = f"{shards}, {self.records_per_second:,.1f} records/s, {lag}"
        if self.standing:
            each = listed(f"{shard} for {seconds:,.0f} s" for shard, seconds in self.standing)
            text += f"; standing still: {each}"
        return Line(INFO, text)


class ShutdownBegan(Event, frozen=True):
    """A worker shuts down: it was asked to, or it has failed."""

    worker_id: str
    shards: int
    """The number of shards that the worker reads."""
    error: str | None
    """The error that ends the worker; None for a requested shutdown."""

    def line(self) -> Line:
        text = f"Worker {self.worker_id} shuts down; it reads {_count(self.shards, 'shard')}"
        return Line(INFO, text) if self.error is None else Line(WARNING, f"{text}: {self.error}")


class ShutdownOverdue(Event, frozen=True):
    """The time for a shutdown is up, and some record processors have not finished."""

    leases: tuple[str, ...]
    """The keys of their leases, which are released."""

    def line(self) -> Line:
        return Line(
            WARNING,
            "The time for the shutdown is up, and the record processors of "
            f"{listed(self.leases)} have not finished. Their leases are released: other workers "
            "process the records since the last checkpoint again. If the processors need longer, "
            "raise shutdown_timeout.",
        )


class EventLoopBlocked(Event, frozen=True):
    """A coroutine of a record processor blocks the event loop, and with it all other shards."""

    worker_id: str
    seconds: float
    """The time for which the loop has not answered."""
    where: str
    """The function, file and line at which the coroutine stands."""

    def line(self) -> Line:
        return Line(
            WARNING,
            f"The event loop of worker {self.worker_id} has stood still for {self.seconds:.1f} s "
            f"in {self.where}: no other shard's coroutine runs meanwhile. Await the call, or run "
            "it by asyncio.to_thread. Leases are renewed all the same.",
        )


class WorkerFailed(Event, frozen=True):
    """An error ends the worker."""

    worker_id: str
    error: str

    _level = ERROR
    _text = "The worker {worker_id} shuts down: {error}"


class WorkerEnded(Event, frozen=True):
    """A worker has ended."""

    worker_id: str
    seconds: float
    """The time since the worker started."""
    records: int
    """User records processed in that time."""
    was_forced: bool
    """True if the shutdown did not wait for record processors."""
    error: str | None

    def line(self) -> Line:
        text = (
            f"Worker {self.worker_id} has ended after {_seconds(self.seconds)}: "
            f"{_count(self.records, 'record')} processed"
        )
        if self.was_forced:
            text += (
                "; the shutdown did not wait for all record processors, so records without a "
                "checkpoint are processed again"
            )
        if self.error is not None:
            text += f"; {self.error}"
        return Line(INFO if self.error is None and not self.was_forced else WARNING, text)


class ConsumerDeregistered(Event, frozen=True):
    """The last worker has deregistered the consumer, or has failed to."""

    consumer_arn: str
    error: str | None
    """The error; the consumer then stays registered, and is billed."""

    def line(self) -> Line:
        if self.error is None:
            return Line(INFO, f"Deregistered the consumer {self.consumer_arn}")
        return Line(
            WARNING,
            f"Deregistering the consumer {self.consumer_arn} failed; it stays registered and is "
            f"billed: {self.error}",
        )


# ---- Its leases ----


class LeaseOrigin(Enum):
    """The state in which a worker found a lease that it took."""

    UNOWNED = "unowned"
    HANDED_OVER = "handed over"
    """Its owner released the lease to this worker, which had requested it."""
    EXPIRED = "expired"
    """Its owner had not renewed the lease for a failover time."""
    LATE_HANDOVER = "late handover"
    """Its owner renewed the lease, but did not release it within the time for a handoff."""
    LEGACY_OWNER = "legacy owner"
    """Its owner does not support handoffs, like a KCL before 3.0."""
    OWN = "own"
    """The lease table already named this worker as owner, as after a restart or an outage."""


class LeaseEnd(Enum):
    """The reason why a worker no longer holds a lease."""

    HANDED_OVER = "handed over"
    SHARD_FINISHED = "shard finished"
    SHUTDOWN = "shutdown"
    STOPPED = "stopped by on_error"
    PROCESSING_TIME = "processing_time_limit"
    CONSUMER_DIED = "consumer died"
    STREAM_LEFT = "the worker no longer reads its stream"
    RANGE_READ = "the range is read"
    """A replay has read the shard to the end of its range."""
    GIVEN_UP = "given up"
    EXPIRED = "expired"
    """The worker could not renew the lease for a failover time."""
    TAKEN = "taken"
    """Another worker took the lease without waiting for its release."""
    RESET = "reset"
    """Somebody else removed the owner from the lease, as `sparkinesis reset` does."""
    DELETED = "deleted"
    """The row was deleted from the lease table."""
    DUPLICATE_WORKER = "duplicate worker id"

    @property
    def is_planned(self) -> bool:
        """True for an end that is part of a healthy application."""
        return self in {
            LeaseEnd.HANDED_OVER,
            LeaseEnd.SHARD_FINISHED,
            LeaseEnd.SHUTDOWN,
            LeaseEnd.STREAM_LEFT,
            LeaseEnd.RANGE_READ,
        }


_RELEASED = {
    LeaseEnd.HANDED_OVER: "another worker requested it",
    LeaseEnd.SHARD_FINISHED: "the shard has ended, and what was read of it is processed",
    LeaseEnd.SHUTDOWN: "this worker shuts down",
    LeaseEnd.STREAM_LEFT: "this worker no longer reads its stream",
    LeaseEnd.RANGE_READ: "the range of the replay ends there",
    LeaseEnd.STOPPED: "on_error stopped the shard on this worker",
    LeaseEnd.PROCESSING_TIME: "process_records exceeded processing_time_limit",
    LeaseEnd.CONSUMER_DIED: "the thread that read the shard has died",
}


class LeaseEvent(Event, frozen=True):
    """An event of one lease, whether this worker holds it or not."""

    lease: str
    """The key of the lease."""
    shard_id: str


class LeaseTaken(LeaseEvent, frozen=True):
    """A worker has acquired a lease."""

    origin: LeaseOrigin
    previous_owner: str | None
    """The worker that held the lease before; None if there is none, or it is not known."""
    waited: float | None
    """The time for which the previous owner did not renew or release the lease, if it did not."""
    checkpoint: str

    def line(self) -> Line:
        owner = f" from worker {self.previous_owner}"
        waited = f"{self.waited or 0.0:.1f} s"
        origin = {
            LeaseOrigin.UNOWNED: ", which had no owner",
            LeaseOrigin.HANDED_OVER: f"{owner}, which has released it at this worker's request",
            LeaseOrigin.EXPIRED: f"{owner}, which has not renewed its lease for {waited}",
            LeaseOrigin.LATE_HANDOVER: f"{owner}, which has not released it within {waited}",
            LeaseOrigin.LEGACY_OWNER: f"{owner}, which does not support handoffs",
            LeaseOrigin.OWN: ", which the lease table assigns to this worker",
        }[self.origin]
        return Line(INFO, f"Took {self.lease}{origin}; its checkpoint is {self.checkpoint}")


class LeaseEnded(LeaseEvent, frozen=True):
    """A worker no longer holds a lease, which it has released or lost."""

    reason: LeaseEnd
    detail: str
    """The reason in words."""
    other_worker: str | None
    """The worker that has the lease now; None if there is none, or it is not known."""
    held_for: float
    checkpoint: str
    """The last checkpoint that the worker knows."""
    error: str | None = None
    """The error of the release or, for an expired lease, of the last renewal."""

    def line(self) -> Line:
        is_normal = self.reason.is_planned and self.error is None
        return Line(INFO if is_normal else WARNING, self._words())

    def _words(self) -> str:
        held = f"after {_seconds(self.held_for)}"
        end = f"its checkpoint is {self.checkpoint}"
        why = _RELEASED.get(self.reason)
        if why is None:
            error = f". The last renewal failed: {self.error}" if self.error is not None else ""
            return (
                f"Lost {self.lease} {held}: {self.detail}; {end}, and records after it are "
                f"processed again{error}"
            )
        if self.error is not None:
            return (
                f"Gave up {self.lease} {held}: {why}; {end}. Its lease could not be released, and "
                f"has to expire before another worker takes it: {self.error}"
            )
        to = "" if self.other_worker is None else f" to worker {self.other_worker}"
        return f"Released {self.lease}{to} {held}: {why}; {end}"


class HandoffRequested(LeaseEvent, frozen=True):
    """A worker has requested a lease from its owner, which has more than its share."""

    owner: str

    _text = "Requested {lease} from worker {owner}, which has more than its share"


class LeaseAssigned(LeaseEvent, frozen=True):
    """This worker leads, and has assigned a lease to a worker that has less to do."""

    to: str
    previous_owner: str | None
    """The worker that is to release the lease; None if the lease has no live owner."""

    def line(self) -> Line:
        whose = "which nobody reads"
        if self.previous_owner is not None:
            whose = f"which worker {self.previous_owner} is to release"
        return Line(INFO, f"Assigned {self.lease}, {whose}, to worker {self.to}")


class LeadershipChanged(Event, frozen=True):
    """This worker has begun or ceased to lead: to assign leases to the workers."""

    worker_id: str
    leads: bool

    def line(self) -> Line:
        what = "leads the fleet, and assigns the leases" if self.leads else "leads no more"
        return Line(INFO, f"Worker {self.worker_id} {what}")


class FleetRowsFailed(Event, frozen=True):
    """The rows by which workers and their leader coordinate cannot be read or written."""

    error: str

    _level = WARNING
    _text = "The rows of the fleet and its leader cannot be used, and will be tried again: {error}"


class FleetRowsRecovered(Event, frozen=True):
    """The rows of the fleet and its leader can be used again."""

    _text = "The rows of the fleet and its leader can be used again"


class OwnerSilent(Event, frozen=True):
    """Leases of another worker have expired: it has not renewed them."""

    owner: str
    leases: tuple[str, ...]
    silent_for: float

    def line(self) -> Line:
        return Line(
            WARNING,
            f"Worker {self.owner} has not renewed {listed(self.leases)} for "
            f"{self.silent_for:.1f} s: it has died or cannot write to the lease table, and other "
            "workers take its shards",
        )


class LegacyWorkerSeen(Event, frozen=True):
    """Another worker does not support handoffs, like a KCL before 3.0."""

    other_worker: str
    table: str
    """The lease table's name and place."""

    _text = (
        "The worker {other_worker} of the {table} does not support handoffs, like a KCL before "
        "3.0: its leases are taken without a request, and records that it has not checkpointed "
        "are processed again"
    )


class RenewalFailed(Event, frozen=True):
    """Some leases could not be renewed for the same reason, and will be tried again."""

    leases: int
    of: int
    """The number of leases that the worker holds."""
    error: str
    times: int = 1
    """How often since the last such event: the same error is published ever more rarely."""

    def line(self) -> Line:
        often = _often(self.times) or ","
        return Line(
            WARNING,
            f"{self.leases} of {self.of} leases could not be renewed now{often} and will be "
            f"retried: {self.error}",
        )


class RenewalRecovered(Event, frozen=True):
    """All leases that the worker still holds can be renewed again."""

    seconds: float
    """The time since the first renewal failed."""

    _text = "All leases can be renewed again, after {seconds:.1f} s"


class TakingFailed(Event, frozen=True):
    """The lease table could not be read, or no lease taken; the worker tries again."""

    error: str
    times: int = 1
    """How often since the last such event: the same error is published ever more rarely."""

    def line(self) -> Line:
        often = _often(self.times)
        return Line(WARNING, f"Taking leases failed{often} and will be retried: {self.error}")


class TakingRecovered(Event, frozen=True):
    """The lease table can be read again, and leases be taken."""

    seconds: float
    """The time since the first failure."""

    _text = "Leases can be taken again, after {seconds:.1f} s"


# ---- The rows of the lease table ----


class LeaseCreated(LeaseEvent, frozen=True):
    """A shard has a lease now, which some worker will take."""

    checkpoint: str
    """The position at which the shard will be read."""

    _text = "Created the lease {lease} at {checkpoint}"


class LeaseDeleted(LeaseEvent, frozen=True):
    """The lease of a shard was deleted: the shard and its parents are finished."""

    _text = "Deleted the lease {lease}: its shard and the parents of the shard are finished"


class LeasesMissing(Event, frozen=True):
    """An audit found hash keys that no lease covers; the missing leases are created."""

    table: str
    """The lease table's name and place."""
    stream: str | None
    """One of several streams: ``<account>:<stream>:<creation epoch>``; None for a single one."""
    hash_keys: str

    def line(self) -> Line:
        stream = "" if self.stream is None else f" in stream {self.stream}"
        return Line(
            WARNING,
            f"No lease of the {self.table} covers the hash keys {self.hash_keys}{stream}: "
            "creating the missing leases",
        )


class LeaseUnreadable(Event, frozen=True):
    """A row of the lease table cannot be read: no worker takes the lease."""

    lease: str
    table: str
    """The lease table's name and place."""
    why: str

    _level = ERROR
    _text = (
        "The lease {lease} in the {table} cannot be read: {why}. No worker takes the lease, "
        "and the children of the shard wait; other shards are not affected. Repair the row, or "
        "delete it to read the shard from its start again."
    )


class LeaseReadable(Event, frozen=True):
    """A row of the lease table that could not be read can be read again, or is gone."""

    lease: str
    table: str

    _text = "The lease {lease} in the {table} can be read again"


class LeaseUnwritable(Event, frozen=True):
    """The service refuses for good to write a lease, which is skipped."""

    lease: str
    error: str

    _level = ERROR
    _text = "The lease {lease} cannot be written and is skipped: {error}"


class TableMissing(Event, frozen=True):
    """The lease table was deleted: the worker runs on, without leases."""

    worker_id: str
    error: str

    _level = ERROR
    _text = "The worker {worker_id} keeps running, but without leases: {error}"


class TableFound(Event, frozen=True):
    """The lease table has leases again."""

    worker_id: str

    _text = "The lease table has leases again: the worker {worker_id} resumes"


class ChildrenWaiting(LeaseEvent, frozen=True):
    """A shard has ended, and the leases of its children wait for those of other parents."""

    parents: tuple[str, ...]
    """The shard ids of the parents that have no lease yet."""

    def line(self) -> Line:
        waited_for = ", ".join(self.parents)
        return Line(
            INFO, f"{self.lease} has ended; its children wait for the leases of {waited_for}"
        )


class ChildrenUnlisted(LeaseEvent, frozen=True):
    """A shard has ended, and the service has not named its children for a minute."""

    stream: str
    """The stream's name."""
    place: str
    """The stream's name and place, for people."""
    seconds: float
    """The time since the end of the shard was seen."""

    _level = WARNING
    _text = (
        "{shard_id} of {place} ended {seconds:.0f} s ago without naming its children, and "
        "ListShards does not show its end yet. The children are not read until it does."
    )


class ParentsLost(LeaseEvent, frozen=True):
    """A shard's parents had no lease, and they have expired: their records were removed unread."""

    stream: str
    """The stream's name."""
    parents: tuple[str, ...]
    """The shard ids of the parents."""
    what: str
    """What is lost, and where reading resumes."""

    _level = WARNING
    _text = "{what}"


# ---- Shards that the worker reads ----


class BatchAction(Enum):
    """What becomes of the records of a ``process_records`` or a queue's handler that raised."""

    RETRY = "retry"
    """They are delivered again, as ``on_error`` asks."""
    SPLIT = "split"
    """They are delivered in halves, to find those that fail."""
    SKIP = "skip"
    DEAD_LETTER = "dead letter"
    STOP = "stop"
    """The shard is left to another worker; an application that consumes a queue ends."""
    WAIT = "wait"
    """They are delivered again: a checkpoint failed, for a reason outside of the records."""
    RELEASE = "release"
    """The shard is being released, and its next owner gets them."""
    NONE_LEFT = "none left"
    """Nothing is left of them: all were checkpointed before the error, or the shard was reset."""


class Span(NamedTuple):
    """The records of a batch."""

    records: int
    first: str
    """The position of the first record; empty if there is none."""
    last: str

    def __str__(self) -> str:
        if not self.records:
            return "an empty batch"
        if self.first == self.last:
            return f"record {self.first}"
        return f"records {self.first} to {self.last}"


class ShardEvent(Event, frozen=True):
    """An event of one shard that the worker reads."""

    lease: str
    """The key of the shard's lease."""
    shard_id: str
    stream: str
    """The stream's name."""
    place: str
    """The shard, its stream and the application, for people."""


class RecordsEvent(ShardEvent, frozen=True):
    """An event of some records of a shard."""

    records: int
    first: str
    """The position of the first record; empty for a batch without records."""
    last: str

    @property
    def span(self) -> Span:
        return Span(self.records, self.first, self.last)


class ShardStarted(ShardEvent, frozen=True):
    """A shard's record processor is initialized, and the shard is read from now on."""

    position: str
    """The position from which the shard is read."""
    checkpoint: str

    _text = "Began to read {lease} at {position}"


class ShardEnded(ShardEvent, frozen=True):
    """What could be read of a shard that was split or merged, or is gone, is checkpointed."""

    children: tuple[str, ...]
    """The shard ids of the children that the service named; they may begin now."""
    records: int
    """User records processed since this worker took the shard."""
    rest_is_lost: bool = False
    """True if the shard has expired, with records that were not read: see `DataLost`."""

    def line(self) -> Line:
        children = f"; its children are {listed(self.children)}" if self.children else ""
        if self.rest_is_lost:
            return Line(
                WARNING,
                f"Left {self.lease}: the shard has expired, and the records after the last "
                f"checkpoint are lost{children}",
            )
        return Line(
            INFO,
            f"Finished {self.lease}: the shard has ended, and all of its records are "
            f"checkpointed{children}",
        )


class ShardStopped(ShardEvent, frozen=True):
    """``on_error`` stops a shard: its lease is released, and this worker leaves it alone."""

    error: str

    _level = ERROR
    _text = "Stopped {place}, as on_error asks."


class ReaderDied(ShardEvent, frozen=True):
    """The part of the worker that reads a shard has died; the lease is released."""

    _level = ERROR
    _text = "The consumer of {place} died without shutting down."


class BatchFailed(RecordsEvent, frozen=True):
    """A call of ``process_records`` raised."""

    action: BatchAction
    error: str
    failure: Failure | None
    """The error, counted; None if the lease was lost, which is no failure."""
    is_again: bool
    """True if the call before has failed on the same lines."""

    def line(self) -> Line:
        what = batch_failed(self.span, self.place, self.action)
        if self.failure is None:
            text = f"{what}: {self.error}"
        else:
            text = _failed(what, self.failure, is_again=self.is_again)
        is_warning = self.is_again or self.action is BatchAction.RELEASE
        return Line(WARNING if is_warning else ERROR, text)


def batch_failed(span: Span, place: str, action: BatchAction) -> str:
    """Return what failed when ``process_records`` raised, for people."""
    release = ", while the shard was being released" if action is BatchAction.RELEASE else ""
    return f"process_records raised on {span} of {place}{release}"


class RecordsSkipped(RecordsEvent, frozen=True):
    """Records that cannot be processed were skipped, as ``on_error`` asks."""

    def line(self) -> Line:
        return Line(ERROR, f"Skipped {self.span} of {self.place}, as on_error asks.")


class DeadLettersStored(RecordsEvent, frozen=True):
    """Records that cannot be processed were given to the dead-letter target."""

    def line(self) -> Line:
        return Line(ERROR, f"Stored {self.span} of {self.place} as dead letters.")


class DataLost(ShardEvent, frozen=True):
    """Records had expired before they were read."""

    what: str
    """What is lost, and where reading resumes."""

    _level = WARNING
    _text = "{what}"


class OldRecordsSkipped(ShardEvent, frozen=True):
    """A shard is read from a later time on, as ``skip_older_than`` asks."""

    until_ms: int
    """The time from which records are read (epoch ms)."""

    _text = "Skipping to {until_ms} (epoch ms) in {place}, as skip_older_than asks"


class TaskFailed(ShardEvent, frozen=True):
    """Something else failed on a shard: another method, a checkpoint, fetching, a dead letter."""

    what: str
    """What failed, and whether it is tried again."""
    failure: Failure
    is_again: bool

    def line(self) -> Line:
        text = _failed(self.what, self.failure, is_again=self.is_again)
        return Line(WARNING if self.is_again else ERROR, text)


class CheckpointRefused(ShardEvent, frozen=True):
    """The last automatic checkpoint was refused, because the lease is lost."""

    error: str

    _level = WARNING
    _text = "The last automatic checkpoint of {place} was refused: {error}"


class ProcessingTimeExceeded(ShardEvent, frozen=True):
    """A call of ``process_records`` has taken longer than ``processing_time_limit``."""

    seconds: float
    limit: float
    gives_up: bool
    """True if the lease is released, by ``give_up_after_limit``."""

    def line(self) -> Line:
        end = ". The shard's lease is released." if self.gives_up else "."
        return Line(
            ERROR,
            f"process_records has taken {self.seconds:.1f} s on {self.place}; "
            f"processing_time_limit is {self.limit:g} s{end}",
        )


class ShardStandsStill(ShardEvent, frozen=True):
    """A shard makes no progress for ``standstill_warning`` seconds, or for many times that."""

    seconds: float
    since_ms: int
    """Since when (epoch ms, by the machine's clock)."""
    why: str
    """What does not end or fails again and again, and on which records."""

    def line(self) -> Line:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.since_ms / 1000))
        return Line(
            WARNING,
            f"{self.place} has stood still for {_seconds(self.seconds)}, since "
            f"{since}: {self.why}. The records behind wait, and this worker "
            "keeps the lease. Look for an error in the lines before, and let calls to other "
            "systems time out: a call that hangs ends with this process, unless "
            "processing_time_limit with give_up_after_limit passes the shard on.",
        )


class ShardWentOn(ShardEvent, frozen=True):
    """A shard makes progress again after `ShardStandsStill`, or is no longer held up here."""

    seconds: float
    """For how long it stood still."""

    def line(self) -> Line:
        return Line(INFO, f"{self.place} goes on after {_seconds(self.seconds)}")


# ---- Streams ----


class StreamEvent(Event, frozen=True):
    """An event of a stream of the application."""

    stream: str
    """The stream's name."""
    place: str
    """The stream's name and its region or ARN, for people; of a former stream
    ``<account>:<stream>:<creation epoch>``."""


class ShardSyncFailed(StreamEvent, frozen=True):
    """The shards of a stream could not be compared with the leases; the worker tries again."""

    error: str

    _level = WARNING
    _text = "Shard sync of {place} failed and will be retried: {error}"


class ShardSyncRecovered(StreamEvent, frozen=True):
    """The comparison of a stream's shards with the leases works again."""

    _text = "Shard sync of {place} succeeds again"


class PollingInstead(StreamEvent, frozen=True):
    """Registering the consumer was refused: records are polled, by ``fall_back_to_polling``."""

    consumer: str
    error: str

    _level = WARNING
    _text = (
        "Registering the consumer {consumer} of {place} was refused. Until this worker is "
        "restarted, records are fetched by polling, as fall_back_to_polling asks: {error}"
    )


class StreamFailing(StreamEvent, frozen=True):
    """A stream cannot be read now, and is tried again; the others are read."""

    error: str

    _level = WARNING
    _text = (
        "{place} cannot be read now, and is tried again; other streams are not affected: {error}"
    )


class StreamReadable(StreamEvent, frozen=True):
    """A stream that could not be read can be read now."""

    _text = "{place} can be read now"


class StreamMadeAnew(StreamEvent, frozen=True):
    """A stream was deleted and made anew: what was not read of the old one is gone."""

    before: str
    """The old stream: ``<account>:<stream>:<creation epoch>``; of an application of one stream,
    ``<region>:<account>:<stream>:<creation time in ms>``."""
    now: str
    """The stream that is read from now on."""

    _level = WARNING
    _text = (
        "{place} was deleted and made anew: it is read as {now} from now on. What was not read "
        "of {before} is gone with that stream."
    )


class StreamRemoved(StreamEvent, frozen=True):
    """A stream is no longer among those of the application."""

    _text = "{place} is no longer among the streams of the application"


class FormerStreamDeleted(StreamEvent, frozen=True):
    """The leases of a stream that left the application were deleted."""

    leases: int
    seconds: float
    """The time for which no worker had read the stream."""

    _text = (
        "Deleted {leases} leases of {place}, which left the application, and which no worker "
        "has read for {seconds:.0f} s"
    )


class FormerStreamKept(StreamEvent, frozen=True):
    """The leases of a former stream stay: another worker has begun to read the stream."""

    _text = "Another worker has begun to read {place}: its leases stay"


class TroubleBegan(Event, frozen=True):
    """Something fails that concerns all of several streams, and is tried again."""

    what: str
    """What fails."""
    meanwhile: str
    """What happens until it works again."""
    error: str

    _level = WARNING
    _text = "{what}; {meanwhile}: {error}"


class TroubleEnded(Event, frozen=True):
    """Something that failed works again."""

    what: str
    """What failed."""

    _text = "{what} no longer"


# ---- Queues ----


class QueueEvent(Event, frozen=True):
    """An event of an application that consumes a queue."""

    queue: str
    """The queue's name."""
    place: str
    """The queue's name, id and region, for people."""


class HandlerFailed(QueueEvent, frozen=True):
    """A handler raised, or named a record as failed; or the record could not be decoded."""

    record_id: str
    receive_count: int
    """The deliveries of the record so far."""
    action: BatchAction
    seconds: int | None
    """The seconds until the record is delivered again; None unless it is."""
    error: str

    def line(self) -> Line:
        end = {
            BatchAction.SKIP: "which is given up, as on_error asks",
            BatchAction.DEAD_LETTER: "which goes to the dead-letter target",
            BatchAction.STOP: "which ends the application",
        }.get(self.action, f"which comes again in {self.seconds} s")
        return Line(
            ERROR if self.action is BatchAction.SKIP else WARNING,
            f"The handler failed for record {self.record_id} of {self.place}, delivery "
            f"{self.receive_count}, {end}: {self.error}",
        )


class DeadLetterStored(QueueEvent, frozen=True):
    """A dead-letter target has stored a record, which is acknowledged."""

    record_id: str

    _level = ERROR
    _text = "Stored record {record_id} of {place} as a dead letter."


class DeadLetterRefused(QueueEvent, frozen=True):
    """A dead-letter target has not taken a record, which is delivered again."""

    record_id: str
    seconds: int | None
    """The seconds until the record is delivered again."""
    error: str

    _level = WARNING
    _text = (
        "The dead-letter target did not take record {record_id} of {place}, which comes again in "
        "{seconds} s: {error}"
    )


class HoldLost(QueueEvent, frozen=True):
    """The hold of a record has ended before its acknowledgement: another receiver may have it."""

    record_id: str
    state: str
    """``waiting`` for a handler, ``running``, or ``ended``: its handler had returned or raised."""

    def line(self) -> Line:
        when = {
            "waiting": "before its handler had it",
            "running": "while its handler ran, which may check record.is_held",
        }.get(self.state, "before the service confirmed what became of it")
        return Line(
            WARNING,
            f"The hold of record {self.record_id} of {self.place} has ended {when}: it will be "
            "delivered again.",
        )


class ReceivingFailed(QueueEvent, frozen=True):
    """Receives fail, and are tried again: published for the first, then ever more rarely."""

    error: str
    times: int
    """How many receives have failed in a row."""
    seconds: float
    """The seconds until the next one."""
    may_hide: bool
    """True if the service may have served the receive: its records are hidden until their
    visibility timeout is over."""

    def line(self) -> Line:
        hidden = (
            " If it was served, its records come again once their visibility timeout is over."
            if self.may_hide
            else ""
        )
        failed = "A receive" if self.times == 1 else f"{self.times:,} receives in a row"
        return Line(
            WARNING,
            f"{failed} from {self.place} failed ({self.error}); the next one follows in "
            f"{self.seconds:.1f} s.{hidden}",
        )


class ReceivingRecovered(QueueEvent, frozen=True):
    """Records can be received again."""

    seconds: float
    """The time since the first receive failed."""

    _text = "Receives from {place} succeed again, after {seconds:.1f} s"


def _failed(what: str, failure: Failure, *, is_again: bool) -> str:
    again = ", again" if is_again else ""
    return f"{what}{again}: {failure.error} [failure {failure.fingerprint}]"


def _often(times: int) -> str:
    return "" if times == 1 else f", {times:,} times since the last such line,"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds < 100 else f"{seconds:,.0f} s"

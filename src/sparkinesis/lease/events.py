"""The events in the life of a worker and of its leases, as values.

Each event is raised at a single place in the code. A `Listener` is called by the thread that raises
the event, which may hold a lock: a listener returns at once and raises nothing. Durations are in
seconds by the worker's clock. `sparkinesis.worker.reporting.events` has the events of shards.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

import msgspec

from sparkinesis.public import public


@public
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


@public
class LeaseEnd(Enum):
    """The reason why a worker no longer holds a lease."""

    HANDED_OVER = "handed over"
    SHARD_FINISHED = "shard finished"
    SHUTDOWN = "shutdown"
    STOPPED = "stopped by on_error"
    PROCESSING_TIME = "processing_time_limit"
    CONSUMER_DIED = "consumer died"
    STREAM_LEFT = "the worker no longer reads its stream"
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
        }


@public
class WorkerStarted(msgspec.Struct, frozen=True):
    """A worker's threads run: it takes leases from now on."""

    worker_id: str
    application: str
    streams: str
    """The stream's name and place, or the names of several, for people."""
    retrieval: str
    initial_position: str
    failover_time: float


@public
class WorkerReport(msgspec.Struct, frozen=True):
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

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0


@public
class ShutdownBegan(msgspec.Struct, frozen=True):
    """A worker shuts down: somebody asked it to, or it has failed."""

    worker_id: str
    shards: int
    """The number of shards that the worker reads."""
    error: str | None
    """The error that ends the worker; None for a requested shutdown."""


@public
class WorkerEnded(msgspec.Struct, frozen=True):
    """A worker has ended."""

    worker_id: str
    seconds: float
    """The time since the worker started."""
    records: int
    """User records processed in that time."""
    was_forced: bool
    """True if the shutdown did not wait for record processors."""
    error: str | None


@public
class LeaseTaken(msgspec.Struct, frozen=True):
    """A worker has acquired a lease."""

    lease: str
    shard_id: str
    origin: LeaseOrigin
    previous_owner: str | None
    """The worker that held the lease before; None if there is none, or it is not known."""
    waited: float | None
    """The time for which the previous owner did not renew or release the lease, if it did not."""
    checkpoint: str


@public
class LeaseEnded(msgspec.Struct, frozen=True):
    """A worker no longer holds a lease, which it has released or lost."""

    lease: str
    shard_id: str
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


@public
class HandoffRequested(msgspec.Struct, frozen=True):
    """A worker has requested a lease from its owner, which has more than its share."""

    lease: str
    shard_id: str
    owner: str


@public
class OwnerSilent(msgspec.Struct, frozen=True):
    """Leases of another worker have expired: it has not renewed them."""

    owner: str
    leases: tuple[str, ...]
    silent_for: float


@public
class RenewalFailed(msgspec.Struct, frozen=True):
    """Some leases could not be renewed for the same reason, and will be tried again."""

    leases: int
    of: int
    """The number of leases that the worker holds."""
    error: str


@public
class RenewalRecovered(msgspec.Struct, frozen=True):
    """All leases that the worker still holds can be renewed again."""

    seconds: float
    """The time since the first renewal failed."""


@public
class ParentsLost(msgspec.Struct, frozen=True):
    """A shard's parents had no lease, and they have expired: their records were removed unread."""

    lease: str
    """The key of the shard's lease, with which reading resumes."""
    shard_id: str
    stream: str
    """The stream's name."""
    parents: tuple[str, ...]
    """The shard ids of the parents."""
    what: str
    """What is lost, and where reading resumes."""


@public
class LeaseCreated(msgspec.Struct, frozen=True):
    """A shard has a lease now, which some worker will take."""

    lease: str
    shard_id: str
    checkpoint: str
    """The position at which the shard will be read."""


@public
class LeaseDeleted(msgspec.Struct, frozen=True):
    """The lease of a shard was deleted: the shard and its parents are finished."""

    lease: str
    shard_id: str


@public
class LeasesMissing(msgspec.Struct, frozen=True):
    """An audit found hash keys that no lease covers; the missing leases are created."""

    table: str
    """The lease table's name and place."""
    stream: str | None
    """One of several streams: ``<account>:<stream>:<creation epoch>``; None for a single one."""
    hash_keys: str


@public
class ChildrenWaiting(msgspec.Struct, frozen=True):
    """A shard has ended, and the leases of its children wait for those of other parents."""

    lease: str
    shard_id: str
    parents: tuple[str, ...]
    """The shard ids of the parents that have no lease yet."""


@public
class ChildrenUnlisted(msgspec.Struct, frozen=True):
    """A shard has ended, and the service has not named its children for a minute."""

    lease: str
    shard_id: str
    stream: str
    """The stream's name."""
    place: str
    """The stream's name and place, for people."""
    seconds: float
    """The time since the end of the shard was seen."""


@public
class LeaseUnreadable(msgspec.Struct, frozen=True):
    """A row of the lease table cannot be read: no worker takes the lease."""

    lease: str
    table: str
    """The lease table's name and place."""
    why: str


@public
class LeaseReadable(msgspec.Struct, frozen=True):
    """A row of the lease table that could not be read can be read again, or is gone."""

    lease: str
    table: str


@public
class LeaseUnwritable(msgspec.Struct, frozen=True):
    """The service refuses for good to write a lease, which is skipped."""

    lease: str
    error: str


@public
class LegacyWorkerSeen(msgspec.Struct, frozen=True):
    """Another worker does not support handoffs, like a KCL before 3.0."""

    other_worker: str
    table: str
    """The lease table's name and place."""


Event: TypeAlias = (
    WorkerStarted
    | WorkerReport
    | ShutdownBegan
    | WorkerEnded
    | LeaseTaken
    | LeaseEnded
    | HandoffRequested
    | OwnerSilent
    | RenewalFailed
    | RenewalRecovered
    | ParentsLost
    | LeaseCreated
    | LeaseDeleted
    | LeasesMissing
    | ChildrenWaiting
    | ChildrenUnlisted
    | LeaseUnreadable
    | LeaseReadable
    | LeaseUnwritable
    | LegacyWorkerSeen
)

Listener: TypeAlias = Callable[[Event], None]


def ignore(_: Event) -> None:
    """Listen to nothing."""

"""The state of workers, fleets and queries, as values.

- ``worker.status()`` returns a `ShardStatus` for each shard that the worker reads, whose
  `ShardState` says where the shard is in its life. ``worker.streams()`` returns a `StreamStatus`
  for each stream of an application of several, ``worker.failures()`` each `Failure` once.
- ``fleet.status()`` returns a `FleetStatus`: its `FleetState`, its workers (`WorkerStatus`,
  `WorkerState`), the shards that they read (`FleetShard`), the shards that no live worker reads
  (`UnreadShard`), its streams (`FleetStream`) and its failures.
- ``sparkinesis.lag(query)`` returns a `StreamLag` for each stream of a query.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec


class ShardState(Enum):
    """The state of a shard, as the worker that reads the shard sees it."""

    WAITING_ON_PARENT_SHARDS = "waiting on parent shards"
    INITIALIZING = "initializing"
    PROCESSING = "processing"
    PAUSED = "paused"
    """Nothing is fetched or delivered until the program resumes the shard."""
    SHUTDOWN_REQUESTED = "shutdown requested"
    SHUTDOWN_REQUEST_COMPLETED = "shutdown request completed"
    SHUTTING_DOWN = "shutting down"
    SHUTDOWN_COMPLETE = "shutdown complete"


class ShardStatus(msgspec.Struct, frozen=True):
    """The state of one shard that a worker consumes."""

    shard_id: str
    state: ShardState
    millis_behind_latest: int | None
    """The lag: the distance from the tip at the last page or, if that is longer, the age of the
    oldest record that is fetched and not processed; while no page comes, the time counts, too. None
    if it is not known, as of a paused shard."""
    processing_for: float | None
    """The duration of the current call of ``process_records``, in seconds; None between calls."""
    records: int = 0
    """The number of user records in successful calls since this worker took the shard."""
    dropped: int = 0
    """The number of user records that ``hash_range_filter`` dropped in that time."""
    stream: str = ""
    """The stream's name."""
    lease: str = ""
    """The key of the shard's lease: the shard id or, in an application of several streams,
    ``<account>:<stream>:<creation epoch>:<shard id>``."""
    checkpoint: str = ""
    """The last checkpoint: ``<sequence number>:<sub-sequence number>``, or a sentinel."""
    checkpoint_age: float | None = None
    """Seconds since the first delivery that no checkpoint covers, or since the last checkpoint if
    that is later; 0 while everything delivered is checkpointed; None before ``initialize``."""
    paused_for: float | None = None
    """Seconds since the program has paused the shard; None: it is not paused."""
    page_millis_behind_latest: int | None = None
    """The service's ``MillisBehindLatest`` of the last page that was taken, as KCLs report it: it
    grows no older while the page is processed. None if it is not known, as of a paused shard."""
    standing_for: float | None = None
    """Seconds for which the shard has made no progress although records, or a task, wait: in one
    call, or in one that fails again and again. None: nothing waits."""
    standing_because: str = ""
    """What does not end or fails again and again, and on which records, after 10 seconds."""


class StreamStatus(msgspec.Struct, frozen=True):
    """The state of one stream of an application that reads several."""

    stream: str
    """The stream's name or ARN, as the application gives it."""
    identifier: str | None
    """``<account>:<stream>:<creation epoch>``; None as long as it is not known."""
    problem: str | None = None
    """The reason why the worker cannot read the stream now; None if it can."""
    failing_for: float | None = None
    """Seconds since when the worker has tried in vain; None without a problem."""


class Replayed(msgspec.Struct, frozen=True):
    """What ``application.replay`` has done."""

    records: int
    """The user records in successful calls."""
    shards: int
    """The shards that were read."""
    seconds: float
    is_complete: bool = True
    """False if a signal, or a processor, ended the replay before its range was read."""


class Failure(msgspec.Struct, frozen=True):
    """An error that occurred in one worker or several, once or often.

    Errors of the same type, raised by the same lines, are one failure. Their messages may differ:
    most messages name a record.
    """

    fingerprint: str
    what: str
    """The action that failed at the last occurrence, with shard and records."""
    error: str
    """Type and message of the last occurrence."""
    traceback: str
    """The traceback of the first occurrence."""
    count: int
    shard_ids: tuple[str, ...]
    """The shards in which it occurred; of many, the first ones. With several streams, the keys of
    their leases."""
    first_ms: int = 0
    """The time of the first occurrence (epoch ms, by the worker's clock)."""
    last_ms: int = 0
    """The time of the last occurrence."""


class FleetState(Enum):
    """The state of a fleet."""

    RUNNING = "running"
    SHUTTING_DOWN = "shutting down"
    ENDED = "ended"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """True once the fleet has ended or failed."""
        return self in {FleetState.ENDED, FleetState.FAILED}


class WorkerState(Enum):
    """The state of a worker, as the driver knows it."""

    STARTING = "starting"
    STANDBY = "standby"
    """A second copy of a task, such as a speculative one, which waits and takes no leases."""
    RUNNING = "running"
    LEAVING = "leaving"
    """The worker is shutting down gracefully."""
    LOST = "lost"
    """The driver has no connection to the worker."""


class WorkerStatus(msgspec.Struct, frozen=True):
    """One worker of a fleet."""

    worker_id: str
    state: WorkerState
    host: str
    pid: int
    shards: int
    """The number of shards that the worker has a consumer for."""
    records: int
    """User records processed since the worker started."""
    records_per_second: float
    millis_behind_latest: int | None
    """The largest value of the worker's shards."""
    heard_ago: float
    """Seconds since the last message of the worker."""
    problem: str | None = None
    """The reason why the worker can hold no leases now, such as a deleted lease table."""
    not_live: tuple[str, ...] = ()
    """Which of its loops and pools stand still or have died. Known only with the option ``http``,
    as is `not_ready`."""
    not_ready: tuple[str, ...] = ()
    """The reasons why it does not see the lease table now."""


class FleetShard(msgspec.Struct, frozen=True):
    """One shard, as last reported by the worker that reads it."""

    shard_id: str
    worker_id: str
    state: ShardState
    millis_behind_latest: int | None
    records: int
    """User records processed since this worker acquired the shard."""
    records_per_second: float
    processing_for: float | None
    """Seconds since the current call of ``process_records`` began; None between calls."""
    stream: str = ""
    """The stream's name."""
    lease: str = ""
    """The key of the shard's lease: the shard id or, in an application of several streams,
    ``<account>:<stream>:<creation epoch>:<shard id>``."""
    standing_for: float | None = None
    """Seconds for which the shard makes no progress, as in `ShardStatus`."""
    standing_because: str = ""
    """What does not end or fails again and again, and on which records, after 10 seconds."""


class UnreadShard(msgspec.Struct, frozen=True):
    """A shard that no live worker reads, as far as the driver knows.

    Its worker has died or is not heard of, its lease has expired in the lease table, or it has no
    owner there. Workers outside of the fleet count as well.
    """

    shard_id: str
    last_worker_id: str | None
    """The worker of the fleet that has read the shard last; None if that is not known."""
    millis_behind_latest: int
    """The lag when the shard was last read, and the time since then. If the driver does not know
    when that was, the time counts from the last renewal of the lease that a worker has seen."""
    stream: str = ""
    """The stream's name."""
    lease: str = ""
    """The key of the shard's lease, as in `FleetShard`."""


class FleetStream(msgspec.Struct, frozen=True):
    """One stream of an application of several, over all workers of the fleet.

    A stream that some workers cannot read has a problem; other streams are read meanwhile.
    """

    stream: str
    """The stream's name or ARN, as the application gives it."""
    identifier: str | None
    """``<account>:<stream>:<creation epoch>``; None as long as no worker knows it."""
    shards: int = 0
    """The number of shards that workers read."""
    unread: int = 0
    """The number of shards that no live worker reads."""
    records_per_second: float = 0.0
    millis_behind_latest: int | None = None
    """The largest known value of its shards, the unread ones included; None if none is known."""
    problem: str | None = None
    """The reason why workers cannot read the stream now, by the worker that has tried for longest;
    None if all can."""
    failing_for: float | None = None
    """Seconds since when that worker has tried in vain; None without a problem."""
    failing_on: tuple[str, ...] = ()
    """The ids of the workers that cannot read the stream now."""

    @property
    def name(self) -> str:
        """The stream's name, without the ARN around it."""
        return self.stream.rpartition("/")[2]


class FleetStatus(msgspec.Struct, frozen=True):
    """A fleet at one moment."""

    application: str
    stream: str
    """The stream's name; the names of several, or their number; or ``queue`` and a queue's name."""
    state: FleetState
    wanted: int
    """The number of workers that there should be."""
    workers: tuple[WorkerStatus, ...] = ()
    shards: tuple[FleetShard, ...] = ()
    failures: tuple[Failure, ...] = ()
    """The failures so far, the latest last; each traceback once."""
    notes: tuple[str, ...] = ()
    """Events of the fleet, such as a lost worker, as text; the latest last."""

    records: int = 0
    """User records processed since the fleet was started, as reported by workers.

    A lost worker does not report the records of its last moments, at most a heartbeat interval:
    while `lost_workers` is 0 and all workers have ended, the number is exact."""
    error: str | None = None
    """The reason why the fleet has failed, or is about to."""
    waiting: int = 0
    """The wanted workers whose Spark tasks have not begun: Spark starts them as cores get free."""
    unread: tuple[UnreadShard, ...] = ()
    """The shards that no live worker reads. `shards` does not list them."""
    lost_workers: int = 0
    """The workers that the driver has lost and not heard of since: `records` lacks what each of
    them processed after its last report."""
    streams: tuple[FleetStream, ...] = ()
    """The streams of an application of several, in its order; () for a single one, and until a
    worker has reported."""

    @property
    def records_per_second(self) -> float:
        return sum(worker.records_per_second for worker in self.workers)

    @property
    def millis_behind_latest(self) -> int | None:
        """Return the largest known value of all shards; None if no value is known.

        A shard that no live worker reads counts with the age that `UnreadShard` gives.
        """
        known = [s.millis_behind_latest for s in self.shards if s.millis_behind_latest is not None]
        known += [shard.millis_behind_latest for shard in self.unread]
        return max(known, default=None)


class StreamLag(msgspec.Struct, frozen=True):
    """How far a query is behind the tip of one stream, in milliseconds, at its last plan."""

    max_ms: int
    mean_ms: int
    shards_ms: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The lags by shard id; of a stream with more than 20 shards, the 20 largest."""

"""What the driver knows of a fleet, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sparkinesis.public import public
from sparkinesis.worker.lifecycle.states import ShardState
from sparkinesis.worker.status import Failure


@public
class FleetState(Enum):
    """Whether a fleet works, or is ending."""

    RUNNING = "running"
    SHUTTING_DOWN = "shutting down"
    ENDED = "ended"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether nothing of the fleet is left."""
        return self in {FleetState.ENDED, FleetState.FAILED}


@public
class WorkerState(Enum):
    """What a worker of a fleet is doing, as the driver sees it."""

    STARTING = "starting"
    STANDBY = "standby"
    """A second copy of a task, such as a speculative one: it waits, and takes no leases."""
    RUNNING = "running"
    LEAVING = "leaving"
    """It shuts down gracefully."""
    LOST = "lost"
    """The driver has no connection to it."""


@public
@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker of a fleet."""

    worker_id: str
    state: WorkerState
    host: str
    pid: int
    shards: int
    """How many it has a consumer for."""
    records: int
    """User records processed since it started."""
    records_per_second: float
    millis_behind_latest: int | None
    """The largest of its shards'."""
    heard_ago: float
    """Seconds since the driver last heard of it."""


@public
@dataclass(frozen=True, slots=True)
class FleetShard:
    """One shard, as the worker that reads it told last."""

    shard_id: str
    worker_id: str
    state: ShardState
    millis_behind_latest: int | None
    records: int
    """User records processed since this worker took the shard."""
    records_per_second: float
    processing_for: float | None
    """Seconds that the present call of ``process_records`` has taken so far."""


@public
@dataclass(frozen=True, slots=True)
class FleetStatus:
    """A fleet at one moment."""

    application: str
    stream: str
    state: FleetState
    wanted: int
    """How many workers there should be."""
    workers: tuple[WorkerStatus, ...] = ()
    shards: tuple[FleetShard, ...] = ()
    failures: tuple[Failure, ...] = ()
    """What failed so far, the latest last; each traceback once."""
    notes: tuple[str, ...] = ()
    """What happened to workers, such as one that was lost; the latest last."""

    records: int = 0
    """User records processed since the fleet was started, as far as workers told."""
    error: str | None = None
    """Why the fleet has failed, or is about to."""

    @property
    def records_per_second(self) -> float:
        return sum(worker.records_per_second for worker in self.workers)

    @property
    def millis_behind_latest(self) -> int | None:
        """The largest of all shards'; None where none is known."""
        known = [s.millis_behind_latest for s in self.shards if s.millis_behind_latest is not None]
        return max(known, default=None)

"""A history, as a value: what happens to an application, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from sparkinesis.worker.options import DEFAULT_HELD_BYTES

TableServer: TypeAlias = Literal["DynamoDB", "dynalite", "moto", "older"]
"""Who answers for the lease table. dynalite knows no batches, and its refusals do not tell the row
that refuses, as those of older servers. moto answers success for a statement of a batch whose
condition fails."""


@dataclass(frozen=True, slots=True)
class Put:
    """``count`` records with the partition key number ``key``.

    None: without one, which the stream takes for that moment, and puts them where it likes.
    """

    key: int | None
    count: int = 1
    packed: int = 0
    """User records of each, if they are aggregated."""
    hash_key: float | None = None
    """With an explicit hash key, at this fraction of all; not if they are aggregated."""


@dataclass(frozen=True, slots=True)
class Split:
    """Of the open shard that lies at this fraction of the hash keys, in its middle."""

    place: float


@dataclass(frozen=True, slots=True)
class Merge:
    """Of the open shard that lies at this fraction of the hash keys with the one behind it."""

    place: float


@dataclass(frozen=True, slots=True)
class Storm:
    """So many splits and merges in so many seconds, while there are not too many open shards."""

    reshards: int
    seconds: float
    most: int = 24


@dataclass(frozen=True, slots=True)
class Start:
    """A worker's process, unless it is there."""

    worker: int
    same_id: bool = False
    """It bears the worker id of the process before it."""


@dataclass(frozen=True, slots=True)
class Twin:
    """Another process with the worker id of one that may be alive."""

    worker: int


@dataclass(frozen=True, slots=True)
class Crash:
    """A worker's process ends at once, in the midst of whatever it does."""

    worker: int


@dataclass(frozen=True, slots=True)
class Pause:
    """A worker's process stands still, and does not know of it."""

    worker: int
    seconds: float
    is_suspended: bool = False
    """Its monotonic clock stands still as well, as on a machine that is suspended."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """A worker is asked to shut down gracefully."""

    worker: int


@dataclass(frozen=True, slots=True)
class ClockJump:
    """The wall clock of a worker's machine is set."""

    worker: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DateAhead:
    """For some seconds, Kinesis' answers bear a date that is ahead of its clock, or behind."""

    ahead: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Reset:
    """An operator moves the application: see ``sparkinesis reset``."""

    to: Literal["LATEST", "TRIM_HORIZON"] | float
    """A number: to the instant so many seconds ago."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """Somebody else writes to the row of the shard at this fraction of those with leases.

    take: a Java KCL's worker takes the lease, and dies; evict: a hand removes the owner; note: a
    hand adds an attribute; delete: a hand deletes the row, if it is an open shard's.
    """

    what: Literal["take", "evict", "note", "delete"]
    place: float


@dataclass(frozen=True, slots=True)
class Trouble:
    """For some seconds calls fail in one way (see `network.FAULTS`), with a probability."""

    kind: str
    rate: float
    seconds: float
    service: Literal["kinesis", "dynamodb"] | None = None
    """None: both."""
    worker: int | None = None
    """None: everybody's."""


@dataclass(frozen=True, slots=True)
class Lag:
    """For some seconds ListShards answers as it would have so many seconds ago."""

    behind: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Retention:
    """The stream keeps records for another time."""

    hours: int


@dataclass(frozen=True, slots=True)
class Deregister:
    """Somebody deregisters the application's consumer of enhanced fan-out."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """For some seconds the stream has as many registered consumers as it may have."""

    seconds: float


Event: TypeAlias = (
    Put
    | Split
    | Merge
    | Storm
    | Start
    | Twin
    | Crash
    | Pause
    | Shutdown
    | ClockJump
    | DateAhead
    | Reset
    | Foreign
    | Trouble
    | Lag
    | Retention
    | Deregister
    | Crowd
)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What record processors do; probabilities are those of one call."""

    checkpoint: float = 1.0
    """That ``process_records`` checkpoints all of its batch."""
    odd_checkpoint: float = 0.0
    """That it checkpoints some record of the batch before."""
    prepare: float = 0.0
    """That a checkpoint is in two phases."""
    fail: float = 0.0
    """That ``process_records`` or ``shard_ended`` raises."""
    fail_elsewhere: float = 0.0
    """That ``initialize``, ``shutdown_requested`` or ``lease_lost`` does, or, until faults end, a
    dead-letter target."""
    poison: int | None = None
    """The number of a partition key whose records can never be processed."""
    slow: float = 0.0
    slowest: float = 5.0
    """Seconds at most that a slow call takes."""
    hang: float = 0.0
    """That a call takes very long, until faults end."""
    reset: float = 0.0
    """That it moves its shard, until faults end."""
    leave: float = 0.0
    """That it asks for the application's shutdown, until faults end."""
    defers: float = 0.0
    """That ``process_records`` does nothing, and returns a generator, until faults end."""
    checkpoint_at_shutdown: bool = True


Policy: TypeAlias = Literal[
    "retry", "skip", "dead letter", "stop", "retry, then skip", "retry, then dead letter"
]
"""Of ``on_error``."""


@dataclass(frozen=True)
class History:
    """Times are in virtual seconds from the beginning."""

    seed: int = 0
    """What is not told here follows from it: latencies, who runs next, what a rate meets."""
    shards: int = 2
    events: tuple[tuple[float, Event], ...] = ((0.0, Start(0)),)
    behaviour: Behaviour = Behaviour()
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of `WorkerOptions`."""
    initial_position: Literal["latest", "trim_horizon"] | float = "trim_horizon"
    """A number: the instant so many seconds from the beginning."""
    on_error: Policy = "retry"
    preempt: float = 0.02
    staleness: float = 0.1
    empty_pages: int = 0
    list_page: int = 1000
    """Shards that one answer of ListShards holds at most."""
    arrival_jitter: float = 0.0
    """Seconds that a record's arrival may be told too early."""
    consumer_delay: float = 0.0
    """How long a registered consumer is CREATING, and DELETING."""
    subscription_life: float = 300.0
    """After which the service ends a subscription."""
    event_bytes: int = 1_048_576
    """Of the records that the service puts into an event, at most, but for one record."""
    names_children: bool = True
    """The end of a shard does; else the children are to be had from ListShards."""
    begins_early: int = 0
    """Records before the place asked for with which an iterator or a subscription begins."""
    table_server: TableServer = "DynamoDB"
    """Who answers for the lease table."""
    memory: int = DEFAULT_HELD_BYTES
    """Bytes that a process may hold ahead of its record processors."""
    duration: float = 60.0
    """Until faults stop."""
    patience: float = 400.0
    """How long it may take from then on until everything is in order."""

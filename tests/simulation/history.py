"""A history, as a value: what happens to an application, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from sparkinesis.worker.options import DEFAULT_HELD_BYTES

Way: TypeAlias = Literal["class", "function", "loop"]
"""What a user writes."""

TableServer: TypeAlias = Literal["DynamoDB", "dynalite", "moto", "older"]
"""The server of the lease table. dynalite has no batches, and its refusals do not name the refusing
row; neither do those of older servers. moto answers success for a statement of a batch whose
condition fails."""


class Put(Struct, frozen=True):
    """``count`` records with the partition key number ``key``.

    None: without one, which the stream takes for that moment, and puts them where it likes.
    """

    key: int | None
    count: int = 1
    packed: int = 0
    """User records of each, if they are aggregated."""
    hash_key: float | None = None
    """An explicit hash key at this fraction of all hash keys; unused for aggregates."""


class Split(Struct, frozen=True):
    """Splits the open shard at this fraction of the hash keys in its middle."""

    place: float


class Merge(Struct, frozen=True):
    """Merges the open shard at this fraction of the hash keys with its right neighbour."""

    place: float


class Storm(Struct, frozen=True):
    """Many splits and merges within some seconds, up to a maximum of open shards."""

    reshards: int
    seconds: float
    most: int = 24


class Start(Struct, frozen=True):
    """A worker's process, unless it is there."""

    worker: int
    same_id: bool = False
    """True to reuse the worker id of the process before it."""


class Twin(Struct, frozen=True):
    """A second process with the worker id of a live one."""

    worker: int


class Crash(Struct, frozen=True):
    """A worker's process ends at once, in the midst of whatever it does."""

    worker: int


class Pause(Struct, frozen=True):
    """A worker's process stands still, and does not know of it."""

    worker: int
    seconds: float
    is_suspended: bool = False
    """True if its monotonic clock stands still as well, like on a suspended machine."""


class Hold(Struct, frozen=True):
    """The program of a worker pauses a shard, or all, for some seconds."""

    worker: int
    place: float | None
    """The shard at this fraction of those that the worker reads then; None: all shards."""
    seconds: float


class Shutdown(Struct, frozen=True):
    """A worker is asked to shut down gracefully."""

    worker: int


class ClockJump(Struct, frozen=True):
    """The wall clock of a worker's machine is set."""

    worker: int
    seconds: float


class DateAhead(Struct, frozen=True):
    """The Date header of Kinesis' answers is ahead of its clock, or behind, for some seconds."""

    ahead: float
    seconds: float


class Reset(Struct, frozen=True):
    """An operator moves the application: see ``sparkinesis reset``."""

    to: Literal["LATEST", "TRIM_HORIZON"] | float
    """A number: to the instant so many seconds ago."""


class Foreign(Struct, frozen=True):
    """A foreign write to the row of the shard at this fraction of all leased shards.

    take: a Java KCL's worker takes the lease, and dies; evict: a hand removes the owner; note: a
    hand adds an attribute; delete: a hand deletes the row, if it is an open shard's.
    """

    what: Literal["take", "evict", "note", "delete"]
    place: float


class Trouble(Struct, frozen=True):
    """Calls fail in one way (see `network.FAULTS`) with a probability, for some seconds."""

    kind: str
    rate: float
    seconds: float
    service: Literal["kinesis", "dynamodb"] | None = None
    """None: both services."""
    worker: int | None = None
    """None: the calls of all workers."""
    stream: int | None = None
    """Only calls of Kinesis that are about this one of several streams; None: all calls."""


class Lag(Struct, frozen=True):
    """ListShards answers with the state of some seconds ago, for some seconds."""

    behind: float
    seconds: float


class Retention(Struct, frozen=True):
    """The stream keeps records for another time."""

    hours: int


class Deregister(Struct, frozen=True):
    """An operator deregisters the application's consumer of enhanced fan-out."""


class Crowd(Struct, frozen=True):
    """The stream has its maximum of registered consumers for some seconds."""

    seconds: float


class On(Struct, frozen=True):
    """Something happens to one of several streams, if the stream exists."""

    stream: int
    event: Put | Split | Merge | Storm


class Track(Struct, frozen=True):
    """The tracker answers with these streams from now on."""

    streams: tuple[int, ...]


class TrackerFails(Struct, frozen=True):
    """The tracker raises for some seconds."""

    seconds: float


class Anew(Struct, frozen=True):
    """A stream is deleted, and made anew under its name some seconds later."""

    stream: int
    after: float | None = 5.0
    """None: it is never made anew."""
    shards: int = 1


Mode: TypeAlias = Literal["2X", "upgrade", "3X with rollback", "3X"]
"""The mode of a fleet: the row by which Java's workers move to a leader, and back."""


class SetMode(Struct, frozen=True):
    """An operator sets the mode of the fleet."""

    mode: Mode


class JavaLeader(Struct, frozen=True):
    """A Java KCL's worker stands for leader, and leads for some seconds."""

    seconds: float
    still: float = 0.0
    """Seconds for which it stands still in the middle."""
    leaves: bool = True
    """False: it dies in the end, and its lock stays for two minutes."""


Event: TypeAlias = (
    Put
    | Split
    | Merge
    | Storm
    | Start
    | Twin
    | Crash
    | Pause
    | Hold
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
    | On
    | Track
    | TrackerFails
    | Anew
    | SetMode
    | JavaLeader
)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The behaviour of record processors. Each probability is that of one call."""

    checkpoint: float = 1.0
    """Probability that ``process_records`` checkpoints its whole batch."""
    odd_checkpoint: float = 0.0
    """Probability that it first checkpoints some record of the batch."""
    prepare: float = 0.0
    """Probability that a checkpoint has two phases."""
    fail: float = 0.0
    """Probability that ``process_records`` or ``shard_ended`` raises."""
    fail_elsewhere: float = 0.0
    """Probability that ``initialize``, ``shutdown_requested`` or ``lease_lost`` raises, or, until
    faults end, a dead-letter target."""
    poison: int | None = None
    """The number of a partition key whose records can never be processed."""
    slow: float = 0.0
    slowest: float = 5.0
    """Seconds at most that a slow call takes."""
    hang: float = 0.0
    """Probability that a call takes very long, until faults end."""
    reset: float = 0.0
    """Probability that ``process_records`` resets its shard's checkpoint, until faults end."""
    leave: float = 0.0
    """Probability that it requests the application's shutdown, until faults end."""
    defers: float = 0.0
    """Probability that ``process_records`` only returns a generator, until faults end."""
    checkpoint_at_shutdown: bool = True


Policy: TypeAlias = Literal[
    "retry", "skip", "dead letter", "stop", "retry, then skip", "retry, then dead letter"
]
"""The policies of ``on_error``."""


class OneOf(Struct, frozen=True):
    """One of several streams, as it is at the beginning."""

    shards: int = 1
    initial_position: Literal["latest", "trim_horizon"] | float | None = None
    """None: the application's."""


@dataclass(frozen=True, slots=True)
class Former:
    """`FormerStreams` of an application; ``only``: numbers of streams."""

    delete_after: float | None = None
    only: tuple[int, ...] | None = None


@dataclass(frozen=True)
class History:
    """Times are in virtual seconds from the beginning."""

    seed: int = 0
    """Decides everything that the history leaves open: latencies, scheduling, which calls fail."""
    shards: int = 2
    events: tuple[tuple[float, Event], ...] = ((0.0, Start(0)),)
    behaviour: Behaviour = Behaviour()
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `WorkerOptions`."""
    way: Way = "class"
    is_async: bool = False
    """True if what processes records is a coroutine."""
    has_store: bool = False
    """True if record processors keep results and positions in a store of their own."""
    initial_position: Literal["latest", "trim_horizon"] | float = "trim_horizon"
    """A number: the instant so many seconds from the beginning."""
    on_error: Policy = "retry"
    preempt: float = 0.02
    staleness: float = 0.1
    empty_pages: int = 0
    list_page: int = 1000
    """Shards that one answer of ListShards holds at most."""
    arrival_jitter: float = 0.0
    """The maximum of seconds by which a record's arrival time is too early."""
    consumer_delay: float = 0.0
    """The seconds for which a registered consumer is CREATING, and DELETING."""
    subscription_life: float = 300.0
    """Seconds after which the service ends a subscription."""
    event_bytes: int = 1_048_576
    """The maximum size of an event's records; one record may be larger."""
    names_children: bool = True
    """The end of a shard does; else the children are to be had from ListShards."""
    begins_early: int = 0
    """Records before the place asked for with which an iterator or a subscription begins."""
    table_server: TableServer = "DynamoDB"
    """The server of the lease table."""
    memory: int = DEFAULT_HELD_BYTES
    """Bytes that a process may hold ahead of its record processors."""
    streams: tuple[OneOf, ...] = ()
    """The streams of an application of several; (): it reads one, of ``shards`` shards."""
    tracked: tuple[int, ...] | None = None
    """The tracker's first answer; None: all streams."""
    former: Former = Former()
    mode: Mode | None = None
    """The mode of the fleet that Java's workers have left in the table; None: there is no table."""
    reads_own: bool = False
    """True if workers read only their own rows beside a leader and one more, however few rows there
    are, and the whole table after more than a minute."""
    ask_every: float = 10.0
    """Seconds between two questions of a worker for its streams."""
    duration: float = 60.0
    """The seconds until all faults end."""
    patience: float = 400.0
    """The maximum of seconds from then on until everything is in order."""

    @property
    def has_leader(self) -> bool:
        """True if a leader may assign the leases."""
        wants_leader = self.options.get("balance", "count") != "count"
        return wants_leader or self.mode is not None

    @property
    def is_automatic(self) -> bool:
        """True if the worker checkpoints what record processors do not."""
        names = ("checkpoint_seconds", "checkpoint_records", "concurrency")
        return self.way == "function" or any(self.options.get(name) is not None for name in names)

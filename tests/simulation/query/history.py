"""A history of a streaming query, as a value: what happens to it and its streams, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from msgspec import Struct

STREAMS = ("flights", "trains")


class Put(Struct, frozen=True):
    """``count`` records with the partition key number ``key``."""

    key: int
    count: int = 1
    aggregated: bool = False
    """One record that holds them all as user records."""
    skew: float = 0.0
    """Seconds by which their arrival times are off."""
    stream: int = 0


class Split(Struct, frozen=True):
    """Splits the open shard at this fraction of the hash keys in its middle."""

    place: float
    stream: int = 0


class Merge(Struct, frozen=True):
    """Merges the open shard at this fraction of the hash keys with its right neighbour."""

    place: float
    stream: int = 0


class Stop(Struct, frozen=True):
    """The query is stopped, and started again later, maybe with other options."""

    seconds: float
    options: tuple[tuple[str, str], ...] = ()


class CrashDriver(Struct, frozen=True):
    """The driver ends at once, in the midst of whatever it does, and is started again later."""

    seconds: float = 5.0
    when_planned: bool = False
    """It ends as soon as the next batch is in the offset log, so that a replay reads that batch."""


class CrashExecutor(Struct, frozen=True):
    executor: int


class Pause(Struct, frozen=True):
    """A process stands still, and does not know of it."""

    seconds: float
    executor: int | None = None
    """The executor's number; None: the driver."""


class Retention(Struct, frozen=True):
    """The stream keeps records for so many hours from now on."""

    hours: int
    stream: int = 0


class Recreate(Struct, frozen=True):
    """The stream is deleted, and another one of the same name is made, with shards of its own."""

    stream: int = 0


class ClockJump(Struct, frozen=True):
    """The wall clocks of all machines are off by so much from now on; the service's is right."""

    seconds: float


class Trouble(Struct, frozen=True):
    """Calls fail in one way (see `network.FAULTS`) with a probability, for some seconds."""

    kind: str
    rate: float
    seconds: float
    side: Literal["driver", "executor"] | None = None
    """Whose; None: everybody's."""


class Lag(Struct, frozen=True):
    """ListShards answers with the state of some seconds ago, for some seconds."""

    behind: float
    seconds: float


Event: TypeAlias = (
    Put
    | Split
    | Merge
    | Retention
    | Recreate
    | Stop
    | CrashDriver
    | CrashExecutor
    | Pause
    | ClockJump
    | Trouble
    | Lag
)


@dataclass(frozen=True, slots=True)
class Trigger:
    kind: Literal["processing", "available now", "once"] = "processing"
    seconds: float = 5.0
    """Between two batches; between the end of a query that ends by itself and the next."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """The faults of Spark's tasks; probabilities are those of one Arrow batch."""

    fail: float = 0.0
    slow: float = 0.0
    speculation: bool = False


@dataclass(frozen=True)
class History:
    """Times are in virtual seconds from the beginning."""

    seed: int = 0
    """Decides everything that the history leaves open: latencies, scheduling, which calls fail."""
    shards: tuple[int, ...] = (2,)
    """The number of each stream's first shards."""
    events: tuple[tuple[float, Event], ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    """The source's options as a user writes them, without ``streamName``, region and endpoint."""
    trigger: Trigger = Trigger()
    tasks: Tasks = Tasks()
    begins: float = 10.0
    """When the query is started for the first time."""
    preempt: float = 0.02
    empty_pages: int = 0
    event_bytes: int = 1_048_576
    """The maximum size of an event's records; one record may be larger."""
    duration: float = 120.0
    """The seconds until all faults end."""
    patience: float = 400.0
    """The maximum of seconds from then on until everything is in order, beside the waits of a
    trigger and of ListShards."""

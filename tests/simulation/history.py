"""A history, as a value: what happens to an application, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Put:
    """``count`` records with the partition key number ``key``."""

    key: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Split:
    """Of the open shard that lies at this fraction of the hash keys, in its middle."""

    place: float


@dataclass(frozen=True, slots=True)
class Merge:
    """Of the open shard that lies at this fraction of the hash keys with the one behind it."""

    place: float


@dataclass(frozen=True, slots=True)
class Start:
    """A worker's process, unless it is there."""

    worker: int
    same_id: bool = False
    """It bears the worker id of the process before it."""


@dataclass(frozen=True, slots=True)
class Crash:
    """A worker's process ends at once, in the midst of whatever it does."""

    worker: int


@dataclass(frozen=True, slots=True)
class Pause:
    """A worker's process stands still, and does not know of it."""

    worker: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Shutdown:
    """A worker is asked to shut down gracefully."""

    worker: int


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
class Deregister:
    """Somebody deregisters the application's consumer of enhanced fan-out."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """For some seconds the stream has as many registered consumers as it may have."""

    seconds: float


Event: TypeAlias = (
    Put | Split | Merge | Start | Crash | Pause | Shutdown | Trouble | Lag | Deregister | Crowd
)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What record processors do; probabilities are those of one call of ``process_records``."""

    checkpoint: float = 1.0
    """That it checkpoints all of its batch."""
    odd_checkpoint: float = 0.0
    """That it checkpoints some record of the batch before."""
    prepare: float = 0.0
    """That a checkpoint is in two phases."""
    fail: float = 0.0
    slow: float = 0.0
    slowest: float = 5.0
    """Seconds at most that a slow call takes."""
    checkpoint_at_shutdown: bool = True


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
    preempt: float = 0.02
    staleness: float = 0.1
    empty_pages: int = 0
    consumer_delay: float = 0.0
    """How long a registered consumer is CREATING, and DELETING."""
    subscription_life: float = 300.0
    """After which the service ends a subscription."""
    event_bytes: int = 1_048_576
    """Of the records that the service puts into an event, at most, but for one record."""
    duration: float = 60.0
    """Until faults stop."""
    patience: float = 400.0
    """How long it may take from then on until everything is in order."""

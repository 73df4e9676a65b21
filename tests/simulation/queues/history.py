"""A history of applications that consume a queue, as a value: what happens, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from msgspec import Struct

ONE_CALL = ("entries", "forgets", "turns")
"""What happens within a call that succeeds: some of its entries fail, the records that it
acknowledges come again, or those that it receives come in the reverse order."""
KINDS = (
    *("throttle", "error", "error_after", "timeout", "timeout_after", "late", "reset"),
    *("reset_after", "refused", "slow", "denied", *ONE_CALL),
)
"""What happens to calls: see `network.FAULTS`, and `ONE_CALL`."""
OPERATIONS = (
    "ReceiveQueueRecords",
    "AcknowledgeQueueRecords",
    "UpdateQueueRecordsVisibility",
)

Policy: TypeAlias = Literal["retry", "skip", "dead letter", "retry, then skip", "stop"]


class Put(Struct, frozen=True):
    """``count`` user records."""

    count: int = 1
    is_packed: bool = False
    """One record that holds them all."""
    size: int = 0
    """Kilobytes of each."""


class Start(Struct, frozen=True):
    """Another receiver."""


class Kill(Struct, frozen=True):
    receiver: int


class Sleep(Struct, frozen=True):
    """A receiver stands still, and does not know of it."""

    receiver: int
    seconds: float


class Shutdown(Struct, frozen=True):
    receiver: int
    timeout: float | None = None
    """None: that of the options."""


class Trouble(Struct, frozen=True):
    """Calls meet what ``kind`` says with a probability, for some seconds."""

    kind: str
    rate: float
    seconds: float
    operation: str | None = None
    """None: all."""


class Timeout(Struct, frozen=True):
    """The queue has another visibility timeout from now on."""

    seconds: int


Event: TypeAlias = Put | Start | Kill | Sleep | Shutdown | Trouble | Timeout


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What handlers do; probabilities are those of one call."""

    fail: float = 0.0
    slow: float = 0.0
    hang: float = 0.0
    by_hand: float = 0.0
    """Settles a record before its end."""
    poison: int | None = None
    """Each n-th user record fails always."""


@dataclass(frozen=True)
class History:
    """Times are in virtual seconds from the beginning."""

    seed: int = 0
    """Decides everything that the history leaves open: latencies, scheduling, which calls fail."""
    events: tuple[tuple[float, Event], ...] = ()
    receivers: int = 2
    """Those at the beginning."""
    concurrency: int = 2
    batch_size: int | None = None
    is_async: bool = False
    on_error: Policy = "retry"
    options: Mapping[str, Any] = field(default_factory=dict)
    """`QueueOptions`."""
    visibility: int = 10
    """The queue's timeout at the beginning."""
    max_receives: int | None = 6
    keeps: float | None = None
    """Seconds after which a record expires; None: a day, which no history lasts."""
    behaviour: Behaviour = Behaviour()
    preempt: float = 0.02
    duration: float = 100.0
    """The seconds until all faults end."""
    patience: float = 600.0
    """The maximum of seconds from then on until everything is in order."""

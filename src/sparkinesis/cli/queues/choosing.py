"""Which dead letters a command is about: by id, partition key, arrival and receives. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from sparkinesis.cli.streams.tail import parse_start
from sparkinesis.errors import OptionError, check_all
from sparkinesis.stream.address import shown
from sparkinesis.stream.position import AtTimestamp

if TYPE_CHECKING:
    from sparkinesis.queue.client import Received

Span: TypeAlias = tuple[float, float]
"""The first value, and the one behind the last."""
EVERY: Span = (-math.inf, math.inf)


@dataclass(frozen=True)
class DeadLetterFilter:
    """The dead letters that are wanted."""

    ids: frozenset[str] = frozenset()
    """Empty: any, and so are the keys."""
    keys: frozenset[str] = frozenset()
    arrived: Span = EVERY
    """Epoch seconds."""
    receives: Span = EVERY
    count: int | None = None
    """The most dead letters; None: all."""

    @property
    def most(self) -> float:
        """The number of dead letters after which no other one can be wanted."""
        return min(self.count or math.inf, len(self.ids) or math.inf)

    @property
    def is_any(self) -> bool:
        """True if each dead letter is wanted, up to a number of them."""
        return self == DeadLetterFilter(count=self.count)

    def takes(self, one: Received) -> bool:
        """Return True if this one is wanted. One without an arrival time is in no span of time."""
        first, behind = self.arrived
        return (
            (not self.ids or one.record_id in self.ids)
            and (not self.keys or one.partition_key in self.keys)
            and self.receives[0] <= one.receive_count < self.receives[1]
            and (
                self.arrived == EVERY
                or (one.arrived_at is not None and first <= one.arrived_at < behind)
            )
        )


def parse_arrival(start: str | None, end: str | None, now_ms: int) -> Span:
    """Read the options ``--from`` and ``--to``: instants or ages. Raises `OptionError`.

    now_ms: the present in epoch ms.
    """
    first = partial(_seconds, "--from", start, EVERY[0], now_ms)
    behind = partial(_seconds, "--to", end, EVERY[1], now_ms)
    check_all([((), first), ((), behind)])
    if first() >= behind():
        raise OptionError("--to is not after --from: nothing arrived between them.")
    return first(), behind()


def _seconds(option: str, text: str | None, default: float, now_ms: int) -> float:
    if text is None:
        return default
    try:
        found = parse_start(text, now_ms)
    except OptionError:
        found = None
    if not isinstance(found, AtTimestamp):
        raise OptionError(
            f"{option} is {shown(text)}; it takes an instant with a time zone, such as "
            "2026-11-21T08:30:00Z, which is not yet to come, or an age such as 10m."
        )
    return found.ms / 1000

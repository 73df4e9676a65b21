"""The health of a worker: its loops and pools, and what its pages tell."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from sparkinesis.metrics.health.liveness import Liveness, Part
from sparkinesis.metrics.health.signs import SignOfLife
from sparkinesis.status import ShardStatus


class _Loop(NamedTuple):
    name: str
    thread: threading.Thread
    sign: SignOfLife
    may_end: Callable[[], bool]


class WorkerParts:
    """The loops and pools of a worker. For any thread.

    pools: the function that returns each pool, or a thread of all workers, as a part, by its name
    for people.
    """

    def __init__(
        self, clock: Callable[[], float], pools: Mapping[str, Callable[[str], Part]]
    ) -> None:
        self._clock = clock
        self._pools = dict(pools)
        self._loops: tuple[_Loop, ...] = ()

    def sign(self) -> SignOfLife:
        """Return a new sign of life for a loop."""
        return SignOfLife(self._clock)

    def add(
        self, name: str, thread: threading.Thread, sign: SignOfLife, may_end: Callable[[], bool]
    ) -> None:
        """Add a loop whose thread runs, and which may end once ``may_end`` returns True."""
        self._loops = (*self._loops, _Loop(name, thread, sign, may_end))

    def liveness(self, every: float) -> Liveness:
        return Liveness(self.now, self._clock, every)

    def now(self) -> list[Part]:
        """Return the parts as of now."""
        loops = [
            Part(one.name, one.sign.due, is_dead)
            for one in self._loops
            # The thread first: it may end between the two questions.
            if not (is_dead := not one.thread.is_alive()) or not one.may_end()
        ]
        return loops + [part(name) for name, part in self._pools.items()]


def slow_calls(shards: Iterable[ShardStatus], limit: float | None) -> list[str]:
    """Return a sentence for each call of ``process_records`` beyond the limit in seconds. Pure."""
    return [
        f"process_records has taken {shard.processing_for:.0f} s on {shard.lease}; "
        f"processing_time_limit is {limit:g} s"
        for shard in shards
        if limit is not None and shard.processing_for is not None and shard.processing_for > limit
    ]

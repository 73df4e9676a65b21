"""Times at which nothing keeps a worker from its work: what has to happen soon must happen then."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tests.simulation import history as h
from tests.simulation.world import World

_LONGEST_PAUSE = 35.0
"""Seconds for which a task that failed may wait before it is tried again, and its calls."""


class Calm:
    """The disturbances of a world, each with the time that workers take to recover."""

    def __init__(self, world: World) -> None:
        self._world = world

    def is_calm(self, since: float, until: float) -> bool:
        """True if nothing disturbed any worker between these virtual seconds."""
        return until <= self._world.leaving_at and not any(
            begin <= until and since <= end for begin, end in self._spans
        )

    @cached_property
    def _spans(self) -> list[tuple[float, float]]:
        return list(self._disturbances())

    def _disturbances(self) -> Iterator[tuple[float, float]]:
        world = self._world
        recovery = 4 * world.options.failover_time + _LONGEST_PAUSE
        yield 0.0, next(iter(world.fleet.started_at.values()), 0.0) + recovery
        for at, event in world.history.events:
            if isinstance(event, h.Put | h.Split | h.Merge | h.Storm):
                continue
            yield at, at + float(getattr(event, "seconds", 0.0)) + recovery
        for entry in world.journal.entries:
            if entry.what == "worker failed":
                yield entry.at, entry.at + recovery
        yield world.history.duration, world.history.duration + recovery

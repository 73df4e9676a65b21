"""The parts of a world of several streams, each a world of one stream.

An application of several streams has to treat each as one of its own. So the invariants of one
stream hold for each part: what happened to one stream from its creation to its deletion. Where all
leases of a stream were deleted because it had left the application, another part begins.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from sparkinesis.lease.lease import decode_lease
from tests.simulation.fleet import initial_position
from tests.simulation.journal import EPOCH_MS, Journal
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.dynamodb import Write
    from tests.simulation.several.world import Life, SeveralWorld

_LATE = 130.0
"""Seconds that a request may be on its way, and more."""
_A_MOMENT = 1.5
"""Seconds by which the service's clock, as a worker knows it, may be wrong."""
ANSWERED = 2.0
"""Seconds for which an answer of the tracker may be on its way to a thread that deletes leases."""
_FOR_EVER = float("inf")


class Part(World):
    """What happened to one stream from ``since`` on until ``until`` (virtual seconds)."""

    def __init__(self, world: SeveralWorld, life: Life, since: float, until: float) -> None:
        self.__dict__.update(world.__dict__)
        self.life = life
        self.since, self.until = since, until
        self.named = self._named(world)
        self._position = initial_position(world.history, life.number)
        self.history = replace(world.history, initial_position=self._beginning(world))
        self.producer = life.producer
        self.told = []
        self.endings = [
            (at, process, key.removeprefix(life.prefix), why)
            for at, process, key, why in world.endings
            if key.startswith(life.prefix) and self._has(_held_at(world, at, process, key))
        ]
        self._keep_writes(world)
        self._keep_entries(world)

    def _beginning(self, world: SeveralWorld) -> Literal["latest", "trim_horizon"] | float:
        """The position at which the stream is to begin.

        LATEST means the moment at which the tracker named the stream: the start of a stream that
        was made, or made anew, behind it.
        """
        life, position = self.life, self._position
        first = next(
            (
                write.after
                for write in world.table.writes
                if write.key.startswith(life.prefix) and self._has(write.at) and write.after
            ),
            None,
        )
        if position != "latest" or first is None:
            return position
        named = self.named
        at = first["checkpoint"]["S"]
        if at == "TRIM_HORIZON" and min(named) <= life.created_at + _A_MOMENT:
            return "trim_horizon"
        if at == "AT_TIMESTAMP" and "checkpointTimestamp" in first:
            begins = (int(first["checkpointTimestamp"]["N"]) - EPOCH_MS) / 1000
            if any(abs(begins - at) <= _A_MOMENT for at in named):
                self.means_latest = True
                return begins
        return position

    def _named(self, world: SeveralWorld) -> list[float]:
        """The times at which the tracker named the stream, as those who were told know them.

        Without those for which their machines were suspended, with their clocks.
        """
        found = []
        for process, answers in world.fleet.answers.items():
            slept = world.fleet.suspended.get(process, ())
            for at, numbers in answers:
                if self.life.number in numbers:
                    found += [at, at + sum(seconds for woke, seconds in slept if woke > at)]
        return found

    def may_begin_anew(self, name: str, instant_ms: int | None, at: float) -> bool:
        """True for what LATEST means to somebody who finds no lease: each was told at another time.

        Of a stream that was made later than one was told of it, that is the oldest record.
        """
        if self._position != "latest":
            return False
        if name == "TRIM_HORIZON":
            return min(self.named, default=_FOR_EVER) <= self.life.created_at + _A_MOMENT
        if instant_ms is None:
            return False
        begins = (instant_ms - EPOCH_MS) / 1000
        if name == "LATEST":
            return min(self.named, default=_FOR_EVER) - _A_MOMENT <= begins <= at + _A_MOMENT
        return any(abs(begins - told) <= _A_MOMENT for told in self.named)

    def _keep_writes(self, world: SeveralWorld) -> None:
        prefix, former = self.life.prefix, set[str]()
        self.table = copy.copy(world.table)
        self.table.writes = []
        for write in world.table.writes:
            shard = write.key.removeprefix(prefix)
            if not self._has(write.at) or shard == write.key:
                continue
            if shard not in self.producer.shards:
                continue  # `leases_name_their_streams` tells
            if is_former(world, self.life, write):
                former.add(shard)
                write = replace(write, by=None)  # noqa: PLW2901 - like one by hand
            self.table.writes.append(replace(write, key=shard))
        self.table.rows = {
            key.removeprefix(prefix): row
            for key, row in world.table.rows.items()
            if key.startswith(prefix)
            and key.removeprefix(prefix) in self.producer.shards
            and self.until == _FOR_EVER
        }
        self.table_writers = copy.copy(world.table_writers)
        by_hand = {
            key.removeprefix(prefix)
            for key in world.table_writers.deleted
            if key.startswith(prefix)
        }
        self.table_writers.deleted = by_hand | former

    def _keep_entries(self, world: SeveralWorld) -> None:
        prefix, whole = self.life.prefix, world.journal
        begun = {0} | {
            entry.reader
            for entry in whole.entries
            if entry.what == "initialize" and self._has(entry.at)
        }
        self.journal = Journal(
            whole.scheduler,
            [
                replace(entry, shard=entry.shard.removeprefix(prefix))
                for entry in whole.entries
                if not entry.shard
                or (
                    entry.shard.removeprefix(prefix) in self.producer.shards
                    and entry.shard.startswith(prefix)
                    and self._has(entry.at)
                    and entry.reader in begun
                )
            ],
            {k.removeprefix(prefix): v for k, v in whole.handed.items() if k.startswith(prefix)},
            whole.processed,
            whole.first_processed,
            whole.dead_letters,
            {k.removeprefix(prefix): v for k, v in whole.claims.items() if k.startswith(prefix)},
        )

    def _has(self, at: float) -> bool:
        return self.since < at <= self.until


def _held_at(world: SeveralWorld, ended: float, process: str, key: str) -> float:
    """When a process last wrote to a lease that it has lost, which it may notice much later."""
    written = [
        write.at
        for write in world.table.writes
        if write.key == key and write.at <= ended and write.after and write.by
        if write.by.name == process
    ]
    return written[-1] if written else ended


def is_former(world: SeveralWorld, life: Life, write: Write) -> bool:
    """True if a worker deleted a lease that was none of a stream of its application."""
    if write.after is not None or write.by is None or write.by not in world.fleet.worker_ids:
        return False
    if life.ended_at is not None and life.ended_at <= write.at:
        return True
    answers = [
        life.number in numbers
        for at, numbers in world.fleet.answers.get(write.by.name, ())
        if at <= write.at
    ]
    lately = [
        life.number in numbers
        for at, numbers in world.fleet.answers.get(write.by.name, ())
        if write.at - _LATE <= at <= write.at
    ]
    known = [
        life.number in numbers
        for at, numbers in world.fleet.answers.get(write.by.name, ())
        if at <= write.at - ANSWERED
    ]
    before = None if write.before is None else decode_lease(write.before)
    if before is not None and before.is_finished and any((*answers[-1:], *known[-1:])):
        return False  # cleaned up, like any, perhaps while the tracker answers
    return not all([*lately, *answers[-1:]])


def parts_of(world: SeveralWorld, life: Life) -> list[Part]:
    """The parts of one stream, in order."""
    rows: set[str] = set()
    ends = []
    for write in world.table.writes:
        if not write.key.startswith(life.prefix):
            continue
        if write.after is not None:
            rows.add(write.key)
            continue
        rows.discard(write.key)
        if not rows and is_former(world, life, write):
            ends.append(write.at)
    bounds = [-1.0, *ends, _FOR_EVER]
    return [Part(world, life, since, until) for since, until in pairwise(bounds)]


def all_parts(world: SeveralWorld) -> Iterator[Part]:
    for life in world.all_lives():
        yield from parts_of(world, life)


def current_parts(world: SeveralWorld) -> Iterator[Part]:
    """The parts of the streams that the application is to read now."""
    for life in world.owed_lives():
        yield parts_of(world, life)[-1]

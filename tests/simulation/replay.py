"""Compares the records that each processor was given with those that it should have been given.

A record may be missing for a few reasons only; each is checked when it occurs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from sparkinesis.lease.extended_sequence_number import (
    AT_TIMESTAMP,
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber,
)
from sparkinesis.lease.rules.lease_start import STARTS_WITHIN_MS
from tests.simulation.history import DateAhead, Trouble
from tests.simulation.journal import EPOCH_MS, Entry
from tests.simulation.network import MAX_LATENCY, SLOWEST
from tests.simulation.producer import ShardLog, key_of

if TYPE_CHECKING:
    from tests.simulation.world import World

_FAILED = {("records", "SimulatedFailureError"), ("records", "CancelledError")}

_SECOND_MS = 1000
"""The service tells its time in whole seconds."""


def slack_ms(world: World) -> int:
    """The largest error of a worker's estimate of the service's clock during a history, in ms."""
    ahead = [abs(e.ahead) for _, e in world.history.events if isinstance(e, DateAhead)]
    return _SECOND_MS + round(max(ahead, default=0.0) * 1000)


def _on_the_way_ms(world: World) -> int:
    """The maximum age of an answer when it arrives, in ms.

    A worker knows the service's clock at the time of the answer. A late answer makes records seem
    younger than they are, never older.
    """
    slow = [
        event
        for _, event in world.history.events
        if isinstance(event, Trouble) and event.kind == "slow" and event.service != "dynamodb"
    ]
    return round((MAX_LATENCY + (SLOWEST if slow else 0.0)) * 1000)


def jitter_ms(world: World) -> int:
    return round(world.history.arrival_jitter * 1000)


def expired_before_ms(world: World) -> int:
    """The arrival time (epoch ms) before which records had expired when the application began."""
    made = next((write.at for write in world.table.writes), world.scheduler.now)
    hours = world.producer.first_retention_hours
    return ms(made) + STARTS_WITHIN_MS - hours * 3_600_000


def had_expired(world: World, arrival_ms: int, at: float) -> bool:
    """True if a record had expired when somebody asked for the oldest records then kept.

    That is by a reset, or by a new lease for one that a hand had deleted. Nobody misses it then.
    """
    return arrival_ms < world.producer.horizon_ms(ms(at) + STARTS_WITHIN_MS)


def ms(at: float) -> int:
    """A virtual second by the service's clock."""
    return EPOCH_MS + int(at * 1000)


@dataclass
class _Reader:
    """One record processor."""

    entry: Entry
    """The journal's entry of the reader's ``initialize``."""
    done: int = -1
    """The index of the last record that is behind it; with ``concurrency``, where it began."""
    finished: set[int] = field(default_factory=set)
    """With ``concurrency``, the records behind that which it does not get any more."""
    from_ms: int | None = None
    """The instant at which it began, if it began at one, until a record was given."""
    farthest: int = -1
    has_begun: bool = False
    """True after the first record or a reset: from then on no record may be missing."""
    at_record: bool = False
    """True if it began after a record, whose loss it has to notice."""
    given_up: set[int] = field(default_factory=set)


class Replay:
    """``wrong``: the violations. ``passed``: data of records that a reader may have passed over."""

    def __init__(self, world: World) -> None:
        self.wrong: list[str] = []
        self.passed: set[str] = set()
        self._world = world
        self._slack = slack_ms(world)
        self._on_the_way = _on_the_way_ms(world)
        self._jitter = jitter_ms(world)
        self._skip = world.options.skip_older_than
        self._is_by_record = world.options.concurrency is not None
        self._is_cut = (
            self._is_by_record
            or world.options.checkpoint_records is not None
            or world.history.way == "loop"
        )
        """True if a batch is given bit by bit, or after those of other shards: a record may be too
        old when its turn comes."""
        self._readers: dict[int, _Reader] = {}
        self._present: dict[tuple[str, str], _Reader] = {}
        self._instants = self._find_instants()
        self._asked_for_oldest: dict[str, list[float]] = {}
        """The times at which somebody asked for the oldest records that a shard had then."""
        writers = world.table_writers
        for write, before, after in world.leases():
            is_anew = before is None and write.key in writers.deleted
            is_asked = is_anew or write.by in writers.operators
            if after and is_asked and after.checkpoint.sequence_number == TRIM_HORIZON:
                self._asked_for_oldest.setdefault(write.key, []).append(write.at)
        self._skips = world.history.on_error in {"skip", "retry, then skip"}
        self._started = {process.name: ms(at) for process, at in world.fleet.started_at.items()}
        for entry in world.journal.entries:
            self._follow(entry)

    def _find_instants(self) -> dict[tuple[str, str], list[tuple[float, str, int | None]]]:
        """The sentinels that a process checkpointed, and their instants, by process and shard."""
        found: dict[tuple[str, str], list[tuple[float, str, int | None]]] = {}
        for write, _, after in self._world.leases():
            if after is not None and write.by is not None and after.checkpoint.is_sentinel:
                place = (write.at, after.checkpoint.sequence_number, after.timestamp_ms)
                found.setdefault((write.by.name, write.key), []).append(place)
        return found

    def _follow(self, entry: Entry) -> None:
        log = self._world.producer.logs.get(entry.shard) or ShardLog()
        if entry.what == "initialize":
            self._begin(entry, log)
            return
        if entry.what == "dead letter":
            at = self._present.get((entry.process, entry.shard))
            if at is not None:
                index = log.index.get(entry.about, -1)
                at.given_up.add(index)
                self._finish(at, index)
            return
        reader = self._readers.get(entry.reader)
        if reader is None:
            return
        if entry.what == "records":
            self._records(reader, entry, log)
        elif entry.what in {"processed", "checkpointed"}:
            last = entry.about[-1] if entry.what == "processed" else entry.about
            self._finish(reader, log.index.get(last, -1))
        elif entry.what == "raised" and entry.about[:2] in _FAILED:
            given = [log.index.get(place, -1) for place in entry.about[2]]
            rest = [index for index in given if index > reader.done]
            if self._skips and len(rest) == 1:
                reader.given_up.add(rest[0])
                self.passed.add(log.data[rest[0]])
        elif entry.what == "reset":
            self._move(reader, entry)
        elif entry.what == "shard_ended":
            self._pass_over(reader, entry, log, range(reader.done + 1, len(log.places)))

    def _finish(self, reader: _Reader, index: int) -> None:
        if self._is_by_record:
            reader.finished.add(index)
        else:
            reader.done = max(reader.done, index)

    def _begin(self, entry: Entry, log: ShardLog) -> None:
        at: ExtendedSequenceNumber = entry.about
        reader = self._readers[entry.reader] = _Reader(entry)
        self._present[entry.process, entry.shard] = reader
        name = at.sequence_number
        if name in {AT_TIMESTAMP, LATEST}:
            reader.from_ms = self._instant(entry, name)
        elif name == SHARD_END:
            reader.done = len(log.places) - 1
        elif name != TRIM_HORIZON:
            index = log.index.get((name, at.sub_sequence_number))
            if index is None:
                self.wrong.append(f"at {entry.at:.3f} {entry.process} began at {at}: no record")
                index = -1
            reader.done, reader.at_record = index, True

    def _instant(self, entry: Entry, name: str) -> int:
        places = self._instants.get((entry.process, entry.shard), [])
        instants = [t for at, known, t in places if at <= entry.at and known == name]
        if not instants or instants[-1] is None:
            self.wrong.append(f"at {entry.at:.3f} {entry.process} began at {name}, without instant")
            return 0
        return instants[-1]

    def _move(self, reader: _Reader, entry: Entry) -> None:
        reader.done = reader.farthest = -1
        reader.at_record = reader.has_begun = False
        if entry.about == "TRIM_HORIZON":
            reader.from_ms = None
        elif isinstance(entry.about, datetime):
            reader.from_ms = round(entry.about.timestamp() * 1000)
        else:
            reader.from_ms = self._instant(entry, LATEST)

    def _records(self, reader: _Reader, entry: Entry, log: ShardLog) -> None:
        given = [log.index.get(place, -1) for place in entry.about]
        if self._is_by_record:
            self._record(reader, entry, log, *given)
            return
        expected = reader.done + 1
        for index in given:
            if index < expected:
                self.wrong.append(
                    f"at {entry.at:.3f} {entry.process} was given the records {given} of "
                    f"{entry.shard} when {expected} was next"
                )
                break
            self._pass_over(reader, entry, log, range(expected, index))
            if index == given[0]:
                reader.done = index - 1  # what was passed over does not come any more
            expected = index + 1
            if index > reader.farthest:
                self._require_young(reader, entry, log, index)
                reader.farthest = index
        reader.has_begun = True

    def _record(self, reader: _Reader, entry: Entry, log: ShardLog, index: int) -> None:
        """Requires that a record comes once, behind all earlier ones of its key."""
        if index <= reader.done or index in reader.finished:
            self.wrong.append(
                f"at {entry.at:.3f} {entry.process} was given record {index} of {entry.shard} again"
            )
        key = key_of(log.data[index])
        earlier = range(reader.done + 1, index)
        before = [one for one in earlier if key == key_of(log.data[one]) is not None]
        self._pass_over(reader, entry, log, before)
        if not reader.has_begun or self._skip is not None:
            # Of other keys, what was gone when it began does not come either, nor what has become
            # too old since; nothing else of those keys may follow that shows it.
            then = reader.entry if self._skip is None else entry
            gone = [one for one in earlier if self._reason(reader, then, log.arrivals[one])]
            self._pass_over(reader, entry, log, gone)
        reader.finished.update(before)  # what was passed over does not come any more
        self._require_young(reader, entry, log, index)
        reader.has_begun = True

    def _require_young(self, reader: _Reader, entry: Entry, log: ShardLog, index: int) -> None:
        """Requires that a record did not arrive before the bound of ``skip_older_than``."""
        bounds = []
        if reader.from_ms is not None:
            # A record that arrived on the very second may have come later in it, for a client
            # that knows servers which tell seconds only.
            cut_ms = _SECOND_MS if self._world.history.begins_early else 0
            bounds.append(reader.from_ms - self._jitter - cut_ms)
        if self._skip == 0:
            bounds.append(self._started[entry.process] - self._slack)
        elif self._skip is not None and not self._is_cut:
            age_ms = round(self._skip * 1000) + self._slack + self._on_the_way
            bounds.append(ms(entry.at) - age_ms - self._stood_still_ms(entry, log.put_at[index]))
        if bounds and log.arrivals[index] < max(bounds):
            self.wrong.append(
                f"at {entry.at:.3f} {entry.process} was given {log.data[index]} of {entry.shard}, "
                f"{(max(bounds) - log.arrivals[index]) / 1000:.3f} s older than allowed"
            )

    def _stood_still_ms(self, entry: Entry, put_at: float) -> int:
        """The milliseconds since then for which the machine and its clock were suspended."""
        suspended = self._world.fleet.suspended.get(entry.process, ())
        return round(1000 * sum(s for woke, s in suspended if put_at < woke <= entry.at))

    def _pass_over(
        self, reader: _Reader, entry: Entry, log: ShardLog, missing: Iterable[int]
    ) -> None:
        """Requires a reason for each missing record."""
        for index in missing:
            if index in reader.given_up or index in reader.finished:
                continue
            reason = self._reason(reader, entry, log.arrivals[index])
            if reason is None:
                self.wrong.append(
                    f"at {entry.at:.3f} {entry.process} was not given {log.data[index]}, record "
                    f"{index} of {entry.shard}, before {entry.what}"
                )
                return
            if reason != "before its beginning":
                self.passed.add(log.data[index])
            is_silent = reason == "expired" and not self._is_told(entry, log.arrivals[index])
            if is_silent and self._must_be_told(reader, log.arrivals[index], entry):
                self.wrong.append(
                    f"at {entry.at:.3f} {log.data[index]} of {entry.shard} had expired, but "
                    f"{entry.process} did not report it"
                )
                return

    def _reason(self, reader: _Reader, entry: Entry, arrival_ms: int) -> str | None:
        is_first = self._is_by_record or not reader.has_begun  # of its key
        if is_first and reader.from_ms is not None and arrival_ms < reader.from_ms:
            return "before its beginning"
        if self._skip == 0 and arrival_ms < ms(reader.entry.at) + self._slack:
            return "older than the worker"
        bound_ms = ms(entry.at) + self._slack
        if self._skip and arrival_ms < bound_ms - round(self._skip * 1000):
            return "too old"
        horizon_ms = self._world.producer.horizon_ms(ms(entry.at))
        return "expired" if arrival_ms < horizon_ms else None

    def _must_be_told(self, reader: _Reader, arrival_ms: int, entry: Entry) -> bool:
        """True if a worker can know that an expired record may be missing.

        Records that expired before the application began are no loss. A retention period that was
        shorter for a while leaves no trace if no earlier record is known.
        """
        if arrival_ms < expired_before_ms(self._world):
            return False
        asked = [at for at in self._asked_for_oldest.get(entry.shard, []) if at <= reader.entry.at]
        if asked and had_expired(self._world, arrival_ms, asked[-1]):
            return False
        hours = self._world.producer.stream.retention.hours
        is_kept_now = arrival_ms >= ms(entry.at) - hours * 3_600_000
        return reader.at_record or reader.has_begun or not is_kept_now

    def _is_told(self, entry: Entry, arrival_ms: int) -> bool:
        """True if this worker reported a loss in the shard, or another worker this record's.

        The reader that detects the loss reports it, and stores in the lease how far it checked. If
        it checkpoints no record, the next reader begins at the same place and trusts that.
        """
        return any(
            shard == entry.shard
            and at <= entry.at
            and (process == entry.process or arrival_ms < self._world.producer.horizon_ms(ms(at)))
            for at, process, shard in self._world.told
        )

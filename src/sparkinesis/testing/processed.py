"""The fate of the records that a test has put, and the calls that a crash swallows."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from sparkinesis.events import (
    DeadLettersStored,
    Event,
    OldRecordsSkipped,
    RecordsEvent,
    RecordsSkipped,
    ShardEvent,
    ShardStarted,
    ShardStopped,
)
from sparkinesis.lease.extended_sequence_number import AT_TIMESTAMP, ExtendedSequenceNumber
from sparkinesis.stream.kpl.unpack import deaggregate
from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.batches.user_record import UserRecord
from sparkinesis.worker.processors.processor import ProcessorShard
from sparkinesis.worker.processors.user_calls import Done, UserCalls


class Place(NamedTuple):
    """The place of a record that was put."""

    stream: str
    shard_id: str
    sequence_number: str


class Put(NamedTuple):
    """A record that was put."""

    place: Place
    entry: Mapping[str, Any]
    """The entry of PutRecords."""
    arrived_ms: int


class _Known(NamedTuple):
    users: int
    """The number of user records."""
    arrived_ms: int


class Progress:
    """The records that are owed, and those that are processed, over all workers of a run.

    For any thread.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.processed: list[UserRecord] = []
        """The records of all calls that have returned, in order."""
        self.calls: Counter[tuple[str, str]] = Counter()
        """The number of calls of ``process_records`` that have returned, by stream and shard."""
        self.events: list[Event] = []
        self._put: dict[Place, _Known] = {}
        self._owed: dict[Place, set[int]] = {}
        """The sub-sequence numbers of each record that was put, without those done."""
        self._settled: dict[Place, set[int]] = {}
        """Those done, also of records that are not known yet."""
        self._giving_up: list[ShardEvent] = []
        """The events since the last crash that may give records up."""

    def owe(self, put: Put) -> None:
        """Note a record that was put."""
        place = put.place
        count = len(deaggregate([_record(place, put.entry)]).data)
        with self.changed:
            self._put[place] = _Known(count, put.arrived_ms)
            # The worker may be quicker than the answer to the put.
            if owed := set(range(count)) - self._settled.get(place, set()):
                self._owed[place] = owed
            for event in self._giving_up:
                self._give_up(event)

    def owe_again(self, checkpoints: Mapping[tuple[str, str], ExtendedSequenceNumber]) -> None:
        """Note that records without a checkpoint come again. checkpoints: by stream and shard."""
        with self.changed:
            self._giving_up.clear()
            for place, put in self._put.items():
                at = checkpoints.get((place.stream, place.shard_id))
                subs = range(put.users)
                open_subs = {sub for sub in subs if at is None or not _covers(at, place, sub)}
                if open_subs:
                    self._owed[place] = open_subs

    def forget_done(self, checkpoints: Mapping[tuple[str, str], ExtendedSequenceNumber]) -> None:
        """Note the records that an earlier run has done, by the checkpoints that it left.

        Shards without a lease are done: they have ended, or begin after their parents.
        """
        with self.changed:
            for place in list(self._owed):
                at = checkpoints.get((place.stream, place.shard_id))
                for sub in list(self._owed[place]):
                    if at is None or _covers(at, place, sub):
                        self._done(place, sub)

    def is_done(self) -> bool:
        """Return True if every record was processed, or was given up as ``on_error`` asks."""
        return not self._owed

    def open_records(self) -> int:
        """Return the number of user records that are owed."""
        with self.changed:
            return sum(map(len, self._owed.values()))

    def end_call(self, shard: ProcessorShard, records: list[UserRecord], *, counts: bool) -> None:
        """Note the records of a call that has returned.

        counts: False if they come again, because the worker of the call is abandoned.
        """
        with self.changed:
            self.processed += records
            self.calls[shard.stream, shard.id] += 1
            for one in records if counts else ():
                place = Place(shard.stream, shard.id, one.sequence_number)
                self._done(place, one.sub_sequence_number)
            self.changed.notify_all()

    def note(self, event: Event) -> None:
        """Note an event of a worker, and the records that it gives up."""
        with self.changed:
            self.events.append(event)
            if isinstance(event, ShardEvent):
                self._giving_up.append(event)
                self._give_up(event)
            self.changed.notify_all()

    def _give_up(self, event: ShardEvent) -> None:
        for place in list(self._owed):
            if (place.stream, place.shard_id) == (event.stream, event.shard_id):
                for sub in list(self._given_up(place, event)):
                    self._done(place, sub)

    def _given_up(self, place: Place, event: ShardEvent) -> Iterator[int]:
        subs = list(self._owed[place])
        if isinstance(event, RecordsSkipped | DeadLettersStored):
            first, last = _positions(event)
            yield from (sub for sub in subs if first <= (int(place.sequence_number), sub) <= last)
        elif isinstance(event, ShardStopped) or self._put[place].arrived_ms < _begins_ms(event):
            yield from subs

    def _done(self, place: Place, sub: int) -> None:
        self._settled.setdefault(place, set()).add(sub)
        subs = self._owed.get(place)
        if subs is not None:
            subs.discard(sub)
            if not subs:
                del self._owed[place]


def _begins_ms(event: ShardEvent) -> int:
    """Return the time before which records are no longer delivered; 0 if there is none."""
    if isinstance(event, OldRecordsSkipped):
        return event.until_ms
    if isinstance(event, ShardStarted):
        kind, _, instant = event.position.partition(":")
        return int(instant) if kind == AT_TIMESTAMP else 0
    return 0


def _covers(checkpoint: ExtendedSequenceNumber, place: Place, sub: int) -> bool:
    if checkpoint.is_sentinel:
        return checkpoint.is_shard_end
    reached = (int(checkpoint.sequence_number), checkpoint.sub_sequence_number)
    return (int(place.sequence_number), sub) <= reached


def _positions(event: RecordsEvent) -> tuple[tuple[int, int], tuple[int, int]]:
    def read(text: str) -> tuple[int, int]:
        sequence_number, _, sub = text.partition(":")
        return int(sequence_number), int(sub or 0)

    return read(event.first), read(event.last)


def _record(place: Place, entry: Mapping[str, Any]) -> Record:
    return Record(
        data=entry["Data"],
        partition_key=entry["PartitionKey"],
        sequence_number=place.sequence_number,
    )


class WatchedCalls(UserCalls):
    """The calls of one worker's record processors. None begins after its crash."""

    def __init__(self, progress: Progress, stop_writes: Callable[[], None], **given: Any) -> None:
        """``stop_writes``: has the lease tables refuse this worker's writes."""
        super().__init__(**given)
        self.has_crashed = False
        """True once the worker is to be abandoned."""
        self.is_abandoned = False
        """True once another worker takes over: what still ends here comes again."""
        self.crash_after: int | None = None
        """The number of user records after whose processing the worker crashes; None: never."""
        self.began = 0
        """The number of user records whose processing has begun."""
        self._progress = progress
        self._stop_writes = stop_writes
        self._shards: dict[int, ProcessorShard] = {}
        """The shard of each processor, by the processor's id."""
        self._is_dying = False
        self._deciding = threading.Lock()

    def call(self, method: Callable[..., object], *given: object) -> None:
        if given and isinstance(given[0], ProcessorShard):
            self._shards[_owner(method)] = given[0]
        batch = given[0] if given and isinstance(given[0], RecordBatch) else None
        records = [] if batch is None else list(batch.records)
        may_begin, is_last = self._decide(len(records))
        if not may_begin:
            return
        try:
            super().call(method, *given)
            if batch is not None:
                self._end(method, records)
        finally:
            self.has_crashed |= is_last

    def begin(self, method: Callable[..., object], given: object, done: Done) -> None:
        assert isinstance(given, UserRecord)
        may_begin, is_last = self._decide(1)

        def end(error: BaseException | None) -> None:
            # The worker is at work before anybody sees that the record is processed.
            done(error)
            if error is None:
                self._end(method, [given])
            self.has_crashed |= is_last

        if may_begin:
            super().begin(method, given, end)
        else:
            done(None)

    def crash(self) -> None:
        """Let the worker do nothing more, as by ``kill -9``."""
        with self._deciding:
            self._die()
        self.has_crashed = True

    def _decide(self, records: int) -> tuple[bool, bool]:
        """Return whether a call with these records may begin, and whether it is the last one.

        Writes are stopped before the last call, so nothing of it can be checkpointed.
        """
        with self._deciding:
            if self._is_dying:
                return False, False
            self.began += records
            is_last = self.crash_after is not None and self.began >= self.crash_after
            if is_last:
                self._die()
            return True, is_last

    def _die(self) -> None:
        self._is_dying = True
        self._stop_writes()

    def _end(self, method: Callable[..., object], records: list[UserRecord]) -> None:
        shard = self._shards[_owner(method)]
        with self._progress.changed:
            self._progress.end_call(shard, records, counts=not self.is_abandoned)


def _owner(method: Callable[..., object]) -> int:
    """Return the id of the processor that has a method."""
    return id(getattr(method, "__self__", None))

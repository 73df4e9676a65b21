"""A queue: what of a stream was received record by record, and is not acknowledged. No I/O.

Of each shard a queue knows a position: from there on, no record was received. A record that was
received has a `QueueEntry` until it is acknowledged, and then leaves nothing. So a queue costs what
is in its hands, however many records the stream has.
"""

from __future__ import annotations

import dataclasses
import hashlib
import heapq
from collections import deque
from typing import NamedTuple
from weakref import WeakKeyDictionary

from sparkinesis.local.clock import Alarm, IdleUntil
from sparkinesis.local.model.records import DecodedRecord, decoded
from sparkinesis.local.model.shard_log import Shard
from sparkinesis.local.model.stream import Lifecycle, Stream
from sparkinesis.local.model.tokens import ReceiptHandle, seal

_ANY_SIZE = 1 << 62


class Attributes(NamedTuple):
    """What UpdateQueue changes. max_receives: None for a queue without dead letters."""

    visibility_s: int = 30
    max_receives: int | None = 6


class QueueStart(NamedTuple):
    """Where a queue starts. time_ms: as it was asked for; of an ACTIVE queue, where it started."""

    type: str = "LATEST"
    time_ms: int | None = None

    def position(self, shard: Shard) -> int:
        if self.type == "TRIM_HORIZON":
            return 0
        if self.time_ms is None:
            return shard.log.end_position
        return shard.log.position_at(self.time_ms)


@dataclasses.dataclass(eq=False, slots=True)
class QueueEntry:
    """A record that was received and is not acknowledged.

    handle: of the delivery that holds the record; None while it is visible.
    visible_ms: when this hold ends.
    """

    shard: Shard
    position: int
    receive_count: int = 0
    first_received_ms: int = 0
    handle: str | None = None
    visible_ms: int = 0
    is_dead: bool = False


class QueueLook(NamedTuple):
    """What a test sees of a queue in which nothing may be under way.

    is_waiting: there are records that a receive would get. polled: the most records that receives
    wait for. changes: grows with each delivery, and each hold that is changed. next_end_ms: as of
    `Queue`. dead: the ids of the dead letters.
    """

    is_waiting: bool
    polled: int
    changes: int
    next_end_ms: int | None
    dead: tuple[str, ...]


class DeliveredRecord(NamedTuple):
    """One record of the answer to a receive."""

    handle: str
    record_id: str
    record: DecodedRecord
    first_received_ms: int
    receive_count: int


class _Unread:
    """What of a stream no receive of a queue has got."""

    def __init__(self, stream: Stream, start: QueueStart) -> None:
        self._stream = stream
        self._next: WeakKeyDictionary[Shard, int] = WeakKeyDictionary()
        for shard in stream.shards:  # those of later reshards are read from their first record on
            self._next[shard] = start.position(shard)
        self._turn = 0

    def take(self, now: int, limit: int) -> list[tuple[QueueEntry, DecodedRecord]]:
        """Return records that were never received, beginning with another shard each time."""
        found: list[tuple[QueueEntry, DecodedRecord]] = []
        shards = self._stream.shards
        self._turn = (self._turn + 1) % len(shards)
        for shard in shards[self._turn :] + shards[: self._turn]:
            if len(found) == limit:
                break
            self._stream.trim(shard, now)
            records = shard.log.read(self._next.get(shard, 0), limit - len(found), _ANY_SIZE)
            self._next[shard] = records.next_position
            first = records.next_position - records.count
            for position, record in enumerate(decoded(records), first):
                found.append((QueueEntry(shard, position), record))
        return found

    def has_some(self, now: int) -> bool:
        """Return True if `take` would return a record."""
        for shard in self._stream.shards:
            self._stream.trim(shard, now)
            log = shard.log
            if max(self._next.get(shard, 0), log.first_position) < log.end_position:
                return True
        return False


class Queue(Lifecycle):
    """A queue on a stream. id: the part of its ARN behind `queue/`. polls: receives that wait."""

    def __init__(
        self,
        name: str,
        arn: str,
        stream: Stream,
        start: QueueStart,
        attributes: Attributes,
        *,
        created_ms: int,
    ) -> None:
        super().__init__()
        self.name = name
        self.arn = arn
        self.stream = stream
        self.start = start
        self.attributes = attributes
        self.created_ms = created_ms
        self.tags: dict[str, str] = {}
        self.policy: str | None = None
        self.polls: set[Poll] = set()
        self._unread = _Unread(stream, start)
        self._held: dict[str, QueueEntry] = {}
        self._visible: dict[bool, deque[QueueEntry]] = {False: deque(), True: deque()}
        """Records, and dead letters, that no delivery holds."""
        # The ends of holds: (visible_ms, a number, entry). One of a hold that was changed, or ended
        # before, is passed over when its time has come.
        self._ends: list[tuple[int, int, QueueEntry]] = []
        self._number = 0

    @property
    def id(self) -> str:
        return self.arn.rpartition("/")[2]

    # Its states

    def begin(self, now: int) -> None:
        """Become ACTIVE: the start is where the queue started."""
        time_ms = self.start.time_ms
        if self.start.type == "LATEST":
            time_ms = self.created_ms
        earliest = self.stream.trim_horizon_ms(now)
        self.start = QueueStart(self.start.type, max(time_ms or earliest, earliest))

    def set_attributes(self, attributes: Attributes) -> None:
        """Change the attributes; records that are held keep their visibility timeout."""
        self.attributes = attributes
        visible, self._visible[False] = self._visible[False], deque()
        for entry in visible:
            self._make_visible(entry)

    def delete(self, now: int, delay_ms: int) -> None:
        super().delete(now, delay_ms)
        self.announce()

    def announce(self) -> None:
        for poll in self.polls:
            poll.alarm.ring()

    # Receiving

    def in_flight(self, now: int) -> int:
        """Return how many records are held."""
        self._end_holds(now)
        return len(self._held)

    def receive(
        self, now: int, limit: int, visibility_ms: int | None, *, dead: bool
    ) -> list[DeliveredRecord]:
        """Deliver visible records: those that were received before, then new ones.

        visibility_ms: None for the queue's. dead: deliver dead letters.
        """
        self._end_holds(now)
        self.stream.settle(now)
        found = self._received_before(now, limit, self._visible[dead])
        if not dead:
            found += self._unread.take(now, limit - len(found))
        if visibility_ms is None:
            visibility_ms = self.attributes.visibility_s * 1000
        return [self._deliver(entry, record, now, visibility_ms) for entry, record in found]

    def _received_before(
        self, now: int, limit: int, visible: deque[QueueEntry]
    ) -> list[tuple[QueueEntry, DecodedRecord]]:
        found: list[tuple[QueueEntry, DecodedRecord]] = []
        while visible and len(found) < limit:
            entry = visible.popleft()
            if self._is_kept(entry, now):
                found.append((entry, _record(entry)))
        return found

    def _deliver(
        self, entry: QueueEntry, record: DecodedRecord, now: int, visibility_ms: int
    ) -> DeliveredRecord:
        entry.receive_count += 1
        entry.first_received_ms = entry.first_received_ms or now
        handle = entry.handle = seal(ReceiptHandle(self.id, self._next_number()))
        self._held[handle] = entry
        self.hold(entry, now + visibility_ms)
        return DeliveredRecord(
            handle, self._id_of(record), record, entry.first_received_ms, entry.receive_count
        )

    def _id_of(self, record: DecodedRecord) -> str:
        """Return the same id in each queue of the stream; nothing can be read from it."""
        identity = f"{self.stream.arn} {record.sequence_number}".encode()
        return hashlib.blake2b(identity, digest_size=16).hexdigest()

    def look(self, now: int) -> QueueLook:
        """Return what is waiting and under way, and receive nothing."""
        self._end_holds(now)
        self.stream.settle(now)
        is_waiting = any(self._is_kept(entry, now) for entry in self._visible[False])
        is_waiting |= self._unread.has_some(now)
        polls = [poll for poll in self.polls if not (poll.dead or poll.is_answered)]
        dead = [*self._visible[True], *(entry for entry in self._held.values() if entry.is_dead)]
        ids = [self._id_of(_record(entry)) for entry in dead if self._is_kept(entry, now)]
        polled = sum(poll.limit for poll in polls if now < poll.until_ms)
        return QueueLook(is_waiting, polled, self._number, self.next_end_ms, tuple(ids))

    def end_polls(self) -> None:
        """End the receives that wait, as if their time were over."""
        for poll in self.polls:
            poll.until_ms = 0
        self.announce()

    # What is held

    @property
    def next_end_ms(self) -> int | None:
        """When the next hold ends, after `receive`; None if nothing is held."""
        return self._ends[0][0] if self._ends else None

    def held(self, handle: str, now: int, *, dead: bool) -> QueueEntry | None:
        """Return the record (or dead letter) that a handle holds; None if it holds none."""
        self._end_holds(now)
        entry = self._held.get(handle)
        if entry is None or entry.is_dead != dead or not self._is_kept(entry, now):
            return None
        return entry

    def acknowledge(self, entry: QueueEntry) -> None:
        """Forget a record that is held."""
        self._let_go(entry)

    def hold(self, entry: QueueEntry, until_ms: int) -> None:
        """Hold a record until an instant, whatever its hold was before."""
        entry.visible_ms = until_ms
        heapq.heappush(self._ends, (until_ms, self._next_number(), entry))
        if len(self._ends) > 2 * len(self._held) + 64:
            self._ends = [(e.visible_ms, self._next_number(), e) for e in self._held.values()]
            heapq.heapify(self._ends)
        if self.next_end_ms == until_ms:
            self.announce()  # those that wait have to wake earlier

    def release(self, entry: QueueEntry) -> None:
        """End a hold: the record is visible, or is a dead letter if it was received too often."""
        self._let_go(entry)
        self._make_visible(entry)
        self.announce()

    def restore(self, entry: QueueEntry) -> None:
        """Make a dead letter a record that was never received."""
        entry.is_dead = False
        entry.receive_count = 0
        self.release(entry)

    def _end_holds(self, now: int) -> None:
        while self._ends:
            end_ms, _, entry = self._ends[0]
            is_current = entry.handle is not None and entry.visible_ms == end_ms
            if is_current and end_ms > now:
                return
            heapq.heappop(self._ends)
            if is_current:
                self._let_go(entry)
                self._make_visible(entry)

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _let_go(self, entry: QueueEntry) -> None:
        assert entry.handle is not None, "only a held record is let go"
        del self._held[entry.handle]
        entry.handle = None

    def _make_visible(self, entry: QueueEntry) -> None:
        most = self.attributes.max_receives
        if most is not None and entry.receive_count >= most:
            entry.is_dead = True
        self._visible[entry.is_dead].append(entry)

    def _is_kept(self, entry: QueueEntry, now: int) -> bool:
        """Return False if the record's retention has ended."""
        self.stream.trim(entry.shard, now)
        return entry.position >= entry.shard.log.first_position


def _record(entry: QueueEntry) -> DecodedRecord:
    return decoded(entry.shard.log.read(entry.position, 1, _ANY_SIZE))[0]


class Poll:
    """A receive, which waits for records until an instant.

    limit, visibility_ms, dead: as `Queue.receive` takes them.
    alarm: wakes the sender of its answer when there may be records, or the time is over.
    """

    def __init__(
        self, queue: Queue, limit: int, visibility_ms: int | None, until_ms: int, *, dead: bool
    ) -> None:
        self.queue = queue
        self.limit = limit
        self.visibility_ms = visibility_ms
        self.until_ms = until_ms
        self.dead = dead
        self.is_answered = False
        """True also until its sender has left the queue, a moment later."""
        self.alarm = Alarm()

    def wait(self) -> IdleUntil:
        """Wait for what the queue has not now."""
        self.queue.polls.add(self)
        if not self.dead:
            for shard in self.queue.stream.open_shards:
                shard.watch(self.alarm.ring)
        due = (self.until_ms, self.queue.next_end_ms, self.queue.due_ms)
        return self.alarm.set(min(ms for ms in due if ms is not None))

    def close(self) -> None:
        """Wait no more."""
        self.alarm.silence()
        self.queue.polls.discard(self)
        for shard in self.queue.stream.shards:
            shard.unwatch(self.alarm.ring)

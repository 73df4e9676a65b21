"""The records of a shard that are processed at the same time: their order by key, and their run.

Pure but for its own state: it calls nothing, and reads no clock.
"""

from __future__ import annotations

from collections import deque

import msgspec

from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.batches.user_record import UserRecord


class OpenRecord(msgspec.Struct, eq=False):
    """A record that is not finished, or that one before it keeps from being checkpointed."""

    record: UserRecord
    batch: RecordBatch
    row: int
    is_finished: bool = False

    def alone(self) -> RecordBatch:
        """Return a batch of this record only."""
        return self.batch.slice(self.row, self.row + 1)


class OpenRecords(msgspec.Struct):
    """The open records of one shard, ``most`` at a time. For one thread.

    Records of one key begin one after the other, in the order of the shard; records without a key
    have no order. A record is finished when it was processed or given up.
    """

    most: int
    _rest: RecordBatch | None = None
    """What is left of the last batch, which is not open yet."""
    _in_order: deque[OpenRecord] = msgspec.field(default_factory=deque)
    """From the first record that is not finished."""
    _left: deque[int] = msgspec.field(default_factory=deque)
    """The records of each batch that are not checkpointable yet, in the same order."""
    _startable: deque[OpenRecord] = msgspec.field(default_factory=deque)
    _behind: dict[str, deque[OpenRecord]] = msgspec.field(default_factory=dict)
    """The records that wait for one of their key, which is started or startable."""

    def __bool__(self) -> bool:
        """True while a record is open; others wait only behind one."""
        return bool(self._in_order)

    @property
    def first(self) -> OpenRecord | None:
        """The first record that is not finished; it may have begun, or not."""
        return self._in_order[0] if self._in_order else None

    @property
    def has_room(self) -> bool:
        """True if another batch may be added."""
        return len(self._in_order) < self.most

    @property
    def batches(self) -> int:
        """The number of batches in use, which are the last ones that were added."""
        return len(self._left)

    def add(self, batch: RecordBatch) -> None:
        """Add a batch with records, of which as many are opened as there is room for."""
        self._left.append(len(batch))
        self._rest = batch
        self._open()

    def start(self) -> OpenRecord | None:
        """Return the next record that may begin; None if all others wait."""
        return self._startable.popleft() if self._startable else None

    def finish(self, one: OpenRecord) -> list[RecordBatch]:
        """Note that a record is finished; return the records that end the unbroken run anew.

        They are finished, like all before them, and in the order of the shard.
        """
        one.is_finished = True
        key = one.record.partition_key
        if key is not None:
            behind = self._behind[key]
            if behind:
                self._startable.append(behind.popleft())
            else:
                del self._behind[key]
        run: list[RecordBatch] = []
        first: OpenRecord | None = None
        while self._in_order and self._in_order[0].is_finished:
            last = self._in_order.popleft()
            self._left[0] -= 1
            if not self._left[0]:
                self._left.popleft()
            if first is None or first.batch is not last.batch:
                first = last
                run.append(last.alone())
            else:
                run[-1] = first.batch.slice(first.row, last.row + 1)
        self._open()
        return run

    def _open(self) -> None:
        batch = self._rest
        room = self.most - len(self._in_order)
        if batch is None or room <= 0:
            return
        part = batch.slice(0, room)
        self._rest = batch.slice(room, len(batch)) if room < len(batch) else None
        for row, record in enumerate(part.records):
            one = OpenRecord(record, part, row)
            self._in_order.append(one)
            key = record.partition_key
            if key is None:
                self._startable.append(one)
            elif (behind := self._behind.get(key)) is not None:
                behind.append(one)
            else:
                self._behind[key] = deque()
                self._startable.append(one)

"""A record in hand, and the user records of it, as handlers get them."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from sparkinesis.errors import OptionError
from sparkinesis.public import public_queue
from sparkinesis.queue.address import LONGEST_VISIBILITY
from sparkinesis.queue.hold_rules import ACKNOWLEDGE, RELEASE, Settlement
from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.user_record import instant

if TYPE_CHECKING:
    from sparkinesis.queue.client import Received


class Held:
    """A received record in hand. `is_held` is for any thread, all else for the keeper's lock."""

    __slots__ = (
        "_cancels",
        "asked",
        "handle",
        "is_extending",
        "is_gone",
        "is_let_go",
        "is_settling",
        "let_go_at",
        "parts",
        "record_id",
        "settlement",
        "until",
    )

    def __init__(self, record: Received, until: float, let_go_at: float) -> None:
        self.handle = record.receipt_handle
        self.record_id = record.record_id
        self.until = until
        """The time up to which the record is ours for certain."""
        self.let_go_at = let_go_at
        """The time from which it is not extended any more."""
        self.parts = 1
        """The user records of it whose handlers have not ended."""
        self.settlement = ACKNOWLEDGE
        """What the service is told once all parts have ended; so far, of those that have."""
        self.asked = 0
        """The calls that were made to tell the service."""
        self.is_extending = False
        self.is_settling = False
        """True once all of its handlers have ended."""
        self.is_let_go = False
        """True once its handlers were told that others may have it."""
        self.is_gone = False
        """True once it is settled, or lost."""
        self._cancels: list[Callable[[], object]] = []

    @property
    def is_returned(self) -> bool:
        """True if the service is told to deliver the record again."""
        return self.is_settling and self.settlement.visible_after is not None

    @property
    def returned_for(self) -> int:
        """The seconds until it is delivered again."""
        return self.settlement.visible_after or 0

    def on_lost(self, cancel: Callable[[], object]) -> None:
        """Call ``cancel`` when the record is let go, or at once if it is."""
        self._cancels.append(cancel)
        if self.is_let_go:
            cancel()

    def let_go(self) -> None:
        """Tell the record's handlers that others may have it."""
        self.is_let_go = True
        for cancel in self._cancels:
            cancel()


class Keeper(Protocol):
    """Keeps records in hand: `sparkinesis.queue.holds`."""

    def is_held(self, held: Held) -> bool:
        """Return True if nobody else can have the record now."""

    def end(self, held: Held, settlement: Settlement) -> None:
        """Note that the handler of one of the record's parts has ended."""


_OF_LEASES = {
    "sequence_number": "a queue hides it; record_id is the same in each delivery",
    "shard_id": "a queue has no shards, and keeps no order",
    "checkpoint": "a handler that returns has acknowledged its record",
}
"""What a user of record processors looks for, and what serves instead."""


@public_queue
class QueueRecord:
    """A user record that a queue has delivered, and that is held for its handler.

    A handler that returns acknowledges it, and one that raises has it delivered again later; `ack`,
    `retry_in` and `release` do so before.

    data: the record's bytes. partition_key: None for a record put without one. explicit_hash_key:
    of a user record in an aggregate. value: what the application's ``decode`` returned; None
    without one.
    """

    __slots__ = (
        "_held",
        "_is_settled",
        "_keeper",
        "_received",
        "data",
        "explicit_hash_key",
        "partition_key",
        "sub_sequence_number",
        "value",
    )

    def __init__(
        self,
        received: Received,
        held: Held,
        keeper: Keeper,
        data: bytes,
        partition_key: str | None,
        *,
        explicit_hash_key: str | None = None,
        sub_sequence_number: int = 0,
    ) -> None:
        self._received = received
        self._held = held
        self._keeper = keeper
        self._is_settled = False
        self.data = data
        self.partition_key = partition_key
        self.explicit_hash_key = explicit_hash_key
        self.sub_sequence_number = sub_sequence_number
        """0 to n-1 for the user records of an aggregate, which share a `record_id`; else 0."""
        self.value: Any = None

    @property
    def record_id(self) -> str:
        """The record's id: the same in each delivery, and in each queue of the stream.

        With `sub_sequence_number`, the key by which a handler recognises a record that it has
        processed before.
        """
        return self._received.record_id

    @property
    def receive_count(self) -> int:
        """The deliveries so far, this one included: 1 for the first."""
        return self._received.receive_count

    @property
    def approximate_arrival_timestamp(self) -> datetime | None:
        """The time in UTC at which the stream got the record; None if the service gave none."""
        at = self._received.arrived_at
        return None if at is None else instant(at)

    @property
    def first_received(self) -> datetime | None:
        """The time in UTC of the first delivery, by the service's clock; None if it gave none."""
        at = self._received.first_received_at
        return None if at is None else instant(at)

    @property
    def is_held(self) -> bool:
        """True as long as no other handler can have the record.

        False after a hold that could not be extended, or that the option ``time_limit`` ended: what
        this handler does from now on, another one does as well.
        """
        return self._keeper.is_held(self._held)

    def ack(self) -> bool:
        """Acknowledge the record now. Returns False if it is no longer held, or settled already.

        True says that the acknowledgement is on its way. The service delivers a record again if the
        call fails, and rarely even if it does not.
        """
        return self._settle(ACKNOWLEDGE)

    def retry_in(self, seconds: float) -> bool:
        """Have the record delivered again after 0 to 43,200 s. Returns as `ack`.

        Each delivery counts towards the queue's MaxReceiveCount. Raises `OptionError`.
        """
        if not 0 <= seconds <= LONGEST_VISIBILITY:
            raise OptionError(
                f"retry_in was given {seconds!r} seconds; it takes 0 to {LONGEST_VISIBILITY:,}."
            )
        return self._settle(Settlement(math.ceil(seconds)))

    def release(self) -> bool:
        """Have the record delivered again at once, to any receiver. Returns as `ack`."""
        return self._settle(RELEASE)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            instead = _OF_LEASES.get(name)
            advice = "" if instead is None else f": {instead}"
            raise AttributeError(f"a QueueRecord has no {name}{advice}", name=name, obj=self)

    def _settle(self, settlement: Settlement) -> bool:
        if self._is_settled or not self.is_held:
            return False
        self._is_settled = True
        self._keeper.end(self._held, settlement)
        return True

    def __repr__(self) -> str:
        return (
            f"QueueRecord(record_id={self.record_id!r}, "
            f"sub_sequence_number={self.sub_sequence_number}, partition_key={self.partition_key!r},"
            f" {len(self.data)} bytes, receive_count={self.receive_count})"
        )


def settle(record: QueueRecord, settlement: Settlement) -> None:
    """Settle a record whose handler has ended, unless the handler has done so."""
    if not record._is_settled:
        record._is_settled = True
        record._keeper.end(record._held, settlement)


def stored(one: Received) -> Record:
    """Return a record as the stream has it, but for its sequence number, which a queue hides."""
    return Record(
        data=one.data,
        partition_key=one.partition_key,
        sequence_number="0",
        approximate_arrival_timestamp=one.arrived_at,
    )

"""The calls of handlers, and what becomes of their records.

A handler that returns has its records acknowledged. One that raises has them delivered again by the
policy of ``on_error``; a batch handler may name the records that failed.
"""

# What may not happen, and where that is decided:
#
# - A record whose hold has ended does not reach a handler: each is looked at right before its call
#   (`_begin`). It expired while it waited here, or while the process was suspended.
# - An aggregate is one record to the queue, and many to the handler. It is acknowledged when all of
#   its user records are done (`Held.parts`). If one fails, all come again: no call can point into
#   it.
# - A record that the application gives back because it ends is not released before the last receive
#   has ended: that one would get it again, and spend another delivery (`release_left`).
# - A mistake in the program fails for each record, and the policy would give up all of them. Such
#   an error stops the application, and no record is given up.

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

import msgspec

from sparkinesis.errors import ProcessorError
from sparkinesis.events import BatchAction, DeadLetterRefused, DeadLetterStored, HandlerFailed
from sparkinesis.queue.address import QueueAddress
from sparkinesis.queue.client import Received
from sparkinesis.queue.hold_rules import (
    ACKNOWLEDGE,
    RELEASE,
    Settlement,
    Uniform,
    retry_seconds,
    verdict,
)
from sparkinesis.queue.holds import HoldKeeper
from sparkinesis.queue.receiving import Places
from sparkinesis.queue.record import Held, QueueRecord, settle
from sparkinesis.stream.kpl.magic import is_aggregated
from sparkinesis.stream.kpl.objects import make_objects
from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.batch import make_batch
from sparkinesis.worker.dead_letters.targets import FailedRecords, hand_over
from sparkinesis.worker.on_error import DeadLetter, OnError, Retry, last_resort
from sparkinesis.worker.processors.user_calls import UserCalls
from sparkinesis.worker.processors.user_methods import name_of, require_finished
from sparkinesis.worker.reporting.event_log import EventPublisher
from sparkinesis.worker.reporting.failures import Failures, describe, of_another_loop

_TARGET_RETRY = Retry(base=10.0, cap=600.0)
"""When a record is delivered again whose dead-letter target failed."""


class HandlerCall:
    """One call of a handler: the user records for it."""

    __slots__ = ("began_at", "records", "returned", "size")

    def __init__(self, records: list[QueueRecord], size: int) -> None:
        self.records = records
        self.size = size
        """The bytes of data whose memory the call gives back."""
        self.began_at = 0.0
        self.returned: object = None

    @property
    def holds(self) -> Iterable[Held]:
        """The holds of its records, each once."""
        return dict.fromkeys(record._held for record in self.records)


class HandlerSettings(msgspec.Struct, frozen=True):
    """The part of an application that its handlers' calls depend on."""

    application: str
    handler: Callable[..., object]
    batch_size: int | None
    """The most records of a call; None: a call has one record, and not a list."""
    decode: Callable[[bytes], Any] | None
    policy: OnError
    deaggregate: bool = True


class Handling:
    """Calls the handler for the records of receives. For any thread.

    fail: takes the error that stops the application.
    """

    def __init__(
        self,
        settings: HandlerSettings,
        keeper: HoldKeeper,
        places: Places,
        *,
        calls: UserCalls,
        queue: QueueAddress,
        clock: Callable[[], float],
        uniform: Uniform,
        failures: Failures,
        publish: EventPublisher,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._settings = settings
        self._keeper = keeper
        self._places = places
        self._calls = calls
        self._queue = queue.name_or_id
        self._of = (self._queue, str(queue))
        self._clock = clock
        self._uniform = uniform
        self._failures = failures
        self._publish = publish
        self._fail = fail
        self._may_block = isinstance(last_resort(settings.policy), DeadLetter)
        self._left: list[QueueRecord] = []
        """The records to release once no receive is under way."""

    def calls_for(self, received: Sequence[Received], sent_at: float) -> list[HandlerCall]:
        """Take records in hand, and return the calls to make for them."""
        helds = self._keeper.hold(received, sent_at)
        records: list[QueueRecord] = []
        sizes: list[int] = []
        for one, held in zip(received, helds, strict=True):
            found = self._opened(one, held)
            held.parts = len(found)
            records += found
            sizes += [len(one.data), *[0] * (len(found) - 1)]
        self._places.unpacked(len(records) - len(received))
        size = self._settings.batch_size or 1
        return [
            HandlerCall(records[at : at + size], sum(sizes[at : at + size]))
            for at in range(0, len(records), size)
        ]

    def _opened(self, one: Received, held: Held) -> list[QueueRecord]:
        if not (self._settings.deaggregate and is_aggregated(one.data)):
            return [QueueRecord(one, held, self._keeper, one.data, one.partition_key)]

        def make(
            data: bytes,
            key: str | None,
            _number: str,
            sub: int,
            _at: object,
            hash_key: str | None,
            _: str,
        ) -> QueueRecord:
            return QueueRecord(
                one,
                held,
                self._keeper,
                data,
                key,
                explicit_hash_key=hash_key,
                sub_sequence_number=sub,
            )

        made, _ = make_objects([stored(one)], make, "")
        return made or [QueueRecord(one, held, self._keeper, one.data, one.partition_key)]

    # One call

    def run(self, work: HandlerCall) -> None:
        """Make a call in this thread."""
        error: BaseException | None = None
        records = self._begin(work)
        if records:
            try:
                work.returned = self._calls.call(self._settings.handler, self._given(records))
            except BaseException as raised:  # noqa: BLE001 - a user's code may call sys.exit() too
                error = raised
        self._finish(work, records, error)

    def begin(self, work: HandlerCall, then: Callable[[], None]) -> None:
        """Begin a call of a handler that is ``async def``, and call ``then`` once it has ended."""
        records = self._begin(work)
        if not records:
            # In another thread: `then` may begin the next call, of which the same may be true.
            self._calls.run_in_thread(partial(self._finish, work, records, None, then))
            return

        def done(error: BaseException | None) -> None:
            if self._may_block:  # and this is the thread of the event loop
                self._calls.run_in_thread(partial(self._finish, work, records, error, then))
            else:
                self._finish(work, records, error, then)

        async def run(given: object) -> None:
            returned = self._settings.handler(given)
            assert isinstance(returned, Awaitable)
            work.returned = await returned

        cancel = self._calls.begin_task(run(self._given(records)), done)
        for held in work.holds:
            held.on_lost(cancel)

    def _finish(
        self,
        work: HandlerCall,
        records: list[QueueRecord],
        error: BaseException | None,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Settle the records of a call that has ended."""
        handled = 0
        try:
            handled = self._settle(work, records, error)
        except BaseException as unexpected:  # noqa: BLE001 - no thread awaits this one
            self._fail(unexpected)
        seconds = None if not records else self._clock() - work.began_at
        self._places.free(len(work.records), work.size, seconds, handled=handled)
        then()

    def _begin(self, work: HandlerCall) -> list[QueueRecord]:
        """Return the records that the handler is called for: held ones, decoded."""
        work.began_at = self._clock()
        found = []
        for record in work.records:
            held = record._held
            if not record.is_held:
                self._keeper.drop(held)
                continue
            try:
                if self._settings.decode is not None:
                    record.value = self._settings.decode(record.data)
            except Exception as error:  # noqa: BLE001 - a failure of this record
                self._failed(record, error)
            else:
                found.append(record)
        return found

    def _given(self, records: list[QueueRecord]) -> object:
        return records[0] if self._settings.batch_size is None else records

    def _settle(
        self, work: HandlerCall, records: list[QueueRecord], error: BaseException | None
    ) -> int:
        """Decide what becomes of each record; return how many are done."""
        try:
            failed = self._named(work.returned, records) if error is None else set(records)
        except ProcessorError as mistake:
            error, failed = mistake, set(records)
        if isinstance(error, CancelledError) and any(held.is_let_go for held in work.holds):
            # Its handler did not fail: one of its records is no longer ours. The others come again.
            for record in records:
                settle(record, RELEASE)
            return 0
        for record in records:
            if record in failed:
                self._failed(record, error or _NamedError(name_of(self._settings.handler)))
            else:
                settle(record, ACKNOWLEDGE)
        return len(records) - len(failed)

    def _named(self, returned: object, records: list[QueueRecord]) -> set[QueueRecord]:
        """Return the records that a batch handler has named. Raises `ProcessorError`."""
        if returned is None:
            return set()
        require_finished(self._settings.handler, returned)
        if self._settings.batch_size is None or isinstance(returned, str | bytes | dict):
            raise ProcessorError(
                f"{name_of(self._settings.handler)} returned {type(returned).__name__}. A handler "
                "of one record returns nothing, or raises; a handler of a batch may return the "
                "records that failed."
            )
        known = {id(record): record for record in records}
        named = list(returned) if isinstance(returned, Iterable) else [returned]
        if any(id(one) not in known for one in named):
            raise ProcessorError(
                f"{name_of(self._settings.handler)} returned something else than records of its "
                "batch. It may return the records that failed, as they were given to it."
            )
        return {known[id(one)] for one in named}

    # Failures

    def _failed(self, record: QueueRecord, error: BaseException) -> None:
        if record._is_settled or not record.is_held:
            settle(record, RELEASE)
            return
        what = f"the handler failed for record {record.record_id} of {self._queue}"
        self._failures.note(None, what, error)
        mistake = error if isinstance(error, ProcessorError) else of_another_loop(error)
        found = verdict(self._settings.policy, record.receive_count, self._uniform)
        stops = mistake is not None or found.action is BatchAction.STOP
        self._publish(
            HandlerFailed(
                *self._of,
                record.record_id,
                record.receive_count,
                BatchAction.STOP if stops else found.action,
                None if stops else found.settlement.visible_after,
                describe(error),
            ),
            # Once: of a record's deliveries the first, of an error that ends the application its
            # own event has the traceback.
            error if record.receive_count == 1 and not stops else None,
        )
        if stops:
            self._left.append(record)
            self._fail(error)
            return
        settlement = found.settlement
        if found.hand_to is not None:
            settlement = self._hand_over(record, error, found.hand_to.target)
        settle(record, settlement)

    def _hand_over(
        self, record: QueueRecord, error: BaseException, target: Callable[[FailedRecords], None]
    ) -> Settlement:
        received = record._received
        batch, _ = make_batch(
            [stored(received)],
            stream=self._queue,
            shard_id=received.record_id,
            millis_behind_latest=None,
        )
        sub = record.sub_sequence_number
        failed = FailedRecords(
            batch.slice(sub, sub + 1),
            error,
            self._settings.application,
            self._queue,
            received.record_id,
        )
        try:
            hand_over(target, failed)
        except Exception as refusal:  # noqa: BLE001 - a user's target may raise anything
            after = retry_seconds(_TARGET_RETRY, record.receive_count, self._uniform)
            said = describe(refusal)
            self._publish(DeadLetterRefused(*self._of, record.record_id, after, said))
            return Settlement(after)
        self._publish(DeadLetterStored(*self._of, record.record_id))
        return ACKNOWLEDGE

    def give_back(self, works: Iterable[HandlerCall]) -> None:
        """Have the records of calls that have not begun released."""
        for work in works:
            self._left += work.records
            self._places.free(len(work.records), work.size)

    def release_left(self) -> None:
        """Release the records that were given back: no receive is under way any more."""
        while self._left:
            settle(self._left.pop(), RELEASE)


class _NamedError(Exception):
    def __init__(self, handler: str) -> None:
        super().__init__(f"{handler} returned the record as one that failed")


def stored(one: Received) -> Record:
    """Return a record as the stream has it, but for its sequence number, which a queue hides."""
    return Record(
        data=one.data,
        partition_key=one.partition_key,
        sequence_number="0",
        approximate_arrival_timestamp=one.arrived_at,
    )

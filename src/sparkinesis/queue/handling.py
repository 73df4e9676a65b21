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
# - A handler that hangs does not keep the process from ending: calls run in daemon threads.
# - A mistake in the program fails for each record, and the policy would give up all of them. Such
#   an error stops the application, and no record is given up.

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from sparkinesis.errors import ProcessorError
from sparkinesis.events import BatchAction, DeadLetterRefused, DeadLetterStored, HandlerFailed
from sparkinesis.metrics.health.liveness import detach
from sparkinesis.queue.client import Received
from sparkinesis.queue.hold_rules import ACKNOWLEDGE, RELEASE, Settlement, retry_seconds, verdict
from sparkinesis.queue.holds import HoldKeeper
from sparkinesis.queue.receiving import Places
from sparkinesis.queue.record import Held, QueueRecord, settle, stored
from sparkinesis.queue.settings import ReceiverSettings
from sparkinesis.stream.kpl.magic import is_aggregated
from sparkinesis.stream.kpl.objects import make_objects
from sparkinesis.worker.batches.batch import make_batch
from sparkinesis.worker.dead_letters.targets import FailedRecords, hand_over
from sparkinesis.worker.on_error import DeadLetter, OnError, Retry, last_resort
from sparkinesis.worker.processors.user_calls import (
    UserCalls,
    asynchronous,
    name_of,
    require_finished,
)
from sparkinesis.worker.reporting.failures import Failures, describe, of_another_loop

_TARGET_RETRY = Retry(base=10.0, cap=600.0)
"""When a record is delivered again whose dead-letter target failed."""


@dataclass(slots=True, eq=False)
class HandlerCall:
    """One call of a handler: the user records for it."""

    records: list[QueueRecord]
    size: int
    """The bytes of data whose memory the call gives back."""
    began_at: float = 0.0
    returned: object = None

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


class _Turns:
    """Which calls run: some at a time, in the order in which they come. For any thread."""

    def __init__(self, concurrency: int) -> None:
        self._lock = threading.Lock()
        self._free = concurrency
        self._waiting: deque[HandlerCall] = deque()
        self.is_closed = False
        """True to let no call begin any more."""

    def begins(self, call: HandlerCall) -> bool:
        """Return True if a call may begin; else it waits."""
        with self._lock:
            if self.is_closed or not self._free:
                self._waiting.append(call)
                return False
            self._free -= 1
            return True

    def ended(self) -> HandlerCall | None:
        """Note that a call has ended; return the one that has to begin, if one waits."""
        with self._lock:
            if self._waiting and not self.is_closed:
                return self._waiting.popleft()
            self._free += 1
            return None

    def take_back(self) -> list[HandlerCall]:
        """Return the calls that wait, and forget them."""
        with self._lock:
            found = list(self._waiting)
            self._waiting.clear()
        return found


class Handling:
    """Calls the handler for the records of receives. For any thread."""

    def __init__(
        self,
        settings: ReceiverSettings,
        of: HandlerSettings,
        keeper: HoldKeeper,
        places: Places,
        *,
        concurrency: int,
        calls: UserCalls,
    ) -> None:
        self.failures = Failures(settings.timing.wall_clock_ms)
        """The errors of the handler."""
        self._settings = settings
        self._of = of
        self._keeper = keeper
        self._places = places
        self._calls = calls
        self._turns = _Turns(concurrency)
        self._is_async = asynchronous(of.handler) is not None
        self._may_block = isinstance(last_resort(of.policy), DeadLetter)
        self._left: list[QueueRecord] = []
        """The records to release once no receive is under way."""

    def take(self, received: Sequence[Received], sent_at: float) -> None:
        """Take records in hand, and begin calls for them."""
        for call in self.calls_for(received, sent_at):
            if not self._turns.begins(call):
                continue
            if self._is_async:
                self._serve(call)
            else:
                self._calls.run_in_thread(partial(self._run, call))
        if self._turns.is_closed:
            self._give_back()

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
        size = self._of.batch_size or 1
        return [
            HandlerCall(records[at : at + size], sum(sizes[at : at + size]))
            for at in range(0, len(records), size)
        ]

    def _opened(self, one: Received, held: Held) -> list[QueueRecord]:
        if not (self._of.deaggregate and is_aggregated(one.data)):
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

    def _run(self, call: HandlerCall) -> None:
        detach()
        self._serve(call)

    def _serve(self, call: HandlerCall | None) -> None:
        """Make calls in this thread, until none waits; of coroutines begin one."""
        try:
            while call is not None:
                records = self._begin(call)
                if records and self._is_async:
                    self._begin_task(call, records)
                    return
                self._finish(call, records, self._error_of(call, records))
                call = self._turns.ended()
        except BaseException as unexpected:  # noqa: BLE001 - nothing awaits this thread
            self._settings.fail(unexpected, None)

    def _error_of(self, call: HandlerCall, records: list[QueueRecord]) -> BaseException | None:
        """Call the handler, if there is a record for it; return what it raised."""
        try:
            if records:
                call.returned = self._calls.call(self._of.handler, self._given(records))
        except BaseException as error:  # noqa: BLE001 - a user's code may call sys.exit() too
            return error
        return None

    def _begin_task(self, call: HandlerCall, records: list[QueueRecord]) -> None:
        def end(error: BaseException | None) -> None:
            self._finish(call, records, error)
            self._serve(self._turns.ended())

        def done(error: BaseException | None) -> None:
            if self._may_block:  # and this is the thread of the event loop
                self._calls.run_in_thread(partial(end, error))
            else:
                end(error)

        async def run(given: object) -> None:
            returned = self._of.handler(given)
            assert isinstance(returned, Awaitable)
            call.returned = await returned

        cancel = self._calls.begin_task(run(self._given(records)), done)
        for held in call.holds:
            held.on_lost(cancel)

    def _finish(
        self, call: HandlerCall, records: list[QueueRecord], error: BaseException | None
    ) -> None:
        """Settle the records of a call that has ended."""
        handled = 0
        try:
            handled = self._settle(call, records, error)
        except BaseException as unexpected:  # noqa: BLE001 - nothing awaits this thread
            self._settings.fail(unexpected, None)
        seconds = None if not records else self._settings.timing.clock() - call.began_at
        self._places.free(len(call.records), call.size, seconds, handled=handled)

    def _begin(self, call: HandlerCall) -> list[QueueRecord]:
        """Return the records that the handler is called for: held ones, decoded."""
        call.began_at = self._settings.timing.clock()
        found = []
        for record in call.records:
            held = record._held
            if not record.is_held:
                self._keeper.drop(held)
                continue
            try:
                if self._of.decode is not None:
                    record.value = self._of.decode(record.data)
            except BaseException as error:  # noqa: BLE001 - a failure of this record
                self._failed(record, error)
            else:
                found.append(record)
        return found

    def _given(self, records: list[QueueRecord]) -> object:
        return records[0] if self._of.batch_size is None else records

    def _settle(
        self, call: HandlerCall, records: list[QueueRecord], error: BaseException | None
    ) -> int:
        """Decide what becomes of each record; return how many are done."""
        try:
            failed = self._named(call.returned, records) if error is None else set(records)
        except ProcessorError as mistake:
            error, failed = mistake, set(records)
        if isinstance(error, CancelledError) and any(held.is_let_go for held in call.holds):
            # Its handler did not fail: one of its records is no longer ours. The others come again.
            for record in records:
                settle(record, RELEASE)
            return 0
        for record in records:
            if record in failed:
                self._failed(record, error or _NamedError(name_of(self._of.handler)))
            else:
                settle(record, ACKNOWLEDGE)
        return len(records) - len(failed)

    def _named(self, returned: object, records: list[QueueRecord]) -> set[QueueRecord]:
        """Return the records that a batch handler has named. Raises `ProcessorError`."""
        if returned is None:
            return set()
        handler = self._of.handler
        require_finished(handler, returned)
        if self._of.batch_size is None or isinstance(returned, str | bytes | dict):
            raise ProcessorError(
                f"{name_of(handler)} returned {type(returned).__name__}. A handler "
                "of one record returns nothing, or raises; a handler of a batch may return the "
                "records that failed."
            )
        known = {id(record): record for record in records}
        named = list(returned) if isinstance(returned, Iterable) else [returned]
        if any(id(one) not in known for one in named):
            raise ProcessorError(
                f"{name_of(handler)} returned something else than records of its "
                "batch. It may return the records that failed, as they were given to it."
            )
        return {known[id(one)] for one in named}

    # Failures

    def _failed(self, record: QueueRecord, error: BaseException) -> None:
        if record._is_settled or not record.is_held:
            settle(record, RELEASE)
            return
        settings = self._settings
        queue = settings.client.address.name_or_id
        what = f"the handler failed for record {record.record_id} of {queue}"
        self.failures.note(None, what, error)
        mistake = error if isinstance(error, ProcessorError) else of_another_loop(error)
        found = verdict(self._of.policy, record.receive_count, settings.uniform)
        stops = mistake is not None or found.action is BatchAction.STOP
        settings.publish(
            HandlerFailed(
                *settings.of,
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
            settings.fail(error, None)
            return
        settlement = found.settlement
        if found.hand_to is not None:
            settlement = self._hand_over(record, error, found.hand_to.target)
        settle(record, settlement)

    def _hand_over(
        self, record: QueueRecord, error: BaseException, target: Callable[[FailedRecords], None]
    ) -> Settlement:
        settings, received = self._settings, record._received
        queue = settings.client.address.name_or_id
        batch, _ = make_batch(
            [stored(received)], stream=queue, shard_id=received.record_id, millis_behind_latest=None
        )
        sub = record.sub_sequence_number
        one = batch.slice(sub, sub + 1)
        try:
            hand_over(
                target, FailedRecords(one, error, self._of.application, queue, received.record_id)
            )
        except Exception as refusal:  # noqa: BLE001 - a user's target may raise anything
            after = retry_seconds(_TARGET_RETRY, record.receive_count, settings.uniform)
            said = describe(refusal)
            settings.publish(DeadLetterRefused(*settings.of, record.record_id, after, said))
            return Settlement(after)
        settings.publish(DeadLetterStored(*settings.of, record.record_id))
        return ACKNOWLEDGE

    # The end

    def close(self) -> None:
        """Begin no call any more."""
        self._turns.is_closed = True
        self._give_back()

    def _give_back(self) -> None:
        for call in self._turns.take_back():
            self._left += call.records
            self._places.free(len(call.records), call.size)

    def release_left(self) -> None:
        """Release what was given back: no receive is under way any more."""
        while self._left:
            settle(self._left.pop(), RELEASE)


class _NamedError(Exception):
    def __init__(self, handler: str) -> None:
        super().__init__(f"{handler} returned the record as one that failed")

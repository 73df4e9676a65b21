"""The records in hand: extends their holds, and acknowledges or returns them in calls of ten."""

# One thread, `HoldKeeper.run`, decides for all records of a process. It makes no call itself: one
# that hangs would let the other holds expire. Calls run in threads of their own, and put what the
# service said into `_told`.
#
# - A handler that has returned says so, and goes on: its acknowledgement waits a few milliseconds
#   for nine others. What waits here is bounded by `has_room`, which receives ask for.
# - Extensions, acknowledgements and returns have lanes of their own, and receives have threads of
#   their own: an acknowledgement that is throttled does not keep a hold from being extended.
# - A record is returned once its extension is answered. One that reached the service behind the
#   return would hide the record for a whole hold more.
# - A hold that has ended is never acknowledged. The receipt handle is void then, or another process
#   has the record: a success would be counted that is none. After a process was suspended, the
#   clock says so before anything is sent.
# - HTTP 200 says nothing of an entry. Each is looked up in the answer; one that is named neither
#   way is asked again, as long as its hold lasts.

from __future__ import annotations

import heapq
import itertools
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from sparkinesis.events import HoldLost
from sparkinesis.metrics.catalogue import QUEUE_ACKNOWLEDGED, QUEUE_EXTENSIONS, QUEUE_REFUSALS
from sparkinesis.metrics.health.liveness import expect
from sparkinesis.queue.client import Answered, Received
from sparkinesis.queue.hold_rules import RELEASE, Meaning, Settlement, extension_due
from sparkinesis.queue.lanes import Lane, Told
from sparkinesis.queue.record import Held
from sparkinesis.queue.settings import ReceiverSettings
from sparkinesis.worker.processors.user_calls import CallThreads

_TOGETHER = 0.1
"""The part of a visibility timeout by which an extension may come early, to share a call."""
_MOST_GONE = 1_000
"""Settled records whose times may still be known."""
_MOST_SETTLING = 200
"""Records whose handlers have ended that may wait for the service's answer: 20 calls."""


class HoldTerms(NamedTuple):
    """How long records are held."""

    visibility: int
    """Seconds of a hold, and of each extension."""
    extends: bool
    time_limit: float
    """The seconds of the longest hold, extensions included."""


class _Lanes(NamedTuple):
    extend: Lane
    acknowledge: Lane
    give_back: Lane


class _Due:
    """When to look at a hold again: to extend it, or because it ends. Within the keeper's lock."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Held]] = []
        self._numbers = itertools.count()

    @property
    def first(self) -> float:
        """The time of the first look; infinite if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def add(self, held: Held, at: float) -> None:
        heapq.heappush(self._heap, (at, next(self._numbers), held))

    def pop(self, until: float) -> Iterator[Held]:
        while self._heap and self._heap[0][0] <= until:
            yield heapq.heappop(self._heap)[2]

    def forget_gone(self, in_hand: int) -> None:
        """Forget those that are settled, if they are the most.

        They would stay for most of a visibility timeout, which may be 12 hours.
        """
        if len(self._heap) > _MOST_GONE + 2 * in_hand:
            self._heap = [one for one in self._heap if not one[2].is_gone]
            heapq.heapify(self._heap)


class HoldKeeper:
    """Keeps the records in hand of one process. `run` is for one thread, all else for any.

    linger: seconds for which an acknowledgement waits for others.
    """

    def __init__(self, settings: ReceiverSettings, terms: HoldTerms, *, linger: float) -> None:
        calls = settings.client.calls
        self._settings = settings
        self._terms = terms
        self._clock = settings.timing.clock
        self._threads = CallThreads("sparkinesis-queue-calls")
        self._changed = threading.Condition()
        self._due = _Due()
        self._lanes = _Lanes(
            Lane("extend", calls.set_visibility, self._extend, done=QUEUE_EXTENSIONS),
            Lane(
                "acknowledge",
                calls.acknowledge,
                self._acknowledge,
                linger=linger,
                done=QUEUE_ACKNOWLEDGED,
            ),
            Lane("return", calls.set_visibility, self._return, linger=linger),
        )
        self._told: deque[Told] = deque()
        self._held: dict[Held, None] = {}
        """The records in hand."""
        self._settling = 0
        """Those of them whose handlers have ended."""
        self._close_by = math.inf
        """When `run` returns whatever is in hand; infinite: it goes on."""

    # For any thread

    def hold(self, records: Iterable[Received], sent_at: float) -> list[Held]:
        """Take the records of a receive in hand, whose request was sent at ``sent_at``."""
        until, limit = sent_at + self._terms.visibility, sent_at + self._terms.time_limit
        held = [Held(record, until, limit) for record in records]
        with self._changed:
            for one in held:
                self._watch(one, sent_at)
            self._held.update(dict.fromkeys(held))
            self._changed.notify()
        return held

    def is_held(self, held: Held) -> bool:
        """Return True if nobody else can have the record now."""
        return self._clock() < held.until and not (held.is_let_go or held.is_returned)

    def end(self, held: Held, settlement: Settlement) -> None:
        """Note that the handler of one of the record's parts has ended. Returns at once."""
        with self._changed:
            if held.is_gone or held.is_settling:
                return
            held.settlement = _worse(held.settlement, settlement)
            held.parts -= 1
            if not held.parts:
                is_done = held.settlement.visible_after is None
                lane = self._lanes.acknowledge if is_done else self._lanes.give_back
                if self._settle(held, lane):
                    self._changed.notify()

    def drop(self, held: Held) -> None:
        """Forget a record whose hold ended before any handler had it: it comes again."""
        with self._changed:
            if not (held.is_gone or held.is_settling):
                self._lose(held, "waiting")

    @property
    def has_room(self) -> bool:
        """True unless too many ended records wait for the service's answer."""
        return self._settling < _MOST_SETTLING

    @property
    def in_hand(self) -> int:
        """The records in hand, those included that are being acknowledged."""
        return len(self._held)

    @property
    def is_at_work(self) -> bool:
        """True while the service is told of records in hand, or is to be told now."""
        with self._changed:
            is_due = bool(self._told) or self._due.first <= self._clock()
            return is_due or any(lane.is_at_work for lane in self._lanes)

    def close(self, within: float) -> None:
        """Let `run` return once all records in hand are settled or lost, or time is up.

        within: seconds for the calls that are left.
        """
        with self._changed:
            self._close_by = self._clock() + within
            self._changed.notify()

    def release_all(self) -> None:
        """Release all records in hand whose handlers have not ended, and tell these so."""
        with self._changed:
            for held in list(self._held):
                if not held.is_settling:
                    held.settlement = RELEASE
                    self._settle(held, self._lanes.give_back)
                    held.let_go()
            self._changed.notify()

    def look_at_time(self) -> None:
        """Have `run` look at the clock, after a test has moved it."""
        with self._changed:
            self._changed.notify()

    # For the keeper's thread

    def run(self) -> None:
        """Extend and settle until `close`, and until nothing is in hand."""
        while True:
            with self._changed:
                self._hear()
                now = self._clock()
                self._look(now)
                calls = [call for lane in self._lanes for call in self._begin(lane, now)]
                if not calls:
                    if self._is_done(now):
                        return
                    if not self._told:
                        pause = self._pause(now)
                        expect(pause)
                        self._changed.wait(None if pause == math.inf else pause)
                        expect()
            for call in calls:
                try:
                    self._threads.run(call)
                except RuntimeError:  # the operating system permits no thread
                    call()

    @property
    def _is_closing(self) -> bool:
        return self._close_by < math.inf

    def _is_done(self, now: float) -> bool:
        return self._is_closing and (not self._held or now >= self._close_by)

    def _settle(self, held: Held, lane: Lane) -> bool:
        """Have the service told of a record; True if that changes when the next call is due."""
        held.is_settling = True
        self._settling += 1
        if held.is_extending and held.is_returned:
            held.is_extending = not self._lanes.extend.drop(held)
            if held.is_extending:
                return False  # the answer to its extension comes first (`_apply`)
        return lane.add(held, self._clock())

    def _watch(self, held: Held, began_at: float) -> None:
        at = held.until
        if self._terms.extends:
            at = extension_due(began_at, self._terms.visibility, self._settings.uniform)
        self._due.add(held, at)

    def _look(self, now: float) -> None:
        """Extend the holds that are due, and lose those that have ended."""
        if self._due.first > now:
            return
        kept = []
        for held in self._due.pop(now + _TOGETHER * self._terms.visibility):
            if held.is_gone or held.is_extending:
                continue
            if now >= held.until:
                # One whose answer is under way is lost only if that does not come as a success.
                if not held.asked:
                    self._lose(held)
            elif self._terms.extends and held.until < held.let_go_at and not held.is_returned:
                held.is_extending = True
                self._lanes.extend.add(held, now)
            else:
                kept.append(held)
        for held in kept:
            self._due.add(held, held.until)

    def _extend(self, entries: Sequence[Held]) -> Sequence[Answered]:
        longer = [(held.handle, self._terms.visibility) for held in entries]
        return self._settings.client.set_visibility(longer)

    def _acknowledge(self, entries: Sequence[Held]) -> Sequence[Answered]:
        return self._settings.client.acknowledge([held.handle for held in entries])

    def _return(self, entries: Sequence[Held]) -> Sequence[Answered]:
        later = [(held.handle, held.returned_for) for held in entries]
        return self._settings.client.set_visibility(later)

    def _lose(self, held: Held, where: str | None = None) -> None:
        where = where or ("ended" if held.is_settling else "running")
        self._forget(held)
        held.let_go()
        self._settings.publish(HoldLost(*self._settings.of, held.record_id, where))

    def _forget(self, held: Held) -> None:
        held.is_gone = True
        self._held.pop(held, None)
        self._settling -= held.is_settling
        self._due.forget_gone(len(self._held))

    def _begin(self, lane: Lane, now: float) -> Iterator[Callable[[], None]]:
        """Yield the calls of a lane that are due."""
        while entries := lane.take(now, at_once=self._is_closing):
            held = [one for one in entries if now < one.until]
            for one in entries:
                if now >= one.until:
                    self._lose(one)
                elif lane is not self._lanes.extend:
                    one.asked += 1
            if held:
                yield lane.begin(held, self._clock, self._tell)

    def _tell(self, told: Told) -> None:
        with self._changed:
            self._told.append(told)
            self._changed.notify()

    def _hear(self) -> None:
        """Apply what the service said."""
        while self._told:
            told = self._told.popleft()
            lane, codes, now = told.lane, told.codes(), self._clock()
            settings, succeeded = self._settings, len(told.entries) - len(codes)
            lane.end(told, codes, now, settings.uniform)
            for code, count in Counter(codes.values()).items():
                settings.count(QUEUE_REFUSALS, count, lane.name, code)
            if lane.done is not None and succeeded:
                settings.count(lane.done, succeeded)
            if told.is_hopeless:
                assert isinstance(told.answers, BaseException)
                settings.fail(told.answers, lane.operation)
            for held in told.entries:
                means = Meaning.LOST if told.is_hopeless else told.meaning(held, codes)
                self._apply(lane, held, told.sent_at, means, now)

    def _apply(self, lane: Lane, held: Held, sent_at: float, means: Meaning, now: float) -> None:
        is_extension = lane is self._lanes.extend
        if is_extension:
            held.is_extending = False
            if held.asked and means is Meaning.LOST:
                return  # it is settled, or not: that call's own answer says so
        if held.is_gone:
            return
        if is_extension and means is Meaning.DONE:
            held.until = sent_at + self._terms.visibility
            self._watch(held, sent_at)
        if is_extension and held.is_returned and means is not Meaning.LOST:
            self._lanes.give_back.add(held, now)  # it has waited for this answer
        elif means is Meaning.AGAIN and now < held.until:
            held.is_extending = is_extension
            lane.add(held, now)
        elif means is not Meaning.DONE:
            if means is Meaning.LOST and held.asked > 1:
                # An answer was lost before: this record was settled by that call, or is lost.
                self._forget(held)
            else:
                self._lose(held)
        elif not is_extension:
            self._forget(held)

    def _pause(self, now: float) -> float:
        """Return the seconds until there is something to do without a message; may be infinite."""
        due = (lane.due(at_once=self._is_closing) for lane in self._lanes)
        return max(0.0, min(self._due.first, self._close_by, *due) - now)


def _worse(one: Settlement, other: Settlement) -> Settlement:
    """Return that of a whole whose parts have these: all must be done to acknowledge it."""
    if one.visible_after is None or other.visible_after is None:
        return other if one.visible_after is None else one
    return Settlement(max(one.visible_after, other.visible_after))

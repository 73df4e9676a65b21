"""Calls of one kind on records in hand: ten records in a call, and a few calls at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.metrics.metric import Metric
from sparkinesis.queue.client import MOST_ENTRIES, Answered
from sparkinesis.queue.hold_rules import Meaning, Uniform, meaning
from sparkinesis.queue.record import Held
from sparkinesis.stream.calls.retry import error_code, exponential_backoff, is_retryable

_CALLS = 4
"""The most calls of one lane that are under way."""
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.05, 2.0
"""Seconds until the next call of a lane after a failure, which double."""


class Told(NamedTuple):
    """What the service said to one call."""

    lane: Lane
    entries: Sequence[Held]
    sent_at: float
    answers: Sequence[Answered] | BaseException
    """One for each entry; or the error of the whole call."""

    @property
    def is_hopeless(self) -> bool:
        """True if no other call can succeed either."""
        return isinstance(self.answers, BaseException) and not is_retryable(self.answers)

    def codes(self) -> dict[str, str]:
        """Return the error code of each receipt handle that failed."""
        if isinstance(self.answers, BaseException):
            return dict.fromkeys((held.handle for held in self.entries), error_code(self.answers))
        return {one.receipt_handle: one.code for one in self.answers if one.code is not None}

    def meaning(self, held: Held, codes: dict[str, str]) -> Meaning:
        """Return what was said of one record. A call that failed whole may be made again."""
        if isinstance(self.answers, BaseException):
            return Meaning.AGAIN
        return meaning(codes.get(held.handle))


class Lane:
    """Calls of one kind, which wait for each other and for no others. For one lock.

    ask: makes a call for up to ten records. done: counts the records of which it succeeds. linger:
    seconds for which a record waits for others.
    """

    def __init__(
        self,
        name: str,
        operation: str,
        ask: Callable[[Sequence[Held]], Sequence[Answered]],
        *,
        linger: float = 0.0,
        done: Metric | None = None,
    ) -> None:
        self.name = name
        self.operation = operation
        self.done = done
        self._ask = ask
        self._linger = linger
        self._waiting: deque[Held] = deque()
        self._since = 0.0
        """When the first one that waits began to."""
        self._under_way = 0
        self._failures = 0
        self._not_before = float("-inf")

    @property
    def is_at_work(self) -> bool:
        """True while a call is under way, or a record waits for one."""
        return self._under_way > 0 or bool(self._waiting)

    def add(self, held: Held, now: float) -> bool:
        """Have a record told to the service; True if that changes when the next call is due."""
        if not self._waiting:
            self._since = now
        self._waiting.append(held)
        return len(self._waiting) in {1, MOST_ENTRIES}

    def drop(self, held: Held) -> bool:
        """Leave out a record that waits; False if it does not, as in a call under way."""
        is_waiting = held in self._waiting
        if is_waiting:
            self._waiting.remove(held)
        return is_waiting

    def due(self, *, at_once: bool) -> float:
        """Return the time of the next call; infinity if an answer has to come first."""
        if not self._waiting or self._under_way >= _CALLS:
            return float("inf")
        is_full = len(self._waiting) >= MOST_ENTRIES
        return max(self._since + (0.0 if is_full or at_once else self._linger), self._not_before)

    def take(self, now: float, *, at_once: bool) -> list[Held]:
        """Return up to ten records for a call that is due; those that are gone are left out."""
        found: list[Held] = []
        if self.due(at_once=at_once) > now:
            return found
        while self._waiting and len(found) < MOST_ENTRIES:
            held = self._waiting.popleft()
            if not held.is_gone:
                found.append(held)
        self._since = now
        return found

    def begin(
        self, entries: Sequence[Held], clock: Callable[[], float], tell: Callable[[Told], None]
    ) -> Callable[[], None]:
        """Return a call for these records, which ends with what the service said."""
        self._under_way += 1
        return partial(self._call, entries, clock, tell)

    def _call(
        self, entries: Sequence[Held], clock: Callable[[], float], tell: Callable[[Told], None]
    ) -> None:
        sent_at = clock()
        answers: Sequence[Answered] | BaseException
        try:
            answers = self._ask(entries)
        except (ClientError, BotoCoreError) as error:
            answers = error
        except BaseException as error:  # noqa: BLE001 - the keeper ends the application
            answers = error
        tell(Told(self, entries, sent_at, answers))

    def end(self, told: Told, codes: dict[str, str], now: float, uniform: Uniform) -> None:
        """Note the end of a call, and back off if it has to be made again for some."""
        self._under_way -= 1
        if any(told.meaning(held, codes) is Meaning.AGAIN for held in told.entries):
            self._failures += 1
            pause = exponential_backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF, self._failures)
            self._not_before = now + uniform(pause / 2, pause)
        else:
            self._failures = 0

"""What a command has received of a queue: it is held, settled, and the rest released at the end.

Dead letters are chosen by id, partition key, arrival and receives.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.cli.streams.tail import parse_start
from sparkinesis.errors import OptionError, check_all
from sparkinesis.metrics.catalogue import QUEUE_ACKNOWLEDGED
from sparkinesis.metrics.metrics import NoMetrics
from sparkinesis.queue.address import LONGEST_VISIBILITY
from sparkinesis.queue.client import MOST_ENTRIES, QueueClient, Received
from sparkinesis.queue.hold_rules import ACKNOWLEDGE
from sparkinesis.queue.holds import HoldKeeper, HoldTerms
from sparkinesis.queue.settings import ReceiverSettings
from sparkinesis.stream.address import shown
from sparkinesis.stream.calls.retry import RetryLaterError, is_in_doubt
from sparkinesis.stream.position import AtTimestamp
from sparkinesis.stream.timing import Timing
from sparkinesis.terminal.printing import counted, say
from sparkinesis.worker.lifecycle.signals import graceful_on_signals
from sparkinesis.worker.reporting.event_log import WorkerEvents
from sparkinesis.worker.reporting.log_context import LogPlace

if TYPE_CHECKING:
    from sparkinesis.metrics.metric import Metric
    from sparkinesis.metrics.metrics import Labels
    from sparkinesis.queue.client import Received
    from sparkinesis.queue.record import Held


Span: TypeAlias = tuple[float, float]
"""The first value, and the one behind the last."""
EVERY: Span = (-math.inf, math.inf)


@dataclass(frozen=True)
class DeadLetterFilter:
    """The dead letters that are wanted."""

    ids: frozenset[str] = frozenset()
    """Empty: any, and so are the keys."""
    keys: frozenset[str] = frozenset()
    arrived: Span = EVERY
    """Epoch seconds."""
    receives: Span = EVERY
    count: int | None = None
    """The most dead letters; None: all."""

    @property
    def most(self) -> float:
        """The number of dead letters after which no other one can be wanted."""
        return min(self.count or math.inf, len(self.ids) or math.inf)

    @property
    def is_any(self) -> bool:
        """True if each dead letter is wanted, up to a number of them."""
        return self == DeadLetterFilter(count=self.count)

    def takes(self, one: Received) -> bool:
        """Return True if this one is wanted. One without an arrival time is in no span of time."""
        first, behind = self.arrived
        return (
            (not self.ids or one.record_id in self.ids)
            and (not self.keys or one.partition_key in self.keys)
            and self.receives[0] <= one.receive_count < self.receives[1]
            and (
                self.arrived == EVERY
                or (one.arrived_at is not None and first <= one.arrived_at < behind)
            )
        )


def parse_arrival(start: str | None, end: str | None, now_ms: int) -> Span:
    """Read the options ``--from`` and ``--to``: instants or ages. Raises `OptionError`.

    now_ms: the present in epoch ms.
    """
    first = partial(_seconds, "--from", start, EVERY[0], now_ms)
    behind = partial(_seconds, "--to", end, EVERY[1], now_ms)
    check_all([((), first), ((), behind)])
    if first() >= behind():
        raise OptionError("--to is not after --from: nothing arrived between them.")
    return first(), behind()


def _seconds(option: str, text: str | None, default: float, now_ms: int) -> float:
    if text is None:
        return default
    try:
        found = parse_start(text, now_ms)
    except OptionError:
        found = None
    if not isinstance(found, AtTimestamp):
        raise OptionError(
            f"{option} is {shown(text)}; it takes an instant with a time zone, such as "
            "2026-11-21T08:30:00Z, which is not yet to come, or an age such as 10m."
        )
    return found.ms / 1000


VISIBILITY = 120
"""Seconds of a hold. It is extended, also while a question waits for its answer; after a kill -9,
records come again after this time."""
WAIT = 5
"""Seconds that a receive waits for records, and so Ctrl-C for the receive that is under way."""
_PATIENCE = 60.0
"""Seconds without an answer of the service after which the end waits no longer."""
_LOOK_EVERY = 0.02
"""Seconds between two looks whether the thread of the holds has settled some."""
_TELL_EVERY = 5.0
"""Seconds between two lines about the progress."""


class Taken(NamedTuple):
    """A record that was received, and the hold of it."""

    record: Received
    held: Held


class _Settled(NoMetrics):
    """Counts the records that are acknowledged or restored."""

    count = 0

    def add(self, counter: Metric, labels: Labels, amount: float = 1.0) -> None:
        del labels
        self.count += round(amount) * (counter is QUEUE_ACKNOWLEDGED)


class Holding:
    """The records, or dead letters, that a command holds. `stop` is for any thread."""

    def __init__(self, client: QueueClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._timing = Timing(clock=clock)
        self._stopping = threading.Event()
        self._is_hurried = False
        self._failure: tuple[BaseException, str] | None = None
        self._settled = _Settled()
        self._asked = self._received = self._unanswered = self._hidden = 0
        publish = WorkerEvents(LogPlace(client.address.label, "-"), "")
        self._keeper = HoldKeeper(
            ReceiverSettings(
                client, self._timing, random.uniform, self._settled, publish, self._fail
            ),
            HoldTerms(VISIBILITY, extends=True, time_limit=LONGEST_VISIBILITY),
            linger=0.0,
        )
        self._thread = threading.Thread(target=self._keeper.run, name="holds", daemon=True)
        self._tell_at = time.monotonic() + _TELL_EVERY

    @property
    def is_stopping(self) -> bool:
        """True after a signal, or an error after which no call can succeed."""
        return self._stopping.is_set()

    @property
    def settled(self) -> int:
        """The records of which the service has said that they are acknowledged, or restored."""
        return self._settled.count

    def start(self) -> None:
        self._thread.start()

    def stop(self, within: float | None) -> None:
        """Receive and settle no more; ``within`` 0: do not even wait for releases."""
        self._stopping.set()
        if within is None:
            say(f"Stopping: the receive under way ends within {WAIT} s.", to_stderr=True)
        else:
            self._is_hurried = True
            self._keeper.close(within)

    def receive(self, limit: int) -> list[Taken]:
        """Receive up to ten records, as soon as there is one; [] after `WAIT`, or a signal.

        Backs off after throttling. Raises the errors of `QueueClient`.
        """
        attempts = self._client.attempts()
        while not self.is_stopping:
            sent_at = self._timing.clock()
            try:
                found = attempts.call(
                    lambda: self._client.receive(limit, WAIT, VISIBILITY), self._note_doubt
                )
            except RetryLaterError as later:
                self._stopping.wait(later.seconds)
                continue
            except (ClientError, BotoCoreError) as error:
                raise self._client.explained(error, self._client.calls.receive) from None
            self._received += len(found)
            return list(map(Taken, found, self._keeper.hold(found, sent_at)))
        return []

    def matching(self, wanted: DeadLetterFilter) -> Iterator[list[Taken]]:
        """Receive until there is nothing new, and yield what is wanted, each record once.

        The others are held as well, or they would come again and again.
        """
        seen: set[str] = set()
        again: set[str] = set()
        left = wanted.most
        while left:
            most = min(MOST_ENTRIES, left) if wanted.is_any else MOST_ENTRIES
            found = {one.record.record_id: one for one in self.receive(int(most))}
            self._tell(f"{counted(self._received, 'record')} received so far.")
            if found.keys() <= seen:
                # A hold was lost, or there is nothing more: see if others than before come again.
                if found.keys() <= again:
                    return
                again |= found.keys()
                continue
            again.clear()
            new = [one for name, one in found.items() if name not in seen]
            seen |= found.keys()
            chosen = [one for one in new if wanted.takes(one.record)]
            chosen = chosen[: int(min(left, MOST_ENTRIES))]
            left -= len(chosen)
            if chosen:
                yield chosen

    def settle(self, held: Iterable[Held]) -> None:
        """Have records acknowledged or restored: all of them, unless a signal comes."""
        for one in held:
            while self._thread.is_alive() and not (self._keeper.has_room or self.is_stopping):
                self._tell(f"{self.settled:,} are done so far.")
                self._thread.join(_LOOK_EVERY)
            if self.is_stopping:
                return
            self._asked += 1
            self._keeper.end(one, ACKNOWLEDGE)

    def close(self) -> None:
        """Release what is left, and wait until the service has said yes to all."""
        self._keeper.release_all()
        self._tell_at, left = time.monotonic() + _TELL_EVERY, -1
        while self._thread.is_alive():
            if self._keeper.in_hand != left and not self._is_hurried:
                left = self._keeper.in_hand
                self._keeper.close(_PATIENCE)
            self._tell(f"{left:,} are still to be released or settled.")
            self._thread.join(_LOOK_EVERY)
        self._hidden = self._keeper.in_hand

    def problems(self) -> Iterator[str]:
        """Yield what did not go well, as sentences. Raises the error that ended the calls."""
        if self._failure is not None:
            error, operation = self._failure
            if isinstance(error, ClientError | BotoCoreError):
                raise self._client.explained(error, operation)
            raise error
        if self._asked > self.settled:
            yield (
                f"{self._asked - self.settled:,} could not be confirmed: an answer was lost, or a "
                "hold had ended."
            )
        if self._unanswered:
            yield (
                f"{counted(self._unanswered, 'receive')} failed without an answer: what the "
                f"service took for it is hidden for up to {VISIBILITY} s."
            )
        if self._hidden:
            yield f"{self._hidden:,} are not released, and hidden for up to {VISIBILITY} s."

    def _tell(self, line: str) -> None:
        if time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + _TELL_EVERY
            say(line, to_stderr=True)

    def _note_doubt(self, error: ClientError | BotoCoreError) -> None:
        self._unanswered += is_in_doubt(error)

    def _fail(self, error: BaseException, operation: str | None) -> None:
        assert operation is not None, "only calls fail here"
        self._failure = self._failure or (error, operation)
        self._stopping.set()


@contextmanager
def holding(client: QueueClient) -> Iterator[Holding]:
    """Hold what is received within the block; its end, and each error, release what is left.

    A signal ends receives, and the block goes on; a second one does not wait for releases either.
    """
    held = Holding(client)
    with graceful_on_signals(held.stop):
        held.start()
        try:
            yield held
        finally:
            held.close()

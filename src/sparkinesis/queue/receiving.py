"""Receives records by long polls, as many as there are places for."""

# One long poll is under way while there is little to receive: an idle process makes one call in
# ``wait_time``. While polls come back full, further ones run beside it, because a single one has
# the latency of its call for each ten records.
#
# A poll is never broken off, and never made again by a client on its own. The records of an answer
# that is lost are invisible for the whole visibility timeout, and have one delivery more, although
# nobody has seen them. So a shutdown waits for the poll that is under way.

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.events import ReceivingFailed, ReceivingRecovered
from sparkinesis.metrics.catalogue import (
    QUEUE_AGE,
    QUEUE_EMPTY_RECEIVES,
    QUEUE_RECEIVED,
    QUEUE_RECEIVES_FAILED,
    QUEUE_REDELIVERED,
)
from sparkinesis.metrics.health.liveness import expect
from sparkinesis.queue.client import MOST_ENTRIES, Received
from sparkinesis.queue.hold_rules import spare_places
from sparkinesis.queue.settings import ReceiverSettings
from sparkinesis.stream.calls.explain import words
from sparkinesis.stream.calls.retry import (
    error_code,
    exponential_backoff,
    is_in_doubt,
    is_retryable,
)

MOST_POLLS = 8
"""The most receives that are under way at one time."""
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.2, 20.0
"""Seconds until the next receive after a failure, which double."""
_NEW = 0.2
"""The weight of a handler's last call in the mean of all."""
_GATHER = 0.005
"""Seconds for which a receive waits for more places: one call for ten records, not ten calls."""
_UNKNOWN_SIZE = 1_024
"""Bytes of a record, before any was received."""


class Places:
    """Counts the records in hand of one process. For any thread.

    concurrency: the calls of handlers at one time. most: the records that these have at most.
    """

    def __init__(
        self,
        concurrency: int,
        batch_size: int,
        max_bytes: int,
        visibility: int,
        has_room: Callable[[], bool],
    ) -> None:
        self._concurrency = concurrency
        self._most = concurrency * batch_size
        self._max_bytes = max_bytes
        self._visibility = visibility
        self._has_room = has_room
        self._changed = threading.Condition()
        self._taken = 0
        self._awaited = 0
        """Those of them that receives under way may bring records for, of bytes not known yet."""
        self._bytes = 0
        self._mean_size = float(_UNKNOWN_SIZE)
        self._mean_seconds: float | None = None
        """The mean time of a handler's call, for a record."""
        self._is_closed = False
        self.handled = 0
        """The user records whose handlers have returned."""

    @property
    def taken(self) -> int:
        """The records in hand, and those that receives under way may bring."""
        return self._taken

    @property
    def has_free(self) -> bool:
        """True if another receive may begin."""
        with self._changed:
            return self._free() > 0

    def reserve(self) -> int:
        """Wait for free places, and take 1 to 10 of them; 0 once the places are closed."""
        enough = min(MOST_ENTRIES, self._most)
        with self._changed:
            while not self._is_closed:
                if not self._free():
                    # An acknowledgement that comes makes room, too, and wakes nobody here.
                    self._changed.wait(None if self._has_room() else _GATHER)
                    continue
                self._changed.wait_for(lambda: self._is_closed or self._free() >= enough, _GATHER)
                # Another receive may have taken the places meanwhile.
                asked = 0 if self._is_closed else min(MOST_ENTRIES, self._free())
                if asked:
                    self._taken += asked
                    self._awaited += asked
                    return asked
            return 0

    def received(self, asked: int, sizes: list[int]) -> None:
        """Give back the places that a receive did not need; ``sizes``: bytes of each record."""
        with self._changed:
            self._taken += len(sizes) - asked
            self._awaited -= asked
            if sizes:
                total = sum(sizes)
                self._bytes += total
                mean = total / len(sizes)
                # Up at once, down slowly: too much in memory is worse than one call more.
                self._mean_size = max(mean, self._mean_size + _NEW * (mean - self._mean_size))
            if len(sizes) < asked:
                self._changed.notify()

    def unpacked(self, more: int) -> None:
        """Take places for the user records that were found in aggregates beyond one each."""
        with self._changed:
            self._taken += more

    def free(
        self, records: int, size: int, seconds: float | None = None, *, handled: int = 0
    ) -> None:
        """Give back the places of records whose handler's call has ended, after some seconds.

        handled: those of the records that the handler has returned for.
        """
        with self._changed:
            before = self._free()
            self.handled += handled
            self._taken -= records
            self._bytes -= size
            if seconds is not None:
                each = seconds / records
                mean = each if self._mean_seconds is None else self._mean_seconds
                self._mean_seconds = mean + _NEW * (each - mean)
            free = self._free()
            if self._is_closed:
                self._changed.notify_all()
            elif free and (not before or free >= min(MOST_ENTRIES, self._most)):
                self._changed.notify()

    def close(self) -> None:
        """Let nobody wait any more: no records are received."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def wait_until_free(self, seconds: float) -> bool:
        """Wait until no record is in hand, and none may come; False if there is one still."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._taken, seconds)

    def _free(self) -> int:
        """Return how many records may be asked for now. The caller holds the lock."""
        if not self._has_room():
            return 0
        spare = spare_places(self._concurrency, self._mean_seconds, self._visibility)
        by_bytes = int((self._max_bytes - self._bytes) / max(1.0, self._mean_size))
        free = min(self._most + spare - self._taken, by_bytes - self._awaited)
        # A record that is larger than all of the memory is received alone.
        return max(free, 0) if self._taken else max(free, 1)


class Receiving:
    """The long polls of one process. `start`, `stop` and `wait` are for any thread.

    deliver: takes the records of an answer, and the time at which its request was sent. run_thread:
    takes a thread's name, what it runs, and whether it has to go on until the end.
    """

    def __init__(
        self,
        settings: ReceiverSettings,
        places: Places,
        deliver: Callable[[Sequence[Received], float], None],
        run_thread: Callable[[str, Callable[[], None], bool], threading.Thread],
        *,
        wait_time: int,
        visibility: int,
    ) -> None:
        self._settings = settings
        self._places = places
        self._deliver = deliver
        self._run_thread = run_thread
        self._wait_time = wait_time
        self._visibility = visibility
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._wanted = 1
        """The number of polls that may be under way now."""
        self._failing_since: float | None = None
        """When the first receive failed; None: the last one has succeeded."""
        self._threads: dict[int, threading.Thread] = {}

    def start(self) -> None:
        self._begin(0)

    def stop(self) -> None:
        """Begin no more receives; the one that is under way ends by itself."""
        self._stopping.set()
        self._places.close()

    def wait(self, seconds: float) -> bool:
        """Wait until no receive is under way; False if there is one still."""
        threads = list(self._threads.values())
        for thread in threads:
            thread.join(seconds)
        return not any(thread.is_alive() for thread in threads)

    def _begin(self, number: int) -> None:
        # Those beside the first come and go.
        self._threads[number] = self._run_thread(
            f"receive-{number}", lambda: self._poll(number), number == 0
        )

    def _poll(self, number: int) -> None:
        settings, failures = self._settings, 0
        while not self._stopping.is_set():
            with self._lock:
                if number >= self._wanted:
                    del self._threads[number]
                    return
            expect(math.inf)  # handlers take their time
            asked = self._places.reserve()
            if not asked:
                return
            expect(self._wait_time)
            sent_at = settings.timing.clock()
            try:
                records = settings.client.receive(asked, self._wait_time, self._visibility)
            except Exception as error:  # noqa: BLE001 - told to the worker
                self._places.received(asked, [])
                failures += 1
                if not self._may_go_on(error, failures):
                    return
                continue
            failures = 0
            if self._failing_since is not None:
                self._recover()
            self._places.received(asked, [len(record.data) for record in records])
            self._measure(records)
            if records:
                self._deliver(records, sent_at)
            self._adapt(asked, len(records))

    def _may_go_on(self, error: Exception, failures: int) -> bool:
        """Back off after a failed receive; False if no other one can succeed."""
        settings = self._settings
        settings.count(QUEUE_RECEIVES_FAILED, 1, error_code(error))
        if not isinstance(error, ClientError | BotoCoreError) or not is_retryable(error):
            settings.fail(error, settings.client.calls.receive)
            return False
        most = exponential_backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF, failures)
        pause = settings.uniform(most / 2, most)
        with self._lock:
            self._wanted = 1
            is_first = self._failing_since is None
            if is_first:
                self._failing_since = settings.timing.clock()
            if is_first or failures == 10 or failures % 100 == 0:
                said, may_hide = words(error), is_in_doubt(error)
                settings.publish(ReceivingFailed(*settings.of, said, failures, pause, may_hide))
        expect(pause)
        self._stopping.wait(pause)
        return True

    def _recover(self) -> None:
        """Publish that receives succeed again."""
        with self._lock:
            since, self._failing_since = self._failing_since, None
            if since is not None:
                seconds = self._settings.timing.clock() - since
                self._settings.publish(ReceivingRecovered(*self._settings.of, seconds))

    def _adapt(self, asked: int, got: int) -> None:
        """Have one poll more after a full answer, and a single one after any other."""
        with self._lock:
            if got < asked:
                self._wanted = 1
            elif got == MOST_ENTRIES and self._wanted < MOST_POLLS:
                if self._wanted not in self._threads:
                    self._begin(self._wanted)
                self._wanted += 1

    def _measure(self, records: Sequence[Received]) -> None:
        settings = self._settings
        if not records:
            settings.count(QUEUE_EMPTY_RECEIVES, 1)
            return
        settings.count(QUEUE_RECEIVED, len(records))
        again = sum(record.receive_count > 1 for record in records)
        if again:
            settings.count(QUEUE_REDELIVERED, again)
        arrived = [record.arrived_at for record in records if record.arrived_at is not None]
        if arrived:
            age = max(0.0, settings.timing.wall_clock_ms() / 1000 - min(arrived))
            settings.metrics.observe(QUEUE_AGE, (settings.client.address.name_or_id,), age)

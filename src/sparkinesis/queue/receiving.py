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

from sparkinesis.events import Listener, ReceivingFailed, ReceivingRecovered
from sparkinesis.metrics.catalogue import (
    QUEUE_AGE,
    QUEUE_EMPTY_RECEIVES,
    QUEUE_RECEIVED,
    QUEUE_RECEIVES_FAILED,
    QUEUE_REDELIVERED,
)
from sparkinesis.metrics.health.signs import expect
from sparkinesis.metrics.metrics import Metrics
from sparkinesis.queue.client import MOST_ENTRIES, QueueClient, Received
from sparkinesis.queue.hold_rules import Uniform, spare_places
from sparkinesis.stream.calls.explain import words
from sparkinesis.stream.calls.retry import (
    error_code,
    exponential_backoff,
    is_in_doubt,
    is_retryable,
)

FIRST_POLL = "receive-0"
"""The name of the thread of the poll that is always there."""
MOST_POLLS = 8
"""The most receives that are under way at one time."""
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.2, 20.0
"""Seconds until the next receive after a failure, which double."""
_NEW = 0.2
"""The weight of a handler's last call in the mean of all."""
_GATHER = 0.005
"""Seconds for which a receive waits for more places: one call for ten records, not ten calls."""
_LOOK_EVERY = 0.2
"""Seconds between two looks, at a shutdown, whether its time was shortened."""
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

    def wait_until_free(self, seconds_left: Callable[[], float]) -> bool:
        """Wait until no record is in hand; False if there is one when no seconds are left."""
        with self._changed:
            while self._taken:
                left = seconds_left()
                if left <= 0:
                    return False
                # The time may be shortened meanwhile.
                self._changed.wait(min(left, _LOOK_EVERY))
        return True

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

    deliver: takes the records of an answer, and the time at which its request was sent. fail: takes
    an error after which no receive can succeed.
    """

    def __init__(
        self,
        client: QueueClient,
        places: Places,
        deliver: Callable[[Sequence[Received], float], None],
        *,
        wait_time: int,
        visibility: int,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        uniform: Uniform,
        metrics: Metrics,
        publish: Listener,
        fail: Callable[[BaseException, str], None],
        run_thread: Callable[[str, Callable[[], None]], threading.Thread],
    ) -> None:
        self._client = client
        self._places = places
        self._deliver = deliver
        self._wait_time = wait_time
        self._visibility = visibility
        self._clock = clock
        self._wall_clock = wall_clock
        self._uniform = uniform
        self._metrics = metrics
        self._labels = (client.address.name_or_id,)
        self._of = (*self._labels, str(client.address))
        self._publish = publish
        self._fail = fail
        self._run_thread = run_thread
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

    def wait(self, seconds_left: Callable[[], float]) -> bool:
        """Wait until no receive is under way; False if there is one when no seconds are left."""
        for thread in list(self._threads.values()):
            while thread.is_alive():
                left = seconds_left()
                if left <= 0:
                    return False
                thread.join(min(left, _LOOK_EVERY))
        return True

    def _begin(self, number: int) -> None:
        self._threads[number] = self._run_thread(f"receive-{number}", lambda: self._poll(number))

    def _poll(self, number: int) -> None:
        failures = 0
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
            sent_at = self._clock()
            try:
                records = self._client.receive(asked, self._wait_time, self._visibility)
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
        code = error_code(error)
        self._metrics.add(QUEUE_RECEIVES_FAILED, (*self._labels, code))
        if not isinstance(error, ClientError | BotoCoreError) or not is_retryable(error):
            self._fail(error, "ReceiveQueueRecords")
            return False
        most = exponential_backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF, failures)
        pause = self._uniform(most / 2, most)
        with self._lock:
            self._wanted = 1
            is_first = self._failing_since is None
            if is_first:
                self._failing_since = self._clock()
            if is_first or failures == 10 or failures % 100 == 0:
                said = words(error)
                self._publish(ReceivingFailed(*self._of, said, failures, pause, is_in_doubt(error)))
        expect(pause)
        self._stopping.wait(pause)
        return True

    def _recover(self) -> None:
        """Publish that receives succeed again."""
        with self._lock:
            since, self._failing_since = self._failing_since, None
            if since is not None:
                self._publish(ReceivingRecovered(*self._of, self._clock() - since))

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
        if not records:
            self._metrics.add(QUEUE_EMPTY_RECEIVES, self._labels)
            return
        self._metrics.add(QUEUE_RECEIVED, self._labels, len(records))
        again = sum(record.receive_count > 1 for record in records)
        if again:
            self._metrics.add(QUEUE_REDELIVERED, self._labels, again)
        arrived = [record.arrived_at for record in records if record.arrived_at is not None]
        if arrived:
            age = max(0.0, self._wall_clock() - min(arrived))
            self._metrics.observe(QUEUE_AGE, self._labels, age)

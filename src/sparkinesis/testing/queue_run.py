"""A run of an application that consumes a queue: what was delivered, acknowledged and given up."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkinesis.local.model.queue import QueueLook
from sparkinesis.public import public_testing
from sparkinesis.queue.application import QueueApplication
from sparkinesis.queue.client import Received
from sparkinesis.queue.record import QueueRecord
from sparkinesis.status import Failure
from sparkinesis.stream.kpl.unpack import deaggregate
from sparkinesis.stream.page import Record
from sparkinesis.stream.timing import Timing
from sparkinesis.testing.queue_calls import LOOK_EVERY, Journal, Life
from sparkinesis.testing.world import STREAM, Given, quick_queue
from sparkinesis.worker.reporting.failures import merge

if TYPE_CHECKING:
    from typing_extensions import Self

    from sparkinesis.testing.processed import Put
    from sparkinesis.testing.world import World

_OF_A_HOLD = 8
"""The time moves by a part (1/n) of a hold while there are records in hand, which are extended."""


@public_testing
class QueueRun:
    """A worker of an application that consumes a queue, on a `Sandbox`; `Sandbox.queue` makes it.

    The block begins the worker, and shuts it down gracefully. It raises the error that ended the
    worker, if one did.
    """

    def __init__(
        self, world: World, application: QueueApplication, twice: bool, timeout: float
    ) -> None:
        self.streams: Sequence[str] = ()
        """The streams whose records are owed: none, as the queue knows its own."""
        self._world = world
        self._application = quick_queue(application, world.endpoint, STREAM)
        assert self._application.create is not None
        self._stream = self._application.create.stream
        most = self._application.create.max_receive_count
        self._repeats_below = (most or math.inf) if twice else 0
        self._timeout = timeout
        self._journal = Journal()
        self._failures: tuple[Failure, ...] = ()
        """Of the workers that have crashed."""
        self._before: frozenset[object] = frozenset()
        """The calls of the handler that ran when the time was moved."""
        self._life: Life

    def __enter__(self) -> Self:
        self._world.create_stream(self._stream, "on-demand")
        self._start()
        self._world.followers.append(self)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._world.followers.remove(self)
        life, worker = self._life, self._life.worker
        if error is not None or life.has_crashed:
            life.crash()
            worker.shutdown(0)
            self._end_receives(life)
            return
        worker.request_shutdown(self._timeout)
        while not worker.wait(LOOK_EVERY):
            self._world.service.end_receives(life.client.address.arn)
        if not worker.was_graceful:
            raise AssertionError(
                f"The application did not shut down within {self._timeout:g} s: {self._where()}"
            )

    def put(self, records: Iterable[Given], *, until: Callable[[], object] | None = None) -> None:
        """Put records into the stream, and wait as `wait` does."""
        self._world.put(records, self._stream)
        self.wait(until)

    def wait(self, until: Callable[[], object] | None = None) -> None:
        """Wait until a condition holds; None: until nothing is left to do at this time.

        Then each record is acknowledged, is a dead letter, or waits for its time, as after a
        failure or a crash: `Sandbox.advance` moves it.

        Returns also when the worker has ended. Raises the error that ended the worker, and
        AssertionError if the condition does not hold in time.
        """
        self._wait(until or self._rests)

    def crash(self) -> None:
        """Abandon the worker, as by ``kill -9``: nothing is acknowledged or released.

        What it had in hand comes again after the visibility timeout. Calls of the handler at this
        moment go on, without effect on the queue. Another worker receives from now on.
        """
        self._life.crash()
        self.wait()

    def crash_after(self, records: int) -> None:
        """Crash once this worker has handled ``records`` more user records.

        What the call has handled that reaches the number is not acknowledged.
        """
        self._life.crash_after = self._life.began + records

    @property
    def delivered(self) -> list[QueueRecord]:
        """The records of all calls of the handler, in order; one that came again is there again.

        `QueueRecord.receive_count` says which delivery it is.
        """
        with self._journal.lock:
            return list(self._journal.delivered)

    @property
    def acknowledged(self) -> list[bytes]:
        """The data of the user records that were acknowledged, as the service answered."""
        with self._journal.lock:
            return self._data_of(self._journal.acknowledged)

    @property
    def dead_letters(self) -> list[bytes]:
        """The data of the user records that are dead letters of the queue now."""
        ids = self._look().dead
        with self._journal.lock:
            received = {one.record_id: one for one in self._journal.received.values()}
        return self._data_of([received[one] for one in ids])

    @property
    def failures(self) -> tuple[Failure, ...]:
        """What handlers raised, each error once, with a count; of all workers."""
        return merge([self._failures, self._life.worker.failures()])

    # For the sandbox

    def owe(self, put: Put) -> None:
        """Do nothing: see `streams`."""

    def before_time(self) -> float:
        """Return the milliseconds until something happens in the queue, or in hand.

        Or those until just before: a receive that waits begins anew there. A hold counts from when
        its receive was sent, which cannot have been hours ago.
        """
        with self._journal.lock:
            self._before = frozenset(self._life.calls)
        worker, end_ms = self._life.worker, self._look().next_end_ms
        left = math.inf if end_ms is None else end_ms - self._world.clock()
        left = left - 1 if left > 1 else 1
        if worker.in_hand:
            left = min(left, worker.activity.hold * 1000 // _OF_A_HOLD)
        return left

    def look_at_time(self) -> None:
        """Have the worker read its clock, which was moved, and wait for what follows."""
        self._life.worker.look_at_time()
        self._wait(self._rests_but_for_calls)

    # How it is done

    def _start(self) -> None:
        life = Life(self._journal, self._repeats_below)
        application = replace(
            self._application, handler=life.watched(self._application.handler, self._timeout)
        )
        world = self._world
        timing = Timing(
            world.monotonic,
            wall_clock_ms=world.clock,
            new_rng=lambda: random.Random(0),  # noqa: S311 - a test should do the same again
        )
        life.worker = application.worker(timing=timing, client=life.new_client)
        self._life = life
        life.worker.start()

    def _take_over(self) -> None:
        """End what is left of a crashed worker, and start another one."""
        life = self._life
        self._end_receives(life)
        self._failures = self.failures
        life.worker.request_shutdown(0)
        self._start()

    def _end_receives(self, life: Life) -> None:
        """End the calls of a worker: no receive of a dead one may bring a record."""
        while life.calls_under_way:
            self._world.service.end_receives(life.client.address.arn)
            time.sleep(LOOK_EVERY)

    def _wait(self, holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + self._timeout
        while True:
            if self._life.has_crashed:
                self._take_over()
            if self._life.worker.wait(0) or holds():
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"Not within {self._timeout:g} s: {self._where()}")
            time.sleep(LOOK_EVERY)

    def _rests(self, but_for: int = 0) -> bool:
        """Return True if nothing is left to do now, except by handlers of ``but_for`` records."""
        before = self._look()
        worker = self._life.worker.activity
        if worker.taken - before.polled > but_for or worker.is_settling:
            return False
        if before.is_waiting if before.polled else worker.has_free:
            return False  # a receive is to bring records, or to begin
        # Nothing was delivered between the looks: the worker was seen as it is.
        return self._look() == before

    def _rests_but_for_calls(self) -> bool:
        """Return True if the worker waits for calls only that began before the time was moved."""
        with self._journal.lock:
            left = [size for key, size in self._life.calls.items() if key in self._before]
        if len(left) >= self._application.concurrency:
            return not self._life.worker.activity.is_settling
        return self._rests(sum(left))

    def _look(self) -> QueueLook:
        return self._world.service.look_at_queue(self._life.client.address.arn)

    def _data_of(self, received: Iterable[Received]) -> list[bytes]:
        if not self._application.deaggregate:
            return [one.data for one in received]
        records = [Record(data=one.data, sequence_number="0") for one in received]
        data: list[bytes] = deaggregate(records).data.to_pylist()
        return data

    def _where(self) -> str:
        """Return what the run waits for, as text."""
        with self._journal.lock:
            running = sum(self._life.calls.values())
        waiting = "some" if self._look().is_waiting else "no"
        said = [f"handlers have {running} records, and {waiting} others wait in the queue"]
        said += [f"{one.what}: {one.error}" for one in self.failures]
        return "; ".join(said)

"""An application that runs on given records: what it processes, checkpoints, and does again."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkinesis.application import Application
from sparkinesis.events import Event, ShardStarted
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.rows import read_rows
from sparkinesis.public import public_testing
from sparkinesis.status import Failure
from sparkinesis.stream.timing import Timing
from sparkinesis.testing.processed import Progress, Put, WatchedCalls
from sparkinesis.testing.world import Given, quick
from sparkinesis.worker.batches.user_record import UserRecord
from sparkinesis.worker.lifecycle.new_worker import new_worker
from sparkinesis.worker.lifecycle.worker import Worker

if TYPE_CHECKING:
    from typing_extensions import Self

    from sparkinesis.testing.world import World

_LOOK_EVERY = 0.01
"""Seconds between two checks of a condition of the test's own."""


@public_testing
@dataclass(frozen=True)
class Result:
    """What an application did with the records of a test."""

    processed: tuple[UserRecord, ...]
    """The user records of all calls that returned, in this order; one that was delivered again is
    there again."""
    checkpoints: Mapping[str, ExtendedSequenceNumber]
    """The last checkpoint of each shard, by the key of its lease."""
    events: tuple[Event, ...]
    """The events of all workers."""
    failures: tuple[Failure, ...]
    """What record processors raised, each error once; of the last worker."""


@public_testing
class ApplicationRun:
    """A worker of an application on a `Sandbox`, step by step; `Sandbox.run` makes it.

    The block begins the worker, and shuts it down gracefully. It raises the error that ended the
    worker, if one did.
    """

    def __init__(self, world: World, application: Application, timeout: float) -> None:
        self.streams: list[str] = [plan.address.name for plan in application.plans()]
        """The names of the application's streams."""
        self._world = world
        self._application = application
        self._timeout = timeout
        self._progress = Progress()
        self._workers = 0
        self._read: set[str] = set()
        """The shards that a crashed worker read, by the keys of their leases."""
        self._since = 0
        """The number of events before the present worker's."""
        self._worker: Worker
        self._calls: WatchedCalls

    def __enter__(self) -> Self:
        for put in self._world.puts:
            if put.place.stream in self.streams:
                self.owe(put)
        if leases := self._leases():
            self._progress.forget_done(self._checkpoints(leases))
        self._start()
        self._world.followers.append(self)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._world.followers.remove(self)
        if error is not None:
            self._worker.shutdown(0)
            return
        if not self._worker.shutdown(self._timeout) and self._worker.failure is None:
            raise AssertionError(
                f"The application did not shut down within {self._timeout:g} s: {self._where()}"
            )
        self._worker.wait()

    def put(
        self,
        records: Iterable[Given],
        stream: str | None = None,
        *,
        until: Callable[[], object] | None = None,
    ) -> None:
        """Put records, and wait until the application has processed them.

        stream: of several, which one. until: what to wait for instead. Raises as `wait`.
        """
        given = list(records)
        after = self._calls.crash_after
        before = len(given) if after is None else max(0, after - self._calls.began)
        if given[:before] and given[before:]:
            # The other records come after the crash, or a batch could reach beyond it.
            self._world.put(given[:before], stream or self.streams[0])
            self.wait()
            given = given[before:]
        self._world.put(given, stream or self.streams[0])
        self.wait(until)

    def owe(self, put: Put) -> None:
        """Note a record that was put into a stream of the application."""
        self._progress.owe(put)

    def wait(self, until: Callable[[], object] | None = None) -> None:
        """Wait until a condition holds; None: all records are processed, or given up by on_error.

        Returns also when the worker has ended. Raises the error that ended the worker, and
        AssertionError if the condition does not hold in time.
        """
        deadline = time.monotonic() + self._timeout
        progress = self._progress
        while True:
            if self._calls.has_crashed:
                self._take_over()
            if self._worker.wait(0):
                return
            if not self._missing() and self._holds(until):
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"Not within {self._timeout:g} s: {self._where()}")
            with progress.changed:
                progress.changed.wait(_LOOK_EVERY)

    def crash(self) -> None:
        """Abandon the worker, as by ``kill -9``: no lease is released, no method is called.

        Calls at this moment go on, without effect on checkpoints. Another worker takes the leases
        over, as after the failover time. Waits until it has processed what comes again.
        """
        self._calls.crash()
        self.wait()

    def crash_after(self, records: int) -> None:
        """Crash once this worker has processed ``records`` more user records.

        The call that reaches the number is the last one, and nothing of it can be checkpointed.
        """
        self._calls.crash_after = self._calls.began + records

    @property
    def worker(self) -> Worker:
        """The present worker."""
        return self._worker

    @property
    def result(self) -> Result:
        """What the application has done so far."""
        progress = self._progress
        with progress.changed:
            processed, events = tuple(progress.processed), tuple(progress.events)
        return Result(
            processed,
            {lease.key: lease.checkpoint for lease in self._leases()},
            events,
            self._worker.failures(),
        )

    def before_time(self) -> float:
        """Return the most milliseconds by which the time may be moved at once: any."""
        return math.inf

    def look_at_time(self) -> None:
        """Have the worker read its clock, which was moved.

        Waits for the automatic checkpoints that are due, and for a later call of each shard if
        empty batches are delivered too.
        """
        self._worker.look_at_time()
        self.wait(self._rests)
        if not self._application.options.call_even_for_empty_batches:
            return
        shards = [(one.stream, one.shard_id) for one in self._worker.status()]
        calls = self._progress.calls
        # A call may be at work with a page that was fetched before.
        wanted = {shard: calls[shard] + 2 for shard in shards}

        def are_called() -> bool:
            now = {(one.stream, one.shard_id) for one in self._worker.status()}
            return all(calls[shard] >= wanted[shard] for shard in now & wanted.keys())

        self.wait(are_called)

    def _rests(self) -> bool:
        """Return True if the worker does nothing, or waits for a call of the user's."""
        if not self._worker.is_at_work:
            return True
        return any(one.processing_for is not None for one in self._worker.status())

    def _start(self) -> None:
        self._workers += 1
        worker_id = f"worker-{self._workers}"
        world, clock = self._world, self._world.monotonic
        calls = WatchedCalls(
            self._progress,
            lambda: world.lease_tables.crash(worker_id),
            name=self._application.name,
            clock=clock,
        )
        given = self._application.options.on_event

        def on_event(event: Event) -> None:
            if not calls.is_abandoned:
                self._progress.note(event)
                if given is not None:
                    given(event)

        application = quick(self._application, world.endpoint, worker_id, on_event)
        rng = random.Random(0)  # noqa: S311 - a test should do the same again
        timing = Timing(
            clock, wall_clock_ms=world.clock, checkpoint_clock=world.time, new_rng=lambda: rng
        )
        self._calls = calls
        self._worker = new_worker(application, timing=timing, calls=calls)
        self._worker.start()

    def _take_over(self) -> None:
        """End what is left of a crashed worker, and start another one."""
        leases = self._leases()
        with self._progress.changed:
            self._calls.is_abandoned = True
            self._progress.owe_again(self._checkpoints(leases))
            self._read = self._started(0) - {one.key for one in leases if one.is_finished}
            self._since = len(self._progress.events)
        # A call of the user's may hang: it is not awaited.
        threading.Thread(target=self._worker.shutdown, args=(0,), daemon=True).start()
        self._start()

    def _missing(self) -> set[str]:
        """Return the shards that the worker is still to take over, by the keys of their leases."""
        return self._read - self._started(self._since)

    def _started(self, since: int) -> set[str]:
        events = self._progress.events[since:]
        return {event.lease for event in events if isinstance(event, ShardStarted)}

    def _leases(self) -> Sequence[Lease]:
        rows = self._world.lease_tables.rows(self._application.table().name)
        return read_rows(rows).leases

    def _checkpoints(
        self, leases: Iterable[Lease]
    ) -> dict[tuple[str, str], ExtendedSequenceNumber]:
        return {(self._stream_of(one), one.shard_id): one.checkpoint for one in leases}

    def _stream_of(self, lease: Lease) -> str:
        """Return the stream of a lease, whose key names one of several."""
        parts = lease.key.split(":")
        return parts[1] if len(parts) > 1 else self.streams[0]

    def _holds(self, until: Callable[[], object] | None) -> bool:
        if until is not None:
            return bool(until())
        # A checkpoint may follow the last call.
        return self._progress.is_done() and not self._worker.is_at_work

    def _where(self) -> str:
        """Return what the run waits for, as text."""
        said = [f"{self._progress.open_records()} records are not processed"]
        said += [f"{one.what}: {one.error}" for one in self._worker.failures()]
        said += [f"{one.shard_id} is {one.state.value}" for one in self._worker.status()]
        return "; ".join(said)

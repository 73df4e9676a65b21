"""A queue and its receivers in one thread: whole `QueueWorker`s, and all that fails.

Everything in a world follows from its history.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from unittest import mock

from sparkinesis.queue.address import QueueAddress
from sparkinesis.queue.application import QueueApplication
from sparkinesis.queue.client import decode_description
from sparkinesis.queue.options import QueueOptions
from sparkinesis.queue.worker import QueueWorker
from sparkinesis.stream.timing import Timing
from sparkinesis.worker.on_error import DeadLetter, OnError, Retry, Skip, Stop
from tests.simulation.coroutines import loop_of_process
from tests.simulation.counting import Counts
from tests.simulation.kinesis import REGION
from tests.simulation.primitives import installed
from tests.simulation.queues import history as events
from tests.simulation.queues.handler import Journal
from tests.simulation.queues.history import ONE_CALL, Behaviour, Event, History
from tests.simulation.queues.service import Delivery, QueueService, Receive
from tests.simulation.scheduler import Process, Scheduler

_LOOK_AGAIN = 10.0
_RESTART = 5.0
"""Seconds until a receiver is started again that an error has ended."""
_FLUSH = 10.0
"""Seconds for the last calls of a shutdown."""
_LATEST = 21.0
"""Seconds after which a call that was sent takes effect, at most."""
_DOUBT = 60.0
"""Seconds for which a fault may hide records that the receiver has given up."""


@dataclass(eq=False)
class Receiver:
    """One process with a worker."""

    process: Process
    worker: QueueWorker
    visibility: int
    """Seconds of its holds."""
    asked: float | None = None
    """When it was asked to shut down first."""
    ends_by: float = float("inf")
    """When it has to have ended."""
    ended: float | None = None
    failure: BaseException | None = None


@dataclass
class World:
    history: History
    receivers: list[Receiver] = field(default_factory=list)
    faults: dict[Process, list[tuple[float, str, str]]] = field(default_factory=dict)
    """What calls have met, by process: when, the operation, and the kind."""
    naps: list[tuple[Process, float, float]] = field(default_factory=list)
    died: dict[Process, float] = field(default_factory=dict)
    notes: list[tuple[float, str]] = field(default_factory=list)
    settled_after: float | None = None
    """Seconds from the end of all faults until everything was in order."""

    def __post_init__(self) -> None:
        history = self.history
        self.scheduler = scheduler = Scheduler(history.seed, preempt=history.preempt)
        self.journal = Journal(scheduler, behaviour=history.behaviour)
        self.counts = Counts(scheduler)
        self.service = QueueService(
            scheduler,
            self._fault,
            self,
            history.visibility,
            history.max_receives,
            history.keeps,
        )
        self.options = QueueOptions(**history.options)
        self._application = QueueApplication(
            self.service.arn,
            self.journal.handler(
                takes_batch=history.batch_size is not None, is_async=history.is_async
            ),
            concurrency=history.concurrency,
            batch_size=history.batch_size,
            on_error=self._policy(),
            options=self.options,
        )
        self._troubles: list[events.Trouble] = []
        self._started = 0
        self._is_over = False

    def _policy(self) -> OnError:
        policies: dict[str, OnError] = {
            "retry": Retry(base=1.0, cap=8.0),
            "skip": Skip(),
            "dead letter": DeadLetter(self.journal.take_dead),
            "retry, then skip": Retry(attempts=2, base=1.0, then=Skip()),
            "stop": Stop(),
        }
        return policies[self.history.on_error]

    def gives_up(self, count: int) -> bool:
        """True if the policy gives up a record that fails in its n-th delivery."""
        return self.history.on_error == "skip" or (
            self.history.on_error == "retry, then skip" and count >= 2
        )

    def note(self, text: str) -> None:
        self.notes.append((self.scheduler.now, text))

    # --- what happens

    def run(self) -> World:
        """Play the history, wait until everything is in order, and shut the receivers down."""
        with ExitStack() as stack:
            stack.enter_context(installed(self.scheduler))
            stack.enter_context(self._in_place())
            try:
                self._happens()
            finally:
                self.scheduler.end()
        return self

    def _happens(self) -> None:
        scheduler, history = self.scheduler, self.history
        for _ in range(history.receivers):
            self._start()
        for at, event in history.events:
            assert at < history.duration, "nothing happens behind the end of all faults"
            scheduler.at(at, partial(self._happen, event))
        scheduler.run_until(history.duration)
        self._end_of_faults()
        deadline = scheduler.now + history.patience
        while self.settled_after is None and scheduler.now < deadline:
            scheduler.run_until(scheduler.now + _LOOK_AGAIN)
            if self.service.is_empty and all(run.is_over for run in self.journal.runs):
                self.settled_after = scheduler.now - history.duration
        self._is_over = True
        self.dead_letters = self.service.dead_letters()
        for receiver in self.receivers:
            self._shut_down(receiver, None)
        scheduler.run_until(scheduler.now + 120.0)

    def _happen(self, event: Event) -> None:
        self.note(f"--- {event}")
        match event:
            case events.Put():
                self.service.put(event.count, is_packed=event.is_packed, size=event.size)
            case events.Start():
                self._start()
            case events.Trouble():
                self._troubles.append(event)
                ends = self.scheduler.now + event.seconds
                self.scheduler.at(ends, partial(self._end_trouble, event))
            case events.Timeout():
                self.service.change_timeout(event.seconds)
            case _:
                living = [one for one in self.receivers if one.process.is_alive]
                if not living:
                    return
                receiver = living[event.receiver % len(living)]
                match event:
                    case events.Kill():
                        self._kill(receiver.process)
                    case events.Sleep():
                        self._sleep(receiver, event.seconds)
                    case events.Shutdown():
                        self._shut_down(receiver, event.timeout)

    def _kill(self, process: Process) -> None:
        self.died[process] = self.scheduler.now
        process.kill()

    def _sleep(self, receiver: Receiver, seconds: float) -> None:
        process, now = receiver.process, self.scheduler.now
        if process.is_paused:
            return
        process.pause()
        self.naps.append((process, now, now + seconds))
        receiver.ends_by += seconds
        self.scheduler.at(now + seconds, partial(self._wake, process))

    def _wake(self, process: Process) -> None:
        if process.is_paused:
            self.journal.woke[process] = self.scheduler.now
            process.resume()

    def _shut_down(self, receiver: Receiver, timeout: float | None) -> None:
        process, now = receiver.process, self.scheduler.now
        if not process.is_alive:
            return
        options = self.options
        if receiver.asked is None:
            receiver.asked = now
        within = options.wait_time + options.shutdown_timeout if timeout is None else timeout
        slept = sum(end - now for who, _, end in self.naps if who is process and end > now)
        receiver.ends_by = min(receiver.ends_by, now + slept + within + _FLUSH + 0.5)
        request = partial(receiver.worker.request_shutdown, timeout)
        self.scheduler.spawn(process, "signal", request)

    def _end_trouble(self, event: events.Trouble) -> None:
        if event in self._troubles:
            self._troubles.remove(event)

    def _end_of_faults(self) -> None:
        self.note("--- no faults from now on")
        self._troubles.clear()
        self.journal.behaviour = Behaviour(poison=self.history.behaviour.poison)
        for receiver in self.receivers:
            self._wake(receiver.process)
        if not any(one.process.is_alive and one.asked is None for one in self.receivers):
            self._start()

    # --- receivers

    def _start(self) -> None:
        if self._is_over:
            return
        self._started += 1
        process = self.scheduler.process(f"receiver {self._started}")
        self.scheduler.spawn(process, "main", partial(self._main, process))

    def _main(self, process: Process) -> None:
        """A process' program: what `QueueApplication.run` does, without signals."""
        scheduler = self.scheduler
        ahead_ms = scheduler.rng.choice((0, 0, -7_200_000, 90_000))
        timing = Timing(
            clock=process.monotonic,
            sleep=scheduler.sleep,
            wall_clock_ms=lambda: self.service.now_ms() + ahead_ms,
            new_rng=lambda: random.Random(scheduler.rng.getrandbits(64)),
        )
        worker = self._application.worker(timing=timing)
        receiver = Receiver(process, worker, worker._visibility)
        self.receivers.append(receiver)
        worker.start()
        try:
            while not worker.wait(60.0):
                pass
        except Exception as error:  # noqa: BLE001 - the invariants judge it
            receiver.failure = error
        receiver.ended = scheduler.now
        self.note(f"{process} has ended: {receiver.failure!r}")
        self._look_what_is_left(receiver)
        self._kill(process)  # handlers that run end with it
        if receiver.failure is not None:
            scheduler.at(scheduler.now + _RESTART, self._start)

    def _look_what_is_left(self, receiver: Receiver) -> None:
        """Note the records that are hidden by a receiver which has ended, and why they may be."""
        process, now = receiver.process, self.scheduler.now
        # A record that was lost in a fault stays hidden for the rest of the service's hold.
        since = (now if receiver.asked is None else receiver.asked) - _DOUBT
        if self.met_faults(process, since, now) or self.slept(process, since, now):
            return
        for delivery in self.in_hand_of(process):
            runs = self.journal.of_handle[delivery.handle].values()
            if self._is_hidden(delivery) and all(run.ended is not None for run in runs):
                self.journal.wrong.append(
                    f"shutdown_is_bounded: {process} has ended at {now:.3f}, and left "
                    f"{delivery.names} hidden, which no handler had any more"
                )

    def in_hand_of(self, process: Process) -> Iterator[Delivery]:
        for delivery in self.service.deliveries.values():
            if delivery.receive.process is process and delivery.arrived is not None:
                yield delivery

    def _is_hidden(self, delivery: Delivery) -> bool:
        """Whether a record is hidden by a receiver that has no reason to let it go."""
        now = self.scheduler.now
        return (
            delivery.end is None
            and delivery.until > now + 1.0
            and delivery.receive.sent + self.options.time_limit > now + 1.0
            and not any(map(self.service.has_expired, delivery.names))
        )

    def met_faults(self, process: Process, since: float, until: float) -> bool:
        return any(since <= at <= until for at, _, _ in self.faults.get(process, ()))

    def is_in_doubt(self, process: Process, since: float, until: float) -> bool:
        """Whether the queue and the process may not agree on holds, as extensions met faults."""
        return any(
            since - _LATEST <= at <= until and operation == "UpdateQueueRecordsVisibility"
            for at, operation, _ in self.faults.get(process, ())
        )

    def slept(self, process: Process, since: float, until: float) -> bool:
        return any(
            one is process and begin <= until and since <= end for one, begin, end in self.naps
        )

    # --- in place of a machine, and of the network

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        description = decode_description(self.service.described())
        address = QueueAddress(self.service.arn, description.name, REGION)
        replacements: dict[str, object] = {
            "sparkinesis.stream.calls.caller.call_client": lambda _: self.service,
            "sparkinesis.queue.finding.Queues.find": lambda *_, **__: (
                address,
                decode_description(self.service.described()),
            ),
            "sparkinesis.queue.application.metrics_of": self.counts.open,
            "sparkinesis.worker.processors.event_loop.loop_of_process": partial(
                loop_of_process, self.scheduler
            ),
        }
        with ExitStack() as stack:
            for name, replacement in replacements.items():
                stack.enter_context(mock.patch(name, replacement))
            yield

    def _fault(self, operation: str, process: Process, is_within: bool) -> str | None:
        for trouble in self._troubles:
            if (trouble.kind in ONE_CALL) != is_within:
                continue
            if trouble.operation not in {None, operation}:
                continue
            if self.scheduler.rng.random() < trouble.rate:
                kind = trouble.kind
                met = self.faults.setdefault(process, [])
                met.append((self.scheduler.now, operation, kind))
                return kind
        return None

    # --- `Watch`

    def receives(self, receive: Receive) -> None:
        """Compare the records in hand, and those that may come, with the places there are."""
        process, now, history = receive.process, self.scheduler.now, self.history
        taken = receive.limit
        taken += sum(
            one.limit for one in self.service.receives if one.process is process and not one.is_over
        )
        ended: list[float] = []
        in_doubt = self.is_in_doubt(process, now, now) or self.slept(process, now - _DOUBT, now)
        for delivery in self.in_hand_of(process):
            runs = self.journal.of_handle[delivery.handle]
            ended += [one.ended - one.began for one in runs.values() if one.ended is not None]
            if delivery.arrived == now:
                taken += not in_doubt  # it is being taken in hand
                continue
            is_waiting = self._is_hidden(delivery) and not in_doubt
            for sub in range(len(delivery.names)):
                run = runs.get(sub)
                if run is None:
                    taken += is_waiting
                elif run.ended is None:
                    # A coroutine is cancelled at the end of its hold, and ends a little later.
                    taken += not history.is_async or run.record.is_held
        size = history.batch_size or 1
        each = min(1.0, self._receiver_of(process).visibility / 10) * history.concurrency / 10
        longest = each * size
        spare = 10 if any(seconds <= longest for seconds in ended) else 0
        places = history.concurrency * size + spare
        if taken > max(places, 1):
            self.journal.wrong.append(
                f"no_receive_without_room: {process} has, or has asked for, {taken} records at "
                f"{now:.3f}, with {places} places"
            )

    def _receiver_of(self, process: Process) -> Receiver:
        return next(one for one in self.receivers if one.process is process)

    def acknowledges(self, delivery: Delivery) -> None:
        runs = self.journal.of_handle[delivery.handle]
        process, now = delivery.receive.process, self.scheduler.now
        ended = [process.monotonic() - run.record._held.until for run in runs.values()]
        if ended and ended[0] > 0.5 and not self.slept(process, now - ended[0] - 1.0, now):
            self.journal.wrong.append(
                f"acknowledged_in_time: {process} acknowledges {delivery.names} at {now:.3f}, "
                f"{ended[0]:.1f} s after the hold has ended"
            )
        for sub, name in enumerate(delivery.names):
            run = runs.get(sub)
            outcome = "waiting" if run is None else run.by_hand or run.outcome
            if outcome in {"done", "ack"} or name in self.journal.dead:
                continue
            if outcome == "failed" and self.gives_up(delivery.count):
                continue
            self.journal.wrong.append(
                f"acknowledged_after_handling: {delivery.receive.process} acknowledges "
                f"{delivery.names} at {self.scheduler.now:.3f}, and {name} is {outcome}"
            )

    def delivers(self, delivery: Delivery) -> None:
        for run in self.journal.of_record[delivery.record_id]:
            if not run.is_over and run.by_hand != "ack" and run.record.is_held:
                self.journal.wrong.append(
                    f"one_at_a_time: {run.name} is delivered at {self.scheduler.now:.3f} to "
                    f"{delivery.receive.process}, and {run.process} takes it for held"
                )

    def returns(self, delivery: Delivery) -> None:
        if delivery.extensions:
            self.journal.wrong.append(
                f"returned_in_order: {delivery.receive.process} returns {delivery.names} at "
                f"{self.scheduler.now:.3f}, while an extension is under way, which may outlast that"
            )

    def is_being_returned(self, delivery: Delivery, seconds: int) -> bool:
        runs = self.journal.of_handle[delivery.handle].values()
        if any(run.ended is None and run.by_hand is None for run in runs):
            return False
        if len(runs) < len(delivery.names):  # given back, if no handler is to begin the others
            receiver = self._receiver_of(delivery.receive.process)
            return seconds != receiver.visibility or receiver.asked is not None
        return any((run.by_hand or run.outcome) not in {"ack", "done"} for run in runs)

"""`QueueWorker`: receives, handles and acknowledges a queue's records, in threads of its own."""

# The order of a shutdown: no new receive; the one that is under way ends (``wait_time``); what no
# handler has begun is released; running handlers have ``shutdown_timeout``, and those that are left
# then are told; everything is acknowledged or released, within `FLUSH_WITHIN`; then the end. A
# release is a delivery that counts, so few records wait in hand (`spare_places`).

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import SparkinesisError
from sparkinesis.events import WorkerFailed
from sparkinesis.metrics.catalogue import QUEUE_IN_HAND
from sparkinesis.metrics.health.liveness import CHECK_EVERY, Liveness, Part
from sparkinesis.metrics.health.signs import SignOfLife
from sparkinesis.metrics.metrics import Metrics, Sample
from sparkinesis.public import public_queue
from sparkinesis.queue.client import QueueClient, Received
from sparkinesis.queue.handling import HandlerCall, HandlerSettings, Handling
from sparkinesis.queue.hold_rules import poll_seconds
from sparkinesis.queue.holds import HoldKeeper, HoldTerms
from sparkinesis.queue.options import QueueOptions
from sparkinesis.queue.receiving import FIRST_POLL, Places, Receiving
from sparkinesis.queue.runners import Runner, TaskRunner, ThreadRunner
from sparkinesis.status import Failure
from sparkinesis.stream.timing import Timing
from sparkinesis.worker.processors.user_calls import UserCalls
from sparkinesis.worker.processors.user_methods import asynchronous
from sparkinesis.worker.reporting.event_log import WorkerEvents
from sparkinesis.worker.reporting.failures import Failures, describe
from sparkinesis.worker.reporting.log_context import LogPlace

if TYPE_CHECKING:
    from sparkinesis.metrics.health.pages import HealthServer, ServedTally

_log = logging.getLogger(__name__)

FLUSH_WITHIN = 10.0
"""Seconds for the last acknowledgements of a shutdown."""


class Activity(NamedTuple):
    """What a worker does at one moment."""

    taken: int
    """The records that handlers have or that wait for them, and those that receives may bring."""
    has_free: bool
    """True if another receive may begin."""
    is_settling: bool
    """True while the service is told of records in hand, or is to be told now."""
    hold: int
    """The seconds of a hold."""


class _Ending:
    """The end of a worker: requested, forced or not, and why. For any thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.requested = threading.Event()
        self.ended = threading.Event()
        self.failure: BaseException | None = None
        self.is_forced = False
        self._clock = clock
        self._lock = threading.Lock()
        self._by = float("inf")

    def fail(self, error: BaseException) -> bool:
        """Note the error that ends the worker; False if another one came before."""
        with self._lock:
            is_first = self.failure is None
            if is_first:
                self.failure = error
        return is_first

    def set(self, within: float) -> None:
        """Force the end in ``within`` seconds, unless it is forced before."""
        with self._lock:
            self._by = min(self._by, self._clock() + within)

    def seconds_left(self) -> float:
        """Return the seconds until the end is forced; another request may shorten them."""
        return self._by - self._clock()


@public_queue
class QueueWorker:
    """One receiver of a queue, with the handlers of one process. Made by `QueueApplication.worker`.

    All methods are for any thread.
    """

    def __init__(
        self,
        client: QueueClient,
        settings: HandlerSettings,
        options: QueueOptions,
        *,
        worker_id: str,
        visibility: int,
        concurrency: int,
        timing: Timing,
        calls: UserCalls,
        metrics: Metrics,
        look_every: float = CHECK_EVERY,
    ) -> None:
        self.log_place: LogPlace = LogPlace(settings.application, worker_id)
        """Names the application and the worker in the log lines of the worker's threads."""
        self._client = client
        self._options = options
        self._clock = timing.clock
        self._metrics = metrics
        self._publish = WorkerEvents(self.log_place, "", metrics, options.on_event)
        self._failures = Failures(timing.wall_clock_ms)
        self._visibility = visibility
        self._ending = _Ending(timing.clock)
        self._main: threading.Thread | None = None
        self._http: HealthServer | None = None
        self._signs: dict[str, tuple[threading.Thread, SignOfLife]] = {}
        uniform = timing.new_rng().uniform
        name = client.address.name_or_id
        self._keeper = HoldKeeper(
            client,
            terms=HoldTerms(visibility, options.extend, options.time_limit),
            linger=options.acknowledge_within,
            clock=timing.clock,
            uniform=uniform,
            metrics=metrics,
            publish=self._publish,
            fail=self._fail,
        )
        places = Places(
            concurrency,
            settings.batch_size or 1,
            options.max_held_bytes,
            visibility,
            lambda: self._keeper.has_room,
        )
        self._handling = Handling(
            settings,
            self._keeper,
            places,
            calls=calls,
            queue=client.address,
            clock=timing.clock,
            uniform=uniform,
            failures=self._failures,
            publish=self._publish,
            fail=self._fail,
        )
        self._runner: Runner[HandlerCall] = (
            ThreadRunner(self._handling.run, concurrency, self._thread)
            if asynchronous(settings.handler) is None
            else TaskRunner(self._handling.begin, concurrency)
        )
        self._places = places
        self._receiving = Receiving(
            client,
            places,
            self._deliver,
            wait_time=poll_seconds(options.wait_time, visibility),
            # As the queue had it at the start: if that is changed meanwhile, holds keep their time.
            visibility=visibility,
            clock=timing.clock,
            wall_clock=lambda: timing.wall_clock_ms() / 1000,
            uniform=uniform,
            metrics=metrics,
            publish=self._publish,
            fail=self._fail,
            run_thread=self._poll_thread,
        )
        self._live = Liveness(self._parts, timing.clock, look_every)
        metrics.watch(lambda: [Sample(QUEUE_IN_HAND, (name,), self._keeper.in_hand)])

    def start(self) -> QueueWorker:
        """Start the threads. Raises RuntimeError if the worker was started before."""
        if self._main is not None:
            raise RuntimeError("A worker can be started only once. Make another worker.")
        _log.info(
            "Receiving from %s: up to %d s a receive, holds of %d s.%s",
            self._client.address,
            self._options.wait_time,
            self._visibility,
            "" if self._http is None else f" It serves health at {self._http.url}.",
        )
        self._watched_thread("holds", self._keeper.run)
        self._main = self._thread("queue", self._run)
        return self

    def request_shutdown(self, timeout: float | None = None) -> None:
        """Begin a graceful shutdown, and return at once. See `shutdown`."""
        within = self._options.shutdown_timeout if timeout is None else timeout
        self._ending.set(within + (self._options.wait_time if timeout is None else 0.0))
        # Here, and not in the worker's thread: a handler that ends now would have a receive begin.
        self._receiving.stop()
        self._ending.requested.set()

    def shutdown(self, timeout: float | None = None) -> bool:
        """Shut down gracefully, and wait until the worker has ended.

        No receive begins; the one that is under way ends within ``wait_time``. Records that no
        handler has begun are released; running handlers finish. All that is done is acknowledged.

        timeout: seconds for the receive that is under way and for running handlers; None: the
        options ``wait_time`` and ``shutdown_timeout``. Records of handlers that still run then are
        released, and `QueueRecord.is_held` tells these so.

        Returns True if all handlers had finished in time.
        """
        self.request_shutdown(timeout)
        if self._main is None:
            self._end()
        self._ending.ended.wait()
        return self.was_graceful

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the worker has ended, at most ``timeout`` seconds; returns True if it has.

        Raises the error that ended the worker, if one did.
        """
        ended = self._ending.ended.wait(timeout)
        if ended and self.failure is not None:
            raise self.failure
        return ended

    @property
    def is_shutting_down(self) -> bool:
        """True once a shutdown was requested, or the worker has failed."""
        return self._ending.requested.is_set()

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the worker, or is ending it."""
        return self._ending.failure

    @property
    def was_graceful(self) -> bool:
        """True unless a shutdown was forced."""
        return not self._ending.is_forced

    @property
    def in_hand(self) -> int:
        """The records in hand: received, and neither acknowledged nor returned."""
        return self._keeper.in_hand

    @property
    def activity(self) -> Activity:
        """What the worker does now, for a test that waits until it rests."""
        # In this order: a handler that has ended first says what becomes of its records.
        taken = self._places.taken
        return Activity(taken, self._places.has_free, self._keeper.is_at_work, self._visibility)

    def records_total(self) -> int:
        """Return the number of user records handled since the start."""
        return self._places.handled

    def failures(self) -> tuple[Failure, ...]:
        """Return the errors of handlers, in order of the last occurrence; the last 50 kinds."""
        return self._failures.snapshot()

    def why_not_live(self) -> tuple[str, ...]:
        """Return which threads of the worker stand still or have died; () if all go on."""
        return self._live.problems()

    def why_not_ready(self) -> tuple[str, ...]:
        """Return why the worker is not ready; () if it is."""
        return ("the worker is shutting down",) if self.is_shutting_down else ()

    def serve(self, served: ServedTally) -> None:
        """Serve health and metrics by HTTP until the worker ends."""
        from sparkinesis.metrics.health.pages import pages  # noqa: PLC0415 - imports http.server

        place = self.log_place
        labels = {"application": place.application, "worker": place.worker}
        self._http = served.server
        served.server.serve(
            pages(
                live=self.why_not_live,
                ready=self.why_not_ready,
                status=self._status,
                groups=lambda: [(labels, served.series())],
            ),
            self._live.check,
        )

    def _status(self) -> dict[str, object]:
        return {
            "application": self.log_place.application,
            "worker": self.log_place.worker,
            "queue": self._client.address.arn,
            "is_shutting_down": self.is_shutting_down,
            "not_live": self.why_not_live(),
            "not_ready": self.why_not_ready(),
            "records": self.records_total(),
            "in_hand": self.in_hand,
            "failures": self.failures(),
        }

    @property
    def http_url(self) -> str | None:
        """The URL under which the worker serves health and metrics, with the option ``http``.

        None without the option, and once the worker has ended.
        """
        return None if self._http is None or self._ending.ended.is_set() else self._http.url

    def look_at_health(self) -> None:
        """Note which threads are late, for `why_not_live` without an HTTP server."""
        self._live.check()

    def look_at_time(self) -> None:
        """Have the worker look at the clock of its ``timing``, after a test has moved it."""
        self._keeper.look_at_time()

    # The worker's own threads

    def _run(self) -> None:
        self._receiving.start()
        self._ending.requested.wait()
        try:
            self._shut_down()
        finally:
            self._end()

    def _shut_down(self) -> None:
        self._handling.give_back(self._runner.take_back())
        ending = self._ending
        ending.is_forced |= not self._receiving.wait(ending.seconds_left)
        self._handling.release_left()
        if not self._places.wait_until_free(ending.seconds_left):
            ending.is_forced = True
            self._keeper.release_all()
        self._handling.release_left()
        self._keeper.close(FLUSH_WITHIN)
        thread, _ = self._signs["holds"]
        thread.join()

    def _deliver(self, received: Sequence[Received], sent_at: float) -> None:
        works = self._handling.calls_for(received, sent_at)
        self._handling.give_back(work for work in works if not self._runner.give(work))

    def _fail(self, error: BaseException, operation: str | None = None) -> None:
        """Shut down, and raise the first error that came in the end."""
        if isinstance(error, ClientError | BotoCoreError) and operation is not None:
            error = self._client.explained(error, operation)
        if self._ending.fail(error):
            text = str(error) if isinstance(error, SparkinesisError) else describe(error)
            raised = error if error.__traceback__ is not None else None
            self._publish(WorkerFailed(self.log_place.worker, text), raised)
        self.request_shutdown()

    def _end(self) -> None:
        self._publish.close()
        self._metrics.close()
        self._ending.ended.set()

    def _thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                run()
            except BaseException as error:  # noqa: BLE001 - nothing awaits this thread
                self._fail(error)

        thread = threading.Thread(
            target=self.log_place.run,
            args=(guarded,),
            name=f"{self.log_place.application}-{name}",
            daemon=True,
        )
        thread.start()
        return thread

    def _watched_thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        sign = SignOfLife(self._clock)
        thread = self._thread(name, lambda: sign.during(run))
        self._signs[name] = thread, sign
        return thread

    def _poll_thread(self, name: str, run: Callable[[], None]) -> threading.Thread:
        """Run a poll. Those beside the first come and go."""
        return (self._watched_thread if name == FIRST_POLL else self._thread)(name, run)

    def _parts(self) -> list[Part]:
        return [
            Part(f"the thread {name!r}", sign.due, is_dead)
            for name, (thread, sign) in list(self._signs.items())
            if not (is_dead := not thread.is_alive()) or not self._ending.requested.is_set()
        ]

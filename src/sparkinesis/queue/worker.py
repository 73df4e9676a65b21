"""`QueueWorker`: receives, handles and acknowledges a queue's records, in threads of its own."""

# The order of a shutdown: no new receive; the one that is under way ends (``wait_time``); what no
# handler has begun is released; running handlers have ``shutdown_timeout``, and those that are left
# then are told; everything is acknowledged or released, within `FLUSH_WITHIN`; then the end. A
# release is a delivery that counts, so few records wait in hand (`spare_places`).

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import SparkinesisError
from sparkinesis.events import WorkerFailed
from sparkinesis.metrics.catalogue import QUEUE_IN_HAND
from sparkinesis.metrics.health.liveness import CHECK_EVERY, Liveness, SignOfLife, expect
from sparkinesis.metrics.metrics import Metrics, Sample
from sparkinesis.public import public_queue
from sparkinesis.queue.client import QueueClient
from sparkinesis.queue.handling import HandlerSettings, Handling
from sparkinesis.queue.hold_rules import poll_seconds
from sparkinesis.queue.holds import HoldKeeper, HoldTerms
from sparkinesis.queue.options import QueueOptions
from sparkinesis.queue.receiving import Places, Receiving
from sparkinesis.queue.settings import ReceiverSettings
from sparkinesis.status import Failure
from sparkinesis.stream.timing import Timing
from sparkinesis.worker.processors.user_calls import UserCalls
from sparkinesis.worker.reporting.event_log import WorkerEvents
from sparkinesis.worker.reporting.failures import describe
from sparkinesis.worker.reporting.health import WorkerParts
from sparkinesis.worker.reporting.log_context import LogPlace

if TYPE_CHECKING:
    from sparkinesis.metrics.health.pages import HealthServer, ServedTally

_log = logging.getLogger(__name__)

FLUSH_WITHIN = 10.0
"""Seconds for the last acknowledgements of a shutdown."""
_LOOK_EVERY = 0.2
"""Seconds between two looks, at a shutdown, whether its time was shortened."""


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
        self._by = math.inf

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
        self._settings = shared = ReceiverSettings(
            client,
            timing,
            timing.new_rng().uniform,
            metrics,
            WorkerEvents(self.log_place, "", metrics, options.on_event),
            self._fail,
        )
        self._options = options
        # As the queue had it at the start: if that is changed meanwhile, holds keep their time.
        self._visibility = visibility
        self._ending = _Ending(timing.clock)
        self._holds: threading.Thread | None = None
        self._http: HealthServer | None = None
        self._parts = WorkerParts({})
        self._live = Liveness(self._parts.now, timing.clock, look_every)
        terms = HoldTerms(visibility, options.extend, options.time_limit)
        self._keeper = HoldKeeper(shared, terms, linger=options.acknowledge_within)
        self._places = Places(
            concurrency,
            settings.batch_size or 1,
            options.max_held_bytes,
            visibility,
            lambda: self._keeper.has_room,
        )
        self._handling = Handling(
            shared, settings, self._keeper, self._places, concurrency=concurrency, calls=calls
        )
        self._receiving = Receiving(
            shared,
            self._places,
            self._handling.take,
            self._thread,
            wait_time=poll_seconds(options.wait_time, visibility),
            visibility=visibility,
        )
        queue = (client.address.name_or_id,)
        metrics.watch(lambda: [Sample(QUEUE_IN_HAND, queue, self._keeper.in_hand)])

    def start(self) -> QueueWorker:
        """Start the threads. Raises RuntimeError if the worker was started before."""
        if self._holds is not None:
            raise RuntimeError("A worker can be started only once. Make another worker.")
        _log.info(
            "Receiving from %s: up to %d s a receive, holds of %d s.%s",
            self._settings.client.address,
            self._options.wait_time,
            self._visibility,
            "" if self._http is None else f" It serves health at {self._http.url}.",
        )
        self._holds = self._thread("holds", self._keeper.run)
        self._receiving.start()
        self._thread("queue", partial(self._run, self._holds))
        return self

    def request_shutdown(self, timeout: float | None = None) -> None:
        """Begin a graceful shutdown, and return at once. See `shutdown`."""
        within = self._options.shutdown_timeout if timeout is None else timeout
        self._ending.set(within + (self._options.wait_time if timeout is None else 0.0))
        # Here, and not in the worker's thread: a handler that ends now would have a receive begin.
        self._receiving.stop()
        self._handling.close()
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
        if self._holds is None:
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
        return self._handling.failures.snapshot()

    def why_not_live(self) -> tuple[str, ...]:
        """Return which threads of the worker stand still or have died; () if all go on."""
        return self._live.problems()

    def why_not_ready(self) -> tuple[str, ...]:
        """Return why the worker is not ready; () if it is."""
        return ("the worker is shutting down",) if self.is_shutting_down else ()

    def serve(self, served: ServedTally) -> None:
        """Serve health and metrics by HTTP until the worker ends."""
        place = self.log_place
        self._http = served.server
        served.answer(
            {"application": place.application, "worker": place.worker},
            live=self.why_not_live,
            ready=self.why_not_ready,
            status=self._status,
            look=self._live.check,
        )

    def _status(self) -> dict[str, object]:
        return {
            "application": self.log_place.application,
            "worker": self.log_place.worker,
            "queue": self._settings.client.address.arn,
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

    def _run(self, holds: threading.Thread) -> None:
        expect(math.inf)
        self._ending.requested.wait()
        try:
            self._shut_down()
            holds.join()
        finally:
            self._end()

    def _shut_down(self) -> None:
        self._wait(self._receiving.wait)
        self._handling.release_left()
        # A receive that is still under way may bring records: its places are not free.
        if not self._wait(self._places.wait_until_free):
            self._ending.is_forced = True
            self._keeper.release_all()
        self._handling.release_left()
        self._keeper.close(FLUSH_WITHIN)

    def _wait(self, is_over: Callable[[float], bool]) -> bool:
        """Wait until something is over, or the end is forced; return whether it is."""
        while (left := self._ending.seconds_left()) > 0:
            if is_over(min(left, _LOOK_EVERY)):
                return True
        return is_over(0.0)

    def _fail(self, error: BaseException, operation: str | None = None) -> None:
        settings = self._settings
        if operation is not None and isinstance(error, ClientError | BotoCoreError):
            error = settings.client.explained(error, operation)
        if self._ending.fail(error):
            text = str(error) if isinstance(error, SparkinesisError) else describe(error)
            raised = error if error.__traceback__ is not None else None
            settings.publish(WorkerFailed(self.log_place.worker, text), raised)
        self.request_shutdown()

    def _end(self) -> None:
        self._settings.publish.close()
        self._settings.metrics.close()
        self._ending.ended.set()

    def _thread(
        self, name: str, run: Callable[[], None], is_lasting: bool = True
    ) -> threading.Thread:
        """Begin a thread; ``is_lasting``: its death before a shutdown is a fault."""
        sign = SignOfLife(self._settings.timing.clock)

        def guarded() -> None:
            try:
                sign.during(run)
            except BaseException as error:  # noqa: BLE001 - nothing awaits this thread
                self._fail(error)

        thread = threading.Thread(
            target=self.log_place.run,
            args=(guarded,),
            name=f"{self.log_place.application}-{name}",
            daemon=True,
        )
        thread.start()
        if is_lasting:
            may_end = self._ending.requested.is_set
            self._parts.add(f"the thread {name!r}", thread, sign, may_end)
        return thread

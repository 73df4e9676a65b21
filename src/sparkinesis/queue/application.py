"""`QueueApplication`: consumes a Kinesis queue, record by record, without leases or checkpoints."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from sparkinesis.errors import Check, OptionError, ProcessorError, check_all
from sparkinesis.lease.rules.other_workers import default_worker_id
from sparkinesis.metrics.health.liveness import CHECK_EVERY
from sparkinesis.metrics.metric import AwsPlace, Measured
from sparkinesis.metrics.metrics import AllMetrics, Metrics, metrics_of
from sparkinesis.public import public_queue
from sparkinesis.queue.address import QueueAddress, check_queue_name, check_whole, queue_address
from sparkinesis.queue.client import MOST_ENTRIES, QueueClient, QueueDescription
from sparkinesis.queue.finding import NewQueue, Queues
from sparkinesis.queue.handling import HandlerSettings
from sparkinesis.queue.hold_rules import QUEUE_RETRY, poll_seconds
from sparkinesis.queue.options import (
    DEFAULT_QUEUE_OPTIONS,
    QueueOptions,
    refuses_words_of_leases,
)
from sparkinesis.queue.worker import FLUSH_WITHIN, QueueWorker
from sparkinesis.stream.address import (
    FOUND_BY_BOTO,
    CredentialSource,
    check_place,
    is_loopback,
    repr_without_secrets,
)
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.timing import MACHINE, Timing
from sparkinesis.worker.lifecycle.signals import run_until_end
from sparkinesis.worker.on_error import OnError, check_policy
from sparkinesis.worker.processors.user_calls import (
    ADVICE,
    UserCalls,
    asynchronous,
    name_of,
    unfinished,
    why_not_callable,
)
from sparkinesis.worker.reporting.health import serving
from sparkinesis.worker.supervision.supervised import Supervised, check_run

if TYPE_CHECKING:
    import asyncio

    from pyspark.sql import SparkSession

    from sparkinesis.fleet.fleet import Fleet
    from sparkinesis.fleet.fleet_options import FleetOptions

_MOST_AT_A_TIME = 1_000


@public_queue
@refuses_words_of_leases
@dataclass(frozen=True)
class QueueApplication:
    """Consumes a queue of a Kinesis stream with a handler, in any number of processes.

    The queue delivers each record to one of them, in no order. A handler that returns has its
    record acknowledged; one that raises gets it again later. There are no shards, leases and
    checkpoints.

    queue: the queue's ARN, or its name, which is looked up.
    handler: called for a record, ``handle(record)``, a `QueueRecord`; with ``batch_size`` for a
    list of them. May be ``async def``.
    region: the AWS region; None: that of the ARN, or ``AWS_REGION``, ``AWS_DEFAULT_REGION`` or the
    profile's. endpoint: the URL for queues; None: AWS's. A VPC endpoint of streams does not answer
    for queues, which have an endpoint service of their own.
    create: makes the queue if there is none of this name.
    concurrency: the calls of the handler that may run at one time. Default: 1.
    batch_size: the most records of a call, 1 to 10, as one receive brings them; the handler may
    return those that failed. Default: None, a call for each record.
    decode: makes `QueueRecord.value` of a record's bytes, such as ``json.loads``. A record that it
    raises for has failed.
    on_error: the policy for a handler that raises. Default: `Retry`, with waits of 10 s and more,
    which double with each delivery; the queue makes a dead letter of a record after its
    MaxReceiveCount.
    name: names the application in logs and metrics; None: the queue's name.
    deaggregate: unpack KPL aggregates. One is acknowledged when all of its user records are done.

    Raises `OptionError` and `ProcessorError` before any call of AWS.
    """

    queue: str
    handler: Callable[..., object]
    region: str | None = None
    endpoint: str | None = None
    create: NewQueue | None = None
    concurrency: int = 1
    batch_size: int | None = None
    decode: Callable[[bytes], Any] | None = None
    on_error: OnError = QUEUE_RETRY
    options: QueueOptions = DEFAULT_QUEUE_OPTIONS
    credentials: CredentialSource = FOUND_BY_BOTO
    name: str | None = None
    deaggregate: bool = True

    __repr__ = repr_without_secrets

    def __post_init__(self) -> None:
        check_all(self._checks())

    def _checks(self) -> Iterator[Check]:
        yield ("on_error",), lambda: check_policy(self.on_error)
        concurrency, size = self.concurrency, 1 if self.batch_size is None else self.batch_size
        yield ("concurrency",), lambda: check_whole("concurrency", concurrency, 1, _MOST_AT_A_TIME)
        yield ("batch_size",), lambda: check_whole("batch_size", size, 1, MOST_ENTRIES)
        for name, kind in (("options", QueueOptions), ("credentials", CredentialSource)):
            yield (name,), partial(self._kind, name, kind)
        if self.create is not None:
            yield ("create",), self._check_create
        yield ("handler",), self._check_handler
        yield ("decode",), self._check_decode
        yield ("queue", "region", "endpoint"), self._check_queue

    def _kind(self, name: str, kind: type) -> None:
        given = getattr(self, name)
        if not isinstance(given, kind):
            other = (
                " WorkerOptions are those of an application with leases."
                if type(given).__name__ == "WorkerOptions"
                else ""
            )
            raise OptionError(f"{name} must be {kind.__name__}(...).{other}")

    def _check_handler(self) -> None:
        handler = self.handler
        if isinstance(handler, type) or not callable(handler):
            if unfinished(handler) is not None:
                raise ProcessorError(
                    f"The handler is what a call has returned ({type(handler).__name__}). Give the "
                    "function itself, without parentheses."
                )
            raise ProcessorError(
                f"The handler is {handler!r}; it must be a function that takes a record, or with "
                "batch_size a list of records. Record processors, which have a class for each "
                "shard, are those of an Application with leases: a queue has no shards."
            )
        if asynchronous(handler) == "has a `yield`":
            raise ProcessorError(
                f"{name_of(handler)} has a `yield`, so a call of it would return before any record "
                f"is handled. {ADVICE}"
            )
        if error := why_not_callable(handler, None):
            raise ProcessorError(
                f"{name_of(handler)} cannot be called with one argument ({error}). A handler takes "
                "a record, or with batch_size a list of records. There is no checkpointer: a "
                "return acknowledges."
            )

    def _check_decode(self) -> None:
        if self.decode is None:
            return
        if not callable(self.decode):
            raise OptionError(f"decode is {self.decode!r}; it must be a function of the bytes.")
        if asynchronous(self.decode):
            raise OptionError(f"decode is {name_of(self.decode)}, which must be a plain function.")

    def _check_create(self) -> None:
        self._kind("create", NewQueue)
        assert self.create is not None
        self.create.check()

    def _check_queue(self) -> None:
        if not isinstance(self.queue, str):
            raise OptionError(f"queue is {self.queue!r}; it must be a queue's name or its ARN.")
        if self.queue.startswith("arn:"):
            queue_address(self.queue, self.region, self.endpoint, self.credentials)
        else:
            check_queue_name(self.queue)
            check_place(self.region, self.endpoint)

    def worker(
        self,
        *,
        timing: Timing = MACHINE,
        loop: asyncio.AbstractEventLoop | None = None,
        client: Callable[[QueueAddress, Backoff, Metrics], QueueClient] = QueueClient,
    ) -> QueueWorker:
        """Find the queue, and make a worker, which is not started yet.

        timing: clocks, waits and randomness, for tests. loop: the event loop of your program, for a
        handler that is ``async def``; None: that of all workers of the process. client: makes the
        calls on records, for tests.

        Raises `QueueNotFoundError`, `AccessDeniedError`, `ServiceError`, and `OptionError` for
        options that do not fit the queue.
        """
        return self._make(timing, loop, http=self.options.http, client=client)

    def _find(self) -> tuple[QueueAddress, QueueDescription]:
        return Queues(self.region, self.endpoint, self.credentials).find(self.queue, self.create)

    def _place(self, region: str | None) -> AwsPlace:
        endpoint = self.endpoint if is_loopback(self.endpoint) else None
        return AwsPlace(region=region, endpoint=endpoint, credentials=self.credentials)

    def _make(
        self,
        timing: Timing = MACHINE,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        http: str | None = None,
        tally: Metrics | None = None,
        worker_id: str | None = None,
        look_every: float = CHECK_EVERY,
        client: Callable[[QueueAddress, Backoff, Metrics], QueueClient] = QueueClient,
    ) -> QueueWorker:
        """Find the queue, and make a worker as `Application.worker` does. http: where it serves."""
        rng = timing.new_rng()
        worker_id = worker_id or default_worker_id(socket.gethostname(), os.getpid(), rng)
        # The port first, before anything is called.
        served = serving(http, {"application": self.name or self.queue, "worker": worker_id})
        own = [one for one in (tally, served) if one is not None]
        metrics: Metrics = AllMetrics(own)
        try:
            address, description = self._find()
            name = self.name or description.name
            measured = Measured.worker(name, worker_id, self._place(address.region))
            metrics = metrics_of(self.options.metrics, measured, *own)
            worker = QueueWorker(
                client(address, timing.of(Backoff(), rng), metrics),
                HandlerSettings(
                    name,
                    self.handler,
                    self.batch_size,
                    self.decode,
                    self.on_error,
                    self.deaggregate,
                ),
                self.options,
                worker_id=worker_id,
                visibility=self._visibility(description),
                concurrency=self.concurrency,
                timing=timing,
                calls=UserCalls(name, timing.clock, loop),
                metrics=metrics,
                look_every=look_every,
            )
            if served is not None:
                worker.serve(served)
            return worker
        except BaseException:
            metrics.close()
            raise

    def _visibility(self, description: QueueDescription) -> int:
        """Return the seconds of a hold. Raises `OptionError`."""
        options = self.options
        visibility = options.visibility_timeout or description.visibility_timeout
        if visibility < 2:
            raise OptionError(
                f"The queue {description.name!r} has a visibility timeout of {visibility} s, in "
                "which no record can be handled. Give QueueOptions(visibility_timeout=30), or "
                "change the queue's."
            )
        wait = poll_seconds(options.wait_time, visibility)
        if not options.extend and options.time_limit > visibility - wait:
            raise OptionError(
                f"A handler may take time_limit={options.time_limit:g} s, but records are held for "
                f"{visibility} s, of which the receive may wait {wait}, and extend is off: a slow "
                "record would be delivered again while its handler runs. Leave extend on, or give "
                f"a time_limit of at most {visibility - wait}, or a longer visibility_timeout."
            )
        return visibility

    @overload
    def run(self, *, processes: int | Literal["auto"] | None = ...) -> None: ...

    @overload
    def run(self, spark: SparkSession, workers: int, fleet: FleetOptions = ...) -> Fleet: ...

    def run(
        self,
        spark: SparkSession | None = None,
        workers: int = 1,
        fleet: FleetOptions | None = None,
        *,
        processes: int | Literal["auto"] | None = None,
    ) -> Fleet | None:
        """Run one worker in this process, several in processes, or a fleet on Spark's executors.

        ``run()`` runs a worker, and returns when it has ended. SIGTERM and SIGINT shut it down
        gracefully; a second signal shuts it down at once. Raises the errors of `worker`, and the
        error that ended the worker, if one did.

        ``run(processes=4)`` and ``run(spark, workers=8)`` do as those of `Application.run`: a
        process that dies is started again, and a fleet returns its handle at once. They find the
        queue, or make it, before any worker starts.
        """
        check_run(spark, workers, fleet, processes)
        if processes is None and spark is None:
            run_until_end(self.worker())
            return None
        # A worker of this process does without a supervisor.
        from sparkinesis.fleet.running import run_supervised  # noqa: PLC0415

        return run_supervised(self._supervised(), spark, workers, fleet, processes)

    def _supervised(self) -> SupervisedQueue:
        return SupervisedQueue.of(self)

    async def run_async(self) -> None:
        """Run a worker within a program that has an event loop, such as a web server.

        A handler that is ``async def`` runs on the program's loop. No signal is taken over: cancel
        the task to shut the worker down gracefully, and once more to shut it down at once.
        """
        from sparkinesis.worker.lifecycle.run_async import run_worker  # noqa: PLC0415 - imports asyncio

        await run_worker(lambda loop: self.worker(loop=loop))


@dataclass(frozen=True, kw_only=True, repr=False)
class SupervisedQueue(Supervised[QueueApplication]):
    """An application of a queue, as its supervisor knows it. Its workers share nothing."""

    has_shards = False
    called = "handler"
    defined = "at the top level of a module"
    begins_in = "its first call, which runs {there}"

    @classmethod
    def of(cls, application: QueueApplication) -> SupervisedQueue:
        """Return what a supervisor needs. Asks for the name of a queue that is given by its ARN."""
        queue, region = application.queue, application.region
        if queue.startswith("arn:"):
            address, description = application._find()
            queue, region = description.name, address.region
        name, options = application.name or queue, application.options
        return cls(
            application=application,
            name=name,
            reads=f"queue {queue}",
            place=application._place(region),
            http=options.http,
            metrics=options.metrics,
            shutdown_within=options.wait_time + options.shutdown_timeout,
            closes_within=FLUSH_WITHIN,
        )

    def worker(self, worker_id: str, tally: Metrics | None, look_every: float) -> QueueWorker:
        return self.application._make(tally=tally, worker_id=worker_id, look_every=look_every)

    def check(self) -> None:
        """Find the queue, or make it."""
        self.application._visibility(self.application._find()[1])

    def policies(self) -> list[OnError]:
        return [self.application.on_error]

    def functions(self) -> Iterator[tuple[str, object]]:
        yield "decode", self.application.decode
        yield "on_event", self.application.options.on_event
        yield "on_error", self.application.on_error
        for exporter in self.application.options.metrics:
            yield "metrics", exporter

"""`Application`: runs its workers in this process, or as a fleet on Spark's executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal, overload

from sparkinesis.errors import OptionError, ProcessorError
from sparkinesis.metrics.health.liveness import CHECK_EVERY
from sparkinesis.metrics.metrics import Metrics
from sparkinesis.public import public
from sparkinesis.status import Replayed
from sparkinesis.stream.timing import MACHINE, Timing
from sparkinesis.worker.application_settings import ApplicationSettings
from sparkinesis.worker.lifecycle.new_worker import new_worker
from sparkinesis.worker.lifecycle.signals import run_until_end
from sparkinesis.worker.lifecycle.streams.stream_config import StreamConfig
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.on_error import OnError
from sparkinesis.worker.retrieval.memory import MemoryBudget
from sparkinesis.worker.supervision.supervised import Supervised, check_run

if TYPE_CHECKING:
    import asyncio

    from pyspark.sql import SparkSession

    from sparkinesis.fleet.fleet import Fleet
    from sparkinesis.fleet.fleet_options import FleetOptions
    from sparkinesis.worker.lifecycle.batch_loop import BatchLoop, RecordLoop
    from sparkinesis.worker.processors.function_processors import Processor
    from sparkinesis.worker.processors.processor import ProcessorFactory


@public
class Application(ApplicationSettings):
    """Consumes a stream, or several, with record processors; KCL users know it as ``Scheduler``.

    name: the name of the application and of its lease table (KCL ``applicationName``). Workers of
    the same name share the streams' shards.
    stream: the stream's name, or its ARN for a stream of another account.
    processor: a function that processes batches, ``handle(batch)`` or ``handle(batch,
    checkpointer)``, see `sparkinesis.processor`; or a class derived from `RecordProcessor`, of
    which each shard gets an instance; or a function without parameters that makes an instance.
    Functions and methods may be ``async def``. One of these by name: ``"package.module:name"``,
    which is imported at once. None: for `batches` and `records`.
    streams: in place of ``stream``, for an application of several: names, ARNs and `StreamConfig`s,
    or a function that returns them, which is asked again every minute (KCL ``StreamTracker``). A
    stream that cannot be read stops none of the others; `Worker.streams` tells why.
    former_streams: what becomes of the leases of streams that have left ``streams``; default: they
    stay.
    region: the AWS region; None: ``AWS_REGION``, ``AWS_DEFAULT_REGION`` or the profile's.
    endpoint: Kinesis' URL; None: AWS's.
    dynamodb_endpoint: DynamoDB's URL; None: ``endpoint`` if that is on this machine (a local
    Kinesis is DynamoDB, too), otherwise AWS's.
    initial_position: the position at which shards without a lease begin: ``"latest"`` (the
    default), ``"trim_horizon"`` or a datetime with a time zone (KCL ``InitialPositionInStream``).
    ``"latest"`` is the time at which the first worker made the leases, also for later workers.
    on_error: the policy for a ``process_records`` that raises. Default: retry without end.
    worker_id: must differ between running workers; None: one is made (KCL ``workerIdentifier``).
    credentials: default: those that boto3 finds.
    table_name: the lease table's name, if it differs from ``name`` (KCL ``tableName``).

    Raises `OptionError` and `ProcessorError` before any call of AWS.
    """

    def worker(
        self,
        *,
        subscription_clock: Callable[[], float] | None = None,
        timing: Timing = MACHINE,
        memory: MemoryBudget | None = None,
        tally: Metrics | None = None,
        look_every: float = CHECK_EVERY,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> Worker:
        """Make a worker of this application, which is not started yet.

        subscription_clock: measures the age of enhanced fan-out's subscriptions, in seconds; for a
        local Kinesis whose clock is not the machine's. None: the clock of ``timing``.
        timing: all other clocks, waits and randomness, for simulations.
        memory: the budget for records in memory; None: one budget for all workers of this process
        with the same ``max_held_bytes``.
        tally: gets the worker's measurements besides the exporters, for who calls
        `Worker.look_at_health` every ``look_every`` seconds.
        loop: the event loop of your program, to run methods that are ``async def``; None: the one
        that all such workers of the process share. The loop must run until the worker has ended.

        Creates the lease table if it is missing. Raises `StreamNotFoundError`, `LeaseTableError`,
        `AccessDeniedError` and `ServiceError`.
        """
        return new_worker(
            self,
            subscription_clock=subscription_clock,
            timing=timing,
            memory=memory,
            tally=tally,
            look_every=look_every,
            loop=loop,
        )

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

        ``run()`` runs a worker, and returns when the worker has ended. SIGTERM and SIGINT shut it
        down gracefully; a second signal shuts it down at once. Raises the errors of
        `Worker.start`, and the error that ended the worker, if one did.

        ``run(processes=4)`` runs four workers, each in a process of its own, and returns when all
        have ended; ``processes="auto"`` one for each CPU that this program may use. A process that
        dies is started again. Signals are as above. Call it below
        ``if __name__ == "__main__":``, since each process imports the program. Raises
        `OptionError`, `ProcessorError` and the errors of `worker` before any process is started,
        and the error that ended the workers, if one did.

        ``run(spark, workers=8)`` submits a Spark job with a task for each worker, and returns a
        handle at once. Raises `OptionError`, `ProcessorError` and `FleetError` before the job is
        submitted; the handle reports later errors.
        """
        check_run(spark, workers, fleet, processes)
        if processes is None and spark is None:
            run_until_end(self.worker())
            return None
        # A worker of this process does without a supervisor.
        from sparkinesis.fleet.running import run_supervised  # noqa: PLC0415

        return run_supervised(self._supervised(), spark, workers, fleet, processes)

    def _supervised(self) -> SupervisedApplication:
        return SupervisedApplication.of(self)

    async def run_async(self) -> None:
        """Run one worker within a program that has an event loop, such as a web server.

        Methods and functions that are ``async def`` run on the program's loop. No signal is taken
        over: cancel the task to shut the worker down gracefully, and once more to shut it down at
        once. Returns when the worker has ended, and raises as `run` does.
        """
        from sparkinesis.worker.lifecycle.run_async import run_worker  # noqa: PLC0415 - imports asyncio

        await run_worker(lambda loop: self.worker(loop=loop))

    def replay(
        self,
        from_: datetime | Literal["trim_horizon"],
        to: datetime | Literal["latest"] = "latest",
        *,
        processor: Processor | None = None,
    ) -> Replayed:
        """Process a range of the stream again, beside the running application; wait for the end.

        from_, to: the arrival times of the first record, and of the first one behind the range.
        ``"trim_horizon"``: from the oldest record kept. ``"latest"``: until now.
        processor: processes the records, in place of the application's own.

        Each shard gets a record processor, parents before children. Its last call is
        ``shard_ended`` if the shard ends within the range, or else ``shutdown_requested``. The
        replay polls with a share of its own, has no metrics, and keeps its leases in a table
        ``<table>-replay-...``, which it deletes. SIGTERM and SIGINT end the replay gracefully.

        Raises `OptionError` and `ProcessorError` before any call, the errors of `Worker.start`, and
        the error of a record that `Stop` stops at.
        """
        from sparkinesis.worker.lifecycle.replay import (  # noqa: PLC0415 - only for a replay
            range_of,
            replay,
            settings_of,
            table_name,
        )

        now = datetime.now(timezone.utc)
        reads = range_of(from_, to, lambda: now)
        name = table_name(self.table_name or self.name, now, MACHINE.new_rng())
        made = settings_of(self, reads, processor, name)
        return replay(lambda: new_worker(made, reads=reads), made.table(), reads)

    def batches(self, *, timeout: float | None = None) -> BatchLoop:
        """Return a loop over the batches, in place of a processor.

        timeout: ends the loop if no batch comes for so many seconds; None: never.

        Raises `ProcessorError` if the application, or one of its streams, has a processor. The
        block raises the errors of `worker` and `Worker.start`.
        """
        from sparkinesis.worker.lifecycle.batch_loop import BatchLoop  # noqa: PLC0415 - only for a loop

        return BatchLoop(self.name, self._worker_of_loop(), timeout)

    def records(self, *, timeout: float | None = None) -> RecordLoop:
        """Return a loop over user records; as `batches`."""
        from sparkinesis.worker.lifecycle.batch_loop import RecordLoop  # noqa: PLC0415 - only for a loop

        return RecordLoop(self.name, self._worker_of_loop(), timeout)

    def _worker_of_loop(self) -> Callable[[ProcessorFactory], Worker]:
        own = [] if self.streams is None or callable(self.streams) else self.streams
        if self.processor or any(isinstance(one, StreamConfig) and one.processor for one in own):
            raise ProcessorError(
                f"The application {self.name!r} has a processor, which gets the records. Leave it "
                "out for a loop over them."
            )
        if self.options.concurrency is not None:
            raise OptionError(
                "concurrency works with a processor, which it calls for several records at a time; "
                "a loop gets one batch at a time. Leave it out."
            )
        return lambda factory: replace(self, processor=factory).worker()


@dataclass(frozen=True, kw_only=True, repr=False)
class SupervisedApplication(Supervised[ApplicationSettings]):
    """An application with leases. Its workers share a lease table."""

    @classmethod
    def of(cls, application: ApplicationSettings) -> SupervisedApplication:
        """Return what a supervisor needs. Raises `OptionError`."""
        options = application.options
        return cls(
            application=application,
            name=application.name,
            reads=application.stream_names(),
            place=application.place(),
            http=options.http,
            metrics=options.metrics,
            shutdown_within=options.shutdown_timeout,
            failover_time=options.failover_time,
            worker_id=application.worker_id,
        )

    def worker(self, worker_id: str, tally: Metrics | None, look_every: float) -> Worker:
        # Validates again: the machine of an executor may lack the supervisor's region.
        options = replace(self.application.options, http=None)
        application = replace(self.application, worker_id=worker_id, options=options)
        return new_worker(application, tally=tally, look_every=look_every)

    def check(self) -> None:
        """Find the streams, and create the lease table."""
        options = replace(self.application.options, http=None, metrics=(), on_event=None)
        new_worker(replace(self.application, options=options)).shutdown()

    def policies(self) -> list[OnError]:
        streams = self.application.streams
        plans = [] if streams is None or callable(streams) else self.application.plans()
        return [self.application.on_error, *(plan.on_error for plan in plans)]

    def functions(self) -> Iterator[tuple[str, object]]:
        application = self.application
        if callable(application.streams):
            yield "The function streams", application.streams
        if application.former_streams.only is not None:
            yield "The function only of former_streams", application.former_streams.only
        yield "on_event", application.options.on_event
        yield "on_error", application.on_error
        for exporter in application.options.metrics:
            yield "metrics", exporter

    def processors(self) -> Iterator[tuple[str, object]]:
        streams = self.application.streams
        for one in () if streams is None or callable(streams) else streams:
            if isinstance(one, StreamConfig):
                yield f"the processor of stream {one.stream!r}", one

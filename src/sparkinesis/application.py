"""`Application`: runs its workers in this process, or as a fleet on Spark's executors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from sparkinesis.metrics.health.liveness import LOOK_EVERY
from sparkinesis.metrics.metrics import Metrics
from sparkinesis.public import public
from sparkinesis.stream.timing import MACHINE, Timing
from sparkinesis.worker.application_settings import ApplicationSettings
from sparkinesis.worker.lifecycle.signals import graceful_on_signals
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.new_worker import new_worker
from sparkinesis.worker.retrieval.memory import MemoryBudget

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkinesis.fleet.fleet import Fleet
    from sparkinesis.fleet.options import FleetOptions


@public
@dataclass(frozen=True, repr=False)
class Application(ApplicationSettings):
    """Consumes a stream, or several, with record processors; KCL users know it as ``Scheduler``.

    name: the name of the application and of its lease table (KCL ``applicationName``). Workers of
    the same name share the streams' shards.
    stream: the stream's name, or its ARN for a stream of another account.
    processor: a class derived from `RecordProcessor`, or a function that makes an instance. It is
    called for each shard.
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
        look_every: float = LOOK_EVERY,
    ) -> Worker:
        """Make a worker of this application, which is not started yet.

        subscription_clock: measures the age of enhanced fan-out's subscriptions, in seconds; for a
        local Kinesis whose clock is not the machine's. None: the clock of ``timing``.
        timing: all other clocks, waits and randomness, for simulations.
        memory: the budget for records in memory; None: one budget for all workers of this process
        with the same ``max_held_bytes``.
        tally: gets the worker's measurements besides the exporters, for who calls
        `Worker.look_at_health` every ``look_every`` seconds.

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
        )

    @overload
    def run(self) -> None: ...

    @overload
    def run(self, spark: SparkSession, workers: int, fleet: FleetOptions = ...) -> Fleet: ...

    def run(
        self,
        spark: SparkSession | None = None,
        workers: int = 1,
        fleet: FleetOptions | None = None,
    ) -> Fleet | None:
        """Run one worker in this process, or a fleet of workers on Spark's executors.

        ``run()`` runs a worker, and returns when the worker has ended. SIGTERM and SIGINT shut it
        down gracefully; a second signal shuts it down at once. Raises the errors of
        `Worker.start`, and the error that ended the worker, if one did.

        ``run(spark, workers=8)`` submits a Spark job with a task for each worker, and returns a
        handle at once. Raises `OptionError`, `ProcessorError` and `FleetError` before the job is
        submitted; the handle reports later errors.
        """
        if spark is not None:
            # A worker of this process does without the fleet.
            from sparkinesis.fleet.fleet import Fleet  # noqa: PLC0415
            from sparkinesis.fleet.options import FleetOptions  # noqa: PLC0415

            return Fleet(self, spark, workers, fleet or FleetOptions())
        worker = self.worker()
        with graceful_on_signals(worker):
            worker.start()
            while not worker.wait(1.0):
                pass
        return None

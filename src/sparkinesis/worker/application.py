"""The application: a name, a stream and a record processor, from which workers are made."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, overload

from sparkinesis.errors import OptionError
from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.rules.taker import TakeSettings
from sparkinesis.lease.rules.worker_ids import default_worker_id
from sparkinesis.lease.shard_syncer import ShardSyncer
from sparkinesis.lease.table.provisioning import Patience
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.public import public
from sparkinesis.stream.address import (
    StreamAddress,
    check_endpoint,
    check_table_name,
    is_loopback,
    shown,
    stream_address,
)
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Retry
from sparkinesis.stream.credentials import FOUND_BY_BOTO, CredentialSource
from sparkinesis.stream.position import InitialPosition, parse_initial_position
from sparkinesis.stream.reading.service_clock import ServiceClock, shared_summary
from sparkinesis.stream.timing import MACHINE, Timing
from sparkinesis.worker.fleet_options import DEFAULT_FLEET_OPTIONS, FleetOptions
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.signals import graceful_on_signals
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.on_error import RETRY, OnError, check_policy
from sparkinesis.worker.options import DEFAULT_OPTIONS, WorkerOptions, check_consumer_name
from sparkinesis.worker.processor import ProcessorFactory, check_factory
from sparkinesis.worker.reporting.event_log import EventLog
from sparkinesis.worker.retrieval.ahead import RetrievalMode
from sparkinesis.worker.retrieval.fan_out import FanOut
from sparkinesis.worker.retrieval.memory import MemoryBudget, budget_of_process
from sparkinesis.worker.retrieval.polling import Polling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkinesis.fleet.fleet import Fleet

_log = logging.getLogger(__name__)

_WORKER_ID = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,256}")


@public
@dataclass(frozen=True)
class Application:
    """Consumes a stream with record processors; KCL users know it as ``Scheduler``.

    name: the name of the application and of its lease table (KCL ``applicationName``). Workers of
    the same name share the stream's shards.
    stream: the stream's name, or its ARN for a stream of another account.
    processor: a class derived from `RecordProcessor`, or a function that makes an instance. It is
    called for each shard.
    region: the AWS region; None: the region that boto3 finds.
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

    name: str
    stream: str
    processor: ProcessorFactory
    region: str | None = None
    endpoint: str | None = None
    dynamodb_endpoint: str | None = None
    initial_position: Literal["latest", "LATEST", "trim_horizon", "TRIM_HORIZON"] | datetime = (
        "latest"
    )
    on_error: OnError = RETRY
    worker_id: str | None = None
    options: WorkerOptions = DEFAULT_OPTIONS
    credentials: CredentialSource = FOUND_BY_BOTO
    table_name: str | None = None

    def __post_init__(self) -> None:
        check_factory(self.processor)
        check_policy(self.on_error)
        self.initial()
        for name in ("name", "stream"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise OptionError(
                    f"{name} is {getattr(self, name)!r}; it must be a string, and not empty."
                )
        self.address()
        if self.dynamodb_endpoint is not None:
            check_endpoint("dynamodb_endpoint", self.dynamodb_endpoint)
        for name, kind in (("options", WorkerOptions), ("credentials", CredentialSource)):
            if not isinstance(getattr(self, name), kind):
                raise OptionError(f"{name} must be {kind.__name__}(...).")
        self._check_fan_out()
        check_table_name(
            "name" if self.table_name is None else "table_name", self.table_name or self.name
        )
        if self.worker_id is not None and not _WORKER_ID.fullmatch(str(self.worker_id)):
            raise OptionError(
                f"worker_id is {shown(str(self.worker_id))}; it takes 1 to 256 characters that can "
                "be printed. Leave it out to have one made."
            )

    def _check_fan_out(self) -> None:
        fan_out = self.options.fan_out
        if self.options.retrieval != "efo":
            return
        if fan_out.consumer_arn is None and fan_out.consumer_name is None:
            try:
                check_consumer_name("name", self.name)
            except OptionError as error:
                raise OptionError(
                    f"{error} With retrieval='efo', the registered consumer has the application's "
                    "name: give FanOutOptions a consumer_name."
                ) from None
        if fan_out.stream_of_arn not in {None, self.address().name}:
            raise OptionError(
                f"consumer_arn is {fan_out.consumer_arn!r}, which is a consumer of the stream "
                f"{fan_out.stream_of_arn!r}; the application reads {self.address().name!r}."
            )

    def initial(self) -> InitialPosition:
        """Return the initial position. Raises `OptionError`."""
        position = self.initial_position
        try:
            return parse_initial_position(position)
        except ValueError as error:
            given = position.isoformat() if isinstance(position, datetime) else repr(position)
            raise OptionError(f"initial_position is {given}, {error}.") from None

    def address(self) -> StreamAddress:
        """Return the stream's address."""
        return stream_address(self.stream, self.region, self.endpoint, self.credentials)

    def table(self) -> LeaseTable:
        """Return the lease table. Nothing is called or created."""
        endpoint = self.dynamodb_endpoint
        if endpoint is None and is_loopback(self.endpoint):
            # A VPC endpoint of Kinesis, in contrast, does not answer for DynamoDB.
            endpoint = self.endpoint
        region = self.address().region
        return LeaseTable(self.table_name or self.name, region, endpoint, self.credentials)

    def worker(
        self,
        *,
        subscription_clock: Callable[[], float] | None = None,
        timing: Timing = MACHINE,
        memory: MemoryBudget | None = None,
    ) -> Worker:
        """Make a worker of this application, which is not started yet.

        subscription_clock: measures the age of enhanced fan-out's subscriptions, in seconds; for a
        local Kinesis whose clock is not the machine's. None: the clock of ``timing``.
        timing: all other clocks, waits and randomness, for simulations.
        memory: the budget for records in memory; None: one budget for all workers of this process
        with the same ``max_held_bytes``.

        Creates the lease table if it is missing. Raises `StreamNotFoundError`, `LeaseTableError`,
        `AccessDeniedError` and `ServiceError`.
        """
        rng = timing.new_rng()
        client = StreamClient(self.address(), timing.of(Retry(), rng), timing.wall_clock_ms)
        # The stream first: a typing error in its name must not create a lease table.
        stream = client.describe()
        options = self.options
        if options.hash_range_filter and stream.distributes_records:
            _log.warning(
                "hash_range_filter is switched off for %s: the stream distributes records itself "
                "(RecordDistributionStrategy AUTO), so a record's hash key does not determine its "
                "shard.",
                client.address,
            )
            options = replace(options, hash_range_filter=False)
        table = self.table()
        table = replace(table, retry=timing.of(table.retry, rng))
        table.provision(options.table, Patience(clock=timing.clock, sleep=timing.sleep))
        worker_id = self.worker_id or default_worker_id(socket.gethostname(), os.getpid(), rng)
        tell = EventLog(self.name, worker_id)
        renewer = LeaseRenewer(table, worker_id, options.failover_time, timing.clock, tell)
        take = TakeSettings(
            failover_time=options.failover_time,
            max_leases=options.max_leases,
            max_leases_to_steal=options.max_leases_to_steal,
            handoff_timeout=options.handoff_timeout,
            scan_interval=options.taker_interval,
        )
        polling = Polling(self.name, client, options, timing)
        retrieval: RetrievalMode = polling
        if options.retrieval == "efo":
            retrieval = FanOut(
                self.name,
                client,
                options.fan_out,
                polling,
                limits=options.ahead,
                timing=timing,
                rng=rng,
                subscription_clock=subscription_clock or timing.clock,
            )
        summary = shared_summary(client, timing.clock)
        settings = ConsumerSettings(
            application=self.name,
            worker_id=worker_id,
            client=client,
            factory=self.processor,
            on_error=self.on_error,
            initial=self.initial(),
            started_ms=stream.service_time_ms,
            service_time_ms=ServiceClock(summary),
            options=options,
            timing=timing,
            rng=rng,
            describe=summary,
            tell=tell,
            memory=memory or budget_of_process(options.max_held_bytes),
        )
        return Worker(
            settings,
            LeaseCoordinator(
                table,
                renewer,
                worker_id,
                settings=take,
                clock=timing.clock,
                rng=rng,
                tell=tell,
            ),
            ShardSyncer(
                client,
                table,
                worker_id,
                initial=self.initial(),
                settings=options.shard_sync,
                clock=timing.clock,
                wait=timing.sleep,
            ),
            retrieval,
        )

    @overload
    def run(self) -> None: ...

    @overload
    def run(self, spark: SparkSession, workers: int, fleet: FleetOptions = ...) -> Fleet: ...

    def run(
        self,
        spark: SparkSession | None = None,
        workers: int = 1,
        fleet: FleetOptions = DEFAULT_FLEET_OPTIONS,
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
            from sparkinesis.fleet.fleet import Fleet  # noqa: PLC0415 - needs PySpark

            return Fleet(self, spark, workers, fleet)
        self._run_here()
        return None

    def _run_here(self) -> None:
        worker = self.worker()
        with graceful_on_signals(worker):
            worker.start()
            while not worker.wait(1.0):
                pass

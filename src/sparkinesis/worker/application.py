"""An application: a name, a stream, and a record processor; and the workers that run it."""

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
    """Consumes a stream by record processors; KCL users know it as ``Scheduler``.

    name: the application's, and its lease table's. Workers of the same name share the shards.
    stream: the stream's name; its ARN instead for a stream of another account.
    processor: makes a record processor for each shard: a class derived from `RecordProcessor`, or
    a function.
    initial_position: where to begin in shards without a lease: ``"latest"``, ``"trim_horizon"`` or
    a datetime with a time zone. ``"latest"`` is the moment at which the first worker made the
    leases, also for a worker that starts later.
    on_error: what to do when ``process_records`` raises.
    worker_id: must differ between live workers; None makes one.
    endpoint, dynamodb_endpoint: other URLs than AWS's; a local Kinesis is DynamoDB as well, if no
    other is given.

    Raises `OptionError` and `ProcessorError` before anything is called.
    """

    name: str
    stream: str
    processor: ProcessorFactory
    region: str | None = None
    endpoint: str | None = None
    dynamodb_endpoint: str | None = None
    initial_position: Literal["latest", "trim_horizon"] | datetime = "latest"
    on_error: OnError = RETRY
    worker_id: str | None = None
    options: WorkerOptions = DEFAULT_OPTIONS
    credentials: CredentialSource = FOUND_BY_BOTO
    table_name: str | None = None
    """The lease table's name, where it is not the application's."""

    def __post_init__(self) -> None:
        check_factory(self.processor)
        check_policy(self.on_error)
        self.initial()
        for name in ("name", "stream"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise OptionError(f"{name} is {getattr(self, name)!r}; it must be a name.")
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
                    f"{error} It is that of the registered consumer, too, with retrieval='efo'; "
                    "give FanOutOptions a consumer_name."
                ) from None
        if fan_out.stream_of_arn not in {None, self.address().name}:
            raise OptionError(
                f"consumer_arn is {fan_out.consumer_arn!r}, a consumer of another stream than "
                f"{self.address().name!r}."
            )

    def initial(self) -> InitialPosition:
        """The initial position. Raises `OptionError`."""
        position = self.initial_position
        try:
            return parse_initial_position(position)
        except ValueError as error:
            given = position.isoformat() if isinstance(position, datetime) else repr(position)
            raise OptionError(f"initial_position is {given}, {error}.") from None

    def address(self) -> StreamAddress:
        """The stream."""
        return stream_address(self.stream, self.region, self.endpoint, self.credentials)

    def table(self) -> LeaseTable:
        """The lease table."""
        endpoint = self.dynamodb_endpoint
        if endpoint is None and is_loopback(self.endpoint):
            # Not so for a VPC endpoint of Kinesis: that one does not answer for DynamoDB.
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
        """A worker of this application, not started.

        subscription_clock: tells the age of enhanced fan-out's subscriptions, in seconds, where it
        is not the clock of ``timing``: for a local Kinesis whose clock is not the machine's.
        timing: all other clocks, waiting and randomness; another one is for simulations.
        memory: what all records that are held are counted in; None: the budget that workers of
        this process share, if they give the same ``max_held_bytes``.

        Creates the lease table if there is none. Raises `StreamNotFoundError`, `LeaseTableError`,
        `AccessDeniedError` and `ServiceError`.
        """
        rng = timing.new_rng()
        client = StreamClient(self.address(), timing.of(Retry(), rng), timing.wall_clock_ms)
        # The stream first: a typing error in its name must not leave a table behind.
        stream = client.describe()
        options = self.options
        if options.hash_range_filter and stream.distributes_records:
            _log.warning(
                "hash_range_filter is of no use on %s, and is off: the stream distributes records "
                "itself (RecordDistributionStrategy AUTO), so that hash keys do not tell whose "
                "records are a shard's.",
                client.address,
            )
            options = replace(options, hash_range_filter=False)
        table = self.table()
        table = replace(table, retry=timing.of(table.retry, rng))
        table.provision(options.table, Patience(clock=timing.clock, sleep=timing.sleep))
        worker_id = self.worker_id or default_worker_id(socket.gethostname(), os.getpid(), rng)
        renewer = LeaseRenewer(table, worker_id, options.failover_time, timing.clock)
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
            memory=memory or budget_of_process(options.max_held_bytes),
        )
        return Worker(
            settings,
            LeaseCoordinator(table, renewer, worker_id, settings=take, clock=timing.clock, rng=rng),
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
        """Run workers until they are shut down: one in this process, or a fleet of them on Spark.

        ``run()`` returns when the worker has ended. SIGTERM and SIGINT shut it down gracefully, a
        second one at once. Raises what starting the worker raises, and the error that ended it, if
        one did.

        ``run(spark, workers=8)`` submits a Spark job with a task for each worker, on any executors
        that the session has, and returns at once, with a handle. Raises `OptionError`,
        `ProcessorError` and `FleetError` before it is submitted; the handle tells of what fails
        later.
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

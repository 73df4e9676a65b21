"""The application: a name, streams and a record processor, from which workers are made."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

from sparkinesis.errors import OptionError
from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.rules.taker import TakeSettings
from sparkinesis.lease.rules.worker_ids import default_worker_id
from sparkinesis.lease.table.provisioning import Patience
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.metrics.health.address import parse_address
from sparkinesis.metrics.health.liveness import LOOK_EVERY
from sparkinesis.metrics.health.pages import ServedTally
from sparkinesis.metrics.metric import Measured, Place
from sparkinesis.metrics.metrics import AllMetrics, Metrics, metrics_of
from sparkinesis.public import public
from sparkinesis.stream.address import (
    StreamAddress,
    check_endpoint,
    check_place,
    check_table_name,
    is_loopback,
    repr_without_secrets,
    shown,
    stream_address,
)
from sparkinesis.stream.credentials import FOUND_BY_BOTO, CredentialSource
from sparkinesis.stream.position import InitialPosition
from sparkinesis.stream.timing import MACHINE, Timing
from sparkinesis.worker.dead_letters.circles import require_no_circle
from sparkinesis.worker.fleet_options import DEFAULT_FLEET_OPTIONS, FleetOptions
from sparkinesis.worker.lifecycle.settings import WorkerSettings
from sparkinesis.worker.lifecycle.signals import graceful_on_signals
from sparkinesis.worker.lifecycle.streams.open_stream import OnlyStream, Streams
from sparkinesis.worker.lifecycle.streams.opening import StreamOpener
from sparkinesis.worker.lifecycle.streams.several_streams import SeveralStreams
from sparkinesis.worker.lifecycle.streams.stream_config import (
    KEEP_FORMER,
    FormerStreams,
    InitialPositionOption,
    Stream,
    StreamConfig,
    StreamPlan,
    StreamTracker,
    check_answer,
    check_consumer,
    check_streams,
    initial_position,
    name_streams,
)
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.on_error import RETRY, OnError, check_policy
from sparkinesis.worker.options import DEFAULT_OPTIONS, WorkerOptions, check_consumer_name
from sparkinesis.worker.processor import ProcessorFactory, check_factory
from sparkinesis.worker.reporting.log_context import LogPlace
from sparkinesis.worker.reporting.teller import TELL_NOBODY, EventTeller, Teller
from sparkinesis.worker.retrieval.memory import MemoryBudget, budget_of_process
from sparkinesis.worker.retrieval.step_pool import StepPool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkinesis.fleet.fleet import Fleet

_WORKER_ID = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,256}")


@public
@dataclass(frozen=True)
class Application:
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

    name: str
    stream: str | None = None
    processor: ProcessorFactory | None = None
    region: str | None = None
    endpoint: str | None = None
    dynamodb_endpoint: str | None = None
    initial_position: InitialPositionOption = "latest"
    on_error: OnError = RETRY
    worker_id: str | None = None
    options: WorkerOptions = DEFAULT_OPTIONS
    credentials: CredentialSource = FOUND_BY_BOTO
    table_name: str | None = None
    streams: Sequence[Stream] | StreamTracker | None = None
    former_streams: FormerStreams = KEEP_FORMER

    __repr__ = repr_without_secrets

    def __post_init__(self) -> None:
        if self.processor is not None or self.streams is None:
            check_factory(self.processor)
        check_policy(self.on_error)
        self.initial()
        if not isinstance(self.name, str) or not self.name:
            raise OptionError(f"name is {self.name!r}; it must be a string, and not empty.")
        for name, kind in (
            ("options", WorkerOptions),
            ("credentials", CredentialSource),
            ("former_streams", FormerStreams),
        ):
            if not isinstance(getattr(self, name), kind):
                raise OptionError(f"{name} must be {kind.__name__}(...).")
        check_place(self.region, self.endpoint)
        if self.streams is None:
            require_no_circle({self.address(): self.on_error})
            if self.former_streams != KEEP_FORMER:
                raise OptionError("former_streams works only with streams. Set both.")
        else:
            self._check_streams(self.streams)
        if self.dynamodb_endpoint is not None:
            check_endpoint("dynamodb_endpoint", self.dynamodb_endpoint)
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
        if self.streams is not None:
            if fan_out.consumer_arn is not None:
                raise OptionError(
                    "consumer_arn is the consumer of one stream, and the application reads several:"
                    " give each StreamConfig its own consumer_arn."
                )
        elif fan_out.stream_of_arn not in {None, self.address().name}:
            raise OptionError(
                f"consumer_arn is {fan_out.consumer_arn!r}, which is a consumer of the stream "
                f"{fan_out.stream_of_arn!r}; the application reads {self.address().name!r}."
            )

    def _check_streams(self, streams: Sequence[Stream] | StreamTracker) -> None:
        if self.stream is not None:
            raise OptionError("Give either stream or streams, not both.")
        check_streams(streams)
        if not callable(streams):
            self._plans(streams)

    def initial(self) -> InitialPosition:
        """Return the initial position. Raises `OptionError`."""
        return initial_position(self.initial_position)

    def address(self) -> StreamAddress:
        """Return the stream's address. Raises `OptionError`, also if there are several streams."""
        if self.streams is not None:
            raise OptionError(f"The application {self.name!r} reads several streams.")
        if not isinstance(self.stream, str) or not self.stream:
            raise OptionError(
                f"stream is {self.stream!r}; it must be a string, and not empty. For several "
                "streams, give streams=[...]."
            )
        return stream_address(self.stream, self.region, self.endpoint, self.credentials)

    def plans(self) -> list[StreamPlan]:
        """Return the streams to read, each with its settings; calls the user's function, if any.

        Raises `OptionError`, `ProcessorError` and the errors of the function.
        """
        if self.streams is None:
            return self._plans([str(self.stream)])
        if not callable(self.streams):
            return self._plans(self.streams)
        streams = self.streams()
        check_answer(streams)
        return self._plans(streams)

    def _plans(self, streams: Iterable[Stream]) -> list[StreamPlan]:
        plans: dict[StreamAddress, StreamPlan] = {}
        for plan in map(self._plan, streams):
            if plans.setdefault(plan.address, plan) is not plan:
                raise OptionError(f"streams has {plan.name!r} twice. Leave one out.")
        require_no_circle({address: plan.on_error for address, plan in plans.items()})
        return list(plans.values())

    def _plan(self, stream: Stream) -> StreamPlan:
        if not isinstance(stream, str | StreamConfig):
            raise OptionError(
                f"streams has {stream!r}; it takes names, ARNs and StreamConfig(...)."
            )
        one = StreamConfig(stream) if isinstance(stream, str) else stream
        # The region of an ARN goes before the application's, which is for streams by name.
        region = one.region or (None if one.stream.startswith("arn:") else self.region)
        factory = one.processor or self.processor
        if factory is None:
            raise OptionError(
                f"The stream {one.stream!r} has no processor, and neither has the application."
            )
        if one.consumer_arn is not None:
            check_consumer(one, self.options)
        return StreamPlan(
            stream_address(
                one.stream,
                region if self.streams is not None else self.region,
                one.endpoint or self.endpoint,
                one.credentials or self.credentials,
            ),
            factory,
            one.on_error or self.on_error,
            self.initial()
            if one.initial_position is None
            else initial_position(one.initial_position),
            one.consumer_arn,
        )

    def stream_names(self) -> str:
        """Return the streams' names for people. Calls nothing."""
        if self.streams is None:
            return self.address().name
        if callable(self.streams):
            return "several streams"
        return name_streams([plan.name for plan in self._plans(self.streams)])

    def place(self) -> Place:
        """Return what exporters of metrics that call AWS take from the application."""
        return Place(
            region=self.region if self.streams is not None else self.address().region,
            # Of a local server, as for the lease table: metrics of tests do not reach AWS.
            endpoint=self.endpoint if is_loopback(self.endpoint) else None,
            credentials=self.credentials,
            has_several_streams=self.streams is not None,
        )

    def table(self) -> LeaseTable:
        """Return the lease table. Nothing is called or created."""
        endpoint = self.dynamodb_endpoint
        if endpoint is None and is_loopback(self.endpoint):
            # A VPC endpoint of Kinesis, in contrast, does not answer for DynamoDB.
            endpoint = self.endpoint
        region = self.region if self.streams is not None else self.address().region
        return LeaseTable(self.table_name or self.name, region, endpoint, self.credentials)

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
        rng = timing.new_rng()
        worker_id = self.worker_id or default_worker_id(socket.gethostname(), os.getpid(), rng)
        served = self._serve(worker_id)
        own = [one for one in (tally, served) if one is not None]
        metrics: Metrics = AllMetrics(own)
        tell: Teller = TELL_NOBODY
        try:
            measured = Measured.worker(self.name, worker_id, self.place())
            metrics = metrics_of(self.options.metrics, measured, *own)
            only_stream = self.address().name if self.streams is None else ""
            place = LogPlace(self.name, worker_id)
            tell = EventTeller(place, only_stream, metrics, self.options.on_event)
            settings = WorkerSettings(
                application=self.name,
                worker_id=worker_id,
                options=self.options,
                timing=timing,
                rng=rng,
                tell=tell,
                metrics=metrics,
                watched_every=look_every if own else None,
                memory=memory or budget_of_process(self.options.max_held_bytes),
                fetchers=StepPool(f"{self.name}-fetch", timing.clock),
                consumers=StepPool(f"{self.name}-process", timing.clock),
            )
            worker = self._worker(settings, subscription_clock)
            if served is not None:
                worker.serve(served)
            return worker
        except BaseException:
            tell.close()
            metrics.close()
            raise

    def _serve(self, worker_id: str) -> ServedTally | None:
        """Take the port of the option ``http``, before anything is called. Raises `OptionError`."""
        if self.options.http is None:
            return None
        address = parse_address("http", self.options.http)
        return ServedTally.starting(address, {"application": self.name, "worker": worker_id})

    def _worker(
        self, settings: WorkerSettings, subscription_clock: Callable[[], float] | None
    ) -> Worker:
        options, worker_id = settings.options, settings.worker_id
        timing, rng = settings.timing, settings.rng
        table = self.table()
        table = replace(table, retry=timing.of(table.retry, rng), metrics=settings.metrics)
        renewer = LeaseRenewer(
            table,
            worker_id,
            options.failover_time,
            timing.clock,
            settings.tell,
            metrics=settings.metrics,
        )
        coordinator = LeaseCoordinator(
            table,
            renewer,
            worker_id,
            settings=TakeSettings(
                failover_time=options.failover_time,
                max_leases=options.max_leases,
                max_leases_to_steal=options.max_leases_to_steal,
                handoff_timeout=options.handoff_timeout,
                scan_interval=options.taker_interval,
            ),
            clock=timing.clock,
            rng=rng,
            tell=settings.tell,
            metrics=settings.metrics,
            several_streams=self.streams is not None,
        )
        opener = StreamOpener(
            settings, table, subscription_clock, lambda: len(coordinator.snapshot.leases)
        )
        # The streams first: a typing error in a name must not create a lease table.
        streams = self._find_streams(opener, table, coordinator, settings)
        table.provision(options.table, Patience(clock=timing.clock, sleep=timing.sleep))
        return Worker(settings, coordinator, streams, self.initial())

    def _find_streams(
        self,
        opener: StreamOpener,
        table: LeaseTable,
        coordinator: LeaseCoordinator,
        settings: WorkerSettings,
    ) -> Streams:
        if self.streams is None:
            (plan,) = self.plans()
            client = opener.client(plan.address)
            return OnlyStream(opener.open(plan, client, client.describe()), table)
        several = SeveralStreams(
            self.plans,
            opener=opener,
            table=table,
            snapshot=lambda: coordinator.snapshot,
            settings=settings,
            former=self.former_streams,
            may_change=callable(self.streams),
        )

        def wait(seconds: float) -> bool:
            settings.timing.sleep(seconds)
            return False

        several.find(wait)
        return several

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

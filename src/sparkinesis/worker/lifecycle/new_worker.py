"""Makes a worker of an application: its metrics, lease table, coordinator and streams."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.rules.other_workers import default_worker_id
from sparkinesis.lease.rules.taker import TakeSettings
from sparkinesis.lease.table.provisioning import Patience
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.metrics.health.liveness import CHECK_EVERY
from sparkinesis.metrics.metric import Measured
from sparkinesis.metrics.metrics import AllMetrics, Metrics, metrics_of
from sparkinesis.stream.timing import MACHINE, Timing
from sparkinesis.worker.application_settings import ApplicationSettings
from sparkinesis.worker.lifecycle.settings import ReadRange, WorkerSettings
from sparkinesis.worker.lifecycle.streams.open_stream import OnlyStream, Streams
from sparkinesis.worker.lifecycle.streams.opening import StreamOpener
from sparkinesis.worker.lifecycle.streams.several_streams import SeveralStreams
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.processors.user_calls import UserCalls
from sparkinesis.worker.reporting.event_log import DISCARD_EVENTS, EventPublisher, WorkerEvents
from sparkinesis.worker.reporting.failures import Failures
from sparkinesis.worker.reporting.health import serving
from sparkinesis.worker.reporting.log_context import LogPlace
from sparkinesis.worker.retrieval.memory import MemoryBudget, budget_of_process
from sparkinesis.worker.retrieval.step_pool import StepPool

if TYPE_CHECKING:
    import asyncio

    from sparkinesis.lease.assignment.assignment import Assignment


def new_worker(
    application: ApplicationSettings,
    *,
    subscription_clock: Callable[[], float] | None = None,
    timing: Timing = MACHINE,
    memory: MemoryBudget | None = None,
    tally: Metrics | None = None,
    look_every: float = CHECK_EVERY,
    loop: asyncio.AbstractEventLoop | None = None,
    calls: UserCalls | None = None,
    reads: ReadRange | None = None,
) -> Worker:
    """Make a worker; `Application.worker` says what it takes and raises.

    calls: makes the calls of record processors, where a test watches them.
    """
    name, options = application.name, application.options
    rng = timing.new_rng()
    worker_id = application.worker_id or default_worker_id(socket.gethostname(), os.getpid(), rng)
    # The port first, before anything is called.
    served = serving(options.http, {"application": name, "worker": worker_id})
    own = [one for one in (tally, served) if one is not None]
    metrics: Metrics = AllMetrics(own)
    publish: EventPublisher = DISCARD_EVENTS
    try:
        measured = Measured.worker(name, worker_id, application.place())
        metrics = metrics_of(options.metrics, measured, *own)
        only_stream = application.address().name if application.streams is None else ""
        publish = WorkerEvents(LogPlace(name, worker_id), only_stream, metrics, options.on_event)
        settings = WorkerSettings(
            application=name,
            worker_id=worker_id,
            options=options,
            timing=timing,
            rng=rng,
            publish=publish,
            failures=Failures(timing.wall_clock_ms),
            metrics=metrics,
            watched_every=look_every if own else None,
            reads=reads,
            memory=memory or budget_of_process(options.max_held_bytes),
            fetchers=StepPool(f"{name}-fetch", timing.clock),
            consumers=StepPool(f"{name}-process", timing.clock),
            calls=calls or UserCalls(name, timing.clock, loop),
        )
        worker = _assemble(application, settings, subscription_clock)
        if served is not None:
            worker.serve(served)
        return worker
    except BaseException:
        publish.close()
        metrics.close()
        raise


def _assemble(
    application: ApplicationSettings,
    settings: WorkerSettings,
    subscription_clock: Callable[[], float] | None,
) -> Worker:
    options, worker_id = settings.options, settings.worker_id
    timing, rng = settings.timing, settings.rng
    table = application.table()
    table = replace(table, retry=timing.of(table.retry, rng), metrics=settings.metrics)
    renewer = LeaseRenewer(
        table,
        worker_id,
        options.failover_time,
        timing.clock,
        settings.publish,
        metrics=settings.metrics,
    )
    taking = TakeSettings(
        failover_time=options.failover_time,
        max_leases=options.max_leases,
        max_leases_to_steal=options.max_leases_to_steal,
        handoff_timeout=options.handoff_timeout,
        scan_interval=options.taker_interval,
    )
    coordinator = LeaseCoordinator(
        table,
        renewer,
        worker_id,
        settings=taking,
        clock=timing.clock,
        rng=rng,
        publish=settings.publish,
        metrics=settings.metrics,
        several_streams=application.streams is not None,
        join=functools.partial(_join, application.name, settings, table, taking),
        wants_leader=options.balance != "count",
    )
    opener = StreamOpener(
        settings, table, subscription_clock, lambda: len(coordinator.snapshot.leases)
    )
    # The streams first: a typing error in a name must not create a lease table.
    streams = _find_streams(application, opener, table, coordinator, settings)
    table.provision(options.table, Patience(clock=timing.clock, sleep=timing.sleep))
    return Worker(settings, coordinator, streams, application.initial())


def _join(
    application: str, settings: WorkerSettings, table: LeaseTable, taking: TakeSettings
) -> Assignment:
    """Return a worker's part in the assignment by a leader, which most applications lack."""
    from sparkinesis.lease.assignment.assignment import Assignment  # noqa: PLC0415
    from sparkinesis.lease.assignment.load_report import CpuMeter  # noqa: PLC0415

    options, timing = settings.options, settings.timing
    return Assignment(
        table,
        application,
        settings.worker_id,
        balance=options.balance,
        settings=taking,
        clock=timing.clock,
        wall_clock_ms=timing.wall_clock_ms,
        rng=settings.rng,
        meter=None if options.balance == "throughput" else CpuMeter(clock=timing.clock),
        publish=settings.publish,
    )


def _find_streams(
    application: ApplicationSettings,
    opener: StreamOpener,
    table: LeaseTable,
    coordinator: LeaseCoordinator,
    settings: WorkerSettings,
) -> Streams:
    if application.streams is None:
        (plan,) = application.plans()
        client = opener.client(plan.address)
        return OnlyStream(opener.open(plan, client, client.describe_created()), table)
    several = SeveralStreams(
        application.plans,
        opener=opener,
        table=table,
        snapshot=lambda: coordinator.snapshot,
        settings=settings,
        former=application.former_streams,
        may_change=callable(application.streams),
    )

    def wait(seconds: float) -> bool:
        settings.timing.sleep(seconds)
        return False

    several.find(wait)
    return several

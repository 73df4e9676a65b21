"""A query and its streams in one thread: the driver, executors, Kinesis, and all that fails.

Everything in a world follows from its history.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from unittest import mock

from sparkinesis.errors import DataLossError, OffsetError, SparkinesisError
from sparkinesis.local import LocalKinesis
from sparkinesis.local.model import limits
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.source.planning.stream_tools import PlanCalls
from sparkinesis.source.reading.subscribed_cursor import RangeSubscription, SubscribeLimiter
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.fan_out.registered_consumers import register_consumer
from sparkinesis.stream.position import ShardRange
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from tests.simulation.kinesis import REGION, KinesisClient
from tests.simulation.logs import logs_noted
from tests.simulation.network import URL, Network
from tests.simulation.primitives import Lock, installed
from tests.simulation.query import history as events
from tests.simulation.query.checkpoint import Checkpoint, Sink
from tests.simulation.query.cluster import Cluster, JobFailedError, Try
from tests.simulation.query.engine import Engine, Plan, Run
from tests.simulation.query.expected import Loss, missing
from tests.simulation.query.history import STREAMS, CrashDriver, Event, History, Tasks
from tests.simulation.query.streams import Streams
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.subscription import SubscriptionClient

EPOCH_MS = 1_700_000_000_000
_LOOK_AGAIN = 10.0
"""The minimum of seconds between two checks of whether the world is settled."""
_RESTART = 10.0
"""Seconds until a failed query is restarted."""


def machine_of(process: Process) -> str:
    return process.name.rpartition(" ")[2]


@dataclass(frozen=True, slots=True)
class Note:
    at: float
    by: str
    text: str


class _Slot:
    """The slot that all processes of a machine share; a killed process releases it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.free_at = float("-inf")
        self._lock = Lock(scheduler)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


@dataclass
class Failure:
    """The error that ended a run."""

    at: float
    error: BaseException


@dataclass
class World:
    history: History
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    sink: Sink = field(default_factory=Sink)
    runs: list[Run] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    partitions: dict[int, list[list[tuple[str, ShardRange]]]] = field(default_factory=dict)
    """The plans of each batch's tasks, one for each try, by batch."""
    tries: list[Try] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    """The losses that errors and warnings reported."""
    notes: list[Note] = field(default_factory=list)
    calls: dict[tuple[str, str], int] = field(default_factory=dict)
    """The number of calls by process and operation."""
    settled_after: float | None = None
    """Seconds from the end of all faults until everything was in order."""

    def __post_init__(self) -> None:
        history = self.history
        self.scheduler = Scheduler(history.seed, preempt=history.preempt)
        self.kinesis = LocalKinesis(clock=self.now_ms, empty_pages=history.empty_pages)
        self.streams = Streams(self.kinesis, history.shards)
        self.options = {"region": REGION, "endpoint": URL, "streamName": STREAMS[0]}
        self.options.update(history.options)
        self.behaviour = history.tasks
        self.cluster: Cluster | None = None
        self._run: Run | None = None
        self._starts = 0
        self._paused_until: dict[Process, float] = {}
        self._wall_clock_off_ms = 0
        self._network = Network(self.scheduler, self._fault)
        self._client = KinesisClient(self._network, self.kinesis)
        self.subscriptions = SubscriptionClient(
            self.scheduler, self._network, self.kinesis, self._fault, self._note_subscription
        )
        self._client.subscribe_to_shard = self.subscriptions.subscribe_to_shard
        self._limiters: dict[tuple[str, StreamAddress, str, str], SubscribeLimiter] = {}
        self._budgets: dict[tuple[str, StreamAddress, str, Pace], ShardBudget] = {}
        self._troubles: list[events.Trouble] = []
        self._crash_when_planned: events.CrashDriver | None = None

    @staticmethod
    def epoch_ms(at: float) -> int:
        """An instant of virtual time, as the service has it."""
        return EPOCH_MS + int(at * 1000)

    def now_ms(self) -> int:
        return self.epoch_ms(self.scheduler.now)

    def note(self, text: str) -> None:
        task = self.scheduler.current
        by = "" if task is None else task.process.name
        self.notes.append(Note(self.scheduler.now, by, text))

    # --- what happens

    def run(self) -> World:
        """The whole history, and what comes after it until everything is in order."""
        with ExitStack() as stack:
            stack.enter_context(installed(self.scheduler))
            stack.enter_context(self._in_place())
            stack.enter_context(logs_noted(logging.WARNING, self._note_warning))
            try:
                self._happens()
            finally:
                self.scheduler.end()
        return self

    def _happens(self) -> None:
        scheduler, history = self.scheduler, self.history
        self._start_later(history.begins)
        for at, event in history.events:
            assert at < history.duration, "nothing happens behind the end of all faults"
            scheduler.at(at, functools.partial(self._happen, event))
        scheduler.run_until(history.duration)
        self._end_of_faults()
        deadline = scheduler.now + history.patience + self._time_to_read()
        while scheduler.now < deadline:
            scheduler.run_until(scheduler.now + max(_LOOK_AGAIN, history.trigger.seconds))
            if not missing(self):
                self.settled_after = scheduler.now - history.duration
                break
        # What is wrong may show in the next batches.
        scheduler.run_until(scheduler.now + 2 * history.trigger.seconds + _LOOK_AGAIN)

    def _time_to_read(self) -> float:
        """Seconds that it takes to read all in batches as small as they may be."""
        batches = 4
        if self._run is not None and self._run.asked.allowance.is_limited:
            batches += len(self.streams.records)
        return batches * max(self.history.trigger.seconds, 3.0)

    def _happen(self, event: Event) -> None:
        self.note(f"--- {event}")
        scheduler = self.scheduler
        match event:
            case events.Stop():
                self._kill()
                self.options.update(self._possible(event.options))
                self._start_later(event.seconds)
            case events.CrashDriver(when_planned=True):
                self._crash_when_planned = event
            case events.CrashDriver():
                if self._kill():
                    self._start_later(event.seconds)
            case events.CrashExecutor() | events.Pause():
                self._happen_to(event)
            case events.ClockJump():
                self._wall_clock_off_ms = round(event.seconds * 1000)
            case events.Trouble():
                self._troubles.append(event)
                ends = scheduler.now + event.seconds
                scheduler.at(ends, lambda: self._end_trouble(event))
            case events.Lag():
                self._client.list_lag_ms = round(event.behind * 1000)
                scheduler.at(scheduler.now + event.seconds, self._end_lag)
            case _:
                self.streams.happen(event)

    def _possible(self, options: tuple[tuple[str, str], ...]) -> dict[str, str]:
        """Without a second stream where there is only one, and without another beginning for a
        first batch that is planned and not done: Spark does not store where that begins, so users
        are told not to. LATEST, with which its rows would be lost, is refused, and so possible."""
        left_out = {"streamName"} if len(self.history.shards) == 1 else set()
        new = dict(options)
        if not self.checkpoint.commits and self.first_initial_position not in {None, "latest"}:
            left_out |= {"initialPosition"} if new.get("initialPosition") != "latest" else set()
        return {name: text for name, text in new.items() if name not in left_out}

    @property
    def first_initial_position(self) -> str | None:
        """The option by which the first batch was planned, once it was."""
        plans = (plan for plan in self.plans if plan.batch == 0)
        return next((plan.run.options["initialPosition"] for plan in plans), None)

    def _happen_to(self, event: events.CrashExecutor | events.Pause) -> None:
        if self._run is None or self.cluster is None:
            if isinstance(event, events.Pause) and event.executor is None:
                self._start_later(event.seconds)
            return
        if event.executor is None:
            process = self._run.process
        else:
            process = self.cluster.executors[event.executor % len(self.cluster.executors)]
        if isinstance(event, events.CrashExecutor):
            process.kill()
        else:
            self._pause(process, event.seconds)

    def _pause(self, process: Process, seconds: float) -> None:
        ends = self.scheduler.now + seconds
        self._paused_until[process] = max(ends, self._paused_until.get(process, 0.0))
        process.pause()

        def resume() -> None:
            if self.scheduler.now >= self._paused_until[process]:
                process.resume()

        self.scheduler.at(ends, resume)

    def _end_trouble(self, event: events.Trouble) -> None:
        if event in self._troubles:
            self._troubles.remove(event)

    def _end_lag(self) -> None:
        self._client.list_lag_ms = 0

    def _end_of_faults(self) -> None:
        self.note("--- no faults from now on")
        self._troubles.clear()
        self._crash_when_planned = None
        self._end_lag()
        self.kinesis.empty_pages = 0
        self.behaviour = Tasks(speculation=self.behaviour.speculation)
        if self._run is not None and self.cluster is not None:
            self.cluster.behaviour = self.behaviour
            for process in (self._run.process, *self.cluster.executors):
                process.resume()
        self._start()

    # --- the query

    def _start_later(self, seconds: float) -> None:
        """Unless somebody has other plans meanwhile."""
        self._starts += 1
        this = self._starts

        def start() -> None:
            if this == self._starts:
                self._start()

        self.scheduler.at(self.scheduler.now + seconds, start)

    def _start(self) -> None:
        """A run of the query, unless there is one."""
        if self._run is not None:
            return
        number = len(self.runs)
        process = self.scheduler.process(f"driver {number}")
        run = self._run = Run(number, dict(self.options), self.scheduler.now, process)
        self.runs.append(run)
        made = 0

        def new_executor(machine: int) -> Process:
            nonlocal made
            made += 1
            return self.scheduler.process(f"executor {number}.{made} on machine {machine}")

        cluster = self.cluster = Cluster(
            self.scheduler, self.behaviour, new_executor, self.tries, self.note
        )
        self.scheduler.spawn(process, "stream execution", lambda: self._main(run, cluster))

    def _main(self, run: Run, cluster: Cluster) -> None:
        try:
            Engine(self, run, cluster).run()
        except (SparkinesisError, JobFailedError) as error:
            self._failed(error)
        restart = _RESTART if run.ended is None else self.history.trigger.seconds
        self._kill()
        self._start_later(restart)

    def _failed(self, error: SparkinesisError | JobFailedError) -> None:
        self.note(f"the query failed: {type(error).__name__}: {error}")
        self.failures.append(Failure(self.scheduler.now, error))
        cause = error.__cause__ if isinstance(error, JobFailedError) else error
        if isinstance(cause, DataLossError):
            self.losses.append(Loss(self.scheduler.now, str(cause)))
            self.options["failOnDataLoss"] = "false"  # as the error advises
        if isinstance(cause, OffsetError):
            assert self.first_initial_position is not None, cause
            self.options["initialPosition"] = self.first_initial_position  # as it advises

    def planned(self) -> None:
        """A batch is in the offset log."""
        crash, self._crash_when_planned = self._crash_when_planned, None
        if crash is not None:
            # By another thread than that of the driver, which ends by this.
            now = self.scheduler.now
            self.scheduler.at(now, functools.partial(self._happen, CrashDriver(crash.seconds)))

    def _kill(self) -> bool:
        """The driver ends, its executors as well, a little later; whether there was one."""
        run, cluster = self._run, self.cluster
        if run is None or cluster is None:
            return False
        self._run = self.cluster = None
        run.process.kill()
        for executor in cluster.executors:
            later = self.scheduler.now + 3.0 * self.scheduler.rng.random()
            self.scheduler.at(later, executor.kill)
        return True

    # --- in place of a machine, and of the network

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Puts the source into this world during the block."""

        def call_client(_: StreamAddress) -> KinesisClient:
            return self._client

        # In a third of the histories, tasks are handed records; in the others they fetch all.
        kept_bytes = 100 if self.history.seed % 3 == 0 else -1
        replacements: dict[str, object] = {
            "sparkinesis.source.planning.probing.records_in_hand.KEPT_BYTES": kept_bytes,
            "sparkinesis.stream.calls.caller.call_client": call_client,
            "sparkinesis.source.planning.source_planner.StreamClient": self._new_client,
            "sparkinesis.source.reading.shard_reader.StreamClient": self._new_client,
            "sparkinesis.source.reading.shard_reader._budget": self._budget,
            "sparkinesis.source.reading.shard_reader._limiter": self._limiter,
            "sparkinesis.source.reading.shard_reader.RangeSubscription": functools.partial(
                RangeSubscription, clock=lambda: self.scheduler.now
            ),
            "sparkinesis.source.planning.source_planner.register_consumer": functools.partial(
                register_consumer, retry=self._retry(60.0)
            ),
            "sparkinesis.source.planning.stream_planner.STARTUP_RETRY": self._retry(10.0),
            "sparkinesis.source.planning.kept.BRIEF_RETRY": self._retry(5.0),
        }
        with ExitStack() as stack:
            for name, replacement in replacements.items():
                stack.enter_context(mock.patch(name, replacement))
            most = self.history.event_bytes
            stack.enter_context(mock.patch.object(limits, "MAX_EVENT_BYTES", most))
            yield

    def _new_client(self, address: StreamAddress, metrics: Metrics = OFF) -> StreamClient:
        """Of a plan, or of a reader, which counts nothing.

        The lock of what counts is a real one: nobody waits while it is held, and a simulated one
        would give the turn to others.
        """
        if isinstance(metrics, PlanCalls):
            metrics._lock = threading.Lock()
        return StreamClient(
            address,
            self._retry(300.0),
            lambda: self.now_ms() + self._wall_clock_off_ms,
            metrics,
        )

    def _retry(self, give_up_after: float) -> Backoff:
        scheduler = self.scheduler
        return Backoff(
            give_up_after=give_up_after,
            clock=lambda: scheduler.now,
            sleep=scheduler.sleep,
            uniform=scheduler.rng.uniform,
        )

    def _budget(self, address: StreamAddress, shard_id: str, pace: Pace) -> ShardBudget:
        """One for all processes of a machine, whatever becomes of them."""
        key = self._machine(), address, shard_id, pace
        if key not in self._budgets:
            scheduler = self.scheduler
            self._budgets[key] = ShardBudget(pace, lambda: scheduler.now, scheduler.sleep)
        return self._budgets[key]

    def _limiter(self, address: StreamAddress, shard_id: str, arn: str) -> SubscribeLimiter:
        """The same for subscriptions."""
        key = self._machine(), address, shard_id, arn
        if key not in self._limiters:
            slot = _Slot(self.scheduler)
            self._limiters[key] = SubscribeLimiter(slot, lambda: self.scheduler.now)
        return self._limiters[key]

    def _machine(self) -> str:
        task = self.scheduler.current
        assert task is not None
        return machine_of(task.process)

    def _note_subscription(self, shard_id: str, text: str, error: str | None) -> None:
        self.note(f"{text} to {shard_id}: {error}")

    def _fault(
        self, service: str, operation: str, process: Process, stream: str = ""
    ) -> str | None:
        del stream
        key = (process.name, operation)
        self.calls[key] = self.calls.get(key, 0) + 1
        for trouble in self._troubles:
            if trouble.side is not None and not process.name.startswith(trouble.side):
                continue
            if self.scheduler.rng.random() < trouble.rate:
                self.note(f"{operation} meets {trouble.kind}")
                return trouble.kind
        if self._run is not None and process is self._run.process and self._run.plans:
            self._run.plans[-1].calls += 1
        return None

    def _note_warning(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.note(f"warns: {text}")
        if "Resuming from the oldest record" in text:
            self.losses.append(Loss(self.scheduler.now, text))

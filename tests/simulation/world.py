"""A whole application in one thread: its workers, the stream, the lease table, and all that fails.

Everything in a world follows from its history.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any, TypeAlias
from unittest import mock

from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.rows import BrokenLease, read_row
from sparkinesis.local import Fault, FaultPlan, LocalKinesis
from sparkinesis.local.model import limits
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.retrieval.step_pool import StepPool
from tests.simulation import history as events
from tests.simulation.connection import Sockets, is_readable
from tests.simulation.consumers import Operator
from tests.simulation.coroutines import loop_of_process
from tests.simulation.counting import Counts
from tests.simulation.dynamodb import (
    TIMEOUT,
    DynamoDBClient,
    LeaseTableModel,
    Write,
    draw_errors,
)
from tests.simulation.fleet import APPLICATION, WorkerFleet, stream_name
from tests.simulation.history import Event, History
from tests.simulation.java_leader import JavaLeaders
from tests.simulation.journal import Journal
from tests.simulation.kinesis import KinesisClient
from tests.simulation.logs import events_noted
from tests.simulation.network import LOSE_ANSWERS, Network, longest_way
from tests.simulation.owed_records import is_passed_over, owed
from tests.simulation.primitives import installed
from tests.simulation.producer import HAPPENS_TO_THE_STREAM, Producer, ShardLog
from tests.simulation.scheduler import Killed, Process, Scheduler
from tests.simulation.subscription import SubscriptionClient
from tests.simulation.table_writers import TableWriters

ReadWrite: TypeAlias = tuple[Write, Lease | None, Lease | None]
"""A write to the lease table, with the lease before and after."""

HAPPENS_TO_SEVERAL_STREAMS = (events.On, events.Track, events.TrackerFails, events.Anew)

_UNMEASURED = 0.02
"""The probability that the load of a machine cannot be measured."""
_MARK_AGAIN = 60.0
"""Seconds after which a mark may be older than the start of the worker that is to process it."""
_SLOT = 10.0
"""Seconds between two checks of whether the world is settled."""


@dataclass
class CpuLoad:
    """The load of a simulated machine, in place of a `CpuMeter`."""

    rng: random.Random
    can_measure = True

    def measure(self) -> float | None:
        return None if self.rng.random() < _UNMEASURED else 100.0 * self.rng.random()


@dataclass
class World:
    history: History
    scheduler: Scheduler = field(init=False)
    kinesis: LocalKinesis = field(init=False)
    kinesis_client: KinesisClient = field(init=False)
    table: LeaseTableModel = field(init=False)
    journal: Journal = field(init=False)
    producer: Producer = field(init=False)
    fleet: WorkerFleet = field(init=False)
    table_writers: TableWriters = field(init=False)
    java: JavaLeaders = field(init=False)
    subscriptions: SubscriptionClient = field(init=False)
    marks: dict[str, str] = field(default_factory=dict)
    """The last record that was put into each open shard when all faults had ended, by shard."""
    _marked_at: float = 0.0
    calls: dict[tuple[str, str], int] = field(default_factory=dict)
    """The number of calls by process and operation."""
    failed_calls: dict[tuple[str, str], int] = field(default_factory=dict)
    """The number of calls that met a fault, by process and operation."""
    failed_batches: list[tuple[float, str, str]] = field(default_factory=list)
    """Calls to renew leases together that met a fault: virtual seconds, process, kind."""
    unanswered: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Calls to the lease table whose answers were lost or late, by process: when each was sent, and
    when it had arrived at the latest."""
    deregistrations: list[tuple[float, str]] = field(default_factory=list)
    """The deregistrations of the consumer: virtual seconds, process."""
    told: list[tuple[float, str, str]] = field(default_factory=list)
    """The losses that workers logged: virtual seconds, process, shard."""
    endings: list[tuple[float, str, str, str]] = field(default_factory=list)
    """When a worker's lease ended: virtual seconds, process, lease, and why by its log."""
    ended_at: float = 0.0
    unsettled: list[str] = field(default_factory=list)
    """The disorder that was left when the history's patience was over."""
    settled_after: float | None = None
    """Seconds from the end of all faults until everything was in order."""
    leaving_at: float = 0.0
    """The time at which all workers are asked to shut down in the end."""
    left_after: float | None = None
    """Seconds that it took all workers to shut down in the end."""
    means_latest: bool = False
    """True if the initial position is the instant that LATEST meant."""

    def __post_init__(self) -> None:
        history = self.history
        self.scheduler = Scheduler(history.seed, preempt=history.preempt)
        self.journal = Journal(self.scheduler)
        self.kinesis = LocalKinesis(
            clock=self.journal.now_ms,
            empty_pages=history.empty_pages,
            consumer_delay_ms=round(history.consumer_delay * 1000),
            faults=_oddity(history),
        )
        self.producer = self._make_producer()
        self.table = LeaseTableModel(APPLICATION, lambda: self.scheduler.now, self.scheduler.rng)
        self.table.staleness = history.staleness
        self.table.server = history.table_server
        options = WorkerOptions(**history.options)
        self.fleet = WorkerFleet(history, self.scheduler, self.journal, options)
        seconds, records = options.checkpoint_seconds, options.checkpoint_records
        if history.is_automatic and seconds is records is None:
            options = replace(options, checkpoint_seconds=1.0 if options.concurrency else 0.0)
        self.options = options
        """Those of the workers, with the automatic checkpoints that nobody asked for."""
        self.table_writers = TableWriters(self.scheduler, self.table, self.journal, self._is_open)
        self.java = JavaLeaders(
            self.scheduler, self.table, self.journal.now_ms, options.failover_time
        )
        if history.mode is not None:
            self.java.set_mode(history.mode, is_java=True)
        network = Network(self.scheduler, self._fault)
        self.kinesis_client = KinesisClient(network, self.kinesis, list_page=history.list_page)
        self.subscriptions = SubscriptionClient(
            self.scheduler, network, self.kinesis, self._fault, self.journal.write
        )
        self.kinesis_client.subscribe_to_shard = self.subscriptions.subscribe_to_shard
        self._operator = Operator(self.kinesis, self.producer.stream)
        if (arn := self.options.fan_out.consumer_arn) is not None:
            assert self._operator.register(arn.rpartition("/")[2].partition(":")[0]) == arn
        self._dynamodb_client = DynamoDBClient(network, self.table, self._statement_errors)
        self._row_problems: list[events.Trouble] = []
        self._read: tuple[list[Write], list[ReadWrite], list[ReadWrite]] = ([], [], [])
        self._read_once = _ReadOnce()

    def _make_producer(self) -> Producer:
        history = self.history
        return Producer(self.kinesis, self.scheduler, history.shards, history.arrival_jitter)

    def may_begin_anew(self, name: str, instant_ms: int | None, at: float) -> bool:
        """True if the first lease after all were deleted may begin there, unlike the first ones."""
        del name, instant_ms, at
        return False

    def _meter(self, clock: Callable[[], float]) -> CpuLoad:
        del clock
        return CpuLoad(self.scheduler.rng)

    def _is_open(self, key: str) -> bool:
        """True if the shard of a lease is open."""
        return self.producer.shards[key].is_open

    def leases(self) -> Iterator[ReadWrite]:
        """Yields all writes to the table so far, each with the lease before and after."""
        return iter(self._read_writes()[1])

    def moves_of_leases(self) -> Iterator[ReadWrite]:
        """Yields those that made, deleted or moved a lease: few, as most renew one."""
        return iter(self._read_writes()[2])

    def _read_writes(self) -> tuple[list[Write], list[ReadWrite], list[ReadWrite]]:
        """Reads the writes that came since the last call: worlds ask for them hundreds of times."""
        writes = self.table.writes
        if self._read[0] is not writes:
            self._read = writes, [], []
        _, found, moves = self._read
        for write in writes[len(found) :]:
            before, after = self._lease(write.before), self._lease(write.after)
            found.append((write, before, after))
            if before is None or after is None or _place(before) != _place(after):
                moves.append(found[-1])
        return self._read

    def lease_of(self, key: str) -> Lease | None:
        """The lease of a key as it is now."""
        return self._lease(self.table.rows.get(key))

    def _lease(self, row: Mapping[str, Any] | None) -> Lease | None:
        found = None if row is None else self._read_once(row)
        return found if isinstance(found, Lease) else None

    @property
    def counts(self) -> Counts:
        """What the workers' metrics count."""
        return self.journal.counts

    def logs(self) -> Iterator[ShardLog]:
        """Yields the records of each shard."""
        yield from self.producer.logs.values()

    # --- what happens

    def run(self) -> World:
        """Plays the whole history, waits until the world is settled, and shuts the workers down."""
        with ExitStack() as stack:
            for context in (
                installed(self.scheduler),
                _replaced(
                    "sparkinesis.stream.fan_out.current_subscription.socket_watch", Sockets()
                ),
                mock.patch(
                    "sparkinesis.stream.fan_out.current_subscription.is_readable", is_readable
                ),
                mock.patch(
                    "sparkinesis.worker.processors.event_loop.loop_of_process",
                    partial(loop_of_process, self.scheduler),
                ),
                _errors_of_steps_noted(self.scheduler),
                _replaced("sparkinesis.stream.calls.caller.call_client", self.kinesis_client),
                mock.patch.object(
                    limits, "SUBSCRIPTION_LIFE_MS", round(self.history.subscription_life * 1000)
                ),
                mock.patch.object(limits, "MAX_EVENT_BYTES", self.history.event_bytes),
                _replaced("sparkinesis.lease.table.calls.dynamodb_client", self._dynamodb_client),
                mock.patch("sparkinesis.lease.table.rows.read_row", self._read_once),
                mock.patch("sparkinesis.lease.assignment.load_report.CpuMeter", self._meter),
                *(_own_rows_of_few_leases() if self.history.reads_own else ()),
                self.counts.installed(),
                events_noted(self.scheduler, self.told, self.endings),
            ):
                stack.enter_context(context)
            try:
                self._run()
            finally:
                self.scheduler.end()
        return self

    def _run(self) -> None:
        scheduler = self.scheduler
        for at, event in self.history.events:
            assert at < self.history.duration, "nothing happens behind the end of all faults"
            scheduler.at(at, partial(self._happen, event))
        scheduler.run_until(self.history.duration)
        self._end_of_faults()
        deadline = scheduler.now + self.history.patience
        # A process that has slept for too long must have found out about its leases.
        scheduler.run_until(scheduler.now + 2 * self.options.failover_time)
        while not self.table_writers.are_done() and scheduler.now < deadline:
            scheduler.run_until(scheduler.now + 1.0)
        self._mark()
        while not self.is_settled() and scheduler.now < deadline:
            self._mark_again()
            scheduler.run_until(scheduler.now + _SLOT)
        self.unsettled = self.disorder()
        if not self.unsettled:
            self.settled_after = scheduler.now - self.history.duration
        self.fleet.memory.look()
        began = self.leaving_at = scheduler.now
        for slot in self.fleet.wanted():
            self.fleet.shut_down(slot)
        deadline = scheduler.now + self.options.shutdown_timeout * 2
        while self.fleet.live_processes() and scheduler.now < deadline:
            scheduler.run_until(scheduler.now + 1.0)
        if not self.fleet.live_processes():
            self.left_after = scheduler.now - began
        self.ended_at = scheduler.now

    def _mark(self, among: Container[str] | None = None) -> None:
        self.marks |= self.producer.put_marks(among)
        self._marked_at = self.scheduler.now

    def _mark_again(self) -> None:
        """Puts a new mark into each shard whose last mark need not be processed any more.

        The mark is too old for ``skip_older_than``, or a lease was created behind it only now: one
        that was deleted by hand, or one of shards that expired while no worker ran.
        """
        bound = self.options.skip_older_than
        if bound is not None:
            # 0: older than the worker's start. A mark a slot is more than a loop may get through.
            since = self.scheduler.now - (bound or _MARK_AGAIN)
            self._mark([shard for shard in self._unmarked() if self._put_at(shard) < since])
        elif self._makes_leases(self._marked_at) and is_passed_over(self, self.marks.values()):
            self._mark()

    def _unmarked(self) -> list[str]:
        """The open shards whose last mark is not processed."""
        return [shard for shard, mark in self.marks.items() if mark not in self.journal.processed]

    def _put_at(self, shard: str) -> float:
        return self.producer.logs[shard].put_at[self.producer.where[self.marks[shard]][1]]

    def _makes_leases(self, since: float) -> bool:
        lately = takewhile(lambda write: write.at >= since, reversed(self.table.writes))
        return any(write.before is None for write in lately)

    def _end_of_faults(self) -> None:
        self._row_problems.clear()
        self.kinesis_client.list_lag_ms = self.kinesis_client.date_ahead_ms = 0
        self._operator.disperse()
        self.fleet.tracker_fails = False
        self.fleet.resume_all()
        self.java.end()
        # As many workers as the shards take, with their max_leases. Those that have given up on a
        # shard are not to read it: there are so many new ones then, and one at least.
        needed = -(-self._count_shards() // self.options.max_leases)
        if self.history.on_error == "stop":
            needed = max(1, needed)
        else:
            needed -= len(self.fleet.wanted())
        # Not all at once: an account may call DescribeStreamSummary 20 times a second.
        for number in range(needed):
            pause = max(1, len(self.history.streams)) / 10
            self.scheduler.at(self.scheduler.now + number * pause, self._start_another)

    def _count_shards(self) -> int:
        """The number of shards that the service lists now."""
        return len(self.producer.stream.shards)

    def _start_another(self) -> None:
        self.fleet.happen(events.Start(1 + max(self.fleet.slots, default=0)))

    def was_graceful(self) -> bool:
        """True if all workers of the end have shut down in time and without an error."""
        last = [slot.worker for slot in self.fleet.slots.values() if slot.worker is not None]
        return self.left_after is not None and all(
            worker.was_graceful and worker.failure is None for worker in last
        )

    def is_settled(self) -> bool:
        """True if all owed records are processed and a live worker reads every open shard."""
        return not self.disorder()

    def disorder(self) -> list[str]:
        """The reasons why the world is not settled; the cheap checks come first."""
        unmarked = [self.marks[shard] for shard in self._unmarked()]
        if unread := unmarked[:3] or self.unread():
            return unread
        return owed(self)[:3]

    def unread(self) -> list[str]:
        """Open shards whose lease's owner is not the single worker that reads them, as text."""
        holders: dict[str, list[str]] = {}
        for slot in self.fleet.wanted():
            if slot.worker is not None:
                for status in slot.worker.status():
                    holders.setdefault(status.lease, []).append(slot.worker_id)
        wrong = []
        for key in self._open_keys():
            owner = self.table.rows.get(key, {}).get("leaseOwner", {}).get("S")
            if owner is None or holders.get(key) != [owner]:
                wrong.append(f"{key}: owner {owner}, read by {holders.get(key)}")
        return wrong

    def _open_keys(self) -> list[str]:
        """The keys of the leases of open shards that are to be read."""
        return [shard.id for shard in self.producer.stream.open_shards]

    def _happen(self, event: Event) -> None:
        self.journal.write("", "event", event)
        producer, scheduler = self.producer, self.scheduler
        ends = scheduler.now + float(getattr(event, "seconds", 0.0))
        if isinstance(event, HAPPENS_TO_THE_STREAM):
            producer.happen(event)
        elif isinstance(event, events.Reset):
            self.table_writers.reset(event)
        elif isinstance(event, events.Foreign):
            self.table_writers.write(event)
        elif isinstance(event, events.SetMode):
            self.java.set_mode(event.mode, is_java=self.history.mode is not None)
        elif isinstance(event, events.JavaLeader):
            self.java.start(event)
        elif isinstance(event, events.Trouble):
            self._row_problems.append(event)
            scheduler.at(ends, partial(self._end_trouble, event))
        elif isinstance(event, events.Lag):
            self.kinesis_client.list_lag_ms = round(event.behind * 1000)
            scheduler.at(ends, partial(setattr, self.kinesis_client, "list_lag_ms", 0))
        elif isinstance(event, events.DateAhead):
            self.kinesis_client.date_ahead_ms = round(event.ahead * 1000)
            scheduler.at(ends, partial(setattr, self.kinesis_client, "date_ahead_ms", 0))
        elif isinstance(event, HAPPENS_TO_SEVERAL_STREAMS):
            self._happen_to_streams(event)
        elif isinstance(event, events.Deregister):
            self._operator.deregister(APPLICATION)
        elif isinstance(event, events.Crowd):
            self._operator.crowd()
            scheduler.at(ends, self._operator.disperse)
        else:
            self.fleet.happen(event)

    def _happen_to_streams(
        self, event: events.On | events.Track | events.TrackerFails | events.Anew
    ) -> None:
        raise AssertionError(f"the application reads one stream: {event}")

    def _end_trouble(self, event: events.Trouble) -> None:
        if event in self._row_problems:
            self._row_problems.remove(event)

    def _fault(
        self, service: str, operation: str, process: Process, stream: str = ""
    ) -> str | None:
        key = (process.name, operation)
        self.calls[key] = self.calls.get(key, 0) + 1
        if operation == "DeregisterStreamConsumer":
            self.deregistrations.append((self.scheduler.now, process.name))
        for trouble in self._row_problems:
            if trouble.kind == "statements" or not self._is_met(trouble, service, process):
                continue
            if trouble.stream is not None and stream != stream_name(trouble.stream):
                continue
            if trouble.kind == "batches" and operation != "BatchExecuteStatement":
                continue
            if self.scheduler.rng.random() < trouble.rate:
                kind = "error_after" if trouble.kind == "batches" else trouble.kind
                self.journal.write("", f"{operation} meets", kind)
                self.failed_calls[key] = self.failed_calls.get(key, 0) + 1
                if operation == "BatchExecuteStatement":
                    self.failed_batches.append((self.scheduler.now, process.name, kind))
                if service == "dynamodb" and kind in {*LOSE_ANSWERS, "slow"}:
                    self._note_unanswered(process, kind)
                return kind
        return None

    def _is_met(self, trouble: events.Trouble, service: str, process: Process) -> bool:
        is_the_service = trouble.service in {None, service}
        return is_the_service and trouble.worker in {None, self.fleet.worker_of(process)}

    def _statement_errors(self, process: Process, count: int) -> Sequence[str | None]:
        rate = max(
            (
                trouble.rate
                for trouble in self._row_problems
                if trouble.kind == "statements" and self._is_met(trouble, "dynamodb", process)
            ),
            default=0.0,
        )
        if not rate:
            return ()
        errors = draw_errors(self.scheduler.rng, rate, count)
        self.journal.write("", "statements meet", errors)
        self.failed_batches.append((self.scheduler.now, process.name, "statements"))
        self._note_unanswered(process, "statements")
        return errors

    def _note_unanswered(self, process: Process, kind: str) -> None:
        now = self.scheduler.now
        arrives = now + longest_way(kind, TIMEOUT)
        self.unanswered.setdefault(process.name, []).append((now, arrives))


def _place(lease: Lease) -> tuple[object, ...]:
    """Where reading goes on by a lease."""
    return lease.checkpoint, lease.timestamp_ms


def _oddity(history: History) -> FaultPlan | None:
    """The fault plan of a Kinesis that always differs from the service."""
    if history.names_children and not history.begins_early:
        return None
    omitted = frozenset() if history.names_children else frozenset({"ChildShards"})
    fault = Fault(omit=omitted, begins_early=history.begins_early)
    return lambda call: fault


@contextmanager
def _errors_of_steps_noted(scheduler: Scheduler) -> Iterator[None]:
    """Notes errors that end the work of a pool, like those that end a task."""

    def note(pool: StepPool, error: BaseException) -> None:
        del pool
        if not isinstance(error, Killed):
            assert scheduler.current is not None
            scheduler.failures.append((scheduler.current, error))

    with mock.patch.object(StepPool, "_failed", note):
        yield


def _own_rows_of_few_leases() -> Iterator[Any]:
    """Yields what lets workers read only their own rows of the small tables of a history."""
    assignment = "sparkinesis.lease.assignment"
    yield mock.patch(f"{assignment}.assignment.WORTHWHILE", 0)
    yield mock.patch(f"{assignment}.partial_scan.STANDBYS", 1)
    yield mock.patch(f"{assignment}.partial_scan.FULL_EVERY", 100.0)


def _replaced(maker: str, client: object) -> AbstractContextManager[object]:
    """Replaces the maker of clients by one that returns this client, for a block."""
    return mock.patch(maker, lambda *place: client)  # noqa: PT008 - a mock keeps all calls


class _ReadOnce:
    """A cache of `read_row`: worlds read the same rows thousands of times."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Lease | BrokenLease | None]] = {}

    def __call__(self, item: Mapping[str, Any]) -> Lease | BrokenLease | None:
        found = self._known.get(id(item))
        if found is None:
            found = self._known[id(item)] = (item, read_row(item))
        return found[1]

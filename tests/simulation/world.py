"""A whole application in one thread: its workers, the stream, the lease table, and all that fails.

Everything in a world follows from its history.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from sparkinesis.errors import SparkinesisError
from sparkinesis.lease.lease import Lease, decode_lease
from sparkinesis.local import LocalKinesis, limits
from sparkinesis.local.operations.context import ACCOUNT
from sparkinesis.local.shard import Shard
from sparkinesis.local.stream import Stream
from sparkinesis.worker.application import Application
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.timing import Timing
from sparkinesis.worker.worker import Worker
from tests.simulation import history as events
from tests.simulation.consumers import Operator
from tests.simulation.dynamodb import DynamoDBClient, LeaseTableModel
from tests.simulation.history import Event, History
from tests.simulation.journal import Journal, SimulatedProcessor
from tests.simulation.kinesis import REGION, KinesisClient
from tests.simulation.network import Network
from tests.simulation.primitives import installed
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.subscription import SubscriptionClient

STREAM = "flights"
STREAM_ARN = f"arn:aws:kinesis:{REGION}:{ACCOUNT}:stream/{STREAM}"
APPLICATION = "app"
EPOCH_MS = 1_700_000_000_000
_SLOT = 10.0
"""Seconds between two looks whether everything is in order."""


@dataclass
class Slot:
    """One after another, the processes of one worker."""

    number: int
    worker_id: str = ""
    starts: int = 0
    process: Process | None = None
    worker: Worker | None = None
    is_wanted: bool = False
    """It was started, and neither crashed nor was it asked to leave."""


@dataclass
class World:
    history: History
    scheduler: Scheduler = field(init=False)
    kinesis: LocalKinesis = field(init=False)
    table: LeaseTableModel = field(init=False)
    journal: Journal = field(init=False)
    subscriptions: SubscriptionClient = field(init=False)
    slots: dict[int, Slot] = field(default_factory=dict)
    worker_ids: dict[Process, str] = field(default_factory=dict)
    put: dict[str, list[str]] = field(default_factory=dict)
    """By shard, the sequence numbers of its records, in order."""
    data: dict[str, list[str]] = field(default_factory=dict)
    """By partition key, the data of its records, in order."""
    places: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Of each record's data, its shard and its sequence number."""
    calls: dict[tuple[str, str], int] = field(default_factory=dict)
    """By process and operation."""
    deregistrations: list[tuple[float, str]] = field(default_factory=list)
    """When a process asked for the consumer to be deregistered, and which."""
    resumed: set[tuple[str, float]] = field(default_factory=set)
    """Processes, and when they went on after a pause."""
    started_at: dict[Process, float] = field(default_factory=dict)
    ended_at: float = 0.0
    unsettled: list[str] = field(default_factory=list)
    """What was not in order when patience was over."""
    settled_after: float | None = None
    """Seconds from the end of all faults until everything was in order."""
    leaving_at: float = 0.0
    """When all workers were asked to shut down in the end."""
    left_after: float | None = None
    """Seconds that it took all workers to shut down in the end."""

    def __post_init__(self) -> None:
        history = self.history
        self.scheduler = Scheduler(history.seed, preempt=history.preempt)
        self.kinesis = LocalKinesis(
            clock=lambda: EPOCH_MS + int(self.scheduler.now * 1000),
            empty_pages=history.empty_pages,
            consumer_delay_ms=round(history.consumer_delay * 1000),
        )
        self.kinesis.call("CreateStream", StreamName=STREAM, ShardCount=history.shards)
        self.table = LeaseTableModel(APPLICATION, lambda: self.scheduler.now, self.scheduler.rng)
        self.table.staleness = history.staleness
        self.journal = Journal(self.scheduler)
        self._network = Network(self.scheduler, self._fault)
        self._kinesis_client = KinesisClient(self._network, self.kinesis)
        self.subscriptions = SubscriptionClient(
            self.scheduler, self._network, self.kinesis, self._fault, self.journal.write
        )
        self._dynamodb_client = DynamoDBClient(self._network, self.table)
        self._operator = Operator(self.kinesis, self.stream)
        self._troubles: list[events.Trouble] = []
        self.options = WorkerOptions(**history.options)
        if (arn := self.options.fan_out.consumer_arn) is not None:
            assert self._operator.register(arn.rpartition("/")[2].partition(":")[0]) == arn

    @property
    def stream(self) -> Stream:
        return self.kinesis._regions[REGION].streams[STREAM]

    # --- what happens

    def run(self) -> World:
        """The whole history, and what comes after it until nothing moves any more."""
        with (
            installed(self.scheduler),
            _replaced("sparkinesis.stream.client.call_client", self._kinesis_client),
            _replaced("sparkinesis.stream.consumers.call_client", self._kinesis_client),
            _replaced("sparkinesis.stream.client.subscription_client", self.subscriptions),
            _replaced("sparkinesis.lease.table.dynamodb_client", self._dynamodb_client),
            mock.patch("sparkinesis.lease.table.decode_lease", _DecodedOnce()),
            mock.patch.object(
                limits, "SUBSCRIPTION_LIFE_MS", round(self.history.subscription_life * 1000)
            ),
            mock.patch.object(limits, "MAX_EVENT_BYTES", self.history.event_bytes),
        ):
            try:
                self._run()
            finally:
                self.scheduler.end()
        return self

    def _run(self) -> None:
        scheduler = self.scheduler
        for at, event in self.history.events:
            assert at < self.history.duration, "nothing happens behind the end of all faults"
            scheduler.at(at, functools.partial(self._happen, event))
        scheduler.run_until(self.history.duration)
        self._end_of_faults()
        deadline = scheduler.now + self.history.patience
        # A process that has slept for too long must have found out about its leases.
        scheduler.run_until(scheduler.now + 2 * self.options.failover_time)
        while not self.is_settled() and scheduler.now < deadline:
            scheduler.run_until(scheduler.now + _SLOT)
        self.unsettled = [*self.unprocessed()[:3], *self.unread()]
        if not self.unsettled:
            self.settled_after = scheduler.now - self.history.duration
        began = self.leaving_at = scheduler.now
        for slot in self.slots.values():
            if slot.is_wanted:
                self._shut_down(slot)
        deadline = scheduler.now + self.options.shutdown_timeout * 2
        while self.live_processes() and scheduler.now < deadline:
            scheduler.run_until(scheduler.now + 1.0)
        if not self.live_processes():
            self.left_after = scheduler.now - began
        self.ended_at = scheduler.now

    def _end_of_faults(self) -> None:
        self._troubles.clear()
        self._kinesis_client.list_lag_ms = 0
        self._operator.disperse()
        for slot in self.slots.values():
            if slot.process is not None:
                self._resume(slot.process)
        # As many workers as the shards take, with their max_leases: one at least.
        shards = len(self.stream.shards)
        needed = -(-shards // self.options.max_leases)
        for _ in range(needed - sum(slot.is_wanted for slot in self.slots.values())):
            self._happen(events.Start(1 + max(self.slots, default=0)))

    def live_processes(self) -> list[Process]:
        return [
            slot.process
            for slot in self.slots.values()
            if slot.process is not None and slot.process.is_alive
        ]

    def was_graceful(self) -> bool:
        """Whether all that were there in the end have shut down in time, and without an error."""
        last = [slot.worker for slot in self.slots.values() if slot.worker is not None]
        return self.left_after is not None and all(
            worker.was_graceful and worker.failure is None for worker in last
        )

    def is_settled(self) -> bool:
        """Whether every record is processed, and every open shard is read by one that lives."""
        return not self.unprocessed() and not self.unread()

    def unprocessed(self) -> list[str]:
        return [data for data in self.places if data not in self.journal.processed]

    def unread(self) -> list[str]:
        """What is wrong with the leases of open shards."""
        holders: dict[str, list[str]] = {}
        for slot in self.slots.values():
            if slot.is_wanted and slot.worker is not None:
                for status in slot.worker.status():
                    holders.setdefault(status.shard_id, []).append(slot.worker_id)
        wrong = []
        for shard in self.stream.open_shards:
            row = self.table.rows.get(shard.id)
            owner = None if row is None else row.get("leaseOwner", {}).get("S")
            if owner is None or holders.get(shard.id) != [owner]:
                wrong.append(f"{shard.id}: owner {owner}, read by {holders.get(shard.id)}")
        return wrong

    def _happen(self, event: Event) -> None:
        self.journal.write("", "event", event)
        if isinstance(event, events.Put):
            self._put(event)
        elif isinstance(event, events.Split):
            self._split(event.place)
        elif isinstance(event, events.Merge):
            self._merge(event.place)
        elif isinstance(event, events.Trouble):
            self._troubles.append(event)
            ends = self.scheduler.now + event.seconds
            self.scheduler.at(ends, functools.partial(self._end_trouble, event))
        elif isinstance(event, events.Lag):
            self._kinesis_client.list_lag_ms = round(event.behind * 1000)
            self.scheduler.at(self.scheduler.now + event.seconds, self._end_lag)
        elif isinstance(event, events.Deregister):
            self._operator.deregister(APPLICATION)
        elif isinstance(event, events.Crowd):
            self._operator.crowd()
            self.scheduler.at(self.scheduler.now + event.seconds, self._operator.disperse)
        else:
            self._happen_to(self.slots.setdefault(event.worker, Slot(event.worker)), event)

    def _happen_to(
        self, slot: Slot, event: events.Start | events.Crash | events.Pause | events.Shutdown
    ) -> None:
        process = slot.process
        if isinstance(event, events.Start):
            if process is None or not process.is_alive:
                self._start(slot, event.same_id)
        elif process is None or not process.is_alive:
            return
        elif isinstance(event, events.Crash):
            process.kill()
            slot.is_wanted, slot.worker = False, None
        elif isinstance(event, events.Pause):
            process.pause()
            ends = self.scheduler.now + event.seconds
            self.scheduler.at(ends, functools.partial(self._resume, process))
        else:
            self._shut_down(slot)

    def _resume(self, process: Process) -> None:
        if process.is_paused:
            self.resumed.add((process.name, self.scheduler.now))
            process.resume()

    def _end_trouble(self, event: events.Trouble) -> None:
        if event in self._troubles:
            self._troubles.remove(event)

    def _end_lag(self) -> None:
        self._kinesis_client.list_lag_ms = 0

    # --- the stream

    def _put(self, event: events.Put) -> None:
        key = f"k{event.key}"
        written = self.data.setdefault(key, [])
        for _ in range(event.count):
            data = f"{key}:{len(written)}"
            answer = self.kinesis.call(
                "PutRecord", StreamName=STREAM, Data=data.encode(), PartitionKey=key
            )
            written.append(data)
            shard, number = answer["ShardId"], answer["SequenceNumber"]
            self.put.setdefault(shard, []).append(number)
            self.places[data] = (shard, number)

    def _shard_at(self, place: float) -> tuple[int, list[Shard]]:
        shards = self.stream.open_shards
        return min(int(place * len(shards)), len(shards) - 1), shards

    def _split(self, place: float) -> None:
        index, shards = self._shard_at(place)
        shard = shards[index]
        middle = (shard.hash_start + shard.hash_end + 1) // 2
        if middle > shard.hash_start:
            self.stream.split(shard, middle, self.kinesis.clock())

    def _merge(self, place: float) -> None:
        index, shards = self._shard_at(place)
        if index + 1 < len(shards):
            self.stream.merge(shards[index], shards[index + 1], self.kinesis.clock())

    # --- workers

    def _start(self, slot: Slot, same_id: bool) -> None:
        slot.starts += 1
        if not (same_id and slot.worker_id):
            slot.worker_id = f"w{slot.number}-{slot.starts}"
        name = f"worker {slot.number}, life {slot.starts}"
        process = slot.process = self.scheduler.process(name)
        self.worker_ids[process] = slot.worker_id
        self.started_at[process] = self.scheduler.now
        slot.is_wanted, slot.worker = True, None
        self.scheduler.spawn(process, "main", lambda: self._main(slot, process, slot.worker_id))

    def _main(self, slot: Slot, process: Process, worker_id: str) -> None:
        scheduler = self.scheduler
        application = Application(
            APPLICATION,
            STREAM,
            lambda: SimulatedProcessor(self.journal, self.history.behaviour, process),
            region=REGION,
            initial_position="trim_horizon",
            worker_id=worker_id,
            options=self.options,
        )
        seed = scheduler.rng.getrandbits(32)
        timing = Timing(
            clock=process.monotonic,
            sleep=scheduler.sleep,
            wall_clock_ms=self.kinesis.clock,
            new_rng=lambda: random.Random(seed),
        )
        while self._is_wanted(slot):
            try:
                worker = application.worker(timing=timing)
                slot.worker = worker
                if not self._is_wanted(slot):
                    return
                worker.start()
                worker.wait()
            except SparkinesisError as error:
                self.journal.write("", "worker failed", type(error).__name__)
                if slot.worker is not None:
                    slot.worker.shutdown()
                scheduler.sleep(5.0)
            else:
                return

    @staticmethod
    def _is_wanted(slot: Slot) -> bool:
        """As of now: others say so while a task waits."""
        return slot.is_wanted

    def _shut_down(self, slot: Slot) -> None:
        slot.is_wanted = False
        worker, process = slot.worker, slot.process
        assert process is not None
        if worker is not None:
            self.scheduler.spawn(process, "shutdown", worker.shutdown)
        # A worker that is only just being made shuts down as soon as it is there.

    def _worker_of(self, process: Process) -> int | None:
        return next((n for n, slot in self.slots.items() if slot.process is process), None)

    def _fault(self, service: str, operation: str, process: Process) -> str | None:
        key = (process.name, operation)
        self.calls[key] = self.calls.get(key, 0) + 1
        if operation == "DeregisterStreamConsumer":
            self.deregistrations.append((self.scheduler.now, process.name))
        for trouble in self._troubles:
            if trouble.service not in {None, service}:
                continue
            if trouble.worker is not None and self._worker_of(process) != trouble.worker:
                continue
            if self.scheduler.rng.random() < trouble.rate:
                self.journal.write("", f"{operation} meets", trouble.kind)
                return trouble.kind
        return None


@contextmanager
def _replaced(maker: str, client: object) -> Iterator[None]:
    """For the block, whoever asks for a client gets this one."""

    def give(*place: object) -> object:
        return client

    with mock.patch(maker, new=give):
        yield


class _DecodedOnce:
    """`decode_lease`, of each row once: worlds look at the same rows thousands of times."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Lease | None]] = {}

    def __call__(self, item: Mapping[str, Any]) -> Lease | None:
        found = self._known.get(id(item))
        if found is None:
            found = self._known[id(item)] = (item, decode_lease(item))
        return found[1]


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Nobody reads the log lines of thousands of worlds."""
    logger = logging.getLogger("sparkinesis")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def digest(world: World) -> str:
    """Of all that happened; the same for the same history, always."""
    told = hashlib.sha256()
    for entry in world.journal.entries:
        told.update(repr(entry).encode())
    for write in world.table.writes:
        told.update(f"{write.at} {sorted((write.after or {}).items())} {write.by}".encode())
    return told.hexdigest()

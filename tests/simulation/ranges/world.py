"""Tasks of executors that read ranges of a query by enhanced fan-out, on several machines.

Whatever becomes of subscriptions, a task reads exactly its range. Everything follows from a number.
"""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal
from unittest import mock

from sparkinesis.errors import SparkinesisError
from sparkinesis.local import LocalKinesis
from sparkinesis.local.model import limits
from sparkinesis.source.reading.subscribed_cursor import (
    RangeSubscription,
    SubscribedCursor,
    SubscribeLimiter,
)
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.position import SHARD_END, TRIM_HORIZON, AfterRecord, Position, Sentinel
from sparkinesis.stream.reading.budget import Pace, ShardBudget
from sparkinesis.stream.reading.range import cut_at_end
from sparkinesis.stream.reading.shard_cursor import ShardCursor
from tests.simulation.kinesis import REGION, KinesisClient
from tests.simulation.network import FAULTS, Network
from tests.simulation.primitives import Lock, Threading, installed
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.subscription import SubscriptionClient

STREAM = "flights"
_MACHINES = 2
DURATION = 90.0
"""Virtual seconds until faults stop."""
_ADDRESS = StreamAddress(STREAM, region=REGION)


class _Slot:
    """The slot that all processes of a machine share; a killed process releases it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.free_at = float("-inf")
        self._lock = Lock(scheduler)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


@dataclass(eq=False)
class Reading:
    """One task: the range that it was to read, and its outcome."""

    process: Process
    shard_id: str
    expected: list[str]
    began: float
    found: list[str] = field(default_factory=list)
    outcome: str = "under way"
    ended: float | None = None


@dataclass
class Ranges:
    number: int
    readings: list[Reading] = field(default_factory=list)
    has_trouble: bool = True

    def __post_init__(self) -> None:
        self.scheduler = scheduler = Scheduler(self.number, preempt=0.05)
        self._rng = random.Random(self.number)
        self.kinesis = LocalKinesis(clock=lambda: 1_700_000_000_000 + int(scheduler.now * 1000))
        self.kinesis.call("CreateStream", StreamName=STREAM, ShardCount=2)
        self._stream = self.kinesis._regions[REGION].streams[STREAM]
        answer = self.kinesis.call(
            "RegisterStreamConsumer", StreamARN=self._stream.arn, ConsumerName="query"
        )
        self._consumer_arn = answer["Consumer"]["ConsumerARN"]
        self._network = Network(scheduler, self._fault)
        self._client = KinesisClient(self._network, self.kinesis)
        self.subscriptions = SubscriptionClient(
            scheduler, self._network, self.kinesis, self._fault, lambda *_: None
        )
        self._client.subscribe_to_shard = self.subscriptions.subscribe_to_shard
        self._limiters: dict[tuple[str, str], SubscribeLimiter] = {}
        self._budgets: dict[tuple[str, str], ShardBudget] = {}
        self._put: dict[str, list[str]] = defaultdict(list)
        self.troubles: list[tuple[float, float, str, float]] = []
        self.calls: set[tuple[str, str]] = set()
        """Processes, and operations that they called."""

    def run(self) -> Ranges:
        with ExitStack() as stack:
            stack.enter_context(installed(self.scheduler))
            for name, replacement in (
                (
                    "sparkinesis.source.reading.subscribed_cursor.threading",
                    Threading(self.scheduler),
                ),
                ("sparkinesis.stream.calls.caller.call_client", lambda _: self._client),
            ):
                stack.enter_context(mock.patch(name, replacement))
            # So that a range of a few small records takes several events.
            most = self._rng.choice((5, 20, limits.MAX_EVENT_BYTES))
            stack.enter_context(mock.patch.object(limits, "MAX_EVENT_BYTES", most))
            try:
                self._happens()
            finally:
                self.scheduler.end()
        return self

    def _happens(self) -> None:
        rng, at = self._rng, self.scheduler.at
        for _ in range(60):
            at(rng.uniform(0.0, DURATION), self._put_some)
        for _ in range(2):
            at(rng.uniform(10.0, DURATION), self._split)
        for _ in range(rng.randint(1, 3) if self.has_trouble else 0):
            began = rng.uniform(0.0, DURATION)
            ends = min(began + rng.uniform(5.0, 30.0), DURATION)
            self.troubles.append((began, ends, rng.choice(FAULTS), rng.choice((0.2, 0.5))))
        for _ in range(25):
            at(rng.uniform(5.0, DURATION), self._begin)
        self.scheduler.run_until(DURATION + 60.0)
        for shard_id in list(self._put):
            self._begin(shard_id)
        self.scheduler.run_until(DURATION + 600.0)

    @property
    def last(self) -> list[Reading]:
        """The readings of whole shards after the end of all faults."""
        return [each for each in self.readings if each.began > DURATION]

    def _put_some(self) -> None:
        for _ in range(self._rng.randint(1, 4)):
            key = f"k{self._rng.randrange(8)}"
            answer = self.kinesis.call("PutRecord", StreamName=STREAM, Data=b"x", PartitionKey=key)
            self._put[answer["ShardId"]].append(answer["SequenceNumber"])

    def _split(self) -> None:
        shard = self._rng.choice(self._stream.open_shards)
        middle = (shard.hash_start + shard.hash_end + 1) // 2
        self._stream.key_space.split(shard, middle, self.kinesis.clock())

    # --- tasks

    def _begin(self, shard_id: str | None = None) -> None:
        """A task of any executor: of a given shard all, else some range of some shard."""
        rng = self._rng
        is_some = shard_id is None
        if shard_id is None:
            if not self._put:
                return
            shard_id = rng.choice(sorted(self._put))
        numbers = self._put[shard_id]
        first = rng.randrange(len(numbers)) if is_some else 0
        last = rng.randrange(first, len(numbers)) if is_some else len(numbers) - 1
        start: Position = AfterRecord(numbers[first - 1]) if first else TRIM_HORIZON
        end: AfterRecord | Literal[Sentinel.SHARD_END] = AfterRecord(numbers[last])
        shard = self._stream.key_space.get(shard_id)
        assert shard is not None
        if not shard.is_open and rng.random() < 0.5:
            end, last = SHARD_END, len(numbers) - 1
        machine = rng.randrange(_MACHINES)
        process = self.scheduler.process(f"task {len(self.readings)} on machine {machine}")
        reading = Reading(process, shard_id, numbers[first : last + 1], self.scheduler.now)
        self.readings.append(reading)
        self.scheduler.spawn(process, "task", lambda: self._read(reading, start, end))
        if is_some and rng.random() < 0.1:
            self.scheduler.at(self.scheduler.now + 0.1 * rng.random(), process.kill)

    def _read(
        self, reading: Reading, start: Position, end: AfterRecord | Literal[Sentinel.SHARD_END]
    ) -> None:
        try:
            self._read_range(reading, start, end)
            reading.outcome = "whole"
        except SparkinesisError as error:
            reading.outcome = f"failed: {error!r}"
        reading.ended = self.scheduler.now

    def _read_range(
        self, reading: Reading, start: Position, end: AfterRecord | Literal[Sentinel.SHARD_END]
    ) -> None:
        scheduler, shard_id = self.scheduler, reading.shard_id
        retry = Backoff(
            clock=lambda: scheduler.now, sleep=scheduler.sleep, uniform=scheduler.rng.uniform
        )
        client = StreamClient(_ADDRESS, retry, self.kinesis.clock)
        place = reading.process.name.rpartition(" ")[2], shard_id
        if place not in self._limiters:
            self._limiters[place] = SubscribeLimiter(_Slot(scheduler), lambda: scheduler.now)
            self._budgets[place] = ShardBudget(
                Pace(calls_per_second=1.5), lambda: scheduler.now, scheduler.sleep
            )

        def poll(position: Position, inclusive: bool) -> ShardCursor:
            return ShardCursor(
                client, self._budgets[place], shard_id, position, inclusive=inclusive
            )

        subscription = RangeSubscription(
            client, self._limiters[place], self._consumer_arn, shard_id, lambda: scheduler.now
        )
        cursor = SubscribedCursor(subscription, start, end=end, poll=poll)
        try:
            is_over = False
            while not is_over:
                fetched = cursor.fetch()
                within, is_over, _ = cut_at_end(fetched.page.records, end)
                is_over = is_over or cursor.at_end
                numbers = [record.sequence_number for record in within]
                # It begins AT the start, so that a reader sees whether that is kept.
                at_start = isinstance(start, AfterRecord) and start.sequence_number in numbers
                reading.found += numbers[1:] if at_start and not reading.found else numbers
        finally:
            cursor.stop()

    def was_denied(self, reading: Reading) -> bool:
        """True if a call of the task was refused for lack of permission."""
        assert reading.ended is not None
        return any(
            kind == "denied" and begins <= reading.ended and reading.began < ends
            for begins, ends, kind, _ in self.troubles
        )

    def _fault(
        self, service: str, operation: str, process: Process, stream: str = ""
    ) -> str | None:
        del stream
        self.calls.add((process.name, operation))
        for begins, ends, kind, rate in self.troubles:
            if begins <= self.scheduler.now < ends and self.scheduler.rng.random() < rate:
                return kind
        return None

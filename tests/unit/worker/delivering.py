"""The delivery of records to a shard's processor, without a stream or a lease table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, cast

from msgspec.structs import replace

from sparkinesis.errors import LeaseLostError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.lease import Lease, PendingCheckpoint, lease_key
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.batch import RecordBatch, make_batch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.shard.delivery import Deliverer
from sparkinesis.worker.lifecycle.shard.processing import Next, Processing
from sparkinesis.worker.on_error import OnError
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.processors.processor import RecordProcessor
from sparkinesis.worker.processors.user_calls import UserCalls
from sparkinesis.worker.reporting.event_log import DISCARD_EVENTS, EventPublisher
from sparkinesis.worker.reporting.failures import Failures
from sparkinesis.worker.reporting.shard_reporter import ShardMeasures, ShardPlace, ShardReporter
from sparkinesis.worker.sink.sink import ShardSinks

SHARD = "shardId-000000000000"


def at(text: str) -> ExtendedSequenceNumber:
    sequence_number, _, sub = text.partition(":")
    return ExtendedSequenceNumber(sequence_number, int(sub or 0))


class Held:
    """A lease that takes every checkpoint and remembers it; its owner before may have prepared one.

    places: the sequence numbers of checkpoints. written: what is written, as text.
    """

    shard_id = SHARD
    fencing_token = 7

    def __init__(self, last: str = "TRIM_HORIZON", pending: str | None = None) -> None:
        prepared = None if pending is None else PendingCheckpoint(at(pending))
        self.lease = Lease(SHARD, SHARD, at(last), pending=prepared)
        self.held = True
        self.places: list[str] = []
        self.written: list[str] = []
        self.moved_ms: int | None = None
        """The time of the last move, as it was stored."""
        self.timestamp_ms: int | None = None
        """The instant of the last checkpoint, as it was stored."""
        self.known: object = None
        self.stored_known: object = None
        """The arrival of the last checkpoint's record, as it was stored."""

    def is_held(self) -> bool:
        return self.held

    def require_held(self, doing: str) -> None:
        if not self.held:
            raise LeaseLostError(doing)

    def lose(self, _: str) -> None:
        self.held = False

    def checkpoint(self, at: Any, timestamp_ms: int | None = None, **more: Any) -> None:
        self.places.append(at.sequence_number)
        self.written.append(str(at))
        self.moved_ms, self.timestamp_ms = more.get("moved_ms"), timestamp_ms
        self.stored_known = more.get("known")
        self.lease = replace(self.lease, checkpoint=at, pending=None)

    def move(self, at: ExtendedSequenceNumber, moved_ms: int) -> None:
        self.checkpoint(at, moved_ms=moved_ms)

    def prepare(self, pending: PendingCheckpoint) -> None:
        self.written.append(f"prepared {pending.at}")
        self.lease = replace(self.lease, pending=pending)

    def drop_pending(self) -> None:
        self.written.append("dropped")
        self.lease = replace(self.lease, pending=None)


class Told(EventPublisher):
    """Keeps the events that it is told, and their causes."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.causes: list[BaseException | None] = []

    def __call__(self, event: Any, cause: BaseException | None = None) -> None:
        self.events.append(event)
        self.causes.append(cause)

    def of(self, *kinds: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]


@dataclass
class Setting:
    """As much of `ConsumerSettings` as delivering needs."""

    on_error: OnError
    options: WorkerOptions = field(default_factory=WorkerOptions)
    now: float = 1000.0
    failures: Failures = field(default_factory=Failures)
    metrics: Metrics = OFF
    publish: EventPublisher = DISCARD_EVENTS
    calls: UserCalls = field(default_factory=UserCalls)
    application = "app"

    client: ClassVar[Any] = SimpleNamespace(address=SimpleNamespace(name="s"))

    def clock(self) -> float:
        return self.now

    checkpoint_clock = clock

    def uniform(self, low: float, high: float) -> float:
        return high

    stream: StreamIdentifier | None = None

    def reporter(self, shard_id: str) -> ShardReporter:
        at = ShardPlace(lease_key(self.stream, shard_id), shard_id, "s", f"shard {shard_id}")
        return ShardReporter(at, self.failures, self.publish)

    def measures(self, shard_id: str) -> ShardMeasures:
        return ShardMeasures(self.metrics, "s", shard_id, self.clock)


class Picky(RecordProcessor):
    """Refuses a batch with a bad record in it; checkpoints up to a record before, if told to."""

    def __init__(self, *bad: str) -> None:
        self.bad = set(bad)
        self.given: list[list[str]] = []
        self.checkpoint_at: str | None = None
        self.then: Callable[[RecordBatch, Checkpointer], object] = lambda *_: None
        """What it does besides in each call, before it fails."""

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        self.given.append([record.sequence_number for record in batch.records])
        if self.checkpoint_at in self.given[-1]:
            checkpointer.checkpoint(self.checkpoint_at)
        self.then(batch, checkpointer)
        if not len(batch) and "empty" in self.bad:
            raise ValueError("empty")
        if self.bad & set(self.given[-1]):
            raise ValueError("bad")


def batch_of(*numbers: int) -> RecordBatch:
    records = [Record(data=b"%d" % n, partition_key="k", sequence_number=str(n)) for n in numbers]
    batch, _ = make_batch(records, stream="s", shard_id=SHARD, millis_behind_latest=0)
    return batch


class Shard:
    """A deliverer and what it works with."""

    def __init__(
        self,
        on_error: OnError,
        *bad: str,
        metrics: Metrics = OFF,
        publish: EventPublisher = DISCARD_EVENTS,
        held: Held | None = None,
        sinks: ShardSinks | None = None,
        processor: RecordProcessor | None = None,
        batcher: object = None,
        **options: Any,
    ) -> None:
        self.held = held or Held()
        self.setting = Setting(on_error, WorkerOptions(**options), metrics=metrics, publish=publish)
        self.processor = Picky(*bad)
        self.checkpointer = Checkpointer(cast(HeldLease, self.held), lambda: 0, sinks)
        self.deliverer = Deliverer(
            cast(HeldLease, self.held),
            processor or self.processor,
            self.checkpointer,
            cast(Any, self.setting),
            is_ending=lambda: not self.held.is_held(),
        )
        self.processing = Processing(
            cast(HeldLease, self.held),
            cast(Any, batcher),
            self.deliverer,
            cast(Any, self.setting),
            on_page=lambda: None,
        )

    def add(self, *numbers: int) -> None:
        self.deliverer.add(batch_of(*numbers))

    def process(self) -> Next:
        return self.processing.step()

    def step_all(self) -> None:
        while self.deliverer:
            assert self.deliverer.deliver() == 0.0

    @property
    def given(self) -> list[list[str]]:
        return self.processor.given

    def may_checkpoint(self) -> str:
        return str(self.checkpointer._permitted.largest)

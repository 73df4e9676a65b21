"""The settings that the threads of a worker share, and those of one stream's shard consumers."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timezone

import msgspec

from sparkinesis.errors import StreamNotFoundError
from sparkinesis.lease.lease import lease_key
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.stream.address import StreamIdentifier, StreamMark, place_of
from sparkinesis.stream.calls.client import StreamClient, StreamSummary
from sparkinesis.stream.calls.shared_calls import SharedAnswer
from sparkinesis.stream.calls.stream_identity import SameStreams
from sparkinesis.stream.position import Position
from sparkinesis.stream.timing import Timing
from sparkinesis.worker.on_error import OnError
from sparkinesis.worker.options import DEFAULT_HELD_BYTES, WorkerOptions
from sparkinesis.worker.processors.processor import ProcessorFactory
from sparkinesis.worker.processors.user_calls import UserCalls
from sparkinesis.worker.reporting.event_log import DISCARD_EVENTS, EventPublisher
from sparkinesis.worker.reporting.failures import Failures
from sparkinesis.worker.reporting.shard_reporter import ShardMeasures, ShardPlace, ShardReporter
from sparkinesis.worker.retrieval.memory import MemoryBudget
from sparkinesis.worker.retrieval.step_pool import StepPool


class ReadRange(msgspec.Struct, frozen=True):
    """The range of arrival times that a replay delivers."""

    since_ms: int
    """Epoch ms, inclusive."""
    until_ms: int
    """Epoch ms, exclusive."""
    done: set[str] = msgspec.field(default_factory=set)
    """The leases of the shards that are read to the end of the range. The thread that runs the
    consumers adds to it."""


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """An application's settings, and what all streams of its worker share."""

    application: str
    worker_id: str
    options: WorkerOptions
    timing: Timing
    rng: random.Random
    """The worker's only random number generator."""
    failures: Failures
    publish: EventPublisher = DISCARD_EVENTS
    """Takes the events of the worker, of its shards and of its leases."""
    metrics: Metrics = OFF
    """Takes the measurements of the worker, and of its streams and leases."""
    watched_every: float | None = None
    """The seconds between two checks of the worker's loops; None if their health is not served."""
    reads: ReadRange | None = None
    """The range to which the worker is limited, as in a replay; None: everything."""
    memory: MemoryBudget = msgspec.field(default_factory=lambda: MemoryBudget(DEFAULT_HELD_BYTES))
    """The budget that all records in memory are counted in."""
    fetchers: StepPool = msgspec.field(default_factory=lambda: StepPool("fetch"))
    """The threads that fetch. A record processor never runs in one."""
    consumers: StepPool = msgspec.field(default_factory=lambda: StepPool("process"))
    """The threads that run record processors, and the other tasks of shard consumers."""
    calls: UserCalls = msgspec.field(default_factory=UserCalls)
    """Calls the methods of record processors."""

    @property
    def clock(self) -> Callable[[], float]:
        """The worker's clock: monotonic, in seconds."""
        return self.timing.clock

    @property
    def checkpoint_clock(self) -> Callable[[], float]:
        """The clock of automatic checkpoints, in seconds."""
        return self.timing.checkpoint_clock or self.timing.clock

    @property
    def uniform(self) -> Callable[[float, float], float]:
        """Draws a number evenly between two."""
        return self.rng.uniform


class ConsumerSettings(WorkerSettings, frozen=True, kw_only=True):
    """The settings of the shard consumers of one stream, and the facts found when it was opened."""

    client: StreamClient
    stream: StreamIdentifier | None = None
    """One of several streams of the application; None: the application reads only this one."""
    factory: ProcessorFactory
    on_error: OnError
    initial: Position
    """The start of a shard whose lease has no position of its own."""
    started_ms: int
    """The service's clock when the worker opened the stream (epoch ms)."""
    service_time_ms: Callable[[], int]
    """The service's clock now (epoch ms). Raises the errors of `StreamClient`."""
    describe: SharedAnswer[StreamSummary]
    """The stream's summary, by one call for all shards."""
    same_streams: SameStreams | None = None
    """Knows whether one of several streams is still the one that was opened."""

    def require_same_stream(self, at: float, mark: StreamMark | None) -> None:
        """Raise `StreamNotFoundError` unless the stream still existed at a time by `clock`.

        It may have been deleted, and made anew. Also raises the errors of the calls. mark: the
        application's only stream, as the shard's lease names it.
        """
        if self.same_streams is not None and self.stream is not None:
            self.same_streams.require(self.client.address, self.stream, at)
        elif mark is not None:
            created_ms = self.describe(since=at).created_ms
            if not StreamMark.of(self.client.stream_arn(), created_ms).is_stream(mark):
                created = datetime.fromtimestamp(created_ms / 1000, timezone.utc)
                raise StreamNotFoundError(
                    f"{self.client.address} was deleted, and made anew at {created.isoformat()}. "
                    "Its leases are made anew, too."
                )

    def skip_before(self, now_ms: int) -> int | None:
        """Return the time (epoch ms) before which `skip_older_than` skips records; None: never."""
        skip = self.options.skip_older_than
        if skip is None:
            return None
        return self.started_ms if skip == 0 else now_ms - round(skip * 1000)

    def measures(self, shard_id: str) -> ShardMeasures:
        """Return what takes a shard's measurements."""
        return ShardMeasures(self.metrics, self.client.address.name, shard_id, self.clock)

    def reporter(self, shard_id: str) -> ShardReporter:
        """Return what reports a shard's events, with failures that repeat one another."""
        stream, place = self.client.address.name, self.describe_shard(shard_id)
        at = ShardPlace(lease_key(self.stream, shard_id), shard_id, stream, place)
        return ShardReporter(at, self.failures, self.publish)

    def describe_shard(self, shard_id: str) -> str:
        """Return the shard's name as logs and errors give it.

        With several streams it has the stream's identifier, because names may be equal.
        """
        stream = f"{self.client.address}"
        if self.stream is not None:
            address = self.client.address
            place = place_of(address.region, address.endpoint, address.credentials.profile)
            stream = f"stream {str(self.stream)!r} in {place}"
        return f"shard {shard_id} of {stream} (application {self.application!r})"

"""The settings that all shard consumers of a worker share."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from sparkinesis.lease.events import Listener, ignore
from sparkinesis.stream.calls.client import StreamClient, StreamSummary
from sparkinesis.stream.position import Position
from sparkinesis.stream.timing import Timing
from sparkinesis.worker.on_error import OnError
from sparkinesis.worker.options import DEFAULT_HELD_BYTES, WorkerOptions
from sparkinesis.worker.processor import ProcessorFactory
from sparkinesis.worker.reporting.failures import Failures
from sparkinesis.worker.retrieval.memory import MemoryBudget


@dataclass(frozen=True)
class ConsumerSettings:
    """An application's settings, and the facts that its worker found when it started."""

    application: str
    worker_id: str
    client: StreamClient
    factory: ProcessorFactory
    on_error: OnError
    initial: Position
    """The start of a shard whose lease has no position of its own."""
    started_ms: int
    """The service's clock when the worker started (epoch ms)."""
    service_time_ms: Callable[[], int]
    """The service's clock now (epoch ms). Raises the errors of `StreamClient`."""
    options: WorkerOptions
    timing: Timing
    rng: random.Random
    """The worker's only random number generator."""
    describe: Callable[[], StreamSummary] | None = None
    """Returns the stream's summary, one call for all shards; None: each asks the client."""
    failures: Failures = field(default_factory=Failures)
    tell: Listener = ignore
    """Takes the events of the worker and of its leases."""
    memory: MemoryBudget = field(default_factory=lambda: MemoryBudget(DEFAULT_HELD_BYTES))
    """The budget that all records in memory are counted in."""

    @property
    def clock(self) -> Callable[[], float]:
        """The worker's clock: monotonic, in seconds."""
        return self.timing.clock

    @property
    def uniform(self) -> Callable[[float, float], float]:
        """Draws a number evenly between two."""
        return self.rng.uniform

    def summary(self) -> StreamSummary:
        """Return the stream's summary, at most a second old. Raises `StreamClient`'s errors."""
        return (self.describe or self.client.describe)()

    def skip_before(self, now_ms: int) -> int | None:
        """Return the time (epoch ms) before which `skip_older_than` skips records; None: never."""
        skip = self.options.skip_older_than
        if skip is None:
            return None
        return self.started_ms if skip == 0 else now_ms - round(skip * 1000)

    def describe_shard(self, shard_id: str) -> str:
        """Return the shard's name as logs and errors give it."""
        return f"shard {shard_id} of {self.client.address} (application {self.application!r})"

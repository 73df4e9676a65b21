"""What all shard consumers of a worker have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sparkinesis.stream.calls.client import StreamClient, StreamSummary
from sparkinesis.stream.position import Position
from sparkinesis.worker.on_error import OnError
from sparkinesis.worker.options import DEFAULT_HELD_BYTES, WorkerOptions
from sparkinesis.worker.processor import ProcessorFactory
from sparkinesis.worker.reporting.failures import Failures
from sparkinesis.worker.retrieval.memory import MemoryBudget


@dataclass(frozen=True)
class ConsumerSettings:
    """An application's, and what its worker found when it started."""

    application: str
    worker_id: str
    client: StreamClient
    factory: ProcessorFactory
    on_error: OnError
    initial: Position
    """Where to begin if the lease does not tell."""
    started_ms: int
    """The service's clock when the worker started (epoch ms)."""
    service_time_ms: Callable[[], int]
    """The service's clock now (epoch ms). Raises the errors of `StreamClient`."""
    options: WorkerOptions
    clock: Callable[[], float]
    """Monotonic, in seconds."""
    uniform: Callable[[float, float], float]
    describe: Callable[[], StreamSummary] | None = None
    """The stream's summary, told to all shards by one call; None: by a call for each."""
    failures: Failures = field(default_factory=Failures)
    memory: MemoryBudget = field(default_factory=lambda: MemoryBudget(DEFAULT_HELD_BYTES))
    """What all records that are held are counted in."""

    def summary(self) -> StreamSummary:
        """The stream's, a second old at most. Raises the errors of `StreamClient`."""
        return (self.describe or self.client.describe)()

    def skip_before(self, now_ms: int) -> int | None:
        """Records that arrived before this (epoch ms) are skipped, if the options say so."""
        skip = self.options.skip_older_than
        if skip is None:
            return None
        return self.started_ms if skip == 0 else now_ms - round(skip * 1000)

    def describe_shard(self, shard_id: str) -> str:
        """A shard in the words of logs and errors."""
        return f"shard {shard_id} of {self.client.address} (application {self.application!r})"

"""Spark's micro-batch engine, as far as a source can tell (MicroBatchExecution of Spark 4).

One run of a query: from its start to its end, be it by itself, by an error, or by a crash. What it
knows of earlier runs is in the checkpoint. Offsets are JSON, as on their way between the JVM and
the Python process that plans; partitions and readers are pickled.
"""

from __future__ import annotations

import functools
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from sparkinesis.source.datasource import KinesisDataSource, KinesisStreamReader
from sparkinesis.source.options.checked_options import StreamReadOptions, stream_read_options
from sparkinesis.source.options.option_table import Options
from sparkinesis.source.planning.source_planner import SourcePlanner
from sparkinesis.stream.timing import Timing
from tests.simulation.query.cluster import Cluster
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.query.world import World


@dataclass
class Plan:
    """One call of ``latestOffset``."""

    run: Run
    began: float
    start: str
    calls: int = 0
    """Calls of the service meanwhile that nothing went wrong with, by the driver."""
    end: str | None = None
    ended: float | None = None
    batch: int | None = None
    """The batch that it planned, once that is in the offset log."""


@dataclass(eq=False)
class Run:
    number: int
    options: Mapping[str, str]
    began: float
    process: Process
    prepared: tuple[float, float] | None = None
    """When ``prepareForTriggerAvailableNow`` was called, and when it was done."""
    ended: float | None = None
    """When it ended by itself, all of it done."""
    plans: list[Plan] = field(default_factory=list)

    @functools.cached_property
    def asked(self) -> StreamReadOptions:
        return stream_read_options(Options(self.options))


class Engine:
    def __init__(self, world: World, run: Run, cluster: Cluster) -> None:
        self._world = world
        self._scheduler = world.scheduler
        self._run = run
        self._cluster = cluster
        self._trigger = world.history.trigger
        self._source = KinesisDataSource(dict(run.options))
        self._reader = self._new_reader()
        self._reader._planner = SourcePlanner(
            self._reader._options, Timing(clock=run.process.monotonic, sleep=world.scheduler.sleep)
        )

    def run(self) -> None:
        """Runs the query until it ends. Raises the source's errors, and `JobFailedError`."""
        if self._trigger.kind == "available now":
            began = self._scheduler.now
            self._reader.prepareForTriggerAvailableNow()
            self._run.prepared = began, self._scheduler.now
        limit = self._reader.getDefaultReadLimit()
        if self._trigger.kind == "once":
            limit = ReadAllAvailable()
        checkpoint = self._world.checkpoint
        batch, committed, planned = checkpoint.restored()
        while True:
            began = self._scheduler.now
            if planned is None:
                planned = self._plan(batch, committed, limit)
            if planned is not None:
                self._run_batch(batch, committed, planned)
                self._step()
                checkpoint.commits.add(batch)
                batch, committed = batch + 1, planned
            is_over = planned is None if self._trigger.kind == "available now" else True
            if self._trigger.kind != "processing" and is_over:
                self._run.ended = self._scheduler.now
                return
            planned = None
            if self._trigger.kind == "processing":
                self._scheduler.sleep(began + self._trigger.seconds - self._scheduler.now)

    def _plan(self, batch: int, committed: str | None, limit: ReadLimit) -> str | None:
        """The end of the next batch, which is in the offset log; None when there is nothing new."""
        start = json.dumps(self._reader.initialOffset()) if committed is None else committed
        plan = Plan(self._run, self._scheduler.now, start)
        self._run.plans.append(plan)
        self._world.plans.append(plan)
        end = json.dumps(self._reader.latestOffset(json.loads(start), limit))
        plan.end, plan.ended = end, self._scheduler.now
        if end == committed:
            return None
        self._step()
        checkpoint = self._world.checkpoint
        checkpoint.offsets[batch] = end
        plan.batch = batch
        self._world.note(f"batch {batch} ends at {end}")
        self._world.planned()
        self._step()
        if batch:
            self._reader.commit(json.loads(checkpoint.offsets[batch - 1]))
        return end

    def _run_batch(self, batch: int, committed: str | None, planned: str) -> None:
        start = json.dumps(self._reader.initialOffset()) if committed is None else committed
        partitions = self._reader.partitions(json.loads(start), json.loads(planned))
        self._world.partitions.setdefault(batch, []).append(
            [(each.stream, found.shard_range) for each in partitions for found in each.to_read]
        )
        # A process of its own makes the reader that the tasks are given.
        reader = pickle.dumps(self._new_reader())
        rows = self._cluster.run(batch, reader, [pickle.dumps(each) for each in partitions])
        self._step()
        self._world.sink.write(batch, rows, self._scheduler.now)
        self._world.note(f"batch {batch} is in the sink: {sum(map(len, rows))} rows")
        self._step()

    def _new_reader(self) -> KinesisStreamReader:
        source: Any = pickle.loads(pickle.dumps(self._source))
        reader: KinesisStreamReader = source.streamReader(StructType())
        return reader

    def _step(self) -> None:
        """A write, which takes time and may be lost in a crash."""
        self._scheduler.sleep(0.02 * self._scheduler.rng.random())

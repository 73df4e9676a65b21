"""Spark's executors: they run the tasks of a batch, try failed ones again, and crash."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from sparkinesis.errors import SparkinesisError
from sparkinesis.stream.position import ShardRange
from tests.simulation.query.checkpoint import Row, RowId
from tests.simulation.query.history import Tasks
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.scheduler import Task as Thread

MACHINES = 2
SLOTS = 2
"""Tasks that run at a time on one machine."""
MOST_FAILURES = 4
"""``spark.task.maxFailures``."""
_PATIENCE = 3.0
"""Seconds after which a task is started a second time, where that is wanted."""
_HEARTBEAT = 2.0
"""Seconds until the loss of an executor is noticed."""


class TaskFailedError(Exception):
    """A failure of a Spark task that is not the source's."""


class JobFailedError(Exception):
    """A task has failed too often; the cause is that of its last failure."""


@dataclass
class Try:
    """One attempt at a range of a task: what it read, and how it ended."""

    batch: int
    process: Process
    stream: str
    shard_range: ShardRange
    began: float
    rows: list[Row] = field(default_factory=list)
    is_whole: bool = False
    ended: float | None = None
    """None: its executor was killed, or it is under way."""


@dataclass
class _Task:
    partition: bytes
    rows: list[Row] | None = None
    failures: int = 0
    error: Exception | None = None
    running: list[_Attempt] = field(default_factory=list)


@dataclass
class _Attempt:
    executor: Process
    began: float


class Cluster:
    """The executors of one run of a query. ``new_process`` makes one on a machine."""

    def __init__(
        self,
        scheduler: Scheduler,
        behaviour: Tasks,
        new_process: Callable[[int], Process],
        tries: list[Try],
        note: Callable[[str], None],
    ) -> None:
        self._scheduler = scheduler
        self.behaviour = behaviour
        self._new_process = new_process
        self._tries = tries
        self._note = note
        self.executors = [new_process(machine) for machine in range(MACHINES)]
        self._driver: Thread | None = None
        self._is_waiting = False

    def run(self, batch: int, reader: bytes, partitions: list[bytes]) -> list[list[Row]]:
        """The rows of each partition, as a job of Spark's gets them. Raises `JobFailedError`."""
        self._driver = self._scheduler.current
        tasks = [_Task(partition) for partition in partitions]
        while any(task.rows is None for task in tasks):
            self._replace_lost(tasks)
            for task in tasks:
                if self._is_wanted(task):
                    self._start(batch, reader, task)
            self._wait(tasks)
        return [task.rows or [] for task in tasks]

    def _wait(self, tasks: list[_Task]) -> None:
        for task in tasks:
            if task.failures >= MOST_FAILURES:
                raise JobFailedError from task.error
        if all(task.rows is not None for task in tasks):
            return
        self._is_waiting = True
        self._scheduler.park(_HEARTBEAT)
        self._is_waiting = False

    def _is_wanted(self, task: _Task) -> bool:
        if task.rows is not None or not self._free():
            return False
        if not task.running:
            return True
        is_slow = self._scheduler.now - task.running[0].began > _PATIENCE
        return self.behaviour.speculation and len(task.running) == 1 and is_slow

    def _free(self) -> list[Process]:
        return [one for one in self.executors if not one.is_killed and len(one.tasks) < SLOTS]

    def _replace_lost(self, tasks: list[_Task]) -> None:
        for machine, executor in enumerate(self.executors):
            if executor.is_killed:
                for task in tasks:
                    task.running = [one for one in task.running if one.executor is not executor]
                self.executors[machine] = self._new_process(machine)

    def _start(self, batch: int, reader: bytes, task: _Task) -> None:
        executor = self._scheduler.rng.choice(self._free())
        attempt = _Attempt(executor, self._scheduler.now)
        task.running.append(attempt)

        def run() -> None:
            try:
                rows = self._read(batch, executor, reader, task.partition)
            except (SparkinesisError, TaskFailedError) as error:
                self._note(f"task failed: {type(error).__name__}: {error}")
                task.failures, task.error = task.failures + 1, error
            else:
                task.rows = task.rows or rows
            if attempt in task.running:
                task.running.remove(attempt)
            if self._is_waiting and self._driver is not None:
                self._scheduler.wake(self._driver)

        self._scheduler.spawn(executor, "task", run)

    def _read(self, batch: int, executor: Process, reader: bytes, partition: bytes) -> list[Row]:
        chance, behaviour = self._scheduler.rng.random, self.behaviour
        unpickled = pickle.loads(partition)
        tries = {
            each.shard_range.shard_id: Try(
                batch, executor, unpickled.stream, each.shard_range, self._scheduler.now
            )
            for each in unpickled.to_read
        }
        self._tries += tries.values()
        rows = []
        is_whole = False
        try:
            with closing(pickle.loads(reader).read(unpickled)) as batches:
                for arrow in batches:
                    of_page = rows_of(arrow)
                    rows += of_page
                    for row in of_page:
                        tries[row.id.shard].rows.append(row)
                    if chance() < behaviour.slow:
                        self._scheduler.sleep(8.0 * chance())
                    if chance() < behaviour.fail:
                        raise TaskFailedError("simulated")
            is_whole = True
        finally:
            for each in tries.values():
                each.is_whole = is_whole
                each.ended = None if self._scheduler.has_ended else self._scheduler.now
        return rows


def rows_of(arrow: Any) -> list[Row]:
    names = ("stream", "shardId", "sequenceNumber", "subSequenceNumber", "partitionKey", "data")
    columns = [arrow.column(name).to_pylist() for name in names]
    arrivals = arrow.column("approximateArrivalTimestamp").cast("int64").to_pylist()
    return [
        Row(RowId(stream, shard, number, sub), key, data, arrival // 1000)
        for stream, shard, number, sub, key, data, arrival in zip(*columns, arrivals, strict=True)
    ]

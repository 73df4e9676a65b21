"""A fleet where Spark is not needed: a session whose jobs run nothing, and what workers say."""

from __future__ import annotations

import threading
from typing import Any

from sparkinesis.application import Application, SupervisedApplication
from sparkinesis.fleet.fleet import Fleet
from sparkinesis.fleet.fleet_options import FleetOptions
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.processors.processor import RecordProcessor
from sparkinesis.worker.supervision.control_messages import Hello
from sparkinesis.worker.supervision.supervisor import message_of
from tests.unit.fleet.wire import PATIENCE

OPTIONS = FleetOptions(heartbeat_interval=0.1, lost_after=0.5, first_backoff=0.1)


class IdleSpark:
    """A stand-in for a Spark session, with the methods that a fleet calls."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.tags = threading.local()
        self.jobs: dict[frozenset[str], threading.Event] = {}
        self.cancels = 0
        self.is_slow = False
        """Spark does not know a job until one cancellation has had no effect."""
        self.sparkContext = self
        self.error = "cancelled"
        self._jsc: Any = self
        self.is_stopped: bool | Exception = False
        self.master = "local[2]"

    # the context

    def getConf(self) -> dict[str, str]:
        return {"spark.master": self.master, "spark.driver.host": "127.0.0.1"}

    def sc(self) -> IdleSpark:
        return self

    def isStopped(self) -> bool:
        if isinstance(self.is_stopped, Exception):
            raise self.is_stopped
        return self.is_stopped

    def setJobGroup(self, group: str, description: str) -> None:
        self.group, self.description = group, description

    # the session

    def addTag(self, tag: str) -> None:
        self.tags.mine = {*getattr(self.tags, "mine", ()), tag}

    def interruptTag(self, tag: str) -> None:
        with self.lock:
            self.cancels += 1
            self.lock.notify_all()
            for tags, cancelled in self.jobs.items():
                if tag in tags:
                    cancelled.set()

    def range(self, *_: int) -> IdleSpark:
        return self

    def mapInArrow(self, *_: Any) -> IdleSpark:
        return self

    def collect(self) -> None:
        cancelled = threading.Event()
        with self.lock:
            if self.is_slow:
                assert self.lock.wait_for(lambda: self.cancels, PATIENCE)
            self.jobs[frozenset(self.tags.mine)] = cancelled
            self.lock.notify_all()
        assert cancelled.wait(PATIENCE)
        raise RuntimeError(self.error)

    def end_jobs(self) -> None:
        for cancelled in list(self.jobs.values()):
            cancelled.set()

    def wait_for_jobs(self, count: int) -> None:
        with self.lock:
            assert self.lock.wait_for(lambda: len(self.jobs) >= count, PATIENCE)


class Processor(RecordProcessor):
    def process_records(self, batch: Any, checkpointer: Any) -> None:
        pass


def application(
    processor: Any = Processor,
    *,
    metrics: Any = (),
    http: str | None = None,
    streams: Any = None,
    **given: Any,
) -> Application:
    return Application(
        "app",
        None if streams else "stream",
        processor,
        streams=streams,
        region="us-east-1",
        options=WorkerOptions(shutdown_timeout=1.0, metrics=metrics, http=http),
        **given,
    )


def make(spark: Any, workers: int = 1, options: FleetOptions = OPTIONS, **given: Any) -> Fleet:
    return Fleet(SupervisedApplication.of(application(**given)), spark, workers, options)


def hello(worker: str = "w", slot: int = 0, job: int = 1, *, runs: bool = True) -> Hello:
    return Hello(worker, slot, job, 0, "host", 1, 2, 3, is_running=runs)


def tell(fleet: Fleet, first: Any, *more: Any) -> None:
    """What one worker says; its name is that of its hello, or w."""
    for message in (first, *more):
        receive(fleet, getattr(first, "worker_id", "w"), message)


def receive(fleet: Fleet, worker: str, message: Any) -> None:
    """What a worker sends to the fleet."""
    fleet._supervisor.post(message, message_of(worker, message))

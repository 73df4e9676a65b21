"""A queue on a local Kinesis whose clock a test moves, and workers that receive from it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sparkinesis.local import Call, Fault, LocalServer, ManualClock
from sparkinesis.queue.application import QueueApplication
from sparkinesis.queue.options import QueueOptions
from sparkinesis.queue.record import QueueRecord
from sparkinesis.queue.worker import QueueWorker
from sparkinesis.stream.timing import Timing
from tests.journal import PATIENCE
from tests.pace import eventually

REGION = "eu-west-1"
VISIBILITY = 30


@dataclass
class QueueScene:
    """A stream, a queue that begins with it, and the workers of a test."""

    server: LocalServer
    clock: ManualClock
    kinesis: Any
    stream: str
    arn: str
    workers: list[QueueWorker] = field(default_factory=list)

    def put(self, *datas: bytes) -> None:
        entries = [{"Data": data, "PartitionKey": "k"} for data in datas]
        answer = self.kinesis.put_records(StreamName=self.stream, Records=entries)
        assert answer["FailedRecordCount"] == 0

    def application(
        self, handler: Callable[..., Any], options: dict[str, Any] | None = None, **given: Any
    ) -> QueueApplication:
        chosen = QueueOptions(**{"wait_time": 1, "acknowledge_within": 0.0, **(options or {})})
        return QueueApplication(
            self.arn,
            handler,
            endpoint=self.server.endpoint_url,
            options=chosen,
            **given,
        )

    def start(
        self, handler: Callable[..., Any], options: dict[str, Any] | None = None, **given: Any
    ) -> QueueWorker:
        application = self.application(handler, options, **given)
        timing = Timing(clock=lambda: self.clock() / 1000, wall_clock_ms=self.clock)
        worker = application.worker(timing=timing).start()
        self.workers.append(worker)
        return worker

    def pass_time(self, seconds: float) -> None:
        """Move the clock of the service and of all workers, and see polls end that are over."""
        now = self.clock.advance(round(seconds * 1000))
        for worker in self.workers:
            worker.look_at_time()
        over = [poll for poll in self.polls if poll.until_ms <= now]
        eventually(lambda: not any(poll in poll.queue.polls for poll in over))

    @property
    def polls(self) -> list[Any]:
        """The receives that wait at the service."""
        queues = self.server.kinesis._regions[REGION].queues.values()
        return [poll for queue in list(queues) for poll in list(queue.polls)]

    def wait_for_end(self, worker: QueueWorker) -> None:
        """Wait for the end of a worker that shuts down; raises the error that ended it.

        A poll on a clock that stands still would never end.
        """
        while not worker.wait(0.02):
            self.pass_time(1)

    def calls(self, operation: str) -> int:
        """Return how many calls of an operation have been answered without an error."""
        return sum(one.error is None for one in self.server.kinesis.calls.select(operation))

    def wait_for_calls(self, operation: str, count: int) -> None:
        eventually(lambda: self.calls(operation) >= count)

    def receive(self, limit: int = 10, **given: Any) -> list[dict[str, Any]]:
        """Receive as another receiver would, without waiting for long."""
        # A poll on a clock that stands still ends only when that moves.
        call = self.server.kinesis.call
        answer = call("ReceiveQueueRecords", region=REGION, QueueARN=self.arn, Limit=limit, **given)
        return list(answer["QueueRecords"])

    def fail(self, operation: str, make: Callable[[Call], Fault | None]) -> None:
        """Have the calls of an operation fail as ``make`` says."""
        self.server.kinesis.faults = lambda call: (
            make(call) if call.operation == operation else None
        )


@dataclass
class Handled:
    """A handler that writes down its records, and waits where a test wants it to."""

    records: list[QueueRecord] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    gate: threading.Event = field(default_factory=threading.Event)
    does: Callable[[QueueRecord], Any] | None = None

    def __call__(self, record: QueueRecord) -> None:
        with self.changed:
            self.records.append(record)
            self.changed.notify_all()
        assert self.gate.wait(PATIENCE)
        if self.does is not None:
            self.does(record)

    def wait(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.records) >= count, PATIENCE), self.data

    @property
    def data(self) -> list[bytes]:
        return [record.data for record in self.records]

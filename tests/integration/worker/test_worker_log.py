"""The log of a worker's life: what an operator reads of its leases, and at which level."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.events import LeaseEnd, LeaseEnded, LeaseTaken, ShardEvent
from sparkinesis.local import Call, Fault
from sparkinesis.worker.lifecycle.worker import Worker
from tests.integration.worker.conftest import FAILOVER_TIME
from tests.integration.worker.scene import FIRST, SECOND, UPPER, Scene
from tests.journal import PATIENCE, Journal
from tests.pace import eventually

Start = Callable[[Application], Worker]

LEFT, RIGHT = "shardId-000000000002", "shardId-000000000003"
LOGGER = logging.getLogger("sparkinesis.worker.reporting.event_log")


class Lines(logging.Handler):
    """The lines of events, for a test that waits for some."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        with self.changed:
            self.records.append(record)
            self.changed.notify_all()

    def of(self, worker: str, since: int = 0) -> list[str]:
        """Level and text of each line of a worker and its leases."""
        return [
            f"{line.levelname} {line.getMessage()}"
            for line in self.records[since:]
            if line.worker == worker and not isinstance(line.sparkinesis_event, ShardEvent)
        ]

    def of_shards(self, since: int = 0) -> list[str]:
        """Level and text of each line of a shard that is read."""
        return [
            f"{line.levelname} {line.getMessage()}"
            for line in self.records[since:]
            if isinstance(line.sparkinesis_event, ShardEvent)
        ]

    def events(self, since: int = 0) -> list[Any]:
        return [line.sparkinesis_event for line in self.records[since:]]

    def wait(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE), self.records


@pytest.fixture
def lines() -> Iterator[Lines]:
    found, before = Lines(), LOGGER.level
    LOGGER.addHandler(found)
    LOGGER.setLevel(logging.INFO)
    yield found
    LOGGER.removeHandler(found)
    LOGGER.setLevel(before)


def holders(events: list[Any]) -> set[str]:
    """The shards that the events leave in some worker's hands."""
    held: list[str] = []
    for event in events:
        if isinstance(event, LeaseTaken):
            held.append(event.shard_id)
        elif isinstance(event, LeaseEnded):
            held.remove(event.shard_id)
    return set(held)


def found(pattern: str, lines: list[str]) -> list[str]:
    return [line for line in lines if re.fullmatch(pattern, line, re.DOTALL)]


def test_the_life_of_two_workers(scene: Scene, lines: Lines) -> None:
    """Start, take, steal and handover, an outage of DynamoDB, the end of a shard, shutdown."""

    def worker(name: str) -> Worker:
        journal = Journal()
        return scene.start(
            {"handoff_timeout": 3600.0, "parent_poll_interval": 0.2},
            worker_id=name,
            on_shutdown=lambda c: c.checkpoint(),
            journal=journal,
        )

    places = {FIRST: 0, SECOND: UPPER}
    last = {shard: scene.put(b"1", place) for shard, place in places.items()}
    first = worker("first")
    lines.wait(lambda: holders(lines.events()) == {FIRST, SECOND})
    told = lines.of("first")
    assert sorted(told[:2]) == [
        f"INFO Created the lease {shard} at TRIM_HORIZON" for shard in (FIRST, SECOND)
    ]
    assert re.fullmatch(
        rf"INFO Worker first has started: application '{scene.stream}' reads stream "
        rf"'{scene.stream}' in us-east-1 at http://\S+ \(polling\), from TRIM_HORIZON "
        rf"where a shard has no lease; failover_time is {FAILOVER_TIME:g} s",
        told[2],
    )
    assert sorted(told[3:]) == [
        f"INFO Took {shard}, which had no owner; its checkpoint is TRIM_HORIZON"
        for shard in (FIRST, SECOND)
    ]

    lines.wait(lambda: len(lines.of_shards()) == 2)
    assert sorted(lines.of_shards()) == [
        f"INFO Began to read {shard} at TRIM_HORIZON" for shard in (FIRST, SECOND)
    ]

    second = worker("second")
    lines.wait(lambda: len(found("INFO Took .*", lines.of("second"))) == 1)
    (stolen,) = {event.shard_id for event in lines.events() if isinstance(event, LeaseEnded)}
    (released,) = lines.of("first")[5:]
    assert re.fullmatch(
        rf"INFO Released {stolen} to worker second after \S+ s: another worker requested it; its "
        rf"checkpoint is ({last[stolen]}:0|TRIM_HORIZON)",
        released,
    )
    at = released.rpartition(" ")[2]
    assert lines.of("second")[1:] == [
        f"INFO Requested {stolen} from worker first, which has more than its share",
        (
            f"INFO Took {stolen} from worker first, which has released it at this worker's "
            f"request; its checkpoint is {at}"
        ),
    ]

    began = len(lines.records)
    scene.server.kinesis.faults = outage
    ends = [LeaseEnd.EXPIRED] * 2
    lines.wait(lambda: [e.reason for e in lines.events(began) if isinstance(e, LeaseEnded)] == ends)
    scene.server.kinesis.faults = None
    lost = [
        rf"WARNING Lost {shard} after \S+ s: it could not be renewed for {FAILOVER_TIME:g} s, and "
        r"another worker may own it; its checkpoint is \S+, and records after it are processed "
        r"again\. The last renewal failed: .*Injected fault"
        for shard in (FIRST, SECOND)
    ]
    during = [*lines.of("first", began), *lines.of("second", began)]
    assert [len(found(pattern, during)) for pattern in lost] == [1, 1]
    assert found(r"WARNING 1 of 1 leases could not be renewed now, .*Injected fault", during)
    lines.wait(lambda: holders(lines.events()) == {FIRST, SECOND})

    began = len(lines.records)
    scene.split()
    lines.wait(lambda: holders(lines.events()) == {LEFT, RIGHT, SECOND})
    during = [*lines.of("first", began), *lines.of("second", began)]
    ended = (
        # The other worker may have requested the shard a moment before.
        rf"INFO Released {FIRST}( to worker \S+)? after \S+ s: the shard has ended, and all of its "
        "records are processed; its checkpoint is SHARD_END"
    )
    assert len(found(ended, during)) == 1
    finished = (
        rf"INFO Finished {FIRST}: the shard has ended, and all of its records are checkpointed; "
        rf"its children are {LEFT}, {RIGHT}"
    )
    assert len(found(finished, lines.of_shards(began))) == 1

    assert second.shutdown(PATIENCE)
    lines.wait(lambda: holders(lines.events()) == {LEFT, RIGHT, SECOND})
    eventually(lambda: len(first.status()) == 3)  # a moment after it has taken them
    began = len(lines.records)
    assert first.shutdown(PATIENCE)
    told = lines.of("first", began)
    assert told[0] == "INFO Worker first shuts down; it reads 3 shards"
    for shard in (LEFT, RIGHT, SECOND):
        released = rf"INFO Released {shard} after \S+ s: this worker shuts down; .*"
        assert len(found(released, told[1:-1])) == 1
    assert re.fullmatch(r"INFO Worker first has ended after \S+ s: \d records? processed", told[-1])
    assert len(told) == 5


def outage(call: Call) -> Fault | None:
    """DynamoDB does not work."""
    if call.operation in {"UpdateItem", "BatchExecuteStatement", "Scan", "GetItem", "Query"}:
        return Fault.error("InternalServerError", status=500)
    return None

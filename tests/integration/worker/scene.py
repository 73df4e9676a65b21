"""A stream, the application that reads it, and what its record processors do."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import Fault, FaultPlan, LocalServer
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.processors.processor import ProcessorShard
from tests import command
from tests.command import Result, place_of
from tests.failing import Failing
from tests.journal import PATIENCE, Journal, Journaling
from tests.kcl import rows_of
from tests.streams import create_when_permitted, put_at, split

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
UPPER = 2**127
"""The first hash key of the second of two shards."""
ONCE = pytest.mark.parametrize("retrieval", ["polling"])
"""Of a test in a module with RETRIEVALS that another retrieval would not change."""


@dataclass
class Scene:
    """What most tests of workers have in hand."""

    server: LocalServer
    kinesis: Any
    stream: str
    """Also the application's name."""
    journal: Journal
    application: Callable[..., Application]
    run: Callable[[Application], Worker]
    caplog: pytest.LogCaptureFixture

    def start(
        self,
        options: dict[str, Any] | None = None,
        *,
        on_records: Callable[[Any, Any], Any] | None = None,
        on_shutdown: Callable[[Any], Any] | None = None,
        on_initialize: Callable[[Any], Any] | None = None,
        journal: Journal | None = None,
        **given: Any,
    ) -> Worker:
        """Start a worker; its processors write into the journal, and do what the functions do."""
        own = lambda: Journaling(  # noqa: E731
            journal or self.journal, on_records, on_shutdown, on_initialize
        )
        return self.run(self.application(options, **{"processor": own, **given}))

    def several(self, streams: object, **given: Any) -> Application:
        """Make an application of several streams, whose identifiers the journal has for shards."""
        processor = lambda: ByIdentifier(self.journal, checkpoint)  # noqa: E731
        return self.application(stream=None, streams=streams, **{"processor": processor, **given})

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the rows of the lease table by key, as DynamoDB has them."""
        return rows_of(self.dynamodb, self.stream)

    def put(self, data: bytes, hash_key: int = 0, key: str = "k") -> str:
        """Put one record into the shard of ``hash_key``; return its sequence number."""
        return put_at(self.kinesis, self.stream, data, hash_key, key)

    def split(self) -> str:
        """Split the first open shard in the middle; return its id."""
        return split(self.kinesis, self.stream)

    def call(self, name: str, *options: str, app: str | None = None) -> Result:
        """Run a command in this process on the application."""
        return command.call(name, app or self.stream, *options, *place_of(self.server))

    def faults(
        self, fault: FaultPlan | Fault | None, operation: str | None = None, **only: Any
    ) -> None:
        """Plan the server's faults until the test is over; None: there are none.

        By a function of a call, or the fault of each call with these fields.
        """
        if isinstance(fault, Fault):
            fault = Failing(operation, then=fault, **only)
        self.server.kinesis.faults = fault

    @cached_property
    def dynamodb(self) -> Any:
        return self.server.client("dynamodb")

    @cached_property
    def streams(self) -> list[str]:
        """Three streams of one shard each, whose ids are the same; in alphabetical order."""
        return three_streams(self.kinesis)

    @property
    def table(self) -> LeaseTable:
        return self.application().table()

    def row(self, key: str = FIRST) -> Lease:
        """Return a lease as the table has it."""
        row = self.table.get(key)
        assert row is not None
        return row

    def owners(self) -> dict[str, str | None]:
        """Return the owner of each lease, as the table has it."""
        return {row.key: row.owner for row in self.table.leases()}

    def calls_of(self, shard: str = FIRST) -> list[str]:
        """Return the calls of a shard's processors, in order."""
        return [call for where, call in self.journal.calls() if where == shard]


def three_streams(kinesis: Any) -> list[str]:
    suffix = uuid.uuid4().hex[:6]
    names = [f"s-{kind}-{suffix}" for kind in ("app", "mobile", "web")]
    for name in names:
        create_when_permitted(kinesis, name)
    return names


class ByIdentifier(Journaling):
    """Writes down the stream's identifier in place of the shard."""

    def initialize(self, shard: ProcessorShard) -> Any:
        return super().initialize(replace(shard, id=str(shard.stream_id)))


class Gate:
    """What a processor does that is at work until the test lets it go on."""

    def __init__(self) -> None:
        self.at_work, self.go_on = threading.Event(), threading.Event()

    def __call__(self, *_: object) -> None:
        self.at_work.set()
        assert self.go_on.wait(PATIENCE)

    def wait_for_work(self) -> None:
        assert self.at_work.wait(PATIENCE)


def create_leases(application: Application) -> dict[str, Lease]:
    """Create the leases that a worker creates at its start; return them by stream and shard."""
    application.worker()._streams.begin(lambda _: False)
    return leases_of(application)


def leases_of(application: Application) -> dict[str, Lease]:
    rows = application.table().leases()
    return {f"{row.stream.name}/{row.shard_id}" if row.stream else row.key: row for row in rows}


def crash(worker: Worker) -> None:
    """What is left of a worker that dies: nothing is released, nobody is told."""
    for held in worker._coordinator.held().values():
        held.lose("the test says so")
    worker.shutdown(10)


def wait_for_look(worker: Worker, condition: Callable[[], bool]) -> None:
    """Wait until ``condition``, looked at after each round of the worker's, holds."""
    with worker._state.changed:
        assert worker._state.changed.wait_for(condition, PATIENCE)


def told(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    """Return the messages of the log that have this text."""
    return [line for line in map(logging.LogRecord.getMessage, caplog.records) if text in line]


def checkpoint(batch: Any, checkpointer: Any) -> None:
    """What a processor does that checkpoints each batch."""
    checkpointer.checkpoint()

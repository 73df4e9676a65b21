"""A stream, the application that reads it, and what its record processors do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer
from sparkinesis.worker.lifecycle.worker import Worker
from tests.journal import PATIENCE, Journal, Journaling
from tests.streams import put_at, split

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

    def put(self, data: bytes, hash_key: int = 0, key: str = "k") -> str:
        """Put one record into the shard of ``hash_key``; return its sequence number."""
        return put_at(self.kinesis, self.stream, data, hash_key, key)

    def split(self) -> str:
        """Split the first open shard in the middle; return its id."""
        return split(self.kinesis, self.stream)

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


class Gate:
    """What a processor does that is at work until the test lets it go on."""

    def __init__(self) -> None:
        self.at_work, self.go_on = threading.Event(), threading.Event()

    def __call__(self, *_: object) -> None:
        self.at_work.set()
        assert self.go_on.wait(PATIENCE)

    def wait_for_work(self) -> None:
        assert self.at_work.wait(PATIENCE)


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

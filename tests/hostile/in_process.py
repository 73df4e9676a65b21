"""A local Kinesis and a lease table in this process, whose calls are counted and cost no time."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest import mock

from sparkinesis.local import LocalKinesis
from tests.simulation.dynamodb import DynamoDBClient, LeaseTableModel
from tests.simulation.kinesis import KinesisClient
from tests.simulation.network import Network


class Counted:
    """In the place of a network: every request arrives, and every answer."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def call(
        self,
        service: str,
        operation: str,
        serve: Callable[[Any], Any],
        *,
        timeout: float,
        stream: str | None = None,
    ) -> Any:
        with self._lock:
            self.calls[operation] += 1
            return serve(None)

    def note(self, *_: Any, **__: Any) -> None:
        """Of no concern here."""


@contextmanager
def in_process(kinesis: LocalKinesis, table: str) -> Iterator[Counter[str]]:
    """The calls of all clients that are opened within, by operation."""
    counted = Counted()
    network = cast(Network, counted)
    model = LeaseTableModel(table, time.monotonic, random.Random(1))
    model.is_there = True
    clients = KinesisClient(network, kinesis), DynamoDBClient(network, model)
    with (
        mock.patch("sparkinesis.stream.calls.caller.call_client", return_value=clients[0]),
        mock.patch("sparkinesis.lease.table.calls.dynamodb_client", return_value=clients[1]),
    ):
        yield counted.calls

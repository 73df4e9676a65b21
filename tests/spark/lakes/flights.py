"""Numbered flights, put into a stream while tests kill the program that reads them."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

from sparkinesis.local import LocalServer
from sparkinesis.stream.kpl.pack import aggregate
from tests.pace import eventually
from tests.streams import merge_neighbours, put_all, split

STREAM = "flights"
REGION = "eu-west-1"


class Flights(threading.Thread):
    """Puts some flights ten times a second, every other time as KPL aggregates."""

    def __init__(self, server: LocalServer) -> None:
        super().__init__(daemon=True)
        self.kinesis = server.client("kinesis", REGION)
        self.kinesis.create_stream(StreamName=STREAM, ShardCount=2)
        self.put = 0
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._resharding = threading.Lock()

    def __enter__(self) -> Flights:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join()

    def run(self) -> None:
        try:
            rounds = 0
            while not self._stopping.wait(0.1):
                rounds += 1
                self.put_some(10, aggregated=rounds % 2 == 0)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.failure = error

    def finish(self) -> int:
        """Stop, and return how many flights were put."""
        self.__exit__()
        if self.failure is not None:
            raise self.failure
        return self.put

    def put_some(self, count: int, *, aggregated: bool = False, **more: str) -> None:
        """Put flights, whose JSON may have more fields."""
        flights = [
            {"id": n, "plane": f"N{n % 50}", **more} for n in range(self.put, self.put + count)
        ]
        users = [(str(each["plane"]), None, json.dumps(each).encode()) for each in flights]
        if aggregated:
            entries = [{"Data": a.data, "PartitionKey": a.partition_key} for a in aggregate(users)]
        else:
            entries = [{"Data": data, "PartitionKey": key} for key, _, data in users]
        put_all(self.kinesis, STREAM, entries)
        self.put += count

    def split(self) -> None:
        split(self.kinesis, STREAM)
        self._settle()

    def merge(self) -> None:
        merge_neighbours(self.kinesis, STREAM)
        self._settle()

    def _settle(self) -> None:
        eventually(lambda: status(self.kinesis, STREAM) == "ACTIVE")


def status(kinesis: Any, stream: str) -> str:
    summary = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    return str(summary["StreamStatus"])


def assert_each_once(ids: Iterable[int], put: int) -> None:
    counts = Counter(ids)
    assert set(counts) == set(range(put)), "a flight was lost"
    assert set(counts.values()) == {1}, "a flight was written twice"

"""The scenarios: a query and workers on servers that we did not write, with kills and reshards."""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.judge import (
    Delivery,
    Record,
    Verdict,
    deliveries_of,
    deliveries_of_batches,
    judge,
)
from tests.interop.processes import Processes, settled
from tests.interop.servers import client, dynamodb, kinesis_mock
from tests.streams import merge_neighbours, split

KEYS = 30
TURNS = 100
"""Records of each key."""
TURN = 0.3
"""Seconds between two turns, at least."""
RESHARDS: dict[int, Callable[[Any, str], object]] = {25: split, 55: merge_neighbours, 80: split}
"""The reshards, by turn."""
KILL_AFTER = 40
"""The turn after which a process is killed."""


@dataclass(kw_only=True)
class Stage(Processes):
    """The place of a scenario: the servers, the stream, and a folder for output."""

    kinesis: str
    dynamodb: str
    stream: str
    turn: int = 0
    """The number of turns that were put."""

    @property
    def put(self) -> Counter[str]:
        return Counter({f"key-{key}": self.turn for key in range(KEYS)})

    def start(self, module: str, name: str, *places: str) -> None:
        command = [sys.executable, "-m", module, name, *places, self.stream, str(self.folder)]
        self.start_process(name, command)

    def start_worker(self, name: str) -> None:
        self.start("tests.interop.worker", name, self.kinesis, self.dynamodb)

    def start_query(self, name: str) -> None:
        self.start("tests.interop.query", name, self.kinesis)

    def batches(self) -> list[tuple[int, str, list[Record]]]:
        """The batches that queries have written so far."""
        found = []
        for path in self.folder.glob("batch-*.json"):
            _, number, reader = path.stem.split("-", 2)
            rows = [(key, n) for key, n in json.loads(path.read_text(encoding="utf-8"))]
            found.append((int(number), reader, rows))
        return found


@contextmanager
def stage(dynamodb_name: str | None, folder: Path) -> Iterator[Stage]:
    """A stream of two shards. ``dynamodb_name``: None where no lease table is needed."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        kinesis = stack.enter_context(kinesis_mock(folder))
        table = stack.enter_context(dynamodb(dynamodb_name, folder)) if dynamodb_name else ""
        name = f"interop-{uuid.uuid4().hex[:8]}"
        api = client("kinesis", kinesis)
        api.create_stream(StreamName=name, ShardCount=2)
        api.get_waiter("stream_exists").wait(
            StreamName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30}
        )
        found = Stage(folder=folder, kinesis=kinesis, dynamodb=table, stream=name)
        stack.callback(found.close)
        yield found


def produce(on: Stage, until: int = TURNS) -> None:
    """Put turns, one record of each key in each, and reshard in between."""
    api = client("kinesis", on.kinesis)
    while on.turn < until:
        began = time.monotonic()
        entries = [
            {
                "Data": json.dumps({"key": f"key-{key}", "number": on.turn}).encode(),
                "PartitionKey": f"key-{key}",
            }
            for key in range(KEYS)
        ]
        while entries:  # what is refused is put before the key's next one
            answer = api.put_records(StreamName=on.stream, Records=entries)
            results = zip(entries, answer["Records"], strict=True)
            entries = [entry for entry, result in results if "ErrorCode" in result]
        on.turn += 1
        if (reshard := RESHARDS.get(on.turn)) is not None:
            reshard(api, on.stream)
        time.sleep(max(0.0, TURN - (time.monotonic() - began)))


@contextmanager
def producing(on: Stage) -> Iterator[threading.Thread]:
    """Puts in a thread of its own, all turns."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            produce(on)
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    thread = threading.Thread(target=run, name="producer", daemon=True)
    thread.start()
    yield thread
    thread.join()
    if failures:
        raise failures[0]


def settle(on: Stage, deliveries: Callable[[], list[Delivery]]) -> Verdict:
    """The verdict, once all was read and nothing comes any more."""
    return settled(lambda: judge(on.put, deliveries(), on.killed))


def query_with_kill(on: Stage) -> Verdict:
    """A streaming query whose driver is killed in the midst, with its JVM, and started again."""
    on.start_query("q1")
    with producing(on):
        on.wait_until("a batch", lambda: on.turn >= KILL_AFTER and len(on.batches()) >= 2)
        on.kill("q1")
        on.start_query("q2")
        on.wait_until("a batch of the second driver", lambda: "q2" in _queries(on))
    return settle(on, lambda: deliveries_of_batches(on.batches()))


def _queries(on: Stage) -> set[str]:
    return {reader for _, reader, _ in on.batches()}


def workers_with_kill(on: Stage) -> Verdict:
    """Two workers, of which one is killed in the midst; a third takes its place."""
    on.start_worker("w1")
    on.start_worker("w2")
    with producing(on):
        on.wait_until(
            "a batch of both workers",
            lambda: on.turn >= KILL_AFTER and {"w1", "w2"} <= on.readers(),
        )
        on.wait_until("a batch without a checkpoint", lambda: on.has_more_than_checkpointed("w1"))
        on.kill("w1")
        on.start_worker("w3")
    verdict = settle(on, lambda: deliveries_of(on.lines()))
    on.end("w2")
    on.end("w3")
    return verdict


def handoff(on: Stage) -> Verdict:
    """A second worker asks the first for leases, which it gives; then the first is shut down."""
    on.start_worker("w1")
    with producing(on):
        on.wait_until("a batch of the first worker", lambda: "w1" in on.readers())
        on.start_worker("w2")
        on.wait_until(
            "a batch of the second worker", lambda: on.turn >= KILL_AFTER and "w2" in on.readers()
        )
        on.end("w1")
    verdict = settle(on, lambda: deliveries_of(on.lines()))
    on.end("w2")
    return verdict


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    play: Callable[[Stage], Verdict]
    needs_table: bool = True


SCENARIOS = (
    Scenario("a query, its driver killed, three reshards", query_with_kill, needs_table=False),
    Scenario("two workers, one killed, three reshards", workers_with_kill),
    Scenario("a handoff and a shutdown, three reshards", handoff),
)

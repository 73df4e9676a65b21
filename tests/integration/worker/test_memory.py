"""A worker's memory for slow record processors is bounded, and no shard waits for another."""

from __future__ import annotations

import gc
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from sparkinesis.application import Application
from sparkinesis.local import LocalServer
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.local.model import limits
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.processors.processor import ProcessorShard, RecordProcessor
from sparkinesis.worker.retrieval.memory import MemoryBudget, floor_of
from sparkinesis.worker.retrieval.waiting_pages import FetchedPage
from tests import pace
from tests.journal import PATIENCE

RETRIEVALS = ("polling", "efo")
SHARDS = 10
LIMIT = 4 * 1_048_576
EVENT = 65_536
"""Bytes of an event of enhanced fan-out: an event is not divided."""

Run = Callable[[], tuple[Worker, MemoryBudget]]
Fill = Callable[[int, list[bytes]], None]


class Gate:
    """Where record processors stand; counts who came, and what they were given."""

    def __init__(self) -> None:
        self.opened: set[str] = set()
        self.is_open = False
        self.given: dict[str, list[bytes]] = defaultdict(list)
        self._changed = threading.Condition()

    def pass_through(self, shard: str, batch: RecordBatch) -> None:
        with self._changed:
            self.given[shard] += [record.data for record in batch.records]
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.is_open or shard in self.opened)

    def open(self, *shards: str) -> None:
        """For these, or for all."""
        with self._changed:
            self.opened |= set(shards)
            self.is_open = self.is_open or not shards
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE), {
                shard: len(given) for shard, given in self.given.items()
            }

    def count(self) -> int:
        return sum(map(len, self.given.values()))


class Standing(RecordProcessor):
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def initialize(self, shard: ProcessorShard) -> None:
        self._shard = shard.id

    def process_records(self, batch: RecordBatch, checkpointer: Any) -> None:
        del checkpointer
        self._gate.pass_through(self._shard, batch)


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """Takes any number of records at once."""
    with LocalServer(lease_tables=LeaseTables(), limits=False) as running:
        yield running


@pytest.fixture
def stream(kinesis: Any) -> str:
    name = f"s-{uuid.uuid4().hex[:8]}"
    kinesis.create_stream(StreamName=name, ShardCount=SHARDS)
    return name


@pytest.fixture(autouse=True)
def small_events() -> Iterator[None]:
    with mock.patch.object(limits, "MAX_EVENT_BYTES", EVENT):
        yield


@pytest.fixture(autouse=True)
def few_objects() -> Iterator[None]:
    """`held` looks at those of the test alone: a look at all would stop all threads for seconds."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def gate() -> Iterator[Gate]:
    found = Gate()
    yield found
    found.open()  # or the processors of a test that failed would stand for ever


@pytest.fixture
def start(application: Callable[..., Application], gate: Gate) -> Iterator[Run]:
    """Starts a worker, and gives it and its budget."""
    workers: list[Worker] = []

    def run() -> tuple[Worker, MemoryBudget]:
        budget = MemoryBudget(LIMIT)
        # `held` stops all threads for a moment; the records of a lease that expires meanwhile would
        # come again. Longer is not better: a worker takes the second half of new leases later.
        made = application({"failover_time": pace.seconds(5.0)}, processor=lambda: Standing(gate))
        workers.append(made.worker(memory=budget))
        return workers[-1].start(), budget

    yield run
    gate.open()
    for worker in workers:
        worker.shutdown(10)


@pytest.fixture
def fill(server: LocalServer, stream: str) -> Fill:
    """Puts records into a shard."""

    def put(shard: int, datas: list[bytes]) -> None:
        key = str((2 * shard + 1) * 2**127 // SHARDS)
        for first in range(0, len(datas), 400):
            records = [
                {"Data": data, "PartitionKey": "k", "ExplicitHashKey": key}
                for data in datas[first : first + 400]
            ]
            answer = server.kinesis.call("PutRecords", StreamName=stream, Records=records)
            assert not answer["FailedRecordCount"]

    return put


def held() -> int:
    """The bytes of data in pages and columns that this process holds; objects come on top."""
    gc.collect()
    found = gc.get_objects()
    pages = {id(page.fetched): page.fetched for page in found if isinstance(page, FetchedPage)}
    records = {
        id(record): len(record.data) for page in pages.values() for record in page.page.records
    }
    batches = [each.to_arrow().nbytes for each in found if isinstance(each, RecordBatch)]
    return sum(records.values()) + int(sum(batches))


def _join(stream: str) -> None:
    """Wait for the threads of the stream's application: a call may be under way."""
    for thread in threading.enumerate():
        if thread.name.startswith(stream):
            thread.join(PATIENCE)
            assert not thread.is_alive(), thread.name


PLAIN = [b"%04d" % number + bytes(996) for number in range(900)]
USERS = [(f"k{number % 7}", None, b"%05d" % number + bytes(15)) for number in range(4_000)]
AGGREGATES = [blob.data for blob in aggregate(USERS, max_size=5_000)]


@pytest.mark.parametrize("kind", ["plain", "aggregated"])
def test_slow_processors_of_many_shards_have_a_budget_together(  # noqa: PLR0917
    fill: Fill, stream: str, gate: Gate, start: Run, kind: str, retrieval: str
) -> None:
    """And each shard gets on, in spite of all others. In the end, all was given once, in order."""
    datas = PLAIN if kind == "plain" else AGGREGATES
    expected = PLAIN if kind == "plain" else [data for _, _, data in USERS]
    for shard in range(SHARDS):
        fill(shard, datas)
    most = LIMIT + 2 * SHARDS * (floor_of(LIMIT, 1) + 3 * EVENT * (retrieval == "efo"))
    before = held()
    worker, budget = start()
    gate.wait(lambda: len(gate.given) == SHARDS)
    assert 0 < held() - before <= budget.held <= most
    gate.open()
    gate.wait(lambda: gate.count() == SHARDS * len(expected))
    assert all(given == expected for given in gate.given.values())
    assert budget.most_held <= most
    assert worker.shutdown(PATIENCE)
    _join(stream)
    assert (budget.held, budget.accounts) == (0, 0)


def test_workers_of_a_process_share_its_memory(application: Callable[..., Application]) -> None:
    made = application(processor=RecordProcessorOfNothing)
    one, other = made.worker(), made.worker()
    smaller = application({"max_held_bytes": LIMIT}, processor=RecordProcessorOfNothing).worker()
    assert one._settings.memory is other._settings.memory
    assert one._settings.memory.limit == WorkerOptions().max_held_bytes
    assert smaller._settings.memory.limit == LIMIT


class RecordProcessorOfNothing(RecordProcessor):
    def process_records(self, batch: RecordBatch, checkpointer: Any) -> None:
        """Nothing is to be done."""

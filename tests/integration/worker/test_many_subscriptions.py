"""One worker that reads many shards by enhanced fan-out, for ten minutes of the service's clock."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.stream.calls.subscription import Subscription
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.processors.processor import ProcessorShard, RecordProcessor
from tests import pace
from tests.journal import PATIENCE
from tests.local_application import local_application

STEP_MS = 9_000
STEPS = 70
"""Ten and a half minutes: a subscription is renewed after 290 seconds and a step at the latest."""
SETTLED = 35
"""Steps after which each subscription was renewed once."""
MIB = 1 << 20


class Delivered:
    """What was delivered of each shard."""

    def __init__(self) -> None:
        self.by_shard: dict[str, list[int]] = defaultdict(list)
        self.count = 0
        self._changed = threading.Condition()

    def add(self, shard: str, numbers: list[int]) -> None:
        with self._changed:
            self.by_shard[shard] += numbers
            self.count += len(numbers)
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count >= count, PATIENCE), self.count


class Processor(RecordProcessor):
    def __init__(self, delivered: Delivered) -> None:
        self._delivered = delivered

    def initialize(self, shard: ProcessorShard) -> None:
        self._shard = shard.id

    def process_records(self, batch: RecordBatch, checkpointer: Any) -> None:
        self._delivered.add(self._shard, [int(record.data) for record in batch.records])


def put_everywhere(server: LocalServer, stream: str, number: int, shards: int) -> None:
    records = [
        {
            "Data": b"%d" % number,
            "PartitionKey": "k",
            "ExplicitHashKey": str((2 * shard + 1) * 2**127 // shards),
        }
        for shard in range(shards)
    ]
    answer = server.kinesis.call("PutRecords", StreamName=stream, Records=records)
    assert len({result["ShardId"] for result in answer["Records"]}) == shards


def subscriptions() -> list[Subscription]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Subscription)]


class Use:
    """What this process holds on to, the local server included.

    others: what tests before this one have left behind, and may be let go of at any time.
    """

    def __init__(self, stream: str, others: WeakSet[Subscription]) -> None:
        self.threads = sum(each.name.startswith(f"{stream}-") for each in threading.enumerate())
        self.subscriptions = len([each for each in subscriptions() if each not in others])
        self.files = len(list(Path("/proc/self/fd").iterdir()))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.memory = pages * os.sysconf("SC_PAGE_SIZE")


def settled_use(stream: str, others: WeakSet[Subscription], shards: int) -> Use:
    """When what was renewed last has been let go of."""
    deadline = time.monotonic() + PATIENCE
    while (now := Use(stream, others)).subscriptions > shards:
        assert time.monotonic() < deadline, vars(now)
        time.sleep(0.2)
    return now


@pytest.mark.parametrize("shards", [32, pytest.param(200, marks=pytest.mark.long)])
def test_many_subscriptions_on_one_worker_for_ten_minutes(monkeypatch: Any, shards: int) -> None:
    """Each is renewed at least twice, no record is lost or comes twice, and nothing piles up."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    clock, stream, delivered = ManualClock(), "wide", Delivered()
    others = WeakSet(subscriptions())
    with LocalServer(lease_tables=LeaseTables(), clock=clock, limits=False) as server:
        server.kinesis.call("CreateStream", StreamName=stream, ShardCount=shards)
        application = local_application(
            stream,
            server.endpoint_url,
            lambda: Processor(delivered),
            failover_time=pace.seconds(20.0),
            retrieval="efo",
        )
        worker = application.worker(subscription_clock=lambda: clock() / 1000)
        worker.start()
        settled: Use | None = None
        began = time.monotonic()
        for step in range(STEPS):
            put_everywhere(server, stream, step, shards)
            delivered.wait_for((step + 1) * shards)
            clock.advance(STEP_MS)
            if step == SETTLED:
                settled = settled_use(stream, others, shards)
        took = time.monotonic() - began
        assert settled is not None
        end = settled_use(stream, others, shards)
        assert not worker.failures()
        assert worker.shutdown(PATIENCE)
        calls = server.kinesis.calls.select("SubscribeToShard")
        per_shard = server.kinesis.calls.per_shard("SubscribeToShard")
    print(
        f"{took:.1f} s, {len(calls)} subscriptions, from {settled.memory / MIB:.0f} to "
        f"{end.memory / MIB:.0f} MiB"
    )
    assert set(delivered.by_shard) == set(per_shard)
    assert len(per_shard) == shards
    assert all(numbers == list(range(STEPS)) for numbers in delivered.by_shard.values())
    assert {call.error for call in calls} == {None}
    # The first one, and two more. While the service's clock stands still no heartbeat comes: on a
    # slow machine a reader has waited for one too long, by real time, and subscribed once more.
    assert min(per_shard.values()) >= 3
    # A shard holds a thread only while an event of it is read or processed.
    assert max(end.threads, settled.threads) < 2 * shards
    assert end.subscriptions == settled.subscriptions == shards
    # Leases are renewed in real time, over as many connections as it happens to take.
    assert end.files - settled.files < shards // 2, "both ends of each fourth subscription"
    assert end.memory - settled.memory < (8 + shards // 12) * MIB, "they are let go of"

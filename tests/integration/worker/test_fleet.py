"""Three worker processes at a time: killed, paused, terminated, and the stream resharded.

Every second one reads by enhanced fan-out, as the consumer that they all share.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.worker.options import WorkerOptions
from tests.integration.worker.fleet import (
    Fleet,
    Watcher,
    orders_of_first_sight,
    rival_checkpoints,
    unbalanced,
)
from tests.streams import merge_neighbours, split

TURNS = 15
FAILOVER_TIME = 5.0
SHARDS = 12
KEYS = [f"key-{n}" for n in range(48)]
OPTIONS = WorkerOptions(failover_time=FAILOVER_TIME)


class Producer:
    """Puts numbers for each key, in order; now and then several of them as one aggregate."""

    def __init__(self, kinesis: Any, stream: str) -> None:
        self.numbers = dict.fromkeys(KEYS, 0)
        self._kinesis = kinesis
        self._stream = stream
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._produce)

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _produce(self) -> None:
        rng = random.Random(7)
        while not self._stopping.wait(0.1):
            for key in rng.sample(KEYS, 12):
                count = rng.choice([1, 1, 3])
                start = self.numbers[key]
                datas = [f"{key}:{n}".encode() for n in range(start, start + count)]
                data = datas[0]
                if count > 1:
                    (packed,) = aggregate([(key, None, each) for each in datas])
                    data = packed.data
                self._kinesis.put_record(StreamName=self._stream, Data=data, PartitionKey=key)
                self.numbers[key] = start + count


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Fleet, Any]]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    stream = f"s-{uuid.uuid4().hex[:8]}"
    with LocalServer(port=0, dynamodb=True) as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName=stream, ShardCount=SHARDS)
        workers = Fleet(server.endpoint_url, stream, tmp_path, FAILOVER_TIME)
        try:
            yield workers, kinesis
        finally:
            for process in workers.running.values():
                process.kill()
                process.wait()


def test_a_fleet_through_crashes_pauses_shutdowns_and_reshards(fleet: tuple[Fleet, Any]) -> None:
    workers, kinesis = fleet
    rng = random.Random(os.environ.get("FLEET_SEED", "1947"))
    table = LeaseTable(workers.stream, "us-east-1", workers.endpoint)
    for _ in range(3):
        workers.start()
    terminated: list[tuple[float, str]] = []
    zombies: list[tuple[float, float, str]] = []
    # A crash has to be noticed first.
    settle = 6 * OPTIONS.taker_interval
    notice = FAILOVER_TIME
    with Watcher(table) as watcher, Producer(kinesis, workers.stream) as producer:
        for turn in range(TURNS):
            victim = rng.choice(sorted(workers.running))
            act = ("kill", "split", "pause", "merge", "terminate", "split and kill")[turn % 6]
            if "split" in act:
                split(kinesis, workers.stream, rng)
            if "kill" in act:
                workers.kill(victim)
                workers.start()
                time.sleep(notice)
            elif act == "merge":
                merge_neighbours(kinesis, workers.stream, rng)
                time.sleep(settle / 2)
                merge_neighbours(kinesis, workers.stream, rng)
            elif act == "pause":
                paused = time.monotonic()
                workers.pause(victim)
                time.sleep(notice + settle)
                zombies.append((paused, workers.resume(victim), victim))
            elif act == "terminate":
                terminated.append((workers.terminate(victim), victim))
                time.sleep(settle / 2)
                workers.start()
            time.sleep(settle)
    expected = {key: list(range(n)) for key, n in producer.numbers.items() if n}
    patience = time.monotonic() + 60
    while (orders := orders_of_first_sight(workers.all_events())) != expected:
        assert time.monotonic() < patience, _difference(orders, expected)
        time.sleep(1)
    for worker in sorted(workers.running):
        workers.terminate(worker)

    events = workers.all_events()
    print(
        f"{sum(producer.numbers.values())} records, {TURNS} turns, {workers.count} workers, "
        f"{sum(1 for e in events if e['event'] == 'initialize')} acquisitions"
    )
    assert rival_checkpoints(events) == []
    for paused, resumed, worker in zombies:
        _check_zombie(events, worker, paused, resumed)
    taken_after = [_taken_after(watcher, sent, worker) for sent, worker in terminated]
    print("seconds from SIGTERM until others own the shards:", [f"{s:.2f}" for s in taken_after])
    released = FAILOVER_TIME - OPTIONS.renew_interval
    assert max(taken_after) < released, "sooner than a lease that was not released expires"
    late = unbalanced(
        watcher.looks,
        workers,
        window=3 * OPTIONS.taker_interval,
        detection=FAILOVER_TIME + OPTIONS.taker_interval,
    )
    assert late == []
    assert {row.owner for row in table.leases()} == {None}


def _difference(orders: dict[str, list[int]], expected: dict[str, list[int]]) -> str:
    lines = []
    for key, numbers in expected.items():
        got = orders.get(key, [])
        if got != numbers:
            missing = sorted(set(numbers) - set(got))
            wrong = next((n for n, m in zip(got, numbers, strict=False) if n != m), None)
            lines.append(f"{key}: missing {missing}, out of order from {wrong}")
    return "\n".join(lines)


def _check_zombie(events: list[Any], worker: str, paused: float, resumed: float) -> None:
    """What a paused worker held is another's when it wakes: it must not checkpoint there."""
    mine = [e for e in events if e["worker"] == worker]
    before = {e["acquisition"] for e in mine if e["event"] == "initialize" and e["at"] < paused}
    ended = {e["acquisition"] for e in mine if e["event"] == "lease_lost" and e["at"] < paused}
    after = [e for e in mine if e["at"] > resumed and e.get("acquisition") in before - ended]
    assert not [e for e in after if e["event"] == "checkpoint" and e["began"] > resumed]
    assert [e for e in after if e["event"] in {"lease_lost", "refused"}]


def _taken_after(watcher: Watcher, sent: float, worker: str) -> float:
    """Seconds from ``sent`` until no unfinished lease was without owner, or the worker's."""
    for look in watcher.looks:
        if look.at > sent and not {worker, None} & set(look.owners.values()):
            return look.at - sent
    return float("inf")

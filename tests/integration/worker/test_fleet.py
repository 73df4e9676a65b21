"""Three worker processes at a time: killed, paused, terminated, and the stream resharded.

Every second one reads by enhanced fan-out, as the consumer that they all share. The workers take
leases for themselves, or one of them, whoever lives, leads the fleet.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparkinesis.lease.assignment.coordination import Coordination
from sparkinesis.lease.assignment.coordinator_state import VERSION_3X, Version, VersionRow
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.worker.aws_options import LeaseTableOptions
from tests import pace
from tests.integration.worker.fleet import (
    Fleet,
    Watcher,
    orders_of_first_sight,
    rival_checkpoints,
)
from tests.pace import Deadline, eventually
from tests.streams import active_shards, merge_neighbours, split

ACTS = ("kill", "pause", "split and kill", "terminate", "split", "merge")
FAILOVER_TIME = pace.seconds(3.0)
KEYS = [f"key-{n}" for n in range(24)]


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
        while not self._stopping.wait(pace.seconds(0.2)):
            for key in rng.sample(KEYS, 4):
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
def fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int, has_leader: bool
) -> Iterator[tuple[Fleet, Any]]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    stream = f"s-{uuid.uuid4().hex[:8]}"
    with LocalServer(lease_tables=LeaseTables()) as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName=stream, ShardCount=shards)
        workers = Fleet(server.endpoint_url, stream, tmp_path, FAILOVER_TIME)
        if has_leader:
            table = LeaseTable(stream, "us-east-1", server.endpoint_url)
            table.provision(LeaseTableOptions())
            version = VersionRow(Version(VERSION_3X, "test", 1))
            Coordination.find(table, may_share_table=True).create_version(version)
        try:
            yield workers, kinesis
        finally:
            for process in workers.running.values():
                process.kill()
                process.wait()


@pytest.mark.limit(300)
@pytest.mark.parametrize(
    ("turns", "shards", "has_leader"),
    [
        (len(ACTS), 6, False),
        (3, 6, True),
        pytest.param(15, 12, False, marks=pytest.mark.long),
        pytest.param(15, 12, True, marks=pytest.mark.long),
    ],
)
def test_a_fleet_through_crashes_pauses_shutdowns_and_reshards(
    fleet: tuple[Fleet, Any], turns: int, *, has_leader: bool
) -> None:
    """How soon leases change hands: `tests/simulation/test_takeover.py`."""
    workers, kinesis = fleet
    rng = random.Random(os.environ.get("FLEET_SEED", "1947"))
    table = LeaseTable(workers.stream, "us-east-1", workers.endpoint, retry=pace.retry())
    for _ in range(3):
        workers.start()
    zombies: list[tuple[float, float, str]] = []

    def settle(*, without: str | None = None) -> None:
        """Wait until the workers share the leases of the open shards fairly."""
        open_shards = {shard["ShardId"] for shard in active_shards(kinesis, workers.stream)}
        watcher.wait_until_fair(open_shards, set(workers.running) - {without})

    with Watcher(table) as watcher, Producer(kinesis, workers.stream) as producer:
        settle()
        for turn in range(turns):
            victim = rng.choice(sorted(workers.running))
            act = ACTS[turn % len(ACTS)]
            if "split" in act:
                split(kinesis, workers.stream, rng)
            if "kill" in act:
                workers.kill(victim)
                settle()
                workers.start()
            elif act == "merge":
                merge_neighbours(kinesis, workers.stream, rng)
                merge_neighbours(kinesis, workers.stream, rng)
            elif act == "pause":
                eventually(partial(workers.has_shards, victim))
                paused = time.monotonic()
                workers.pause(victim)
                settle(without=victim)
                zombies.append((paused, workers.resume(victim), victim))
            elif act == "terminate":
                workers.terminate(victim)
                left = {row.owner for row in table.leases(consistent=True)}
                assert victim not in left, "its leases are released, not left to expire"
                settle()
                workers.start()
            settle()
    expected = {key: list(range(n)) for key, n in producer.numbers.items() if n}
    deadline = Deadline(60)
    while (orders := orders_of_first_sight(workers.all_events())) != expected:
        assert not deadline.has_passed(), _difference(orders, expected)
        time.sleep(0.5)
    for worker in sorted(workers.running):
        workers.terminate(worker)

    events = workers.all_events()
    print(
        f"{sum(producer.numbers.values())} records, {turns} turns, {workers.count} workers, "
        f"{sum(1 for e in events if e['event'] == 'initialize')} acquisitions"
    )
    assert rival_checkpoints(events) == []
    for paused, resumed, worker in zombies:
        _check_zombie(events, worker, paused, resumed)
    assert {row.owner for row in table.leases()} == {None}
    log = "".join(each.read_text() for each in workers.folder.glob("*.err"))
    assert ("leads the fleet" in log) is has_leader


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

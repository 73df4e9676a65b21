"""P10 for who is active now: after an outage, a query evicts exactly the users that were silent."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples.active_users.board import evicted_at
from examples.active_users.query import active_users
from sparkinesis.local import LocalServer, ManualClock
from tests.spark.reading import read_stream, rows_dropped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START_MS = 1_790_000_000_000
SECOND = 1000
SILENCE = 120 * SECOND
BEFORE, OUTAGE = 300, 900
"""Seconds in which the query runs, and in which the query is stopped."""
STRETCHES = range(300, 900, 600)
"""The seconds at which a third of the users fall silent, for ten minutes: several batches."""
BUSY, LIGHT = 20, 1
"""Heartbeats a second of the two shards."""
BUSY_USERS, LIGHT_USERS = 160, 20


@dataclass(frozen=True)
class Heartbeat:
    user: str
    arrived: int


class Users:
    """Puts heartbeats of users, who take turns; each has one in 20 seconds or more often."""

    def __init__(self, kinesis: Any, clock: ManualClock) -> None:
        self._kinesis = kinesis
        self._clock = clock
        self._seconds = 0
        self.heartbeats: list[Heartbeat] = []
        rng = random.Random(16)
        self._busy = [f"busy-{n}" for n in range(BUSY_USERS)]
        self._light = [f"light-{n}" for n in range(LIGHT_USERS)]
        everybody = [*self._busy, *self._light]
        self._silent = [set(rng.sample(everybody, len(everybody) // 3)) for _ in STRETCHES]

    def put(self, seconds: int) -> None:
        for second in range(self._seconds, self._seconds + seconds):
            users = [self._busy[(second * BUSY + n) % BUSY_USERS] for n in range(BUSY)]
            users += [self._light[(second * LIGHT + n) % LIGHT_USERS] for n in range(LIGHT)]
            silent = set().union(
                *(
                    users
                    for start, users in zip(STRETCHES, self._silent, strict=True)
                    if start <= second < start + STRETCHES.step
                )
            )
            self._put([user for user in users if user not in silent])
            self._clock.advance(SECOND)
        self._seconds += seconds

    def put_last(self) -> None:
        """Put a heartbeat in each shard that makes the watermark pass all silences before."""
        self._clock.advance(10 * SILENCE)
        self._put(["busy-last", "light-last"])
        self._clock.advance(10 * SECOND)

    def _put(self, users: list[str]) -> None:
        if not users:
            return
        keys = {"busy": str(2**127), "light": "0"}
        entries = [
            {
                "Data": b"beat",
                "PartitionKey": user,
                "ExplicitHashKey": keys[user.partition("-")[0]],
            }
            for user in users
        ]
        answer = self._kinesis.put_records(StreamName="users", Records=entries)
        assert answer["FailedRecordCount"] == 0
        self.heartbeats += [Heartbeat(user, self._clock()) for user in users]


def expected_evictions(heartbeats: list[Heartbeat]) -> list[Heartbeat]:
    """The last heartbeats before silences, of heartbeats in the order of their arrival."""
    by_user = defaultdict(list)
    for heartbeat in sorted(heartbeats, key=lambda one: one.arrived):
        by_user[heartbeat.user].append(heartbeat)
    newest = max(heartbeat.arrived for heartbeat in heartbeats)
    return [
        last
        for beats in by_user.values()
        for last, following in itertools.pairwise([*beats, Heartbeat("nobody", newest)])
        if following.arrived > evicted_at(last.arrived, 0, SILENCE)
    ]


class Watch:
    """Runs of the query on one checkpoint, each up to the tip, and the evictions of all runs."""

    def __init__(self, spark: SparkSession, server: LocalServer, checkpoint: str) -> None:
        self._spark = spark
        self._server = server
        self._checkpoint = checkpoint
        self.evictions: list[Heartbeat] = []
        self.dropped = 0

    def run(self) -> None:
        rows = read_stream(
            self._spark,
            self._server.endpoint_url,
            "users",
            maxRecordsPerTrigger="2400",
            shardCallsPerSecond="unlimited",
        )
        query = (
            active_users(rows, SILENCE)
            .writeStream.foreachBatch(self._note)
            .outputMode("update")
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        self.dropped += rows_dropped(query.recentProgress)

    def _note(self, batch: DataFrame, _: int) -> None:
        evicted = batch.where("not active").collect()
        self.evictions += [Heartbeat(row.user, row.arrivals[0]) for row in evicted]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest.fixture
def users(clock: ManualClock, server: LocalServer) -> Users:
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName="users", ShardCount=2)
    return Users(kinesis, clock)


@pytest.fixture
def server(clock: ManualClock) -> Iterator[LocalServer]:
    with LocalServer(port=0, limits=False, clock=clock) as running:
        yield running


def by_user(evictions: list[Heartbeat]) -> list[Heartbeat]:
    return sorted(evictions, key=lambda one: (one.user, one.arrived))


def test_p10_users_are_evicted_after_an_outage_as_if_there_had_been_none(
    spark: SparkSession, server: LocalServer, users: Users, tmp_path: Path
) -> None:
    watch = Watch(spark, server, str(tmp_path))
    users.put(BEFORE)
    watch.run()
    users.put(OUTAGE)
    users.put_last()
    watch.run()
    expected = expected_evictions(users.heartbeats)
    assert len(expected) > 100
    assert watch.dropped == 0
    assert by_user(watch.evictions) == by_user(expected)

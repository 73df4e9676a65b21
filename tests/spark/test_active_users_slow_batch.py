"""The query of active users on a cold cluster: its first batch takes longer than the silence."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from examples.active_users.board import Board
from examples.active_users.query import start_query
from examples.flights.shards import split_one
from sparkinesis.local import LocalServer, ManualClock
from tests.pace import Deadline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 0.5
SILENCE = 2 * MINUTE
USERS = [f"user-{n}" for n in range(8)]
REGION = "eu-west-1"


class SlowBoard(Board):
    """A board whose first heartbeat, and with it the first batch, waits."""

    def __init__(self) -> None:
        super().__init__(SILENCE)
        self.is_reached = threading.Event()
        self.may_go_on = threading.Event()

    def hear(self, user: str, arrived: float, stream: str, planned: float = math.inf) -> None:
        self.is_reached.set()
        self.may_go_on.wait()
        super().hear(user, arrived, stream, planned)


def test_nobody_is_evicted_because_the_first_batch_takes_longer_than_the_silence(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = ManualClock(1_790_000_000_000)
    with LocalServer(port=0, limits=False, clock=clock) as server:
        kinesis = server.client("kinesis", REGION)
        kinesis.create_stream(StreamName="heartbeats", ShardCount=2)

        def beat(users: Iterable[str]) -> None:
            records = [{"Data": b"beat", "PartitionKey": user} for user in users]
            assert kinesis.put_records(StreamName="heartbeats", Records=records)
            clock.advance(round(MINUTE * 1000))

        beat(USERS)
        board = SlowBoard()
        deadline = Deadline(120)
        running = start_query(
            spark,
            tmp_path / "checkpoint",
            streams=["heartbeats"],
            region=REGION,
            endpoint=server.endpoint_url,
            minute=MINUTE,
            board=board,
        )
        try:
            while not board.is_reached.wait(0.05):
                running.check()
                assert not deadline.has_passed()
            reached = time.monotonic()
            # The second batch ends at the split, and has a heartbeat of one user only.
            beat(USERS[:1])
            split_one(kinesis, "heartbeats")
            while time.monotonic() < reached + 1.5 * SILENCE:
                beat(USERS)
                time.sleep(MINUTE / 4)
            released = clock()
            board.may_go_on.set()
            while (
                min(board.active.get(user, 0) for user in USERS) * 1000 < released + 2000 * SILENCE
            ):
                beat(USERS)
                running.check()
                assert not deadline.has_passed(), board.active
                time.sleep(0.05)
        finally:
            board.may_go_on.set()
            running.stop()
    assert board.evictions == []

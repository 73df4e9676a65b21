"""Who is active, as a record processor: plain Python processes, no Spark.

It is about users, not shards: after a reshard a user's heartbeats come from another shard, and so
to another record processor. The state is therefore the application's, shared by all of them.

Nothing is checkpointed but a shard's end. The state is in memory, so what a worker needs to start
with is the last 2 minutes of every shard, which is where ``skip_older_than`` has it begin.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from examples.active_users.board import Board, Running, evicted_at
from sparkinesis import (
    Application,
    Checkpointer,
    ProcessorShard,
    RecordBatch,
    RecordProcessor,
    WorkerOptions,
)


class ActiveUsers:
    """The users of all shards of this process. A lock, as shards are processed side by side."""

    def __init__(
        self, board: Board, silence: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._board = board
        self._silence = silence
        self._clock = clock
        self._read_until: dict[str, float] = {}
        """By shard: nobody is silent because a shard was not read."""
        self._listening_since = clock()
        self._lock = threading.Lock()

    def listen(self, shard: str) -> None:
        with self._lock:
            self._listening_since = self._clock()
            self._read_until[shard] = self._listening_since

    def stop_listening(self, shard: str) -> None:
        """Its users are heard from another shard soon, here or by another worker."""
        with self._lock:
            self._read_until.pop(shard, None)
            self._listening_since = self._clock()

    def hear(self, shard: str, batch: RecordBatch) -> None:
        """Take up a batch, and evict who fell silent; the batch may be empty."""
        with self._lock:
            for record in batch.records:
                arrived = record.approximate_arrival_timestamp
                if arrived is not None:
                    self._board.hear(record.partition_key, arrived.timestamp())
            behind = (batch.millis_behind_latest or 0) / 1000
            if batch.fetched_at is not None:
                self._read_until[shard] = batch.fetched_at.timestamp() - behind
            read_until = min(self._read_until.values())
            for user, heard in self._board.active.items():
                if evicted_at(heard, self._listening_since, self._silence) < read_until:
                    self._board.evict(user, heard)


class Heartbeats(RecordProcessor):
    """Tells what one shard has to say."""

    def __init__(self, users: ActiveUsers) -> None:
        self._users = users

    def initialize(self, shard: ProcessorShard) -> None:
        self._shard = shard.id
        self._users.listen(shard.id)

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:  # noqa: ARG002
        self._users.hear(self._shard, batch)

    def lease_lost(self) -> None:
        self._users.stop_listening(self._shard)

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()  # lets the shard's children begin
        self._users.stop_listening(self._shard)


def application(
    stream: str, region: str, endpoint: str, minute: float, board: Board
) -> Application:
    """The application, which keeps ``board``. ``minute``: how many seconds a minute has."""
    users = ActiveUsers(board, silence=2 * minute)
    return Application(
        "active-users",
        stream,
        lambda: Heartbeats(users),
        region=region,
        endpoint=endpoint,
        initial_position="trim_horizon",  # and yet nothing that is older than the silence
        options=WorkerOptions(
            skip_older_than=2 * minute,
            call_even_for_empty_batches=True,  # users fall silent also while no records come
            idle_time=min(1.0, minute / 5),
            failover_time=min(10.0, 3 * minute),
        ),
    )


def start_processor(
    *, stream: str, region: str, endpoint: str, minute: float, board: Board
) -> Running:
    """Start a worker. As a process of its own it would be ``application(...).run()``."""
    worker = application(stream, region, endpoint, minute, board).worker().start()

    def stop() -> None:
        if not worker.shutdown(10.0):
            raise RuntimeError("The worker did not shut down within 10 seconds.")

    def check() -> None:
        if worker.wait(0):
            raise RuntimeError("The worker has ended.")

    return Running(check, stop)

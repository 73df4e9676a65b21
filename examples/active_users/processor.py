"""Who is active, as a record processor: plain Python processes, no Spark.

It is about users, not shards: after a reshard a user's heartbeats come from another shard, and so
to another record processor. The state is therefore the application's, shared by all of them.

Nothing is checkpointed but a shard's end. The state is in memory, so what a worker needs to start
with is the last 2 minutes of every shard, which is where ``skip_older_than`` has it begin.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from examples.active_users.board import Board, Running
from examples.active_users.listening import Listening
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
        self._listening = Listening(silence, clock)
        self._lock = threading.Lock()

    def listen(self, shard: str) -> None:
        with self._lock:
            self._listening.begin(shard)

    def stop_listening(self, shard: str) -> None:
        with self._lock:
            self._listening.end(shard)

    def hear(self, shard: str, batch: RecordBatch) -> None:
        """Take up a batch, and evict who fell silent; the batch may be empty."""
        with self._lock:
            for user, arrived in heartbeats(batch):
                self._board.hear(user, arrived)
            until = read_until(batch)
            if until is not None:
                self._listening.read(shard, until)
            active = self._board.active
            for user in self._listening.silent(active):
                self._board.evict(user, active[user])


def heartbeats(batch: RecordBatch) -> Iterator[tuple[str, float]]:
    """Who sent each heartbeat, and when it arrived; epoch seconds."""
    for record in batch.records:
        arrived = record.approximate_arrival_timestamp
        if arrived is not None and record.partition_key is not None:
            yield record.partition_key, arrived.timestamp()


def read_until(batch: RecordBatch) -> float | None:
    """Up to when its shard is read with this batch, if one knows; epoch seconds."""
    if batch.fetched_at is None:
        return None
    return batch.fetched_at.timestamp() - (batch.millis_behind_latest or 0) / 1000


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
    stream: str, region: str, endpoint: str, minute: float, processor: Callable[[], RecordProcessor]
) -> Application:
    """The application, for one worker or many. ``minute``: how many seconds a minute has."""
    return Application(
        "active-users",
        stream,
        processor,
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
    """Start a worker that keeps ``board``. As a process of its own it would be ``run()``."""
    users = ActiveUsers(board, silence=2 * minute)
    active_users = application(stream, region, endpoint, minute, lambda: Heartbeats(users))
    worker = active_users.worker().start()

    def stop() -> None:
        if not worker.shutdown(10.0):
            raise RuntimeError("The worker did not shut down within 10 seconds.")

    def check() -> None:
        if worker.wait(0):
            raise RuntimeError("The worker has ended.")

    return Running(check, stop)

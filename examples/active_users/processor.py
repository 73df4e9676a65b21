"""Active users, as a record processor: plain Python processes, no Spark.

A user's heartbeats come from two streams and, after a reshard, from another shard; so they reach
several record processors. The state therefore belongs to the application, and all record processors
share it. It tells shards apart by stream and shard: the ids of two streams' shards are the same.

Only a shard's end is checkpointed. The state is in memory, so a worker starts with the last 2
minutes of every shard: ``skip_older_than`` makes it begin there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from examples.active_users.board import Board, Running
from examples.active_users.listening import Listening, ShardName
from sparkinesis import (
    Application,
    Checkpointer,
    ProcessorShard,
    RecordBatch,
    RecordProcessor,
    WorkerOptions,
)


class ActiveUsers:
    """The users of all shards of this process. Shards are processed in parallel, hence the lock."""

    def __init__(
        self, board: Board, silence: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._board = board
        self._listening = Listening(silence, clock)
        self._lock = threading.Lock()

    def listen(self, shard: ShardName) -> None:
        with self._lock:
            self._listening.begin(shard)

    def stop_listening(self, shard: ShardName) -> None:
        with self._lock:
            self._listening.end(shard)

    def hear(self, shard: ShardName, batch: RecordBatch) -> None:
        """Count the heartbeats of a batch, which may be empty, and evict silent users."""
        with self._lock:
            for user, arrived in heartbeats(batch):
                self._board.hear(user, arrived, shard.stream)
            until = read_until(batch)
            if until is not None:
                self._listening.read(shard, until)
            active = self._board.active
            for user in self._listening.silent(active):
                self._board.evict(user, active[user])


def heartbeats(batch: RecordBatch) -> Iterator[tuple[str, float]]:
    """The user and the arrival time (epoch seconds) of each heartbeat."""
    for record in batch.records:
        arrived = record.approximate_arrival_timestamp
        if arrived is not None and record.partition_key is not None:
            yield record.partition_key, arrived.timestamp()


def read_until(batch: RecordBatch) -> float | None:
    """The time up to which this batch covers its shard, in epoch seconds; None if unknown."""
    if batch.fetched_at is None:
        return None
    return batch.fetched_at.timestamp() - (batch.millis_behind_latest or 0) / 1000


class Heartbeats(RecordProcessor):
    """Passes on the heartbeats of one shard."""

    def __init__(self, users: ActiveUsers) -> None:
        self._users = users

    def initialize(self, shard: ProcessorShard) -> None:
        self._shard = ShardName(shard.stream, shard.id)
        self._users.listen(self._shard)

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        self._users.hear(self._shard, batch)

    def lease_lost(self) -> None:
        self._users.stop_listening(self._shard)

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()  # lets the shard's children begin
        self._users.stop_listening(self._shard)


def application(
    streams: Sequence[str],
    region: str,
    endpoint: str,
    minute: float,
    processor: Callable[[], RecordProcessor],
) -> Application:
    """The application, for one worker or many. ``minute``: its length in seconds."""
    return Application(
        "active-users",
        processor=processor,
        streams=streams,
        region=region,
        endpoint=endpoint,
        initial_position="trim_horizon",  # skip_older_than skips what is older than the silence
        options=WorkerOptions(
            skip_older_than=2 * minute,
            call_even_for_empty_batches=True,  # users become silent while no records arrive, too
            idle_time=max(0.25, min(1.0, minute / 5)),
            failover_time=min(10.0, 3 * minute),
        ),
    )


def start_processor(
    *, streams: Sequence[str], region: str, endpoint: str, minute: float, board: Board
) -> Running:
    """Start a worker that keeps ``board``. A separate process would call ``run()``."""
    users = ActiveUsers(board, silence=2 * minute)
    active_users = application(streams, region, endpoint, minute, lambda: Heartbeats(users))
    worker = active_users.worker().start()

    def stop() -> None:
        if not worker.shutdown(10.0):
            raise RuntimeError("The worker did not shut down within 10 seconds.")

    def check() -> None:
        if worker.wait(0):
            raise RuntimeError("The worker has ended.")

    return Running(check, stop)

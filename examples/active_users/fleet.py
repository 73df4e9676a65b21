"""Active users, as a fleet: the workers are Spark tasks, and a table holds what they hear.

A user's heartbeats come from two streams, and a reshard moves them to another shard: they reach
several workers, perhaps on several machines. All workers write heartbeats into a DynamoDB table of
the example's own. The driver reads the table and evicts users. The table outlasts the fleet: active
users stay active when the fleet is started again.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3

from examples.active_users.board import Board, Running, is_old
from examples.active_users.listening import Listening, ShardName
from examples.active_users.processor import application, heartbeats, read_until
from sparkinesis import Checkpointer, FleetOptions, ProcessorShard, RecordBatch, RecordProcessor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS = 2
TABLE = "active-users-heard"
SHUTDOWN_SECONDS = 20.0


@dataclass(frozen=True)
class ShardHeard:
    """The heartbeats of a shard since the fleet was started."""

    reader: str | None
    """The worker and the record processor that read the shard; None: nobody reads it."""
    read_until: float
    """Epoch seconds."""
    heartbeats: int
    old: int


class Table:
    """The table of all heartbeats: an item for each user, and one for each shard of each stream.

    Threads may share an instance; each process makes its own.
    """

    def __init__(self, region: str, endpoint: str) -> None:
        # boto3's default session is not safe for two threads that make clients at once.
        session = boto3.Session(region_name=region)
        self._dynamodb = session.client("dynamodb", endpoint_url=endpoint)

    def prepare(self) -> None:
        """Create the table if it does not exist, and delete the shards of an earlier run."""
        with contextlib.suppress(self._dynamodb.exceptions.ResourceInUseException):
            self._dynamodb.create_table(
                TableName=TABLE,
                AttributeDefinitions=[
                    {"AttributeName": "kind", "AttributeType": "S"},
                    {"AttributeName": "name", "AttributeType": "S"},
                ],
                KeySchema=[
                    {"AttributeName": "kind", "KeyType": "HASH"},
                    {"AttributeName": "name", "KeyType": "RANGE"},
                ],
                BillingMode="PAY_PER_REQUEST",
            )
        self._dynamodb.get_waiter("table_exists").wait(TableName=TABLE)
        for shard in self.shards():
            self._dynamodb.delete_item(TableName=TABLE, Key=_shard_key(shard))

    # --- for record processors

    def listen(self, shard: ShardName, reader: str) -> None:
        """Store that a reader has begun with a shard. Nobody is silent before its first batch."""
        values = {":reader": {"S": reader}, ":never": _number(0.0)}
        self._update(_shard_key(shard), "SET reader = :reader, read_until = :never", values)

    def stop_listening(self, shard: ShardName, reader: str) -> None:
        """Store that a reader has ended, unless another reader has begun since."""
        mine = {":reader": {"S": reader}}
        self._update(_shard_key(shard), "REMOVE reader", mine, only_if="reader = :reader")

    def hear(self, user: str, arrived: float) -> None:
        """Store a user's heartbeat, unless a later one is stored: shards are in no order."""
        later = "attribute_not_exists(heard) OR heard < :at"
        self._update(_user_key(user), "SET heard = :at", {":at": _number(arrived)}, only_if=later)

    def read(self, shard: ShardName, until: float, beats: int, old: int) -> None:
        """Store how far a shard was read. Call this after `hear`."""
        values = {":until": _number(until), ":beats": _number(beats), ":old": _number(old)}
        change = "SET read_until = :until ADD heartbeats :beats, old_ones :old"
        self._update(_shard_key(shard), change, values)

    # --- for the driver

    def shards(self) -> dict[ShardName, ShardHeard]:
        return {
            ShardName(*item["name"]["S"].split("/")): ShardHeard(
                item["reader"]["S"] if "reader" in item else None,
                float(item["read_until"]["N"]),
                int(item["heartbeats"]["N"]) if "heartbeats" in item else 0,
                int(item["old_ones"]["N"]) if "old_ones" in item else 0,
            )
            for item in self._items("shard")
        }

    def users(self) -> dict[str, float]:
        """The active users, with the time of each one's last heartbeat."""
        return {item["name"]["S"]: float(item["heard"]["N"]) for item in self._items("user")}

    def forget(self, user: str, heard: float) -> bool:
        """Delete a user; return False if a newer heartbeat is stored."""
        try:
            self._dynamodb.delete_item(
                TableName=TABLE,
                Key=_user_key(user),
                ConditionExpression="heard = :heard",
                ExpressionAttributeValues={":heard": _number(heard)},
            )
        except self._dynamodb.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def _items(self, kind: str) -> Iterator[dict[str, Any]]:
        pages = self._dynamodb.get_paginator("query").paginate(
            TableName=TABLE,
            KeyConditionExpression="kind = :kind",
            ExpressionAttributeValues={":kind": {"S": kind}},
            ConsistentRead=True,
        )
        for page in pages:
            yield from page["Items"]

    def _update(
        self,
        key: dict[str, Any],
        change: str,
        values: dict[str, Any],
        only_if: str | None = None,
    ) -> None:
        """Change an item if the condition holds."""
        condition = {} if only_if is None else {"ConditionExpression": only_if}
        with contextlib.suppress(self._dynamodb.exceptions.ConditionalCheckFailedException):
            self._dynamodb.update_item(
                TableName=TABLE,
                Key=key,
                UpdateExpression=change,
                ExpressionAttributeValues=values,
                **condition,
            )


def _user_key(user: str) -> dict[str, Any]:
    return {"kind": {"S": "user"}, "name": {"S": user}}


def _shard_key(shard: ShardName) -> dict[str, Any]:
    # The ids of two streams' shards are the same.
    return {"kind": {"S": "shard"}, "name": {"S": "/".join(shard)}}


def _number(value: float) -> dict[str, str]:
    return {"N": repr(value)}


class Heartbeats(RecordProcessor):
    """Stores the heartbeats of one shard. It is made on the executor, and works there.

    started: when the fleet was; heartbeats from before the silence until then are old.
    """

    def __init__(self, region: str, endpoint: str, started: float, silence: float) -> None:
        self._where = region, endpoint
        self._is_old = functools.partial(is_old, started=started, silence=silence)

    def initialize(self, shard: ProcessorShard) -> None:
        self._shard = ShardName(shard.stream, shard.id)
        self._reader = f"{shard.worker_id} {uuid.uuid4()}"  # a worker may acquire a shard again
        self._read_until = 0.0
        self._table = Table(*self._where)
        self._table.listen(self._shard, self._reader)

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        heard: dict[str, float] = {}
        beats = old = 0
        for user, arrived in heartbeats(batch):
            heard[user] = max(arrived, heard.get(user, 0.0))
            beats += 1
            old += self._is_old(arrived)
        for user, arrived in heard.items():
            self._table.hear(user, arrived)
        self._read_until = read_until(batch) or self._read_until
        self._table.read(self._shard, self._read_until, beats, old)

    def lease_lost(self) -> None:
        self._table.stop_listening(self._shard, self._reader)

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()  # lets the shard's children begin
        self._table.stop_listening(self._shard, self._reader)


class Watcher(threading.Thread):
    """Reads the table on the driver, keeps the board, and evicts silent users."""

    def __init__(
        self,
        table: Table,
        board: Board,
        silence: float,
        interval: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name="active-users", daemon=True)
        self.failure: Exception | None = None
        self.workers: set[str] = set()
        """The workers that have read a shard so far."""
        self._table = table
        self._board = board
        self._listening = Listening(silence, clock)
        self._readers: dict[ShardName, str] = {}
        self._interval = interval
        self._stopping = threading.Event()

    def look(self) -> None:
        # Shards first: the heartbeats up to their positions are then in the table.
        shards = self._table.shards()
        heard = self._table.users()
        self._listen(shards)
        given: Counter[str] = Counter()
        for name, shard in shards.items():
            given[name.stream] += shard.heartbeats
        self._board.copy(heard, given, sum(shard.old for shard in shards.values()))
        for user in self._listening.silent(heard):
            if self._table.forget(user, heard[user]):
                self._board.evict(user, heard[user])

    def _listen(self, shards: dict[ShardName, ShardHeard]) -> None:
        """Take over a shard's position. A shard that has a new reader was not read in between."""
        readers = {name: shard.reader for name, shard in shards.items() if shard.reader is not None}
        for shard in self._readers.keys() - readers.keys():
            self._listening.end(shard)
        for shard, reader in readers.items():
            if self._readers.get(shard) != reader:
                self._listening.begin(shard)
            self._listening.read(shard, shards[shard].read_until)
        self._readers = readers
        self.workers.update(reader.split()[0] for reader in readers.values())

    def run(self) -> None:
        try:
            while not self._stopping.wait(self._interval):
                self.look()
        except Exception as error:  # noqa: BLE001 - raised by whoever watches the fleet
            self.failure = error

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def start_fleet(
    spark: SparkSession,
    *,
    streams: Sequence[str],
    region: str,
    endpoint: str,
    minute: float,
    board: Board,
) -> Running:
    """Start a fleet of workers, and on the driver a thread that keeps ``board``."""
    silence = 2 * minute
    table = Table(region, endpoint)
    table.prepare()
    processor = functools.partial(Heartbeats, region, endpoint, board.started, silence)
    fleet = application(streams, region, endpoint, minute, processor).run(
        spark, workers=WORKERS, fleet=FleetOptions(log_level="ERROR")
    )
    watcher = Watcher(table, board, silence, interval=min(1.0, minute / 5))
    watcher.start()

    def check() -> None:
        if fleet.await_termination(0):  # raises if it has failed
            raise RuntimeError("The fleet has ended.")
        if watcher.failure is not None:
            raise RuntimeError(f"Reading the table failed: {watcher.failure!r}")

    def stop() -> None:
        is_graceful = fleet.shutdown(SHUTDOWN_SECONDS)
        watcher.stop()
        if not is_graceful:
            raise RuntimeError(f"The fleet did not shut down within {SHUTDOWN_SECONDS:g} seconds.")
        watcher.look()  # the last processed heartbeats
        if len(watcher.workers) < WORKERS:
            raise RuntimeError(f"Only {watcher.workers} of {WORKERS} workers had shards.")

    return Running(check, stop)

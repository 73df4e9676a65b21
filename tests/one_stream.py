"""An application of one stream whose lease rows have every shape, and what it does next.

Version 0.1.0, which read one stream only, wrote the fixture ``one-stream-0.1.0.json`` by an earlier
form of this module; every later version must read its rows and offsets, and go on in the same way.
The command writes the fixture to standard output::

    git worktree add /tmp/one-stream 6ce0af7
    git worktree add /tmp/writer e81ab2d5
    cd /tmp/writer && PYTHONPATH=/tmp/one-stream/src python -m tests.one_stream

The local Kinesis has a clock that stands still, so sequence numbers and times are the same in each
run. What depends on the machine's speed is left out of the rows that follow: see `VARYING`.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from sparkinesis import Application, ProcessorShard, RecordProcessor
from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.options import WorkerOptions
from tests import pace
from tests.engine import Query
from tests.kcl import create_table, put_rows

Row = dict[str, Any]

START_MS = 1_790_000_000_000
STREAM = "flights"
SHARDS = 8
INSTANT = datetime.fromtimestamp(START_MS / 1000 + 5, timezone.utc)
"""Between the first records and the second ones."""
STARTS: dict[str, Any] = {"trim_horizon": "trim_horizon", "latest": "latest", "instant": INSTANT}
"""The initial positions of the applications; each has a table of its own."""
VARYING = {"leaseCounter", "throughputKBps"}
"""The attributes that count renewals or measure time."""

_PATIENCE = pace.seconds(60.0)
_WIDTH = 2**128 // SHARDS


def shard_id(number: int) -> str:
    return f"shardId-{number:012d}"


class Services:
    """A local Kinesis and DynamoDB with the stream, the same in each run."""

    def __init__(self, server: LocalServer, clock: ManualClock) -> None:
        self.server, self.clock = server, clock
        self.kinesis, self.dynamodb = server.client("kinesis"), server.client("dynamodb")
        self.kinesis.create_stream(StreamName=STREAM, ShardCount=SHARDS)
        self.clock.advance(1000)
        self.put("first")
        self.clock.advance(9000)
        self.put("second")
        self.clock.advance(1000)
        self._split(3)
        self.clock.advance(1000)
        self._put(3 * _WIDTH, b"of a child", b"and another")
        self.clock.advance(9000)

    def put(self, what: str) -> None:
        """Put two user records, as one record, into each of the stream's first hash ranges."""
        for number in range(SHARDS):
            self._put(number * _WIDTH, *(f"{what} {n} of {number}".encode() for n in range(2)))

    def go_on(self) -> None:
        """What happens to the stream while the next version runs: a reshard, and more records."""
        self.clock.advance(60_000)
        self._split(2)
        self.clock.advance(1000)
        self.put("third")
        for parent in (2, 3):
            self._put(parent * _WIDTH + _WIDTH // 2, b"of the other child")

    def rows(self, table: str) -> list[Row]:
        items = self.dynamodb.scan(TableName=table, ConsistentRead=True)["Items"]
        return sorted(items, key=lambda item: str(item["leaseKey"]["S"]))

    def restore(self, table: str, rows: list[Row]) -> None:
        """Leave the table with these rows only."""
        if table not in self.dynamodb.list_tables()["TableNames"]:
            create_table(self.dynamodb, table)
        for row in self.rows(table):
            self.dynamodb.delete_item(TableName=table, Key={"leaseKey": row["leaseKey"]})
        put_rows(self.dynamodb, table, rows)

    def application(
        self, kind: str, worker_id: str, processor: Callable[[], RecordProcessor]
    ) -> Application:
        return Application(
            f"app-{kind}",
            STREAM,
            processor,
            region="us-east-1",
            endpoint=self.server.endpoint_url,
            initial_position=STARTS[kind],
            worker_id=worker_id,
            options=WorkerOptions(
                failover_time=pace.seconds(2.0),
                idle_time=0.25,
                parent_poll_interval=0.2,
                task_backoff=0.2,
            ),
        )

    def query(self, kind: str) -> Query:
        return Query(
            streamName=STREAM,
            region="us-east-1",
            endpoint=self.server.endpoint_url,
            initialPosition=f"application:app-{kind}",
        )

    def _put(self, hash_key: int, *datas: bytes) -> None:
        (blob,) = aggregate([("k", None, data) for data in datas])
        self.kinesis.put_record(
            StreamName=STREAM, Data=blob.data, PartitionKey="k", ExplicitHashKey=str(hash_key)
        )

    def _split(self, number: int) -> None:
        self.kinesis.split_shard(
            StreamName=STREAM,
            ShardToSplit=shard_id(number),
            NewStartingHashKey=str(number * _WIDTH + _WIDTH // 2),
        )


@contextmanager
def services() -> Iterator[Services]:
    clock = ManualClock(START_MS)
    with LocalServer(port=0, limits=False, clock=clock, dynamodb=True) as server:
        yield Services(server, clock)


class Progress:
    """The user records that processors were given, and a way to wait for them."""

    def __init__(self) -> None:
        self.given: dict[str, list[str]] = {}
        self.ended: set[str] = set()
        self.prepared: dict[str, list[str]] = {}
        """The checkpoints that an earlier worker had prepared, with their states."""
        self._changed = threading.Condition()

    def note(self, shard: str, batch: RecordBatch | None) -> None:
        """Note a batch that was processed; None: the shard has ended."""
        with self._changed:
            if batch is None:
                self.ended.add(shard)
            else:
                self.given.setdefault(shard, []).extend(one.data.decode() for one in batch.records)
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, _PATIENCE), (self.given, self.ended)


class GoingOn(RecordProcessor):
    """Commits what was prepared, and checkpoints each batch."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.shard: ProcessorShard

    def initialize(self, shard: ProcessorShard) -> None:
        self.shard = shard
        if (pending := shard.pending_checkpoint) is not None:
            self.progress.prepared[shard.id] = [str(pending.at), repr(pending.state)]
            shard.commit_pending()

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()
        self.progress.note(self.shard.id, batch)

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()
        self.progress.note(self.shard.id, None)


def go_on(at: Services, kind: str, rows: list[Row]) -> dict[str, Any]:
    """Return the rows that an application leaves which goes on from ``rows``, and its records."""
    name = f"app-{kind}"
    at.restore(name, rows)
    progress = Progress()
    worker = at.application(kind, "worker-2", lambda: GoingOn(progress)).worker().start()
    last = {shard_id(number): f"third 1 of {number}" for number in (0, 1, 4, 5, 6, 7)}
    last |= {shard_id(8): "third 1 of 3", shard_id(10): "third 1 of 2"}
    last |= {shard_id(number): "of the other child" for number in (9, 11)}
    progress.wait(
        lambda: all(progress.given.get(shard, [""])[-1] == data for shard, data in last.items())
    )
    worker.shutdown(30)
    after = [
        {attribute: value for attribute, value in row.items() if attribute not in VARYING}
        for row in at.rows(name)
    ]
    return {
        "rows": after,
        "records": dict(sorted(progress.given.items())),
        "prepared": dict(sorted(progress.prepared.items())),
    }


def take_over(at: Services, kind: str, rows: list[Row]) -> dict[str, Any]:
    """Return the first offset of a query that begins where the application stands, and its rows."""
    at.restore(f"app-{kind}", rows)
    running = at.query(kind)
    first = running.next_batch()
    assert first is not None
    assert first.rows == []
    return {"offset": first.end, "rows": read_on(running)}


def read_on(running: Query) -> list[list[Any]]:
    """Return what tells the rows that the query reads from its checkpoint on."""
    return sorted(
        [row["shardId"], row["sequenceNumber"], row["subSequenceNumber"], row["data"].decode()]
        for batch in running.drain()
        for row in batch.rows
    )


def decoded(rows: list[Row]) -> list[Row]:
    """Return rows of the fixture as DynamoDB gives them: JSON has no bytes."""
    return [
        {
            name: {"B": base64.b64decode(value["B"])} if "B" in value else value
            for name, value in row.items()
        }
        for row in rows
    ]

"""An application of one stream whose lease rows have every shape, and what it does next.

A version of the code that reads one stream only wrote the fixture ``one-stream-0.1.0.json`` by this
module; every later version must read its rows and offsets, and go on in the same way. The command,
in a checkout, writes the fixture to standard output::

    git worktree add /tmp/one-stream 6ce0af7
    PYTHONPATH=/tmp/one-stream/src python -m tests.one_stream

The local Kinesis has a clock that stands still, so sequence numbers and times are the same in each
run. What depends on the machine's speed is left out of the rows that follow: see `VARYING`.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from sparkinesis import Application, ProcessorShard, RecordProcessor
from sparkinesis.lease.lease import decode_lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.stream.kpl.pack import aggregate
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.options import WorkerOptions
from tests import pace
from tests.engine import Query
from tests.kcl import create_table, put_rows, put_rows_of_coordination
from tests.streams import records_of

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


# --- the rows that a version leaves behind


class Leaving(RecordProcessor):
    """Leaves the lease of each shard in a state of its own, or as it began if it ``only_reads``."""

    def __init__(self, progress: Progress, *, only_reads: bool) -> None:
        self.progress = progress
        self.shard: ProcessorShard
        self.number = -1
        self._has_moved = only_reads

    def initialize(self, shard: ProcessorShard) -> None:
        self.shard, self.number = shard, int(shard.id.rpartition("-")[2])

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        if not self._has_moved:
            self._has_moved = True
            self._leave(batch, checkpointer)
        self.progress.note(self.shard.id, batch)

    def _leave(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        one = batch.records
        match self.number:
            case 0:
                checkpointer.checkpoint(one[2])  # in the middle of the second aggregate
            case 1:
                checkpointer.checkpoint(one[0])
                checkpointer.prepare(one[1], state=b"state\x00\xff")
            case 4:
                checkpointer.reset(INSTANT)
            case 5:
                checkpointer.reset("LATEST")
            case 6:
                checkpointer.checkpoint()
            case 8:
                checkpointer.prepare(one[0])

    def shard_ended(self, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()
        self.progress.note(self.shard.id, None)


def leave_rows(at: Services, kind: str) -> list[Row]:
    """Return the rows of an application whose worker has died in the midst of its work."""
    progress, only_reads = Progress(), kind != "trim_horizon"
    application = at.application(kind, "worker-1", lambda: Leaving(progress, only_reads=only_reads))
    worker = application.worker().start()
    if kind == "trim_horizon":
        progress.wait(lambda: len(progress.given) == SHARDS + 1 and bool(progress.ended))
        # Shard 4 was moved to an instant, and reads the second records again.
        progress.wait(lambda: len(progress.given[shard_id(4)]) == 6)
    elif kind == "instant":
        progress.wait(lambda: len(progress.given) == SHARDS + 1 and bool(progress.ended))
    wanted = {shard_id(number) for number in (8, 9)} | (
        {shard_id(number) for number in range(SHARDS)} - {shard_id(3)}
    )
    until = threading.Event()
    for _ in range(600):
        rows = at.rows(application.name)
        if wanted <= {row["leaseKey"]["S"] for row in rows if "leaseOwner" in row}:
            break
        until.wait(0.1)
    else:
        raise AssertionError(rows)
    worker.shutdown(10)
    at.restore(application.name, rows)
    if kind == "trim_horizon":
        _hand_over(application.table(), shard_id(6))
        _give_to_java(at, application.name, shard_id(7))
    return at.rows(application.name)


def _hand_over(table: LeaseTable, key: str) -> None:
    """Request the lease for another worker, which dies before the owner releases it."""
    lease = table.get(key)
    assert lease is not None
    table.write(requests.initiate_handoff(lease, "worker-3"))


def _give_to_java(at: Services, table: str, key: str) -> None:
    """Write the row as a Java KCL 3.5 does that has prepared a checkpoint."""
    row = at.dynamodb.get_item(TableName=table, Key={"leaseKey": {"S": key}})["Item"]
    lease = decode_lease(row)
    assert lease is not None
    done = records_of(at.kinesis, STREAM, key)[0]["SequenceNumber"]
    item = {
        "leaseKey": {"S": key},
        "leaseOwner": {"S": "09f1d43d-cf6f-46f5-9430-8a9fdcca9baa"},
        "leaseCounter": {"N": "412"},
        "ownerSwitchesSinceCheckpoint": {"N": "2"},
        "checkpoint": {"S": done},
        "checkpointSubSequenceNumber": {"N": "0"},
        "pendingCheckpoint": {"S": done},
        "pendingCheckpointSubSequenceNumber": {"N": "1"},
        "pendingCheckpointState": {"N": "0"},
        "throughputKBps": {"N": "2.2E-5"},
        "startingHashKey": row["startingHashKey"],
        "endingHashKey": row["endingHashKey"],
        "entityType": {"S": "LEASE"},
    }
    at.dynamodb.put_item(TableName=table, Item=item)
    put_rows_of_coordination(at.dynamodb, table)


# --- what a version makes of rows


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


def encoded(rows: list[Row]) -> list[Row]:
    """Return rows as JSON holds them: it has no bytes."""
    return [_with_bytes(row, lambda raw: base64.b64encode(raw).decode()) for row in rows]


def decoded(rows: list[Row]) -> list[Row]:
    return [_with_bytes(row, base64.b64decode) for row in rows]


def _with_bytes(row: Row, change: Callable[[Any], Any]) -> Row:
    return {
        name: {"B": change(value["B"])} if "B" in value else value for name, value in row.items()
    }


def main() -> None:
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    with services() as at:
        before = {kind: leave_rows(at, kind) for kind in STARTS}
        at.go_on()
        found = {
            kind: {
                "before": encoded(rows),
                "query": take_over(at, kind, rows),
                "after": go_on(at, kind, rows),
            }
            for kind, rows in before.items()
        }
    for one in found.values():
        one["after"]["rows"] = encoded(one["after"]["rows"])  # type: ignore[index]
    sys.stdout.write(f"{_text(found)}\n")


def _text(value: Any, depth: int = 0) -> str:
    """Return JSON with a line for each row."""
    lines: list[str] = []
    if isinstance(value, dict) and depth < 3:
        lines = [f"{json.dumps(key)}: {_text(one, depth + 1)}" for key, one in value.items()]
        return "{\n" + ",\n".join(lines) + "}"
    if isinstance(value, list) and value and depth < 4:
        return "[\n" + ",\n".join(json.dumps(one) for one in value) + "]"
    return json.dumps(value)


if __name__ == "__main__":
    main()

"""The records of the backlogs, put as fast as the local Kinesis takes them."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import dataclass
from typing import Any

from benchmarks.local_server import Client
from sparkinesis.stream.kpl.pack import aggregate

SHARDS = 4
HASH_KEYS = 2**128
CALL_BYTES = 4_000_000


@dataclass(frozen=True)
class Backlog:
    """Rows that wait in a stream of `SHARDS` shards, the same number in each."""

    name: str
    title: str
    size: int
    """Bytes of data of a row."""
    rows: int
    per_aggregate: int = 1
    """User records in a record; 1: not aggregated."""

    @property
    def records_per_call(self) -> int:
        return min(500, CALL_BYTES // self.size) if self.per_aggregate == 1 else 100

    @property
    def rows_per_call(self) -> int:
        return self.records_per_call * self.per_aggregate

    def scaled(self, factor: float) -> Backlog:
        """The backlog with about that part of its rows, whole calls."""
        calls = max(1, round(self.rows * factor / self.rows_per_call))
        return Backlog(
            self.name, self.title, self.size, calls * self.rows_per_call, self.per_aggregate
        )


BACKLOGS = (
    Backlog("1kb", "1 KB, plain", 1_000, 500_000),
    Backlog("200b", "200 B, plain", 200, 2_000_000),
    Backlog("kpl", "200 B, 100 in a KPL aggregate", 200, 2_000_000, per_aggregate=100),
    Backlog("20kb", "20 KB, plain", 20_000, 25_000),
)


def fill(client: Client, stream: str, backlog: Backlog) -> None:
    """Create the stream and put all rows, whole calls."""
    assert backlog.rows % backlog.rows_per_call == 0
    client.call("CreateStream", StreamName=stream, ShardCount=SHARDS)
    body = put_records(stream, backlog)
    for _ in range(backlog.rows // backlog.rows_per_call):
        answer = json.loads(client.send("PutRecords", body))
        assert answer["FailedRecordCount"] == 0


def put_records(stream: str, backlog: Backlog) -> bytes:
    """The body of one call, which puts as many records on each shard."""
    rng = random.Random(backlog.size)
    records = [_record(rng, at % SHARDS, backlog) for at in range(backlog.records_per_call)]
    return json.dumps({"StreamName": stream, "Records": records}).encode()


def _record(rng: random.Random, shard: int, backlog: Backlog) -> dict[str, Any]:
    hash_key = hash_key_of(shard)
    users = [
        (f"key-{rng.randrange(1000)}", hash_key, rng.randbytes(backlog.size))
        for _ in range(backlog.per_aggregate)
    ]
    data = users[0][2]
    if backlog.per_aggregate > 1:
        (blob,) = aggregate(users, max_size=1_000_000)
        data = blob.data
    return {
        "Data": base64.b64encode(data).decode(),
        "PartitionKey": users[0][0],
        "ExplicitHashKey": hash_key,
    }


def hash_key_of(shard: int, shards: int = SHARDS) -> str:
    """A hash key in the middle of a shard of a stream that was never resharded."""
    return str((2 * shard + 1) * (HASH_KEYS // (2 * shards)))

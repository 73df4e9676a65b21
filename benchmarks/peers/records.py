"""The records that are put into a stream before it is read, each with a number of its own."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.local_server import Client
from benchmarks.peers.consumers.task import ID_BYTES
from sparkinesis.stream.kpl.pack import OutgoingRecord, aggregate

CALL_RECORDS = 500
CALL_BYTES = 4_000_000
KEYS_OF_A_SHARD = 50


@dataclass(frozen=True)
class Backlog:
    """So many records of a size, in equal parts in the shards of a stream."""

    shards: int
    records: int
    size: int
    in_aggregate: int = 1
    """User records in each record of the stream."""
    has_hash_keys: bool = False
    """Whether each user record of an aggregate has an explicit hash key, as many as there are
    partition keys."""

    def scaled(self, by: float) -> Backlog:
        """A backlog of the same kind with fewer records, the same number in each shard."""
        step = self.shards * self.in_aggregate
        return replace(self, records=max(1, round(self.records * by / step)) * step)

    def put(self, endpoint: str, stream: str) -> None:
        client = Client(endpoint)
        for shard in range(self.shards):
            for call in _calls(self.of_shard(shard), shard, self.shards):
                body = {"StreamName": stream, "Records": call}
                answer = client.send("PutRecords", json.dumps(body).encode())
                assert json.loads(answer)["FailedRecordCount"] == 0
        client.close()

    def of_shard(self, shard: int) -> Iterator[bytes]:
        rest = random.Random(shard).randbytes(self.size - ID_BYTES)
        numbers = range(shard, self.records, self.shards)
        users = (number.to_bytes(ID_BYTES, sys.byteorder) + rest for number in numbers)
        if self.in_aggregate == 1:
            yield from users
            return
        # A KCL drops aggregates with keys of other shards.
        keys = keys_of_shard(shard, self.shards, KEYS_OF_A_SHARD)
        hash_keys = hash_keys_of_shard(shard, self.shards, KEYS_OF_A_SHARD)
        group: list[OutgoingRecord] = []
        for count, user in enumerate(users, 1):
            at = count % KEYS_OF_A_SHARD
            group.append((keys[at], hash_keys[at] if self.has_hash_keys else None, user))
            if len(group) == self.in_aggregate:
                yield _packed(group)
                group = []
        if group:
            yield _packed(group)


def _packed(group: list[OutgoingRecord]) -> bytes:
    (blob,) = aggregate(group, 1_000_000)
    return blob.data


def keys_of_shard(shard: int, shards: int, count: int) -> list[str]:
    """The first partition keys whose hash belongs to one of a stream's equal shards."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        hashed = int.from_bytes(hashlib.md5(f"key-{number}".encode()).digest(), "big")
        if hashed * shards >> 128 == shard:
            found.append(f"key-{number}")
        number += 1
    return found


def hash_keys_of_shard(shard: int, shards: int, count: int) -> list[str]:
    """Hash keys of one of a stream's equal shards, in no order."""
    rng = random.Random(shard)
    width = 2**128 // shards
    return [str(shard * width + rng.randrange(width)) for _ in range(count)]


def _calls(records: Iterator[bytes], shard: int, shards: int) -> Iterator[list[dict[str, str]]]:
    """The records as those of PutRecords calls, for one shard."""
    hash_key = str(shard * (2**128 // shards) + 1)
    call: list[dict[str, str]] = []
    size = 0
    for number, data in enumerate(records):
        if call and (len(call) == CALL_RECORDS or size + len(data) > CALL_BYTES):
            yield call
            call, size = [], 0
        text = base64.b64encode(data).decode()
        call.append({"Data": text, "PartitionKey": f"key-{number}", "ExplicitHashKey": hash_key})
        size += len(data)
    if call:
        yield call

"""The memory of one worker that reads many shards, while all record processors stand still.

Each shard has a backlog: plain records, or aggregated records of the KPL. Each record processor
asks for the Python objects of its first batch and does not return. The worker fetches ahead for as
long as it may, and the peak of its process's resident memory counts.
"""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.local_server import Client, local_kinesis
from benchmarks.report import Result, print_table
from sparkinesis.stream.kpl.pack import aggregate

SHARDS = 200
PLAIN = 8_000_000
KPL = 3_000_000
"""Bytes of records in each shard."""
CALL = 4_000_000
"""Bytes of records in a PutRecords call, nearly: it takes 5 MB, and 500 records."""
CONTAINER = 2 * 1024**3
"""Bytes that the worker has to get along with."""


def plain_records(rng: random.Random) -> list[bytes]:
    """Returns records of 1 KB."""
    return [rng.randbytes(1000) for _ in range(PLAIN // 1000)]


def kpl_records(rng: random.Random) -> list[bytes]:
    """Aggregates of the KPL's default size, of user records of 100 bytes."""
    users = [(f"k{number % 1000}", None, rng.randbytes(100)) for number in range(KPL // 110)]
    return [blob.data for blob in aggregate(users)]


def fill(client: Client, stream: str, records: Sequence[bytes]) -> None:
    """The same records into each shard."""
    client.call("CreateStream", StreamName=stream, ShardCount=SHARDS)
    texts = [base64.b64encode(data).decode() for data in records]
    count = max(1, min(500, CALL // len(records[0])))
    for shard in range(SHARDS):
        key = str(shard * (2**128 // SHARDS) + 1)
        for start in range(0, len(texts), count):
            entries = [
                {"Data": text, "PartitionKey": "k", "ExplicitHashKey": key}
                for text in texts[start : start + count]
            ]
            body = json.dumps({"StreamName": stream, "Records": entries})
            client.send("PutRecords", body.encode())


def measure(endpoint: str, stream: str) -> int:
    """The peak of a worker's resident memory, in bytes."""
    command = [sys.executable, "-m", "benchmarks.memory_side", endpoint, stream, str(SHARDS)]
    credentials = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
    done = subprocess.run(
        command, env={**os.environ, **credentials}, stdout=subprocess.PIPE, check=True, timeout=600
    )
    return int(json.loads(done.stdout.splitlines()[-1])["peak"])


def run() -> list[Result]:
    rng = random.Random(1)
    found = []
    for kind, records in (("plain", plain_records(rng)), ("kpl", kpl_records(rng))):
        with local_kinesis("--no-limits", "--dynamodb", has_own_core=True) as client:
            fill(client, kind, records)
            peak = measure(client.endpoint, kind)
        held = sum(map(len, records)) * SHARDS / 1e6
        what = "1 KB records" if kind == "plain" else "KPL aggregates of 100 B user records"
        found.append(
            Result(
                f"peak memory of a worker, processors stand still, {what}",
                peak / 2**20,
                "MiB",
                CONTAINER / peak,
                1.0,
                f"{SHARDS} shards with {held:,.0f} MB of backlog; required: 2 GiB",
            )
        )
    return found


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()

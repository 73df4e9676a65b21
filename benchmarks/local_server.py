"""Measures the throughput of the local Kinesis over HTTP, without its limits.

The server is a process of its own; one client with a raw connection and prepared bodies drives it,
so that what is measured is the server's cost and not boto3's. Python's SDK and the AWS CLI speak
JSON; the SDKs for Java speak CBOR, except for subscriptions.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cbor2

from benchmarks import tls
from benchmarks.proc_stat import clock_of
from benchmarks.report import Result, print_table

JSON = "application/x-amz-json-1.1"
CBOR = "application/x-amz-cbor-1.1"
HEADERS = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/kinesis/aws4_request",
}
SMALL = 200
SMALL_CALLS = 400
LARGE = 20_000
LARGE_CALLS = 20
MANY_CALLS = 2000
"""A million records of 200 B, after those of the other measurements."""
PAGES = 20


class Client:
    def __init__(self, endpoint: str, server: int = 0) -> None:
        """``server``: the id of the server's process, if it is known."""
        self.endpoint = endpoint
        self.server = server
        self._connection = tls.connection(endpoint)

    def send(self, operation: str, body: bytes, encoding: str = JSON) -> bytes:
        target = f"Kinesis_20131202.{operation}"
        headers = {**HEADERS, "Content-Type": encoding, "X-Amz-Target": target}
        self._connection.request("POST", "/", body=body, headers=headers)
        with self._connection.getresponse() as response:
            answer = response.read()
        assert response.status == http.HTTPStatus.OK, answer
        return answer

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        answer = self.send(operation, json.dumps(request).encode())
        return json.loads(answer) if answer else {}

    def close(self) -> None:
        self._connection.close()


@contextmanager
def local_kinesis(*options: str, has_own_core: bool = False) -> Iterator[Client]:
    """Run ``sparkinesis local`` in a process of its own; yield a client of it.

    has_own_core: the server runs on the first core only, where the system can do that.
    """
    command = [sys.executable, "-m", "sparkinesis.local", "--port", "0", "--json"]
    command += ["--stream-delay-ms", "0", *tls.server_options(), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        if has_own_core and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(server.pid, {min(os.sched_getaffinity(0))})
        client = Client(json.loads(server.stdout.readline())["endpoint"], server.pid)
        try:
            yield client
        finally:
            client.close()
            server.terminate()


def put_body(stream: str, size: int, encoding: str = JSON) -> bytes:
    rng = random.Random(1)
    records: list[dict[str, Any]] = [
        {"Data": rng.randbytes(size), "PartitionKey": f"key-{i}"} for i in range(500)
    ]
    if encoding == CBOR:
        return cbor2.dumps({"StreamName": stream, "Records": records})
    for record in records:
        record["Data"] = base64.b64encode(record["Data"]).decode()
    return json.dumps({"StreamName": stream, "Records": records}).encode()


def put(client: Client, stream: str, size: int, calls: int, encoding: str = JSON) -> float:
    """Seconds for `calls` times 500 records."""
    body = put_body(stream, size, encoding)
    start = time.perf_counter()
    for _ in range(calls):
        client.send("PutRecords", body, encoding)
    return time.perf_counter() - start


def read(client: Client, stream: str) -> float:
    """Seconds to read all of it, shard after shard, without looking into the records."""
    start = time.perf_counter()
    for shard in client.call("ListShards", StreamName=stream)["Shards"]:
        iterator = client.call(
            "GetShardIterator",
            StreamName=stream,
            ShardId=shard["ShardId"],
            ShardIteratorType="TRIM_HORIZON",
        )["ShardIterator"]
        while True:
            page = client.send("GetRecords", json.dumps({"ShardIterator": iterator}).encode())
            end = json.loads(b"{" + page[page.rindex(b"],") + 2 :])
            iterator = end["NextShardIterator"]
            if end["MillisBehindLatest"] == 0:
                break
    return time.perf_counter() - start


def page_ms(client: Client) -> dict[str, float]:
    """The server's CPU for the first page of 10,000 records of 200 B, in turn in each encoding."""
    request = {"StreamName": "pages", "ShardId": "shardId-000000000000"}
    got = client.call("GetShardIterator", **request, ShardIteratorType="TRIM_HORIZON")
    asked = {"ShardIterator": got["ShardIterator"]}
    bodies = {JSON: json.dumps(asked).encode(), CBOR: cbor2.dumps(asked)}
    taken: dict[str, list[float]] = {JSON: [], CBOR: []}
    for _ in range(PAGES):
        for encoding, body in bodies.items():
            before = clock_of(client.server)
            client.send("GetRecords", body, encoding)
            taken[encoding].append(1000 * (clock_of(client.server) - before))
    # The mean: a collection of garbage is a part of the cost.
    return {encoding: statistics.mean(each) for encoding, each in taken.items()}


def run() -> list[Result]:
    with local_kinesis("--no-limits") as client:
        for stream, shards in {"small": 4, "cbor": 4, "large": 1, "pages": 1, "many": 1}.items():
            client.call("CreateStream", StreamName=stream, ShardCount=shards)
        small_in = put(client, "small", SMALL, SMALL_CALLS)
        cbor_in = put(client, "cbor", SMALL, SMALL_CALLS, CBOR)
        small_out = read(client, "small")
        large_in = put(client, "large", LARGE, LARGE_CALLS)
        large_out = read(client, "large")
        put(client, "pages", SMALL, 20)
        page = page_ms(client)
        put(client, "many", SMALL, MANY_CALLS)
        later = page_ms(client)
    records = 500 * SMALL_CALLS
    megabytes = 500 * LARGE_CALLS * LARGE / 1e6
    return [
        Result("put, 500 records of 200 B a call, JSON", records / small_in, "records/s"),
        Result("the same, CBOR", records / cbor_in, "records/s", small_in / cbor_in),
        Result("get, 200 B records, JSON", records / small_out, "records/s"),
        Result("put, 10 MB a call, JSON", megabytes / large_in, "MB/s", note="before base64"),
        Result("get, 10 MB pages, JSON", megabytes / large_out, "MB/s", note="before base64"),
        Result("a page of 10,000 x 200 B, JSON", page[JSON], "ms of CPU", note="server's"),
        Result("the same, CBOR", page[CBOR], "ms of CPU", page[JSON] / page[CBOR], 0.5, "x JSON's"),
        *(
            Result(f"{name}, with a million more records", later[kind], "ms of CPU", ratio, 0.5)
            for name, kind in (("JSON", JSON), ("CBOR", CBOR))
            for ratio in [page[kind] / later[kind]]
        ),
    ]


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()

"""Measures the throughput of the local Kinesis over HTTP, without its limits.

The server is a process of its own; one client with a raw connection and prepared bodies drives it,
so that what is measured is the server's cost and not boto3's.
"""

from __future__ import annotations

import base64
import http.client
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.report import Result, print_table

HEADERS = {
    "Content-Type": "application/x-amz-json-1.1",
    "Authorization": "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/kinesis/aws4_request",
}
SMALL = 200
SMALL_CALLS = 400
LARGE = 20_000
LARGE_CALLS = 20


class Client:
    def __init__(self, port: int) -> None:
        self.port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def send(self, operation: str, body: bytes) -> bytes:
        headers = {**HEADERS, "X-Amz-Target": f"Kinesis_20131202.{operation}"}
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
def running() -> Iterator[Client]:
    command = [sys.executable, "-m", "sparkinesis.local", "--port", "0", "--json"]
    options = ["--no-limits", "--stream-delay-ms", "0"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        endpoint = json.loads(server.stdout.readline())["endpoint"]
        client = Client(int(endpoint.rpartition(":")[2]))
        try:
            yield client
        finally:
            client.close()
            server.terminate()


def put_body(stream: str, size: int) -> bytes:
    rng = random.Random(1)
    records = [
        {"Data": base64.b64encode(rng.randbytes(size)).decode(), "PartitionKey": f"key-{i}"}
        for i in range(500)
    ]
    return json.dumps({"StreamName": stream, "Records": records}).encode()


def put(client: Client, stream: str, shards: int, size: int, calls: int) -> float:
    """Seconds for `calls` times 500 records."""
    client.call("CreateStream", StreamName=stream, ShardCount=shards)
    body = put_body(stream, size)
    start = time.perf_counter()
    for _ in range(calls):
        client.send("PutRecords", body)
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


def run() -> list[Result]:
    with running() as client:
        small_in = put(client, "small", 4, SMALL, SMALL_CALLS)
        small_out = read(client, "small")
        large_in = put(client, "large", 1, LARGE, LARGE_CALLS)
        large_out = read(client, "large")
    records = 500 * SMALL_CALLS
    megabytes = 500 * LARGE_CALLS * LARGE / 1e6
    return [
        Result("put, 500 records of 200 B a call", records / small_in, "records/s"),
        Result("get, 200 B records", records / small_out, "records/s"),
        Result("put, 10 MB a call", megabytes / large_in, "MB/s", note="data before base64"),
        Result("get, 10 MB pages", megabytes / large_out, "MB/s", note="data before base64"),
    ]


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()

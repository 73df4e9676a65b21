"""Measures the cost of 5,000 leases: calls, DynamoDB's units and CPU, beside the Java KCL's.

Calls are counted by their metrics while a renewer runs rounds against the local DynamoDB; they are
per lease and minute at the default failover time (10 s). The Java KCL's are computed from its
intervals: every 3308 ms an UpdateItem for each lease, every 20,050 ms a Scan by each worker.
The local server runs in a process of its own, so that CPU time is the client's alone. The leases of
a first start are created while each PutItem takes 10 ms, besides the server's work.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import botocore.session
import msgspec

from benchmarks.report import Result, medians, print_table
from benchmarks.shards_server import serving
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, decode_lease, encode_lease
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.scan_schedule import CALM
from sparkinesis.lease.shards.shard_syncer import ShardSyncer
from sparkinesis.lease.shards.stream_leases import StreamLeases
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.client import dynamodb_client
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.metrics.catalogue import TABLE_CALL_DURATION
from sparkinesis.metrics.tally import Tally
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import LATEST
from sparkinesis.worker.aws_options import LeaseTableOptions
from sparkinesis.worker.options import WorkerOptions
from tests.tallies import counted

LEASES = 5000
FIRST_SHARDS = 10_000
"""The shards of an application that starts for the first time."""
PUT_MS = 10
ROUNDS = 3
SINGLE = 1000
"""Leases renewed one by one, for comparison."""
FAILOVER = 60.0
JAVA_RENEW_INTERVAL = 3.308
JAVA_SCAN_INTERVAL = 20.05
ROW = Lease(
    "shardId-000000000000",
    "shardId-000000000000",
    ExtendedSequenceNumber("49680417772080139964390719210533025828023069882475085842"),
    owner="09f1d43d-cf6f-46f5-9430-8a9fdcca9baa",
    counter=1_000_000,
    hash_range=(0, 2**128 - 1),
)
WRITE_UNIT, READ_UNIT = 1024, 4096
"""Bytes. A consistent read takes a unit for each 4 kB, an eventually consistent one half."""


@contextmanager
def running() -> Iterator[str]:
    command = [sys.executable, "-m", "sparkinesis.local", "--port", "0", "--dynamodb", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["endpoint"]
        finally:
            server.terminate()


def fill(table: LeaseTable, client: Any) -> None:
    table.provision(LeaseTableOptions())
    row = encode_lease(ROW)
    for start in range(0, LEASES, 25):
        keys = [f"shardId-{i:012d}" for i in range(start, start + 25)]
        puts = [{"PutRequest": {"Item": {**row, "leaseKey": {"S": key}}}} for key in keys]
        client.batch_write_item(RequestItems={table.name: puts})


def row_size() -> int:
    """Bytes that DynamoDB counts: names and values, a number at half a byte a digit and one."""
    total = 0
    for name, value in encode_lease(ROW).items():
        ((kind, text),) = value.items()
        total += len(name) + (len(text) if kind == "S" else len(text) // 2 + 2)
    return total


def scan_parsing() -> tuple[float, float]:
    """CPU seconds to read 5,000 rows out of a Scan's answer: ours, and by botocore's parser."""
    body = json.dumps({"Items": [encode_lease(ROW)] * LEASES, "Count": LEASES}).encode()
    session = botocore.session.Session()
    shape = session.get_service_model("dynamodb").operation_model("Scan").output_shape
    parser = session.get_component("response_parser_factory").create_parser("json")

    def theirs() -> list[Lease | None]:
        parsed = parser.parse({"body": body, "headers": {}, "status_code": 200}, shape)
        return [decode_lease(item) for item in parsed["Items"]]

    def ours() -> list[Lease | None]:
        return [decode_lease(item) for item in msgspec.json.decode(body)["Items"]]

    assert ours() == theirs()
    first, second = medians(ours, theirs)
    return first, second


def first_start() -> list[Result]:
    with serving(has_moto=False) as server:
        server.create("stream", FIRST_SHARDS)
        server.delay("PutItem", PUT_MS)
        table = LeaseTable("first", "us-east-1", server.endpoint)
        table.provision(LeaseTableOptions())
        client = StreamClient(StreamAddress("stream", None, "us-east-1", server.endpoint))
        leases = StreamLeases(client, table, "worker", initial=LATEST, wait=time.sleep)
        syncer = ShardSyncer(
            leases, settings=WorkerOptions().shard_sync, clock=time.monotonic, phase=0.0
        )
        cpu, start = time.process_time(), time.perf_counter()
        syncer.sync()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - start
        assert len(table.leases()) == FIRST_SHARDS
    alone = FIRST_SHARDS * PUT_MS / 1000
    what = f"first start, {FIRST_SHARDS:,} leases at {PUT_MS} ms a PutItem"
    return [
        Result(what, wall, "s", alone / wall, 5, "one after the other at the least: computed"),
        Result(f"{what}, CPU", cpu, "CPU s"),
    ]


def run() -> list[Result]:
    tally = Tally()

    def calls(operation: str) -> float:
        found = counted(tally, TABLE_CALL_DURATION)
        return sum(count for (of, _), count in found.items() if of == operation)

    with running() as endpoint:
        table = LeaseTable("application", "us-east-1", endpoint, metrics=tally)
        fill(table, dynamodb_client(table.region, table.endpoint, table.credentials))
        renewer = LeaseRenewer(table, str(ROW.owner), FAILOVER)
        rows = table.leases()
        scans = calls("Scan")
        for row in rows:
            renewer.hold(row)
        cpu, start = time.process_time(), time.perf_counter()
        for _ in range(ROUNDS):
            renewer.renew_all()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - start
        assert len(renewer.held()) == LEASES
        batches = calls("BatchExecuteStatement") / ROUNDS
        assert calls("UpdateItem") == 0
        single = time.process_time()
        for held in list(renewer.held().values())[:SINGLE]:
            table.write(requests.renew(held.lease))
        single = time.process_time() - single
    return [
        *_against_java(batches, scans),
        *first_start(),
        *_cpu(cpu / ROUNDS / LEASES * 1000, single / SINGLE * 1000, wall / ROUNDS),
    ]


def _against_java(batches: float, scans: float) -> list[Result]:
    options = WorkerOptions()
    renewals, looks = 60 / options.renew_interval, 60 / (CALM * options.taker_interval)
    java_renewals, java_looks = 60 / JAVA_RENEW_INTERVAL, 60 / JAVA_SCAN_INTERVAL
    per_call = f"per lease and minute; {LEASES} leases, one worker"
    ours = batches * renewals / LEASES + scans * looks / LEASES
    java = java_renewals + scans * java_looks / LEASES
    writes = renewals * -(-row_size() // WRITE_UNIT)
    java_writes = java_renewals * -(-row_size() // WRITE_UNIT)
    reads = looks * row_size() / READ_UNIT / 2
    java_reads = java_looks * row_size() / READ_UNIT / 2
    return [
        Result("HTTP calls", ours, "calls", java / ours, 10, per_call),
        Result("HTTP calls, Java KCL", java, "calls", note="computed"),
        Result("write units", writes, "units", java_writes / writes, note=per_call),
        Result("write units, Java KCL", java_writes, "units", note="computed"),
        Result("rows read", looks, "rows", java_looks / looks, note="failed workers found sooner"),
        Result("rows read, Java KCL", java_looks, "rows", note="computed"),
        Result(
            "read units",
            reads,
            "units",
            java_reads / reads,
            note="eventually consistent scans, as the KCL's",
        ),
        Result("read units, Java KCL", java_reads, "units", note="computed"),
    ]


def _cpu(batch: float, single: float, wall: float) -> list[Result]:
    ours, theirs = scan_parsing()
    return [
        Result(
            "renewals by batch",
            batch,
            "CPU s/1,000",
            single / batch,
            3,
            f"a round of {LEASES} took {wall:.1f} s, the local DynamoDB's time",
        ),
        Result("renewals by UpdateItem", single, "CPU s/1,000"),
        Result(f"rows of a Scan, {LEASES}", ours, "CPU s", theirs / ours, 1.5),
        Result(f"rows of a Scan, {LEASES}, botocore's parser", theirs, "CPU s"),
    ]


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()

"""The CPU of one GetRecords call that finds no record, ours beside boto3's, in this process.

Paced: 200 calls a second by 8 threads, as a worker of 200 idle shards makes them; between two calls
the processor's caches forget them. Tight: one call after the other. The local Kinesis runs in a
process of its own, so that the CPU is the client's alone.
"""

from __future__ import annotations

import os
import resource
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import boto3
import cbor2

from benchmarks.decode import page_body
from benchmarks.filled_server import filled_server
from benchmarks.report import Result, medians, print_table
from sparkinesis.local import ManualClock
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.answers.decoding import decode_page
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import LATEST

ROUNDS = 5
TIGHT_CALLS = 300
THREADS = 8
CALLS_A_SECOND = 200
SECONDS = 2.0
SHARD = "shardId-000000000000"
STREAM = "idle"
LIMIT = 10_000


def fill(kinesis: Any, _: ManualClock) -> None:
    kinesis.create_stream(StreamName=STREAM, ShardCount=1)


def cpu() -> float:
    """CPU seconds of this process so far, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def tight(call: Callable[[], object]) -> float:
    """Milliseconds of CPU of a call."""
    began = cpu()
    for _ in range(TIGHT_CALLS):
        call()
    return (cpu() - began) / TIGHT_CALLS * 1000


def paced(call: Callable[[], object]) -> float:
    """Milliseconds of CPU of a call, the wait for its turn included."""
    each = int(CALLS_A_SECOND * SECONDS) // THREADS

    def run(number: int) -> None:
        due = time.monotonic() + number / CALLS_A_SECOND
        for _ in range(each):
            due += THREADS / CALLS_A_SECOND
            time.sleep(max(0.0, due - time.monotonic()))
            call()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    began = cpu()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (cpu() - began) / (each * THREADS) * 1000


def run() -> list[Result]:
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "local")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "local")
    with filled_server(fill) as endpoint:
        client = StreamClient(StreamAddress(STREAM, None, "us-east-1", endpoint))
        boto = boto3.client("kinesis", region_name="us-east-1", endpoint_url=endpoint)
        iterator = client.shard_iterator(SHARD, LATEST)

        def ours() -> object:
            return client.get_records(SHARD, iterator, LIMIT)

        def boto3s() -> object:
            return boto.get_records(ShardIterator=iterator, Limit=LIMIT)

        results = []
        for name, measure in (("paced", paced), ("in a tight loop", tight)):
            found: list[list[float]] = [[], []]
            for number in range(ROUNDS + 1):  # the first one warms up
                for call, taken in zip((ours, boto3s), found, strict=True):
                    milliseconds = measure(call)
                    if number:
                        taken.append(milliseconds)
            mine, theirs = map(statistics.median, found)
            spread = f"{min(found[0]):.3f} to {max(found[0]):.3f} ms"
            others = f"boto3 {theirs:.2f} ms, {min(found[1]):.2f} to {max(found[1]):.2f}"
            results.append(
                Result(
                    f"CPU of an empty GetRecords, {name}",
                    mine,
                    "ms",
                    theirs / mine,
                    4.0,
                    f"{spread}; {others}; {ROUNDS} rounds",
                )
            )
    return [*results, *_encodings()]


def _encodings() -> list[Result]:
    """Decode the same pages from JSON, as the calls do, and from CBOR."""
    results = []
    for name, records, repeats in (("no record", 0, 2000), ("1,000 records of 200 B", 1000, 20)):
        body = page_body(200, records)
        page = decode_page(body)
        as_cbor = cbor2.dumps(
            {
                "MillisBehindLatest": page.millis_behind_latest,
                "NextShardIterator": page.next_shard_iterator,
                "Records": [
                    {
                        "Data": record.data,
                        "PartitionKey": record.partition_key,
                        "SequenceNumber": record.sequence_number,
                    }
                    for record in page.records
                ],
            }
        )
        json_s, cbor_s = medians(
            partial(_repeat, partial(decode_page, body), repeats),
            partial(_repeat, partial(cbor2.loads, as_cbor), repeats),
            clock=time.process_time,
        )
        results.append(
            Result(
                f"decoding a page of {name} from JSON",
                json_s / repeats * 1e6,
                "µs",
                cbor_s / json_s,
                note=f"from CBOR, by cbor2: {cbor_s / repeats * 1e6:.1f} µs",
            )
        )
    return results


def _repeat(call: Callable[[], object], repeats: int) -> None:
    for _ in range(repeats):
        call()


if __name__ == "__main__":
    print_table("call", run())

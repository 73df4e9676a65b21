"""The CPU of a GetRecords call: without records beside boto3's, with records in JSON and in CBOR.

Paced: 200 calls a second by 8 threads, as a worker of 200 idle shards makes them; between two calls
the processor's caches forget them. Tight: one call after the other. The local Kinesis runs in a
process of its own, so that the CPU is the client's alone.
"""

from __future__ import annotations

import os
import random
import resource
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import boto3

from benchmarks.filled_server import filled_server
from benchmarks.report import Result, print_table
from sparkinesis.local import ManualClock
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.caller import call_client
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import LATEST, TRIM_HORIZON

ROUNDS = 5
TIGHT_CALLS = 300
THREADS = 8
CALLS_A_SECOND = 200
SECONDS = 2.0
SHARD = "shardId-000000000000"
STREAM = "idle"
LIMIT = 10_000


PAGES = {200: 10_000, 1_000: 5_000, 5_000: 1_500, 50_000: 150}
"""The records of a page, by their bytes."""
PAGE_ROUNDS = 15


def stream_of(size: int) -> str:
    return f"of-{size}"


def fill(kinesis: Any, _: ManualClock) -> None:
    kinesis.create_stream(StreamName=STREAM, ShardCount=1)
    rng = random.Random(1)
    for size, count in PAGES.items():
        kinesis.create_stream(StreamName=stream_of(size), ShardCount=1)
        records = [
            {"Data": rng.randbytes(size), "PartitionKey": f"{rng.getrandbits(128):032x}"}
            for _ in range(count)
        ]
        at_once = min(500, 4_000_000 // size)
        for at in range(0, count, at_once):
            kinesis.put_records(StreamName=stream_of(size), Records=records[at : at + at_once])


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
        return [*results, *_encodings(endpoint)]


def _encodings(endpoint: str) -> list[Result]:
    """Ask for the same pages in JSON and in CBOR, by the client that all readers have."""
    results = []
    for size, count in PAGES.items():
        address = StreamAddress(stream_of(size), None, "us-east-1", endpoint)
        iterator = StreamClient(address).shard_iterator(SHARD, TRIM_HORIZON)
        client = call_client(address)
        asked = [
            partial(ask, ShardIterator=iterator, Limit=LIMIT)
            for ask in (client.get_records, client.get_records_in_cbor)
        ]
        pages = [ask()["Page"].records for ask in asked]
        assert pages[0] == pages[1]
        assert len(pages[0]) == count
        taken: list[list[float]] = [[], []]
        for number in range(PAGE_ROUNDS + 1):  # the first one warms up
            for ask, milliseconds in zip(asked, taken, strict=True):
                began = cpu()
                ask()
                if number:
                    milliseconds.append((cpu() - began) * 1000)
        in_json, in_cbor = map(statistics.median, taken)
        results.append(
            Result(
                f"CPU of a page of {count:,} records of {size:,} B, in CBOR",
                in_cbor,
                "ms",
                in_json / in_cbor,
                note=f"{min(taken[1]):.1f} to {max(taken[1]):.1f} ms; in JSON {in_json:.1f} ms, "
                f"{min(taken[0]):.1f} to {max(taken[0]):.1f}; {PAGE_ROUNDS} rounds",
            )
        )
    return results


if __name__ == "__main__":
    print_table("call", run())

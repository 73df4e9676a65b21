"""Queries that run while records are put: idle, latency, reshards, and batches evaluated twice."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.peers.spark.competitors import Competitor
from benchmarks.peers.spark.processes import Meter
from benchmarks.peers.spark.producer import entry, merge, put_all, put_numbers, split
from benchmarks.peers.spark.query import Task
from benchmarks.peers.spark.records import SHARDS, hash_key_of
from benchmarks.peers.spark.rounds import Measured
from benchmarks.peers.spark.running import PATIENCE, Query, QueryFailedError, Told, running
from benchmarks.peers.spark.server import Server, serving
from benchmarks.peers.spark.tally import evaluations, losses, percentile
from benchmarks.proc_stat import cpu_of

STREAM = "live"
IDLE_SECONDS = 60.0
SETTLING = 15.0
"""Seconds after the last batch, before an idle query is measured."""
PUTS_PER_SECOND = 50.0
LATENCY_SECONDS = 30.0
RESHARD_RECORDS = 30_000
RESHARDED_RECORDS = 10_000
TWICE_RECORDS = 10_000
RECORDS_PER_SECOND = 1_000.0
QUIET = 45.0
"""Seconds without a row, after which none is to come."""


@contextmanager
def live(competitor: Competitor, server: Server, *, is_counted: bool = False) -> Iterator[Query]:
    """A query of the stream, from its beginning, to foreachBatch."""
    task = Task(
        competitor.data_source,
        competitor.session(),
        competitor.options(server.endpoint, STREAM),
        is_counted=is_counted,
    )
    with running(competitor, task) as query:
        yield query


def next_batch(query: Query, seconds: float) -> Told | None:
    """The next batch with rows; None if there is none for so long.

    The connector also runs batches without rows, without end once a shard is closed.
    """
    until = time.monotonic() + seconds
    while (told := query.next(max(0.0, until - time.monotonic()))) is not None:
        if told.get("data") or told.get("counted"):
            return told
    return None


def first_batch(query: Query) -> Told:
    """The first batch with rows; raises `QueryFailedError` if there is none."""
    told = next_batch(query, PATIENCE)
    if told is None:
        raise QueryFailedError(f"no row within {PATIENCE:g} s")
    return told


def until_quiet(query: Query) -> Iterator[Told]:
    """The batches with rows, until there is none for so long; the first one may take longer."""
    told: Told | None = first_batch(query)
    while told is not None:
        yield told
        told = next_batch(query, QUIET)


def greet(server: Server) -> None:
    """Put a record on each shard."""
    put_all(server.client, STREAM, [entry("0", int(hash_key_of(each))) for each in range(SHARDS)])


def wait_for_greeting(query: Query) -> tuple[float, float]:
    """Wait until all greetings came; the instants of the start and of the first batch."""
    starting = query.next()
    assert starting is not None
    first, rows = 0.0, 0
    while rows < SHARDS:
        told = first_batch(query)
        rows += len(told["data"])
        first = first or told["at"]
    return starting["starting"], first


def idle(competitor: Competitor) -> Measured:
    """Calls and CPU of a query without records, on a server with the service's limits."""
    with serving(limits=True) as server:
        server.client.call("CreateStream", StreamName=STREAM, ShardCount=SHARDS)
        greet(server)
        with live(competitor, server) as query, Meter(query.process.pid) as meter:
            wait_for_greeting(query)
            time.sleep(SETTLING)
            server.forget_calls()
            before, server_before = meter.now(), cpu_of(server.pid)
            time.sleep(IDLE_SECONDS)
            spent, served = meter.now() - before, cpu_of(server.pid) - server_before
            calls = server.calls()
    minutes = IDLE_SECONDS / 60
    asked = {
        error is None: sum(
            count
            for (operation, _, its), count in calls.items()
            if operation == "GetRecords" and (its is None) == (error is None)
        )
        for error in (None, "refused")
    }
    return {
        "GetRecords a minute and shard": (asked[True] + asked[False]) / SHARDS / minutes,
        "of these refused by the limit": asked[False] / SHARDS / minutes,
        "all calls a minute": sum(calls.values()) / minutes,
        "CPU s in a minute": spent.all / minutes,
        "CPU s of the JVM": spent.jvm / minutes,
        "CPU s of Python": spent.python / minutes,
        "CPU s of the server": served / minutes,
    }


def latency(competitor: Competitor) -> Measured:
    """From the put to the rows in foreachBatch; and from start() to the first rows there."""
    rng = random.Random(17)
    expected = int(PUTS_PER_SECOND * LATENCY_SECONDS)
    with serving(limits=True) as server:
        server.client.call("CreateStream", StreamName=STREAM, ShardCount=SHARDS)
        greet(server)
        with live(competitor, server) as query:
            started, first = wait_for_greeting(query)

            def put() -> None:
                for _ in range(expected):
                    time.sleep(rng.expovariate(PUTS_PER_SECOND))
                    key = int(hash_key_of(rng.randrange(SHARDS)))
                    put_all(server.client, STREAM, [entry(str(time.monotonic_ns()), key)])

            producer = threading.Thread(target=put)
            producer.start()
            taken: list[float] = []
            for told in until_quiet(query):
                taken += [
                    1000 * told["at"] - int(each) / 1e6 for each in told["data"] if each != "0"
                ]
                if len(taken) >= expected:
                    break
            producer.join()
    return {
        "start() to the first rows": first - started,
        "put to foreachBatch, median": percentile(taken, 50),
        "put to foreachBatch, 99 %": percentile(taken, 99),
    }


def reshard(competitor: Competitor) -> Measured:
    """Records lost while a stream is split, merged and split again."""
    rows: list[int] = []
    with serving(limits=True) as server:
        server.client.call("CreateStream", StreamName=STREAM, ShardCount=2)
        with live(competitor, server) as query:
            query.next()  # starts
            put_numbers(server.client, STREAM, [0], 1)
            rows += map(int, first_batch(query)["data"])

            def put() -> None:
                part = RESHARD_RECORDS // 4
                for number, change in enumerate((split, merge, split, None)):
                    first = max(1, number * part)
                    numbers = range(first, (number + 1) * part)
                    put_numbers(server.client, STREAM, numbers, RECORDS_PER_SECOND)
                    if change is not None:
                        change(server.client, STREAM)

            return _lost(query, put, rows, RESHARD_RECORDS)


def resharded(competitor: Competitor) -> Measured:
    """Records lost of a stream that was split before the query starts, read from the beginning."""
    with serving(limits=True) as server:
        server.client.call("CreateStream", StreamName=STREAM, ShardCount=2)
        half = RESHARDED_RECORDS // 2
        put_numbers(server.client, STREAM, range(half), RECORDS_PER_SECOND * 2)
        split(server.client, STREAM)
        put_numbers(server.client, STREAM, range(half, 2 * half), RECORDS_PER_SECOND * 2)
        with live(competitor, server) as query:
            return _lost(query, lambda: None, [], RESHARDED_RECORDS)


def _lost(query: Query, put: Callable[[], None], rows: list[int], expected: int) -> Measured:
    """Put beside the query, and count what came."""
    producer = threading.Thread(target=put)
    producer.start()
    try:
        for told in until_quiet(query):
            rows += map(int, told["data"])
            if len(set(rows)) >= expected:
                break
    finally:
        producer.join()
    found = losses(expected, rows)
    return {"records lost": float(found.lost), "rows repeated": float(found.repeated)}


def twice(competitor: Competitor) -> Measured:
    """Batches whose count() and collect() differ while records arrive."""
    pairs: list[tuple[int, int]] = []
    rows: list[int] = []
    with serving(limits=True) as server:
        server.client.call("CreateStream", StreamName=STREAM, ShardCount=2)
        with live(competitor, server, is_counted=True) as query:
            query.next()  # starts
            numbers = range(TWICE_RECORDS)
            producer = threading.Thread(
                target=put_numbers, args=(server.client, STREAM, numbers, RECORDS_PER_SECOND / 2)
            )
            producer.start()
            for told in until_quiet(query):
                rows += map(int, told["data"])
                pairs.append((told["counted"], len(told["data"])))
                if len(set(rows)) >= TWICE_RECORDS:
                    break
            producer.join()
    found = evaluations(pairs)
    return {
        "batches": float(found.batches),
        "batches that differ": float(found.differing),
        "rows that differ": float(found.apart),
        "rows that both saw, of those put": float(sum(min(each) for each in pairs)),
    }

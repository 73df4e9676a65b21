"""Measures enhanced fan-out for batches: which process reads a range, and by which call.

A stream of 8 shards gets 400 records a second. For each Spark: of the ranges that follow another
of their shard, the part that the same Python process reads; and, with ``consumerMode=efo`` and some
triggers, the part of the ranges that are read by subscription.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

from benchmarks.report import Result, print_table
from benchmarks.source import spark_session
from sparkinesis.local import LocalServer
from sparkinesis.source.datasource import KinesisDataSource, KinesisStreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARDS = 8
BATCHES = {1: 30, 2: 15, 6: 10}
"""At a trigger of so many seconds, how many batches are looked at."""
MASTERS = {"local[2]": "local[2]", "2 executors x 2": "local-cluster[2,2,1024]"}
REGION = "us-east-1"


def watched(folder: str) -> type[KinesisDataSource]:
    """The source, whose tasks note in a file of their process when they read which shard.

    A class of this function, so that Spark's processes need not find this module.
    """

    class WatchedReader(KinesisStreamReader):
        def read(self, partition: Any) -> Iterator[Any]:
            with Path(folder, str(os.getpid())).open("a") as file:
                shards = [each.shard_range.shard_id for each in partition.to_read]
                file.writelines(f"{time.time()} {shard}\n" for shard in shards)
            return super().read(partition)

    class Watched(KinesisDataSource):
        @classmethod
        def name(cls) -> str:
            return "watched"

        def streamReader(self, schema: Any) -> KinesisStreamReader:  # noqa: N802
            return WatchedReader(super().streamReader(schema)._options)

    return Watched


def processes(folder: str) -> dict[str, list[str]]:
    """The process of each range in order, by shard."""
    reads = sorted(
        (*line.split(), path.name)
        for path in Path(folder).iterdir()
        for line in path.read_text().splitlines()
    )
    found: dict[str, list[str]] = {}
    for _, shard, process in reads:
        found.setdefault(shard, []).append(process)
    return found


@contextmanager
def producing(kinesis: Any, stream: str) -> Iterator[None]:
    """Put 40 records, spread over the shards, ten times a second."""
    stopping = threading.Event()

    def produce() -> None:
        while not stopping.wait(0.1):
            entries = [{"Data": b"x" * 100, "PartitionKey": f"{n}"} for n in range(40)]
            kinesis.put_records(StreamName=stream, Records=entries)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def measure(spark: SparkSession, trigger: int) -> tuple[float, int, float]:
    """The part of ranges in the process of their predecessor, processes, part by subscription."""
    with LocalServer(port=0) as server, tempfile.TemporaryDirectory() as checkpoint:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName="s", ShardCount=SHARDS)
        with tempfile.TemporaryDirectory() as folder, producing(kinesis, "s"):
            spark.dataSource.register(watched(folder))
            query = (
                spark.readStream.format("watched")
                .option("streamName", "s")
                .option("endpoint", server.endpoint_url)
                .option("region", REGION)
                .option("consumerMode", "efo")
                .option("consumerName", "benchmark")
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", checkpoint)
                .trigger(processingTime=f"{trigger} seconds")
                .start()
            )
            while sum(map(len, processes(folder).values())) < SHARDS * BATCHES[trigger]:
                assert query.isActive, query.exception()
                time.sleep(0.2)
            query.stop()
            by_shard = processes(folder)
        same = [a == b for shard in by_shard.values() for a, b in itertools.pairwise(shard)]
        subscribed = [c for c in server.kinesis.calls.select("SubscribeToShard") if not c.error]
        ranges = sum(map(len, by_shard.values()))
        workers = len({process for shard in by_shard.values() for process in shard})
    return sum(same) / len(same), workers, len(subscribed) / ranges


def run() -> list[Result]:
    results = []
    for name, master in MASTERS.items():
        with session(master) as spark:
            for trigger in BATCHES if name == "local[2]" else (1,):
                same, workers, subscribed = measure(spark, trigger)
                case = f"{name}, a batch each {trigger} s"
                if trigger == 1:
                    note = f"by {workers} processes"
                    results.append(Result(f"{case}: the same process", same, "of 1", note=note))
                results.append(Result(f"{case}: by subscription", subscribed, "of 1"))
    return results


@contextmanager
def session(master: str) -> Iterator[SparkSession]:
    # For local-cluster, whose executors are processes of their own.
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    path = os.pathsep.join(filter(None, sys.path))
    spark = spark_session(master, **{"spark.executorEnv.PYTHONPATH": path})
    # A query that is stopped in a batch prints the traceback of each of its tasks.
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()

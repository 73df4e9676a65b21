"""Reads a stream from its beginning to its end by each of the three doors."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from sparkinesis import Application, WorkerOptions
from sparkinesis.local import LocalServer
from sparkinesis.queue import NewQueue, QueueApplication, QueueOptions, QueueRecord
from sparkinesis.testing.world import quick
from tests.interop.producers.judging import Seen
from tests.interop.servers import REGION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROCESSORS = "record processors"
QUEUE = "a queue"
DATAFRAME = "a DataFrame"
_PATIENCE = 20.0
"""Seconds without a record after which no more are waited for."""


def by_processors(
    server: LocalServer, stream: str, expected: int, *, filtered: bool = False
) -> list[Seen]:
    """expected: the number of user records to wait for. filtered: with ``hash_range_filter``."""
    name = f"{stream}-filtered" if filtered else stream
    options = WorkerOptions(hash_range_filter=filtered)
    application = quick(
        Application(name, stream, initial_position="trim_horizon", options=options),
        server.endpoint_url,
    )
    found: list[Seen] = []
    with application.batches(timeout=_PATIENCE) as batches:
        for batch in batches:
            found += [
                Seen(
                    one.partition_key,
                    one.explicit_hash_key,
                    one.data,
                    one.shard_id,
                    (int(one.sequence_number), one.sub_sequence_number),
                )
                for one in batch
            ]
            if len(found) >= expected:
                break
    return found


def by_queue(server: LocalServer, stream: str, expected: int) -> list[Seen]:
    """By the queue of a stream in on-demand mode."""
    found: list[QueueRecord] = []
    lock = threading.Lock()

    def handle(record: QueueRecord) -> None:
        with lock:
            found.append(record)

    application = QueueApplication(
        f"{stream}-queue",
        handle,
        region=REGION,
        endpoint=server.endpoint_url,
        create=NewQueue(stream, starting_position="trim_horizon"),
        concurrency=4,
        options=QueueOptions(wait_time=1),
    )
    worker = application.worker().start()
    count, since = -1, time.monotonic()
    while len(found) < expected and time.monotonic() - since < _PATIENCE:
        if len(found) != count:
            count, since = len(found), time.monotonic()
        time.sleep(0.05)
    worker.shutdown()
    return [Seen(one.partition_key, one.explicit_hash_key, one.data) for one in found]


def by_dataframe(spark: SparkSession, server: LocalServer, stream: str) -> list[Seen]:
    rows = (
        spark.read.format("kinesis")
        .option("streamName", stream)
        .option("region", REGION)
        .option("endpoint", server.endpoint_url)
        .load()
    )
    return [
        Seen(
            row["partitionKey"],
            row["explicitHashKey"],
            bytes(row["data"]),
            row["shardId"],
            (int(row["sequenceNumber"]), row["subSequenceNumber"]),
        )
        for row in rows.collect()
    ]


def new_session() -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only if DataFrames are read

    import sparkinesis  # noqa: PLC0415
    from sparkinesis.local.java import use_java  # noqa: PLC0415

    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("producers")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    sparkinesis.register(spark)
    return spark


def stored(server: LocalServer, stream: str) -> list[dict[str, Any]]:
    """The records of the stream as it stores them, each with its shard."""
    kinesis = server.client("kinesis", REGION)
    found = []
    for shard in kinesis.list_shards(StreamName=stream)["Shards"]:
        iterator = kinesis.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while iterator:
            page = kinesis.get_records(ShardIterator=iterator)
            found += [{**one, "shard": shard} for one in page["Records"]]
            iterator = page.get("NextShardIterator") if page["MillisBehindLatest"] else None
    return found

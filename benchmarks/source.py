"""Rows a second of the Spark source into a noop sink, from the local Kinesis with limits off.

Spark is local[2], the server a process of its own on the same two cores, so what is measured is the
whole: serving, HTTP, decoding, de-aggregating, Arrow into Spark. The time is that of the batches
(Spark's ``triggerExecution``), planning included. A first, small run warms the JVM up.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3

from benchmarks.local_server import local_kinesis
from benchmarks.report import Result, print_table
from sparkinesis.local.java import use_java
from sparkinesis.stream.kpl.pack import aggregate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARDS = 4
REGION = "us-east-1"
CALL_BYTES = 4_000_000
AGGREGATE_SIZE = 51_200
"""KPL's default AggregationMaxSize."""
REQUIRED_ROWS = 250_000


@dataclass(frozen=True)
class Case:
    name: str
    size: int
    rows: int
    aggregated: bool
    required: int | None = None


CASES = (
    Case("200 B, aggregated", 200, 3_000_000, True, REQUIRED_ROWS),
    Case("200 B, plain", 200, 1_000_000, False),
    Case("1 KB, aggregated", 1000, 600_000, True),
    Case("1 KB, plain", 1000, 400_000, False),
    Case("20 KB, plain", 20_000, 20_000, False),
)


def spark_session(master: str = "local[2]", **config: str) -> SparkSession:
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession  # noqa: PLC0415

    spark = (
        SparkSession.builder.master(master)
        .appName("sparkinesis-benchmark")
        .config(map={**config})
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def kinesis_at(endpoint: str) -> Any:
    """A client of the local Kinesis."""
    return boto3.client(
        "kinesis",
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )


def fill(kinesis: Any, stream: str, case: Case, rows: int) -> int:
    """Put at least ``rows`` user records, the same number into each shard; returns how many."""
    kinesis.create_stream(StreamName=stream, ShardCount=SHARDS)
    rng = random.Random(case.size)
    users = [(f"key-{rng.randrange(1000)}", None, rng.randbytes(case.size)) for _ in range(5_000)]
    if case.aggregated:
        entries = [(blob.data, blob.count) for blob in aggregate(users, max_size=AGGREGATE_SIZE)]
        per_call = 100
    else:
        entries = [(data, 1) for _, _, data in users]
        per_call = min(500, CALL_BYTES // case.size)
    put = 0
    at = 0
    while put < rows:
        records = []
        for _ in range(per_call):
            data, count = entries[at % len(entries)]
            put += count
            records.append(
                {
                    "Data": data,
                    "PartitionKey": f"key-{at}",
                    "ExplicitHashKey": str((at % SHARDS) * (2**128 // SHARDS)),
                }
            )
            at += 1
        answer = kinesis.put_records(StreamName=stream, Records=records)
        assert answer["FailedRecordCount"] == 0
    return put


UNLIMITED = {"shardCallsPerSecond": "unlimited", "shardBytesPerSecond": "unlimited"}


def read(
    spark: SparkSession, endpoint: str, stream: str, options: dict[str, str]
) -> tuple[list[int], float]:
    """Rows of each batch, and seconds of all, of a query that reads a stream into nothing."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            spark.readStream.format("kinesis")
            .option("streamName", stream)
            .option("endpoint", endpoint)
            .option("region", REGION)
            .option("initialPosition", "trim_horizon")
            .options(**options)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress = [p for p in query.recentProgress if p.numInputRows]
    seconds = sum(p.durationMs["triggerExecution"] for p in progress) / 1000
    return [p.numInputRows for p in progress], seconds


def run() -> list[Result]:
    results = []
    spark = spark_session()
    try:
        for number, case in enumerate(CASES):
            with local_kinesis("--no-limits") as server:
                endpoint = server.endpoint
                kinesis = kinesis_at(endpoint)
                fill(kinesis, f"warm-{number}", case, min(100_000, case.rows))
                read(spark, endpoint, f"warm-{number}", UNLIMITED)
                put = fill(kinesis, f"case-{number}", case, case.rows)
                batches, seconds = read(spark, endpoint, f"case-{number}", UNLIMITED)
                rows = sum(batches)
                assert rows == put, f"{rows} rows came out of {put}"
            rate = rows / seconds
            results.append(
                Result(
                    f"Spark source to noop, {case.name}",
                    rate,
                    "rows/s",
                    rate / case.required if case.required else None,
                    1 if case.required else None,
                    f"{rows:,} rows, {rate * case.size / 1e6:,.0f} MB/s, local[2]"
                    + (f", of {case.required:,} required" if case.required else ""),
                )
            )
    finally:
        spark.stop()
    return results


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()

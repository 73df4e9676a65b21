"""Measures a query's restart in a JVM that has just started, until its first row, beside floors.

Each turn is a Spark driver of its own that resumes from the checkpoint of a first, uncounted run:
Spark's rate source, which needs no Python; a source of PySpark alone, with this source's columns
and one row a batch; and this source. What the last two differ by is this source's; what the second
needs more than the first is that of Spark's Python sources.
"""

from __future__ import annotations

import base64
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from benchmarks.cpu_seconds import child_running, cpu_of_spark
from benchmarks.fleet import server
from benchmarks.local_server import Client
from benchmarks.report import Result, print_table
from benchmarks.source import REGION, spark_session
from benchmarks.spark_latency import clock_source
from sparkinesis.source.row_columns import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ROUNDS = 3
SHARDS = 4
STREAM = "restart"
SOURCES = {
    "rate": "Spark's rate source",
    "eight_columns": "a source of PySpark alone",
    "kinesis": "this source",
}
PATIENCE = 300.0


def source_of_eight_columns() -> Any:
    """The clock's source, with other columns."""
    clock = clock_source()
    reader_of_clock: Any = type(clock({}).streamReader(None))  # type: ignore[arg-type]

    class Reader(reader_of_clock):  # type: ignore[misc]
        def read(self, partition: Any) -> Any:  # noqa: ARG002
            yield "key", b"data", "stream", "shard", "1", datetime.now(timezone.utc), 0, None

    class EightColumns(clock):  # type: ignore[misc, valid-type]
        @classmethod
        def name(cls) -> str:
            return "eight_columns"

        def schema(self) -> StructType:
            return SCHEMA

        def streamReader(self, schema: Any) -> Any:  # noqa: ARG002, N802
            return Reader()

    return EightColumns


def resume(source: str, checkpoint: str, endpoint: str) -> None:
    """Run the query until its first row, and print what that took."""
    began = time.monotonic()
    spark = spark_session()
    made = time.monotonic()
    first = threading.Event()

    def on_batch(rows: Any, _: int) -> None:
        if rows.collect():
            first.set()

    if source == "eight_columns":
        spark.dataSource.register(source_of_eight_columns())
    reader = spark.readStream.format(source)
    if source == "kinesis":
        where = {"streamName": STREAM, "region": REGION, "endpoint": endpoint}
        reader = reader.options(**where, initialPosition="trim_horizon")
    writer = reader.load().writeStream.foreachBatch(on_batch)
    query = writer.option("checkpointLocation", checkpoint).start()
    if not first.wait(PATIENCE):
        raise RuntimeError(f"no row within {PATIENCE} s: {query.exception()}")
    taken = time.monotonic() - made
    cpu = cpu_of_spark(child_running("org.apache.spark.deploy.SparkSubmit"))
    told = {"session": made - began, "row": taken, "python": cpu.pop("Python")}
    print(json.dumps({**told, "jvm": sum(cpu.values())}), flush=True)
    query.stop()
    spark.stop()


def put_on_each_shard(client: Client, stream: str, shards: int) -> None:
    """Put a record on each of a stream's first shards, and close the connection."""
    for shard in range(shards):
        data, key = base64.b64encode(b"data").decode(), str(shard * (2**128 // shards) + 1)
        client.call(
            "PutRecord", StreamName=stream, Data=data, PartitionKey="k", ExplicitHashKey=key
        )
    client.close()  # the server closes an idle connection


def turn(source: str, checkpoint: str, client: Client) -> dict[str, float]:
    """Put a record on each shard, and resume the query in a process of its own."""
    put_on_each_shard(client, STREAM, SHARDS)
    command = [sys.executable, "-m", "benchmarks.spark_restart", source, checkpoint]
    credentials = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
    done = subprocess.run(
        [*command, client.endpoint],
        env={**os.environ, **credentials},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    told: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return told


def run() -> list[Result]:
    runs: dict[str, list[dict[str, float]]] = {source: [] for source in SOURCES}
    with server() as client, tempfile.TemporaryDirectory() as folder:
        client.call("CreateStream", StreamName=STREAM, ShardCount=SHARDS)
        for _ in range(ROUNDS + 1):
            for source, taken in runs.items():
                taken.append(turn(source, f"{folder}/{source}", client))
    results = []
    for source, taken in runs.items():
        of = {name: statistics.median(each[name] for each in taken[1:]) for name in taken[0]}
        note = (
            f"CPU from the driver's start: {of['python']:.1f} s of Python, {of['jvm']:.1f} s of "
            f"the JVM; the session took {of['session']:.1f} s before"
        )
        results.append(Result(f"{SOURCES[source]}: to the first row", of["row"], "s", note=note))
    return results


def main() -> None:
    if len(sys.argv) > 1:
        resume(*sys.argv[1:4])
    else:
        print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()

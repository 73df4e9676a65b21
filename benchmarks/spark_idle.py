"""Measures the CPU of a query that receives nothing, beside Spark's own floor.

A stream of 16 shards has one record each, and then none. The floor is a source of PySpark alone, in
the same session, whose plan waits a second and finds nothing: what it needs is what Spark needs to
ask a Python source once a second. Both are measured in turn, in a JVM that is warm.
"""

from __future__ import annotations

import base64
import statistics
import tempfile
import threading
import time
from typing import Any

from benchmarks.cpu_seconds import child_running
from benchmarks.local_server import Client, local_kinesis
from benchmarks.peers.spark.processes import Cpu, Meter
from benchmarks.report import Result, print_table
from benchmarks.source import REGION, spark_session
from benchmarks.spark_latency import clock_source

STREAM = "idle"
SHARDS = 16
ROUNDS = 3
SETTLING = 15.0
"""Seconds after a query's first rows, before it is measured."""
SECONDS = 60.0
PATIENCE = 180.0
SOURCES = {"waiting": "Spark's own floor", "kinesis": f"this source, {SHARDS} shards"}


def waiting_source() -> Any:
    """The clock's source, with one row, whose later plans wait a second each."""
    clock = clock_source()
    reader_of_clock: Any = type(clock({}).streamReader(None))  # type: ignore[arg-type]

    class Reader(reader_of_clock):  # type: ignore[misc]
        has_planned = False

        def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
            if self.has_planned:
                time.sleep(1.0)
            self.has_planned = True
            return {"at": 1}

    class Waiting(clock):  # type: ignore[misc, valid-type]
        @classmethod
        def name(cls) -> str:
            return "waiting"

        def streamReader(self, schema: Any) -> Any:  # noqa: ARG002, N802
            return Reader()

    return Waiting


def put_on_each_shard(client: Client) -> None:
    """Put a record on each shard, and close the connection, which the server would close."""
    data = base64.b64encode(b"data").decode()
    for shard in range(SHARDS):
        key = str(shard * (2**128 // SHARDS) + 1)
        client.call(
            "PutRecord", StreamName=STREAM, Data=data, PartitionKey="k", ExplicitHashKey=key
        )
    client.close()


def idle_minute(reader: Any) -> Cpu:
    """Return the CPU seconds of a query's idle minute."""
    begun = threading.Event()
    with (
        tempfile.TemporaryDirectory() as checkpoint,
        Meter(child_running("org.apache.spark.deploy.SparkSubmit")) as meter,
    ):
        writer = reader.load().writeStream.foreachBatch(lambda *_: begun.set())
        query = writer.option("checkpointLocation", checkpoint).start()
        if not begun.wait(PATIENCE):
            raise RuntimeError(f"no batch within {PATIENCE} s: {query.exception()}")
        time.sleep(SETTLING)
        before = meter.now()
        time.sleep(SECONDS)
        taken = meter.now() - before
        query.stop()
    return taken


def run() -> list[Result]:
    spark = spark_session()
    spark.dataSource.register(waiting_source())
    taken: dict[str, list[Cpu]] = {source: [] for source in SOURCES}
    with local_kinesis(has_own_core=True) as client:
        client.call("CreateStream", StreamName=STREAM, ShardCount=SHARDS)
        put_on_each_shard(client)
        where = {
            "streamName": STREAM,
            "region": REGION,
            "endpoint": client.endpoint,
            "initialPosition": "trim_horizon",
        }
        for _ in range(ROUNDS):
            for source, minutes in taken.items():
                reader = spark.readStream.format(source)
                minutes.append(
                    idle_minute(reader.options(**where) if source == "kinesis" else reader)
                )
    spark.stop()
    results = []
    for source, minutes in taken.items():
        jvm, python = (
            statistics.median(each)
            for each in zip(*((m.jvm, m.python) for m in minutes), strict=True)
        )
        median = statistics.median(each.all for each in minutes)
        note = f"the JVM {jvm:.2f} s, its Python processes {python:.2f} s"
        results.append(Result(f"{SOURCES[source]}: an idle minute", median, "s of CPU", note=note))
    return results


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()

"""Queries that read as a role, in a Spark of their own that logs all it can into one place.

Run with `LOGGING` as ``sitecustomize`` in every Python process: driver, planner and executors.
Writes what a user would see of plans and errors to standard output.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import sparkinesis
from sparkinesis.local.java import use_java
from tests.spark.reading import read_stream

ROLE = "arn:aws:iam::123456789012:role/stream-reader"

LOGGING = """
import logging
logging.basicConfig(level=logging.INFO, format="pid=%(process)d %(name)s %(message)s")
logging.getLogger("sparkinesis").setLevel(logging.DEBUG)
"""


def main(endpoint: str, sts: str, external_id: str, folder: str) -> None:
    import boto3  # noqa: PLC0415

    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    Path(folder, "events").mkdir()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", Path(folder, "events").as_uri())
        .config(
            "spark.driver.extraJavaOptions",
            f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={folder}",
        )
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("INFO")
    sparkinesis.register(spark)
    kinesis = boto3.Session("local", "local", region_name="us-east-1").client(
        "kinesis", endpoint_url=endpoint
    )

    def read(stream: str, session: str) -> DataFrame:
        return read_stream(
            spark,
            endpoint,
            stream,
            roleArn=ROLE,
            roleExternalId=external_id,
            roleSessionName=session,
            stsEndpoint=sts,
            minFetchPeriod="100ms",
        )

    def run(stream: str, session: str, *rounds: bytes) -> None:
        frame = read(stream, session)
        frame.explain(extended=True)
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", f"{folder}/checkpoint-{stream}-{session}")
            .start()
        )
        try:
            for data in rounds:
                entries = [{"Data": data, "PartitionKey": str(n)} for n in range(20)]
                kinesis.put_records(StreamName=stream, Records=entries)
                query.processAllAvailable()
            query.explain(extended=True)
            print(query.lastProgress, flush=True)
        except PySparkException as error:
            print(f"FAILED {session}: {error}", flush=True)
        finally:
            query.stop()

    run("long", "long", b"1", b"2")
    run("short", "short", b"1", b"2")
    run("none", "missing")
    run("long", "refused", b"3")
    run("long", "refused-to-executors", b"4")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

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
from pyspark.sql.streaming.query import StreamingQuery

import sparkinesis
from examples.flights.query import start_patiently
from sparkinesis.local.java import use_java
from tests.spark.reading import read_stream

ROLE = "arn:aws:iam::123456789012:role/stream-reader"

LOGGING = """
import logging
logging.basicConfig(level=logging.INFO, format="pid=%(process)d %(name)s %(message)s")
logging.getLogger("sparkinesis").setLevel(logging.DEBUG)
"""


LOG4J = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
logger.spark.name = org.apache.spark
logger.spark.level = info
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def main(endpoint: str, sts: str, external_id: str, folder: str) -> None:
    import boto3  # noqa: PLC0415

    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    Path(folder, "events").mkdir()
    Path(folder, "log4j2.properties").write_text(LOG4J)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", Path(folder, "events").as_uri())
        .config(
            "spark.driver.extraJavaOptions",
            f"-Djava.io.tmpdir={folder} "
            f"-Dlog4j2.configurationFile={Path(folder, 'log4j2.properties').as_uri()}",
        )
        # Spark shows the options in plans, and does not know that this one is not to be.
        .config("spark.sql.redaction.options.regex", "(?i)url|externalid")
        .getOrCreate()
    )
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

    def start(stream: str, session: str) -> StreamingQuery:
        writer = (
            read(stream, session)
            .writeStream.format("noop")
            .option("checkpointLocation", f"{folder}/checkpoint-{session}")
        )
        return start_patiently(writer.start)

    read("long", "plan").explain(extended=True)
    for name in ("long", "short"):
        query = start(name, name)
        # More than a plan carries: the tasks fetch them.
        for data in (b"1" * 40_000, b"2" * 40_000):
            entries = [{"Data": data, "PartitionKey": str(n)} for n in range(20)]
            kinesis.put_records(StreamName=name, Records=entries)
            query.processAllAvailable()
        query.explain(extended=True)
        print(query.lastProgress, flush=True)
        query.stop()

    wrong = {"missing": "none", "refused": "long", "refused-to-executors": "long"}
    failing = {session: start(stream, session) for session, stream in wrong.items()}
    for session, query in failing.items():
        try:
            query.awaitTermination()
        except PySparkException as error:
            print(f"\nFAILED {session}: {error}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

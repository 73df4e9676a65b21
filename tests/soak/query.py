"""A Spark driver in a process of its own: ``... tests.soak.query ENDPOINT FOLDER KIND``.

KIND is ``killed``, a query whose sink is Spark's for files, to be killed and started again; or
``steady``, one that reads by enhanced fan-out and writes each batch once by its number, beside a
fleet of record processors in the same session. SIGTERM ends either gracefully.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import sparkinesis
from examples.flights.query import write_once
from sparkinesis import FleetOptions
from sparkinesis.local.java import use_java
from tests.engine import MODES
from tests.soak.setting import FLEET_WORKERS, REGION, STREAM
from tests.soak.worker import application

HEAP = "512m"
TRIGGER = "2 seconds"
JAVA_OPTIONS = (
    # The whole heap from the start: what grows then is not of the collector's choosing.
    f"-Xms{HEAP} -XX:+AlwaysPreTouch -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
)


def start_spark(cores: int, scratch: str) -> SparkSession:
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("soak")
        .config("spark.driver.memory", HEAP)
        .config("spark.driver.extraJavaOptions", f"{JAVA_OPTIONS} -Djava.io.tmpdir={scratch}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # By its log of what was written a reader tells batches apart.
        .config("spark.sql.streaming.fileSink.log.deletion", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    sparkinesis.register(spark)
    return spark


def read(spark: SparkSession, endpoint: str, mode: str) -> DataFrame:
    """A row for each user record: where it was stored, its key and its number."""
    return (
        spark.readStream.format("kinesis")
        .option("streamName", STREAM)
        .option("region", REGION)
        .option("endpoint", endpoint)
        .option("initialPosition", "trim_horizon")
        .options(**MODES[mode])
        .load()
        .selectExpr(
            "shardId AS shard",
            "sequenceNumber AS sequence",
            "subSequenceNumber AS sub",
            "split_part(string(data), ':', 1) AS key",
            "int(split_part(string(data), ':', 2)) AS number",
        )
    )


def main(endpoint: str, folder: str, kind: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    output = Path(folder, kind)
    output.mkdir(exist_ok=True)
    steady = kind == "steady"
    spark = start_spark(2 + FLEET_WORKERS if steady else 2, os.environ["TMPDIR"])
    writer = read(spark, endpoint, "efo" if steady else "polling").writeStream
    if steady:
        writer = writer.foreachBatch(lambda batch, number: write_once(batch, number, output))
    else:
        writer = writer.format("parquet").option("path", str(output))
    query = (
        writer.option("checkpointLocation", str(Path(folder, f"{kind}-checkpoint")))
        .trigger(processingTime=TRIGGER)
        .start()
    )
    fleet = None
    if steady:
        soaked = application(endpoint, str(Path(folder, "processed")))
        fleet = soaked.run(spark, workers=FLEET_WORKERS, fleet=FleetOptions(first_backoff=0.5))
    while not stopping.is_set():
        query.awaitTermination(1)  # raises the error of a query that failed
        if fleet is not None:
            fleet.await_termination(0)
    graceful = fleet is None or fleet.shutdown()
    query.stop()
    spark.stop()
    sys.exit(0 if graceful else "The fleet did not end gracefully.")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A Spark driver with a query and a fleet, both watched: ``... tests.prometheus.spark ENDPOINT
FOLDER``.

Prints two ports that Prometheus scrapes: the query's and the fleet's. SIGTERM ends both gracefully.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import prometheus_client
from pyspark.sql import DataFrame, SparkSession

import sparkinesis
from sparkinesis import Application, FleetOptions, WorkerOptions
from sparkinesis.local.java import use_java
from sparkinesis.metrics import PrometheusMetrics
from tests import pace
from tests.prometheus.journal import Writer
from tests.prometheus.processor import Processor
from tests.prometheus.setting import (
    FLEET,
    FLEET_APPLICATION,
    FLEET_WORKERS,
    QUERY,
    REGION,
    SPARK_STREAM,
)

CORES = FLEET_WORKERS + 1
MOST_FAILURES = 8
"""Of a task, before Spark gives up the job: a worker of the fleet is killed."""


def start_spark() -> SparkSession:
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{CORES},{MOST_FAILURES}]")
        .appName("watched")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    sparkinesis.register(spark)
    return spark


def main(endpoint: str, folder: Path) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    spark = start_spark()
    server, _ = prometheus_client.start_http_server(0, "127.0.0.1")
    watch = sparkinesis.watch(spark, exporters=(PrometheusMetrics(),))
    journal = Writer(folder / f"{QUERY}.jsonl")

    def count(batch: DataFrame, _: int) -> None:
        rows = batch.selectExpr("string(data) AS data").collect()
        numbers = [int(row.data) for row in rows]
        size = sum(len(row.data) for row in rows)
        journal.write({"numbers": numbers, "bytes": size, "behind": 0.0})

    query = (
        spark.readStream.format("kinesis")
        .option("streamName", SPARK_STREAM)
        .option("region", REGION)
        .option("endpoint", endpoint)
        .option("initialPosition", "trim_horizon")
        .load()
        .writeStream.foreachBatch(count)
        .queryName(QUERY)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    fleet = Application(
        FLEET_APPLICATION,
        SPARK_STREAM,
        functools.partial(Processor, folder / FLEET),
        region=REGION,
        endpoint=endpoint,
        initial_position="trim_horizon",
        options=WorkerOptions(
            http="127.0.0.1:0",
            retrieval="efo",
            failover_time=pace.seconds(3),
            handoff_timeout=pace.seconds(3),
            parent_poll_interval=0.5,
        ),
    ).run(spark, workers=FLEET_WORKERS, fleet=FleetOptions(first_backoff=0.5))
    assert fleet.http_url is not None
    print(server.server_port, urlsplit(fleet.http_url).port, flush=True)
    while not stopping.is_set():
        query.awaitTermination(1)  # raises the error of a query that failed
        fleet.await_termination(0)
    is_graceful = fleet.shutdown()
    query.stop()
    watch.stop()
    spark.stop()
    sys.exit(0 if is_graceful else "The fleet did not end gracefully.")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

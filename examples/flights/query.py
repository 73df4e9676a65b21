"""The query: reads the stream, and keeps a board of it. A process of its own, to be killed.

    python -m examples.flights.query --endpoint http://127.0.0.1:4566 --folder /tmp/flights

With a stream on AWS nothing changes but the options: no endpoint, and a role or profile of yours.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import sparkinesis
from examples.flights.board import board_writer, fleets
from sparkinesis.local import use_java

EVENT = (
    "id STRING, kind STRING, tail STRING, carrier STRING, flight INT, origin STRING, dest STRING, "
    "at TIMESTAMP, delay INT"
)


def read_events(spark: SparkSession, endpoint: str, stream: str, region: str) -> DataFrame:
    """The stream as rows of events. Aggregated records come unpacked."""
    records = (
        spark.readStream.format("kinesis")
        .option("streamName", stream)
        .option("region", region)
        .option("endpoint", endpoint)
        .option("initialPosition", "trim_horizon")
        .load()
    )
    event = F.from_json(F.col("data").cast("string"), EVENT)
    return records.select(event.alias("event")).select("event.*")


def write_once(batch: DataFrame, batch_id: int, folder: Path) -> None:
    """Write a batch so that it is there whole and once, or not at all.

    A batch that was under way when the query was killed is run again, and with the same rows: what
    a batch reads depends on nothing but its two offsets. So one that is there can be left alone.
    """
    done = folder / f"batch_id={batch_id}"
    if not done.exists():
        unfinished = folder / f".unfinished-{batch_id}"
        batch.write.mode("overwrite").parquet(str(unfinished))
        unfinished.rename(done)


def start_spark(master: str = "local[2]") -> SparkSession:
    use_java()  # the one that came with pip, where the machine has none
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master(master)
        .appName("flights")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    sparkinesis.register(spark)
    return spark


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--stream", default="flights")
    parser.add_argument("--region", default="eu-west-1")
    parser.add_argument("--folder", type=Path, required=True, help="of checkpoints and results")
    parser.add_argument("--master", default="local[2]", help="of the cluster to run on")
    parser.add_argument("--silence", default="30 days", help="evict aircraft silent for so long")
    args = parser.parse_args()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    results = args.folder / "events"
    results.mkdir(parents=True, exist_ok=True)
    checkpoints = args.folder / "checkpoints"
    spark = start_spark(args.master)

    flights = (
        read_events(spark, args.endpoint, args.stream, args.region)
        .writeStream.foreachBatch(lambda batch, number: write_once(batch, number, results))
        .option("checkpointLocation", str(checkpoints / "flights"))
        .start()
    )
    # The board follows what the other query writes. Starting both at once would delay the first.
    while flights.lastProgress is None and not stopping.is_set():
        flights.awaitTermination(1)
    events = spark.readStream.schema(EVENT).option("recursiveFileLookup", "true")
    board = (
        fleets(events.parquet(str(results)), args.silence)
        .writeStream.foreachBatch(board_writer(args.folder / "board.json"))
        .outputMode("update")
        .option("checkpointLocation", str(checkpoints / "board"))
        .trigger(processingTime="1 second")
        .start()
    )

    while not stopping.is_set():
        spark.streams.awaitAnyTermination(1)  # raises the error of a query that failed
    for query in (flights, board):
        query.processAllAvailable()
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()

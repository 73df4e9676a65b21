"""A windowed count of two streams in limited batches, in a process of its own to be killed.

The windows are written as Parquet files in the folder ``counts``, and the rows that each batch has
dropped as late as lines of ``dropped``. The query ends when it has read everything.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.listener import StreamingQueryListener

from examples.flights.query import start_patiently
from tests.spark.reading import killable_session, read_stream, rows_dropped

TIME = "approximateArrivalTimestamp"
WINDOW = "1 minute"


def windows(rows: DataFrame) -> DataFrame:
    """The number of records of each stream and minute."""
    counts = rows.groupBy("stream", F.window(TIME, WINDOW)).count()
    return counts.select("stream", F.col("window.start").alias("minute"), "count")


class Listener(StreamingQueryListener):
    """Notes the rows that are dropped as late."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        dropped = rows_dropped([progress])
        with self._path.open("a") as file:
            file.write(f"{progress.batchId} {progress.numInputRows} {dropped}\n")


def main(endpoint: str, streams: str, output: str, limit: str) -> None:
    folder = Path(output)
    spark = killable_session("local[4]", output)  # tasks wait more for calls than for a core
    spark.streams.addListener(Listener(folder / "dropped"))
    rows = read_stream(
        spark,
        endpoint,
        streams,
        maxRecordsPerTrigger=limit,
        shardCallsPerSecond="unlimited",
        minFetchPeriod="0ms",
    )
    writer = (
        windows(rows.withWatermark(TIME, "10 seconds"))
        .writeStream.format("parquet")
        .option("path", str(folder / "counts"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .outputMode("append")
        .trigger(availableNow=True)
    )
    start_patiently(writer.start).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Queries whose sinks are idempotent by batch id, in a process of their own to be killed.

For each batch a query writes ``started-N`` before it reads and ``batch-N.json``, at once and whole,
after. A batch that is replayed is compared with what the first try wrote: ``differs-N`` says that
it was not the same.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from examples.flights.query import start_patiently
from tests.engine import MODES
from tests.spark.reading import killable_session, read_stream


def main(endpoint: str, output: str, *queries: str) -> None:
    """Run a query for each ``stream:mode``; its files are in the folder ``output/stream``."""
    spark = killable_session("local[2]", output)
    running = []
    for query in queries:
        stream, _, mode = query.partition(":")
        folder = Path(output) / stream
        # One after the other: Spark gives a planner's process ten seconds to start.
        running.append(
            start_patiently(functools.partial(start, spark, endpoint, stream, mode, folder))
        )
    spark.streams.resetTerminated()  # a start that was repeated has ended, too
    if all(query.isActive for query in running):
        spark.streams.awaitAnyTermination()


def start(spark: SparkSession, endpoint: str, stream: str, mode: str, folder: Path) -> Any:
    def write(batch: DataFrame, batch_id: int) -> None:
        (folder / f"started-{batch_id}").touch()
        columns = ("shardId", "sequenceNumber", "subSequenceNumber", "data")
        rows = [
            [row.shardId, row.sequenceNumber, row.subSequenceNumber, bytes(row.data).decode()]
            for row in batch.select(*columns).collect()
        ]
        done = folder / f"batch-{batch_id}.json"
        if done.exists():
            if json.loads(done.read_text()) != rows:
                (folder / f"differs-{batch_id}").touch()
            return
        new = folder / f"new-{batch_id}"
        new.write_text(json.dumps(rows))
        new.rename(done)

    return (
        read_stream(spark, endpoint, stream, minFetchPeriod="100ms", **MODES[mode])
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

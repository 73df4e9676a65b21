"""The demo's query as an application for a cluster; its rows tell where they were made.

To be submitted with the source and the examples as ``--py-files``; it is part of neither.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import sparkinesis
from examples.flights.processes import REGION
from examples.flights.query import read_events, start_spark, write_once

ORIGIN = "package STRING, executor STRING, partition INT, attempt INT"
"""Where the task found the source, the folder of its executor, and which try of the task it is."""
HOLD_SECONDS = 60.0


def main(master: str, endpoint: str, stream: str, output: str, held: str = "") -> None:
    """Read on and on. ``hold``: the first task waits until a second try has done its work."""
    spark = start_spark(master)
    sparkinesis.register(spark)  # it is shipped, and not installed where Spark would find it
    folder = Path(output)
    first_batch = folder / "batch_id=0"

    @F.udf(ORIGIN)
    def origin(_: str) -> tuple[str, str, int, int]:
        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.attemptNumber()
        if held == "hold" and partition == attempt == 0:
            deadline = time.monotonic() + HOLD_SECONDS
            while not first_batch.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        package = Path(sparkinesis.__file__).resolve()  # the executor's folder is the present one
        return str(package), str(Path.cwd()), partition, attempt

    def write(batch: DataFrame, batch_id: int) -> None:
        rows = batch.select("id", origin.asNondeterministic()("id").alias("origin"))
        write_once(rows.select("id", "origin.*"), batch_id, folder)

    query = (
        read_events(spark, endpoint, stream, REGION)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

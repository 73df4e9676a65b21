"""The demo's query as an application for a cluster; its rows tell where they were made.

To be submitted with the source and the examples as ``--py-files``; it is part of neither.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import sparkinesis
from examples.flights.processes import REGION
from examples.flights.query import read_events, start_spark, write_once

ORIGIN = "package STRING, executor STRING, partition INT, attempt INT"
"""Where the task found the source, the folder of its executor, and which try of the task it is."""


def main(master: str, endpoint: str, stream: str, output: str) -> None:
    spark = start_spark(master)
    sparkinesis.register(spark)  # it is shipped, and not installed where Spark would find it
    folder = Path(output)

    @F.udf(ORIGIN)
    def origin(_: str) -> tuple[str, str, int, int]:
        context = TaskContext.get()
        assert context is not None
        package = Path(sparkinesis.__file__).resolve()  # the executor's folder is the present one
        return str(package), str(Path.cwd()), context.partitionId(), context.attemptNumber()

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

"""A query in a process and a JVM of its own; tells of itself in lines of JSON.

python -m benchmarks.peers.spark.query TASK
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.peers.spark.processes import Cpu, Meter
from benchmarks.proc_stat import cpu_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL = 0.05
PARENT = os.getppid()


@dataclass(frozen=True)
class Task:
    data_source: str
    """The format of the source that reads."""
    session: dict[str, str]
    options: dict[str, str]
    rows: int = 0
    """Into nothing until so many rows have come; 0: each batch goes to foreachBatch, until the
    process is killed."""
    warm: dict[str, str] = field(default_factory=dict)
    """The options of a query that reads `warm_rows` before, so that the JVM is warm."""
    warm_rows: int = 0
    is_counted: bool = False
    """Whether foreachBatch also counts the batch, before it collects the rows."""
    columns: Sequence[str] = ()
    """What the query into nothing selects; (): all that the source has."""
    server: int = 0
    """The server's process, whose CPU seconds are told of, too."""
    patience: float = 300.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def session(task: Task) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    if task.data_source == "kinesis":
        from sparkinesis.local.java import use_java  # noqa: PLC0415

        use_java()
    spark = (
        SparkSession.builder.master("local[2]")
        .config(map={**task.session})
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


@dataclass(frozen=True)
class Read:
    """What a query has read, and when; CPU seconds until then."""

    batches: list[tuple[int, int]]
    """Rows and milliseconds."""
    at: float
    spent: Cpu
    server: float


def read_rows(
    spark: SparkSession, task: Task, options: dict[str, str], rows: int, meter: Meter
) -> Read:
    """Run a query into nothing until that many rows have come."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        rows_read = spark.readStream.format(task.data_source).options(**options).load()
        query = (
            (rows_read.select(*task.columns) if task.columns else rows_read)
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .start()
        )
        until = time.monotonic() + task.patience
        try:
            while True:
                found = batches(query)
                if sum(count for count, _ in found) >= rows:
                    break
                raise_failure(query)
                end_with_parent()
                if time.monotonic() > until:
                    raise TimeoutError(f"{found} of {rows} rows within {task.patience} s")
                time.sleep(POLL)
            return Read(found, time.monotonic(), meter.now(), cpu_of(task.server))
        finally:
            query.stop()


def batches(query: StreamingQuery) -> list[tuple[int, int]]:
    return [
        (each.numInputRows, each.durationMs["triggerExecution"])
        for each in query.recentProgress
        if each.numInputRows
    ]


def raise_failure(query: StreamingQuery) -> None:
    failure = query.exception()
    if failure is not None:
        raise RuntimeError(str(failure)[:2000])


def end_with_parent() -> None:
    """End this process, and so its JVM, if the parent has ended without killing them."""
    if os.getppid() != PARENT:
        os._exit(1)


def read_into_nothing(spark: SparkSession, task: Task) -> None:
    with Meter(os.getpid()) as meter:
        if task.warm_rows:
            read_rows(spark, task, task.warm, task.warm_rows, meter)
        before, server_before = meter.now(), cpu_of(task.server)
        start = time.monotonic()
        read = read_rows(spark, task, task.options, task.rows, meter)
    spent = read.spent - before
    tell(
        rows=sum(rows for rows, _ in read.batches),
        batches=len(read.batches),
        seconds=read.at - start,
        batch_seconds=sum(ms for _, ms in read.batches) / 1000,
        jvm=spent.jvm,
        python=spent.python,
        server=read.server - server_before,
    )


def read_to_python(spark: SparkSession, task: Task) -> None:
    """Tell of each batch, as long as the query runs."""

    def on_batch(batch: DataFrame, number: int) -> None:
        counted = batch.count() if task.is_counted else None
        data = [bytes(row.data).decode() for row in batch.select("data").collect()]
        tell(batch=number, counted=counted, data=data, at=time.monotonic())

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        tell(starting=time.monotonic())
        query = (
            spark.readStream.format(task.data_source)
            .options(**task.options)
            .load()
            .writeStream.foreachBatch(on_batch)
            .option("checkpointLocation", checkpoint)
            .start()
        )
        while query.isActive:  # until the parent kills this process
            end_with_parent()
            time.sleep(POLL * 4)
        raise_failure(query)


def main(task: Task) -> None:
    try:
        spark = session(task)
        if task.rows:
            read_into_nothing(spark, task)
        else:
            read_to_python(spark, task)
    except Exception as error:  # noqa: BLE001 - the parent says it
        tell(failed=f"{type(error).__name__}: {error}"[:3000])
    finally:
        sys.stdout.flush()
        os._exit(0)  # the parent kills the JVM, which has nothing to save


if __name__ == "__main__":
    main(Task(**json.loads(sys.argv[1])))

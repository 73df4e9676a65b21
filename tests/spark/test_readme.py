"""The Python programs of the README run as they stand, against a local Kinesis.

The addresses of the local Kinesis are those that the README tells its readers to export. Two things
are replaced: the port, so that tests may run side by side, and the folder for files.
"""

# ruff: noqa: F811 - fixtures

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkinesis.local import LocalServer
from tests.documents import README, blocks
from tests.spark.printed import Run, exports, kinesis, run, server  # noqa: F401 - fixtures
from tests.streams import put, shard_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAMS = [block for block in blocks(README) if block.language == "python"]
READ, PROCESS, TRY = PROGRAMS


def keys(kinesis: Any) -> list[str]:
    """The partition keys of all records in the stream."""
    found = []
    for shard in shard_ids(kinesis, "flights"):
        iterator = kinesis.get_shard_iterator(
            StreamName="flights", ShardId=shard, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        page = kinesis.get_records(ShardIterator=iterator)
        found += [record["PartitionKey"] for record in page["Records"]]
    return sorted(found)


def test_a_query_reads_a_stream(
    run: Run, kinesis: Any, spark: SparkSession, tmp_path: Path
) -> None:
    put(kinesis, "flights", [b"first", b"second"])
    run(READ.text)
    rows = spark.read.parquet(str(tmp_path / "flights")).collect()
    assert sorted((row.partitionKey, row.event) for row in rows) == [
        ("first", "first"),
        ("second", "second"),
    ]
    assert (tmp_path / "checkpoint" / "commits").is_dir()


def test_an_application_prints_records(kinesis: Any, server: LocalServer) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-u", "-c", PROCESS.text],
        env={**os.environ, **exports(server.endpoint_url)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stdout is not None
        while not select.select([worker.stdout], [], [], 0.5)[0]:
            put(kinesis, "flights", [b"first"])  # it begins with records that come after its start
        assert "('first', b'first')" in worker.stdout.readline()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.communicate()
        server.client("dynamodb", "eu-west-1").delete_table(TableName="flights-app")


def test_a_thousand_records_are_put_and_read_back(
    run: Run, kinesis: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    run(TRY.text)
    assert len(keys(kinesis)) == 1000
    assert "only showing top 20 rows" in capfd.readouterr().out

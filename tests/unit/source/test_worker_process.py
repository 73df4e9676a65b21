"""A Python worker of Spark that runs many tasks, and what its garbage collections walk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from sparkinesis.errors import SparkinesisError
from sparkinesis.local import LocalServer
from sparkinesis.source.batch.shard_reads import BatchPartition
from sparkinesis.source.datasource import KinesisDataSource, ShardPartition
from sparkinesis.stream.position import SHARD_END, TRIM_HORIZON, ShardRange
from tests.streams import put

QUERY = """
import gc, json, sys
from sparkinesis.source.planning.probing import records_in_hand
from sparkinesis.source.reading.kept_memory import keep_freed_memory
from tests.engine import Query

records_in_hand.KEPT_BYTES = -1  # so that tasks fetch their records

query = Query(streamName="s", endpoint=sys.argv[1], region="us-east-1",
              initialPosition="trim_horizon", maxRecordsPerTrigger="2")
exempt = []
assert not keep_freed_memory.cache_info().currsize
while query.next_batch():
    exempt.append(gc.get_freeze_count())
assert keep_freed_memory.cache_info().currsize, "a read task keeps its process's memory"
print(json.dumps([query.rows_read, *exempt]))
"""

BATCH_READS = """
import gc, json, sys
from pyspark.sql.types import StructType
from sparkinesis.source.datasource import KinesisDataSource

source = KinesisDataSource({"streamName": "s", "endpoint": sys.argv[1], "region": "us-east-1"})
exempt, rows = [], 0
for _ in range(3):
    reader = source.reader(StructType())
    for partition in reader.partitions():
        rows += sum(batch.num_rows for batch in reader.read(partition))
        exempt.append(gc.get_freeze_count())
print(json.dumps([rows, *exempt]))
"""

WRITES = """
import gc, json, sys
from tests.sink import write

exempt = []
for _ in range(3):
    write(sys.argv[1], [[("key", None, b"data")]])
    exempt.append(gc.get_freeze_count())
print(json.dumps([len(exempt), *exempt]))
"""

OTHER_MODULES = """
import gc, json
from sparkinesis.public import __version__
from sparkinesis.source.worker_process import begin_task

exempt = []
for task in range(5):
    begin_task(__version__)
    exempt.append(gc.get_freeze_count())
    if task == 2:
        import decimal, xml.dom.minidom
print(json.dumps(exempt))
"""


def exempt_after(program: str) -> tuple[int, list[int]]:
    """Return the number of rows, and the objects that are exempt after each task."""
    with LocalServer(port=0, limits=False) as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName="s", ShardCount=1)
        put(kinesis, "s", [b"%d" % number for number in range(6)])
        rows, *exempt = run(program, server.endpoint_url)
    return rows, exempt


def run(program: str, *arguments: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: list[int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("program", "expected"),
    [(QUERY, 6), (BATCH_READS, 18), (WRITES, 3)],
    ids=["query", "read", "write"],
)
def test_collections_spare_what_the_first_task_has_loaded(program: str, expected: int) -> None:
    rows, (first, second, *later) = exempt_after(program)
    assert rows == expected
    assert first == 0, "the first task still loads"
    assert second > 50_000, "botocore, pyarrow and pyspark"
    assert later
    assert all(count <= second for count in later), "garbage of later tasks is collected"


def test_modules_that_a_later_task_loads_are_spared_from_the_next_task_on() -> None:
    first, second, third, fourth, fifth = run(OTHER_MODULES)
    assert first == 0
    assert 0 < third <= second, "no module was loaded since"
    assert fourth > third, "a third task has loaded more"
    assert fifth <= fourth


def of_another_version(reading_or_writing: Any) -> Any:
    return replace(reading_or_writing, version="9.9")


def test_each_task_checks_the_version_of_the_driver() -> None:
    source = KinesisDataSource({"streamName": "flights", "region": "us-east-1"})
    batch = source.reader(StructType())
    batch._options = replace(batch._options, reading=of_another_version(batch._options.reading))
    stream = source.streamReader(StructType())
    stream._options = replace(stream._options, reading=of_another_version(stream._options.reading))
    writer = source.writer(StructType([StructField("data", BinaryType())]), overwrite=False)
    writer._options = of_another_version(writer._options)
    one = BatchPartition("flights", ShardRange("shardId-000000000000", TRIM_HORIZON, SHARD_END))
    for task in (
        lambda: next(batch.read(one)),
        lambda: next(stream.read(ShardPartition("flights", [], None))),
        lambda: writer.write(iter([])),
    ):
        with pytest.raises(SparkinesisError, match=r"driver has sparkinesis 9.9, .* executor has"):
            task()

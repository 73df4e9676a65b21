"""A query begins once its planner has planned, in a process that imports no more than it needs."""

from __future__ import annotations

import subprocess
import sys

from sparkinesis.local import LocalServer

PLAN = """
import sys
from pyspark.sql.streaming import python_streaming_source_runner
from pyspark.sql.types import StructType
from sparkinesis.source.datasource import KinesisDataSource

options = {"streamName": "s", "region": "us-east-1", "endpoint": sys.argv[1]}
source = KinesisDataSource(
    {**options, "initialPosition": "trim_horizon", "maxRecordsPerTrigger": "9"}
)
reader = source.streamReader(StructType())
before = set(sys.modules)
end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
assert len(reader.partitions(reader.initialOffset(), end)) == 1
unneeded = {"pandas", "pyarrow.compute", "google.protobuf", "boto3"}
unneeded |= {"sparkinesis.worker", "sparkinesis.lease", "sparkinesis.events"}
print(*sorted(({"botocore"} | unneeded) & (set(sys.modules) - before)))
"""


def test_a_first_plan_imports_neither_pandas_nor_arrows_functions() -> None:
    with LocalServer() as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName="s", ShardCount=1)
        kinesis.get_waiter("stream_exists").wait(StreamName="s")
        kinesis.put_record(StreamName="s", Data=b"1", PartitionKey="k")
        done = subprocess.run(
            [sys.executable, "-c", PLAN, server.endpoint_url],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["botocore"]

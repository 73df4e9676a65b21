"""A query begins once its planner has planned, in a process that imports no more than it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
unneeded = {"botocore.session", "botocore.client", "urllib3", "http.server"}
unneeded |= {"pandas", "pyarrow.compute", "google.protobuf", "boto3"}
unneeded |= {"sparkinesis.worker", "sparkinesis.lease", "sparkinesis.events"}
print(*sorted(({"botocore"} | unneeded) & (set(sys.modules) - before)))
"""


def test_a_first_plan_imports_neither_pandas_nor_arrows_functions(tmp_path: Path) -> None:
    of_others = ("AWS_", "BOTO", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
    usual = {
        name: value for name, value in os.environ.items() if not name.upper().startswith(of_others)
    }
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    with LocalServer() as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName="s", ShardCount=1)
        kinesis.get_waiter("stream_exists").wait(StreamName="s")
        kinesis.put_record(StreamName="s", Data=b"1", PartitionKey="k")
        done = subprocess.run(
            [sys.executable, "-c", PLAN, server.endpoint_url],
            env={**usual, **keys, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["botocore"]

"""A read task in a Python worker of Spark, which runs many tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from sparkinesis.local import LocalServer
from tests.streams import put

TASKS = """
import gc, json, sys
from tests.engine import Query

query = Query(streamName="s", endpoint=sys.argv[1], region="us-east-1",
              initialPosition="trim_horizon", maxRecordsPerTrigger="2")
exempt = []
while query.next_batch():
    exempt.append(gc.get_freeze_count())
print(json.dumps([query.rows_read, *exempt]))
"""


def test_collections_spare_what_the_first_task_has_loaded() -> None:
    with LocalServer(port=0, limits=False) as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName="s", ShardCount=1)
        put(kinesis, "s", [b"%d" % number for number in range(6)])
        done = subprocess.run(
            [sys.executable, "-c", TASKS, server.endpoint_url],
            env={**os.environ, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    rows, first, second, *later = json.loads(done.stdout)
    assert rows == 6
    assert first == 0, "the first task still loads"
    assert second > 50_000, "botocore, pyarrow and pyspark"
    assert all(count <= second for count in later), "garbage of later tasks is collected"

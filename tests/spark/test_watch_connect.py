"""Queries of a client of Spark Connect are watched as others are."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from sparkinesis.local import LocalServer
from sparkinesis.local.java import use_java
from tests import pace
from tests.spark.query_process import FREE_PORT
from tests.streams import put

DRIVER = "tests.spark.watch_driver"


def test_a_query_by_spark_connect_is_watched(stream_name: str, checkpoint: str) -> None:
    use_java()
    with LocalServer(port=0) as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName=stream_name, ShardCount=2)
        put(kinesis, stream_name, [b"%02d" % n for n in range(50)])
        ran = subprocess.run(
            [sys.executable, "-m", DRIVER, server.endpoint_url, stream_name, checkpoint],
            env={
                **os.environ,
                **FREE_PORT,
                "SPARK_REMOTE": "local[2]",
                "PYSPARK_PYTHON": sys.executable,
            },
            capture_output=True,
            text=True,
            timeout=pace.seconds(120),
            check=False,
        )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["module"].startswith("pyspark.sql.connect")
    assert found["lag"] == {stream_name: 0}
    told = found["told"]
    assert told[f"query.rows {stream_name}"] == 50
    assert told[f"query.bytes {stream_name}"] == 100
    assert told["query.running"] == 1
    assert told["query.batch.duration"] >= 1
    assert sum(name.startswith(f"query.lag {stream_name} shardId-") for name in told) == 2

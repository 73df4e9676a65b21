"""A fleet whose driver is a client of Spark Connect."""

from __future__ import annotations

import json
from pathlib import Path

from sparkinesis.local import LocalServer
from sparkinesis.local.java import use_java
from tests import pace
from tests.spark.fleet_run import processed, start_connect_fleet
from tests.streams import put


def test_a_fleet_by_spark_connect(stream_name: str, tmp_path: Path) -> None:
    use_java()
    with LocalServer(port=0, dynamodb=True) as server:
        kinesis = server.client("kinesis", region="eu-west-1")
        kinesis.create_stream(StreamName=stream_name, ShardCount=4)
        ids = [f"record-{n}" for n in range(100)]
        put(kinesis, stream_name, [json.dumps({"id": id_}).encode() for id_ in ids])
        with start_connect_fleet(
            server.endpoint_url, stream_name, tmp_path, workers=2, failover_time=pace.seconds(3.0)
        ) as run:
            run.wait(lambda: len(run.running()) == 2, every=0.2)
            run.wait(lambda: run.all_owned_by(run.running()), every=0.2)
            run.wait(lambda: sorted(processed(tmp_path)) == sorted(ids))
            run.ask("scale 1")
            run.wait(lambda: len(run.running()) == 1 and run.all_owned_by(run.running()))
            end = run.ask("shutdown")
            assert set(run.owners().values()) == {None}
    assert end["graceful"]
    assert end["ended"]
    assert end["records"] == len(ids)

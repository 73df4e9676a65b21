"""Dynamic allocation on a cluster of real processes: executors come and go with the records."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer
from tests import pace
from tests.spark.cluster import Cluster, read_batches, row_count
from tests.spark.fleet_run import LOST_AFTER, FleetRun, processed
from tests.streams import put

DRIVER = Path(__file__).with_name("autoscaling_driver.py")
REGION = "eu-west-1"
MOST = 3
"""Executors of one core that Spark may have."""
SETTINGS = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": str(MOST),
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
    "spark.decommission.enabled": "true",
    "spark.executor.cores": "1",
    "spark.cores.max": str(MOST),
    "spark.scheduler.minRegisteredResourcesRatio": "0",
}
KEYS = 7


class Records:
    """What is put, with a number for each key."""

    def __init__(self, kinesis: Any, stream: str) -> None:
        self._kinesis = kinesis
        self._stream = stream
        self.ids: list[str] = []

    def put(self, count: int) -> None:
        start = len(self.ids) // KEYS
        for key in range(KEYS):
            ids = [f"{key}-{start + n}" for n in range(count // KEYS)]
            data = [json.dumps({"id": id_}).encode() for id_ in ids]
            put(self._kinesis, self._stream, data, key=str(key))
            self.ids += ids


def order_by_key(ids: list[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for id_ in ids:
        key, _, number = id_.partition("-")
        found[key].append(int(number))
    return found


@pytest.mark.long
def test_executors_come_and_go_under_a_query_and_stay_under_a_fleet(
    cluster: Cluster, py_files: list[Path], stream_name: str, tmp_path: Path
) -> None:
    before = set(cluster.work.glob("*/app-*/*"))
    log, rows = tmp_path / "driver.log", tmp_path / "rows"
    for name in ("commands", "results.jsonl"):
        (tmp_path / name).touch()

    def started() -> set[Path]:
        """A folder for each executor that there ever was."""
        return set(cluster.work.glob("*/app-*/*")) - before

    with LocalServer(port=0, dynamodb=True) as server:
        kinesis = server.client("kinesis", region=REGION)
        kinesis.create_stream(StreamName=stream_name, ShardCount=4)
        records = Records(kinesis, stream_name)
        times = map(str, (pace.seconds(5.0), LOST_AFTER))
        with cluster.submit(
            [server.endpoint_url, stream_name, str(tmp_path), *times],
            py_files=py_files,
            settings=SETTINGS,
            log=log,
            application=DRIVER,
        ) as process:
            table = LeaseTable(stream_name, REGION, server.endpoint_url, retry=pace.retry())
            run = FleetRun(process, log, tmp_path, table)

            # A query alone: it has executors while it has records.
            counts = []
            for _ in range(2):
                records.put(70)
                run.wait(lambda: row_count(rows) == len(records.ids))
                run.wait(lambda: not cluster.executors())
                counts.append(len(started()))

            # A fleet beside it: workers keep their executors, without a record, too.
            run.ask("fleet 2")
            run.wait(lambda: len(run.running()) == 2)
            run.wait(lambda: run.all_owned_by(run.running()))
            run.wait(lambda: len(processed(tmp_path)) == len(records.ids))
            run.wait(lambda: len(cluster.executors()) == 2)
            workers, of_workers = run.running(), set(cluster.executors())
            records.put(70)
            run.wait(lambda: row_count(rows) == len(records.ids))
            run.wait(lambda: len(cluster.executors()) == 2)
            assert set(cluster.executors()) == of_workers
            assert run.running() == workers

            # A fleet that takes all executors leaves none to the query.
            run.ask("scale 5")
            run.wait(lambda: len(run.running()) == MOST and run.all_owned_by(run.running()))
            assert run.ask("status")["waiting"] == 2
            done = row_count(rows)
            records.put(70)
            run.wait(lambda: len(processed(tmp_path)) == len(records.ids))
            starved = run.ask("status")
            assert row_count(rows) == done
            assert starved["is_query_active"]
            run.ask("scale 2")
            run.wait(lambda: row_count(rows) == len(records.ids))
            run.wait(lambda: len(run.running()) == 2 and run.all_owned_by(run.running()))
            run.wait(lambda: len(cluster.executors()) == 2)

            end = run.ask("shutdown")
            run.wait(lambda: not cluster.executors())
            owners = run.owners()
    in_rows = pa.concat_tables(read_batches(rows).values())["id"].to_pylist()
    first_seen = list(dict.fromkeys(processed(tmp_path)))
    print(
        f"{len(records.ids)} records; executors by then: {counts}, in all {len(started())}; "
        f"processed again: {len(processed(tmp_path)) - len(first_seen)}"
    )
    assert counts[0] > 0
    assert counts[1] > counts[0]
    assert sorted(in_rows) == sorted(records.ids), "each row once"
    assert sorted(first_seen) == sorted(records.ids), "none is lost"
    assert order_by_key(first_seen) == order_by_key(records.ids)
    assert end["graceful"], end["notes"]
    assert set(owners.values()) == {None}
    assert not [note for note in end["notes"] if "Lost" in note]

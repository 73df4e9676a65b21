"""On a cluster of real processes: the source is shipped with the query; an executor is killed."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from examples.flights.events import load_flights, to_events, to_json
from examples.flights.processes import REGION
from examples.flights.producer import Producer
from sparkinesis.local import LocalServer
from sparkinesis.local.faults import Call, Fault
from tests.spark.cluster import HOSTS, Cluster, read_batches, row_count
from tests.spark.query_process import wait_until
from tests.streams import merge_neighbours, split

FLIGHTS = 1_200
EVENTS_PER_SECOND = 600
HOLD_MS = 3_000


def test_a_killed_executor_loses_and_doubles_nothing(
    cluster: Cluster, py_files: list[Path], server: LocalServer, stream_name: str, tmp_path: Path
) -> None:
    kinesis = server.client("kinesis", region=REGION)
    kinesis.create_stream(StreamName=stream_name, ShardCount=2)
    events = to_events(load_flights(FLIGHTS))
    ids = events["id"].to_pylist()
    # More than a plan carries: the tasks fetch them.
    padded = [event[:-1] + b', "padding": "%s"}' % (b"x" * 1_000) for event in to_json(events)]
    keyed = list(zip(events["tail"].to_pylist(), padded, strict=True))
    producer = Producer(kinesis, stream_name, keyed, EVENTS_PER_SECOND)
    output, log = tmp_path / "events", tmp_path / "query.log"
    output.mkdir()
    arguments = [cluster.master, server.endpoint_url, stream_name, str(output)]
    held_since: list[int] = []

    def hold(call: Call) -> Fault | None:
        if held_since and call.operation == "GetRecords":
            return Fault.delay(HOLD_MS)
        return None

    server.kinesis.faults = hold
    interrupted: list[int] = []

    def both_executors_wait() -> bool:
        """Whether tasks on both wait for records of the batch that is under way."""
        with suppress(StopIteration, FileNotFoundError):
            unfinished = next(output.glob(".unfinished-*"))
            begun = unfinished.stat().st_ctime_ns // 1_000_000
            since = max(begun, *held_since, server.kinesis.clock() - HOLD_MS // 3)
            waiting = server.kinesis.calls.select("GetRecords", since_ms=since)
            # One task reads one shard, and an executor with one core runs one task at a time.
            if len({call.shard for call in waiting}) > 1:
                interrupted.append(int(unfinished.name.rpartition("-")[2]))
        return bool(interrupted)

    producer.start()
    producer.allow(len(keyed) // 4)
    with cluster.submit(arguments, py_files=py_files, settings={}, log=log) as query:
        wait_until(lambda: row_count(output), query, log, every=0.2)
        producer.allow(len(keyed))
        split(kinesis, stream_name)
        wait_until(lambda: producer.sent > len(keyed) // 3, query, log, every=0.2)
        held_since.append(server.kinesis.clock())
        wait_until(both_executors_wait, query, log)
        executors = cluster.executors()
        os.kill(executors[min(executors)], signal.SIGKILL)
        held_since.clear()
        assert interrupted[0] not in read_batches(output)
        merge_neighbours(kinesis, stream_name)
        wait_until(lambda: producer.sent == len(keyed), query, log, every=0.2)
        wait_until(lambda: row_count(output) >= len(ids), query, log, every=0.2)
    batches = read_batches(output)
    rows = pa.concat_tables(batches.values())
    assert sorted(rows["id"].to_pylist()) == sorted(ids)
    assert max(batches[interrupted[0]]["attempt"].to_pylist()) > 0, "no task was run again"
    ran_in = {Path(folder) for folder in rows["executor"].to_pylist()}
    assert {folder.parent.parent for folder in ran_in} == {cluster.work / host for host in HOSTS}
    for row in rows.group_by(["package", "executor"]).aggregate([]).to_pylist():
        shipped = Path(row["executor"], "sparkinesis.zip")
        assert Path(row["package"]).parent == shipped / "sparkinesis"

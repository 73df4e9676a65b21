"""Speculation: Spark runs a copy of a slow task beside it, and takes the rows of one of the two."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from examples.flights.events import load_flights, to_events, to_json
from examples.flights.processes import REGION
from sparkinesis.local import LocalServer
from tests.spark.cluster import Cluster, read_batches
from tests.spark.query_process import wait_until
from tests.streams import put, split

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "100ms",
}


@pytest.mark.long
def test_a_speculative_copy_of_a_task_gives_its_rows_once(
    cluster: Cluster, py_files: list[Path], server: LocalServer, stream_name: str, tmp_path: Path
) -> None:
    """The first try of the first task cannot end before its batch is written without it."""
    kinesis = server.client("kinesis", region=REGION)
    kinesis.create_stream(StreamName=stream_name, ShardCount=3)
    events = to_events(load_flights(1_000))
    datas = to_json(events)
    put(kinesis, stream_name, datas[:1_000])
    split(kinesis, stream_name)
    put(kinesis, stream_name, datas[1_000:])
    output, log = tmp_path / "events", tmp_path / "query.log"
    output.mkdir()
    arguments = [cluster.master, server.endpoint_url, stream_name, str(output), "hold"]
    with cluster.submit(arguments, py_files=py_files, settings=SPECULATION, log=log) as query:
        wait_until(
            lambda: sum(b.num_rows for b in read_batches(output).values()) >= len(datas), query, log
        )
    batches = read_batches(output)
    attempts = set(
        zip(batches[0]["partition"].to_pylist(), batches[0]["attempt"].to_pylist(), strict=True)
    )
    assert attempts == {(0, 1), (1, 0), (2, 0)}, "the rows of the first task are the copy's"
    delivered = Counter(i for batch in batches.values() for i in batch["id"].to_pylist())
    assert delivered == Counter(events["id"].to_pylist())

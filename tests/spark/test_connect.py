"""Clients of a Spark Connect server, which alone has sparkinesis: queries, fleets and a watch.

Either side is killed.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq
import pytest

import sparkinesis
from sparkinesis import Application, FleetError, FleetOptions
from sparkinesis.local import LocalServer
from sparkinesis.metrics.catalogue import (
    QUERY_BATCH_DURATION,
    QUERY_BYTES,
    QUERY_LAG,
    QUERY_ROWS,
    QUERY_RUNNING,
)
from tests import pace
from tests.documents import ROOT, blocks
from tests.producers import SERVICES
from tests.spark.cluster import python_with_dependencies
from tests.spark.connect_server import ConnectServer, connect_server
from tests.spark.fleet_run import processed, start_connect_fleet
from tests.spark.glue import glue_registry
from tests.spark.printed import exports
from tests.spark.query_process import group_process, kill, wait_until
from tests.spark.test_payloads import GLUE, GLUE_SHOWN, put_glue_records
from tests.streams import merge_neighbours, put, records_of, shard_ids, split
from tests.tallies import Tallied, counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

REGION = "eu-west-1"
READ, SQL = (b.text for b in blocks(ROOT / "docs" / "connect.md") if b.language == "python")
CLIENT = Path(__file__).with_name("connect_client.py")
LONG_FAILOVER_TIME = 20.0
"""Where leases are released, not left to expire."""


@pytest.fixture(scope="module")
def kinesis_server() -> Iterator[LocalServer]:
    with LocalServer(port=0, dynamodb=True, limits=None) as running:
        yield running


@pytest.fixture(scope="module")
def start(
    kinesis_server: LocalServer, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., AbstractContextManager[ConnectServer]]:
    """Starts a server whose environment has the local Kinesis: no client names it."""
    folder = tmp_path_factory.mktemp("connect")

    environment = {"AWS_ENDPOINT_URL": kinesis_server.endpoint_url}
    return functools.partial(connect_server, folder, environment)


@pytest.fixture(scope="module")
def server(start: Callable[..., AbstractContextManager[ConnectServer]]) -> Iterator[ConnectServer]:
    with start() as running:
        yield running


@pytest.fixture
def kinesis(kinesis_server: LocalServer) -> Any:
    return kinesis_server.client("kinesis", REGION)


@pytest.fixture(scope="module")
def client_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python without sparkinesis, for the programs that users write."""
    return python_with_dependencies(tmp_path_factory.mktemp("client") / "python")


def events(count: int, start: int = 0) -> list[str]:
    return [f"event {n}" for n in range(start, start + count)]


def encoded(texts: list[str]) -> list[bytes]:
    return [text.encode() for text in texts]


def written(folder: Path) -> list[str]:
    """The rows of the files that a query's parquet sink has committed, sorted."""
    files = {
        unquote(urlsplit(json.loads(line)["path"]).path)
        for log in (folder / "_spark_metadata").glob("[0-9]*")
        for line in log.read_text().splitlines()[1:]
    }
    return sorted(row for file in files for row in pq.ParquetFile(file).read()["event"].to_pylist())


def run_printed(program: str, python: Path, server: ConnectServer, folder: Path) -> str:
    """Run a program of the page; its server and its folder are replaced. Returns its output."""
    assert "sc://127.0.0.1:15002" in program
    text = program.replace("sc://127.0.0.1:15002", server.remote).replace("/tmp/", f"{folder}/")
    done = subprocess.run(
        [str(python), "-c", text],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=pace.seconds(180),
        check=False,
    )
    assert done.returncode == 0, done.stderr.partition("JVM stacktrace")[0][-3000:]
    return done.stdout


def start_query(session: SparkSession, stream: str, folder: Path, rows: str) -> StreamingQuery:
    """Start a query that writes the events of a stream into a folder of this name."""
    return (
        session.readStream.format("kinesis")
        .options(streamName=stream, region=REGION, initialPosition="trim_horizon")
        .load()
        .selectExpr("CAST(data AS STRING) AS event")
        .writeStream.format("parquet")
        .option("path", str(folder / rows))
        .option("checkpointLocation", str(folder / f"checkpoint-of-{rows}"))
        .start()
    )


@pytest.fixture
def tallied() -> Tallied:
    return Tallied()


def test_the_client_has_no_sparkinesis(client_python: Path, tmp_path: Path) -> None:
    asked = "import importlib.util as u; print(u.find_spec('sparkinesis'), u.find_spec('boto3'))"
    command = [str(client_python), "-c", asked]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert answer.stdout.startswith("None ModuleSpec(name='boto3'")


def test_two_runs_of_the_printed_program_read_each_record_once(
    server: ConnectServer, client_python: Path, kinesis: Any, tmp_path: Path
) -> None:
    """The stream is resharded between them."""
    kinesis.create_stream(StreamName="flights", ShardCount=2)
    put(kinesis, "flights", encoded(events(100)))
    assert run_printed(READ, client_python, server, tmp_path).split() == ["100"]
    split(kinesis, "flights")
    put(kinesis, "flights", encoded(events(50, start=100)))
    merge_neighbours(kinesis, "flights", index=1)
    put(kinesis, "flights", encoded(events(50, start=150)))
    assert run_printed(READ, client_python, server, tmp_path).split() == ["200"]
    assert written(tmp_path / "flights") == sorted(events(200))
    kinesis.delete_stream(StreamName="flights")


def test_the_printed_sql_fills_and_reads_a_table(
    server: ConnectServer, client_python: Path, kinesis: Any, tmp_path: Path
) -> None:
    for name in ("flights", "copies"):
        kinesis.create_stream(StreamName=name, ShardCount=2)
    shown = run_printed(SQL, client_python, server, tmp_path)
    assert "only showing top 20 rows" in shown
    assert "|event " in shown
    for name in ("flights", "copies"):
        found = [
            (record["PartitionKey"], record["Data"].decode())
            for shard in shard_ids(kinesis, name)
            for record in records_of(kinesis, name, shard)
        ]
        assert sorted(found) == sorted((f"plane {n}", f"event {n}") for n in range(100))
        kinesis.delete_stream(StreamName=name)


def test_sessions_of_one_server_do_not_disturb_each_other(
    server: ConnectServer, kinesis: Any, tmp_path: Path
) -> None:
    """Each has a query. One session ends, and so does its query; the other one goes on."""
    kinesis.create_stream(StreamName="shared", ShardCount=2)
    queries = []
    with server.session() as first, server.session() as second:
        for number, session in enumerate((first, second)):
            queries.append(start_query(session, "shared", tmp_path, f"rows-{number}"))
        put(kinesis, "shared", encoded(events(20)))
        pace.eventually(lambda: all(len(written(tmp_path / f"rows-{n}")) == 20 for n in (0, 1)))
        run = queries[0].runId
        first.stop()
        stopped = re.compile(rf"Query .*runId = {run}\] was stopped")
        pace.eventually(lambda: stopped.search(server.log.read_text()))
        put(kinesis, "shared", encoded(events(20, start=20)))
        pace.eventually(lambda: len(written(tmp_path / "rows-1")) == 40)
        assert sparkinesis.lag(queries[1])["shared"].max_ms is not None
        are_active = [queries[1].isActive]
        queries[1].stop()
        are_active.append(queries[1].isActive)
        assert are_active == [True, False]
    assert written(tmp_path / "rows-0") == sorted(events(20))
    assert written(tmp_path / "rows-1") == sorted(events(40))


def test_a_query_of_a_session_is_watched(
    server: ConnectServer, kinesis: Any, tmp_path: Path, tallied: Tallied
) -> None:
    kinesis.create_stream(StreamName="watched", ShardCount=2)
    put(kinesis, "watched", encoded(events(50)))
    size = sum(map(len, events(50)))
    with server.session() as session, sparkinesis.watch(session, exporters=(tallied,)):
        query = start_query(session, "watched", tmp_path, "rows")
        rows = functools.partial(counted, tallied.tally, QUERY_ROWS)
        pace.eventually(lambda: rows() == {("watched",): 50})
        assert counted(tallied.tally, QUERY_BYTES) == {("watched",): size}
        assert counted(tallied.tally, QUERY_RUNNING) == {(): 1}
        assert sum(counted(tallied.tally, QUERY_BATCH_DURATION).values()) >= 1
        assert len(counted(tallied.tally, QUERY_LAG)) == 2
        query.stop()
        pace.eventually(lambda: counted(tallied.tally, QUERY_RUNNING) == {(): 0})
    kinesis.delete_stream(StreamName="watched")


def run_on(server: ConnectServer, program: str, **environment: str) -> str:
    """Run a program of docs/payloads.md as a client of the server; return its output."""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "SPARK_REMOTE": server.remote, **environment},
        capture_output=True,
        text=True,
        timeout=pace.seconds(180),
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout.strip()


def test_a_session_has_the_parts_of_records_of_the_glue_schema_registry(
    server: ConnectServer, kinesis_server: LocalServer, kinesis: Any
) -> None:
    kinesis.create_stream(StreamName="flights", ShardCount=1)
    is_remote = "\nassert type(spark).__module__.startswith('pyspark.sql.connect')"
    ours = exports(kinesis_server.endpoint_url)
    with glue_registry() as (client, endpoint):
        put_glue_records(kinesis, client)
        ours["AWS_ENDPOINT_URL_GLUE"] = endpoint
        assert run_on(server, GLUE.text + is_remote, **ours) == GLUE_SHOWN.strip()
    kinesis.delete_stream(StreamName="flights")


def test_changes_of_dynamodb(
    kinesis_server: LocalServer, kinesis: Any, server: ConnectServer
) -> None:
    """The function of the program has the server parse the item's types."""
    service = SERVICES["dynamodb"]
    kinesis.create_stream(StreamName="flights", ShardCount=1)
    put(kinesis, "flights", service.records + service.damaged, key="any")
    ours = exports(kinesis_server.endpoint_url)
    assert run_on(server, service.program.text, **ours) == service.shown.strip()
    kinesis.delete_stream(StreamName="flights")


def test_executors_that_cannot_reach_the_client(server: ConnectServer) -> None:
    """The client is the driver of a fleet; what is said names the options that help."""
    application = Application("far", "far", print, region=REGION, endpoint="http://127.0.0.1:1")
    # The workers are told an address on which nobody listens.
    options = FleetOptions(
        host="127.0.0.9", bind="127.0.0.1", heartbeat_interval=0.5, lost_after=1.0
    )
    with server.session() as session, pytest.raises(FleetError) as caught:
        application.run(session, workers=1, fleet=options).await_termination(pace.seconds(60))
    assert "cannot connect to its driver: The driver cannot be reached at 127.0.0.9:" in str(
        caught.value
    )
    assert "set host, bind and port of FleetOptions" in str(caught.value)


def test_workers_of_a_killed_client_release_their_leases_to_the_next(
    server: ConnectServer,
    kinesis_server: LocalServer,
    kinesis: Any,
    stream_name: str,
    tmp_path: Path,
) -> None:
    """Their executor lives on, so that no signal tells them: they miss the client's heartbeat."""
    kinesis.create_stream(StreamName=stream_name, ShardCount=4)
    put(kinesis, stream_name, [json.dumps({"id": id_}).encode() for id_ in events(50)])
    start_client = functools.partial(
        start_connect_fleet,
        kinesis_server.endpoint_url,
        stream_name,
        tmp_path,
        workers=2,
        failover_time=LONG_FAILOVER_TIME,
        remote=server.remote,
    )
    with start_client() as run:
        run.wait(lambda: len(run.running()) == 2 and run.all_owned_by(run.running()))
        run.wait(lambda: len(processed(tmp_path)) == 50)
        run.kill_driver()
        killed = time.monotonic()
        pace.eventually(lambda: set(run.owners().values()) == {None})
        print(f"released after {time.monotonic() - killed:.1f} s")
    more = events(50, start=50)
    put(kinesis, stream_name, [json.dumps({"id": id_}).encode() for id_ in more])
    with start_client() as run:
        run.wait(lambda: len(processed(tmp_path)) >= 100)
        run.ask("scale 1")
        run.wait(lambda: len(run.running()) == 1 and run.all_owned_by(run.running()))
        end = run.ask("shutdown")
        assert set(run.owners().values()) == {None}
    assert (end["graceful"], end["ended"], end["records"]) == (True, True, 50)
    assert sorted(processed(tmp_path)) == sorted(events(100))


def test_either_side_is_killed_and_each_record_comes_once(
    server: ConnectServer,
    start: Callable[..., AbstractContextManager[ConnectServer]],
    client_python: Path,
    kinesis: Any,
    tmp_path: Path,
) -> None:
    """The server is that of this file, whose last test this is."""
    kinesis.create_stream(StreamName="killed", ShardCount=2)
    rows, log = tmp_path / "rows", tmp_path / "client.log"

    def command(server: ConnectServer) -> list[str]:
        return [str(client_python), str(CLIENT), server.remote, "killed", str(tmp_path)]

    put(kinesis, "killed", encoded(events(20)))
    with group_process(command(server), log) as client:
        wait_until(lambda: len(written(rows)) == 20, client, log, every=0.2)
        kill(client)
        put(kinesis, "killed", encoded(events(20, start=20)))
        pace.eventually(lambda: len(written(rows)) == 40)  # by the query of a dead client
    with group_process(command(server), log) as client:
        # Spark stops the dead client's run, because both have one checkpoint.
        wait_until(lambda: log.read_text().count("started") == 2, client, log, every=0.2)
        put(kinesis, "killed", encoded(events(20, start=40)))
        wait_until(lambda: len(written(rows)) == 60, client, log, every=0.2)
        put(kinesis, "killed", encoded(events(20, start=60)))
        server.kill()
    split(kinesis, "killed")
    put(kinesis, "killed", encoded(events(20, start=80)))
    with start() as another, group_process(command(another), log) as client:
        wait_until(lambda: len(written(rows)) >= 100, client, log, every=0.2)
        put(kinesis, "killed", encoded(events(20, start=100)))
        wait_until(lambda: len(written(rows)) >= 120, client, log, every=0.2)
    started = [line.split() for line in log.read_text().splitlines() if line.startswith("started")]
    assert len({query for _, query, _ in started}) == 1
    assert len({run for _, _, run in started}) == 3
    assert written(rows) == sorted(events(120))

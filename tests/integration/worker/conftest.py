"""Applications on a local Kinesis and DynamoDB, with short intervals."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from sparkinesis.application import Application
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import Fault, Limits, LocalServer, system_clock
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.worker.lifecycle.streams import several_streams
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.options import WorkerOptions
from tests import command, pace
from tests.command import Command, place_of
from tests.failing import Failing
from tests.integration.worker.process_session import Program
from tests.integration.worker.scene import Scene, three_streams
from tests.journal import Journal, Journaling
from tests.pace import eventually
from tests.streams import arn_of
from tests.tallies import Tallied

FAILOVER_TIME = pace.seconds(2.0)
"""A worker that stands still for that long loses its leases, as it should."""

_OF_A_WORKER = re.compile(r"s-.*-(renew|take|shards|consume|streams|(fetch|process)-.*)")
"""The names of the threads of a worker whose application has the name of the test's stream."""

AT_ONCE = Limits(
    subscribe_interval_ms=0,
    account_calls={**Limits().account_calls, "CreateStream": 1_000},
)
"""A subscription may follow another one at once, and streams are made at once, where a test is not
about how long that takes."""


MINUTE = 60


class RunningClock:
    """The system's clock, and what it was moved on by."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def __call__(self) -> int:
        return system_clock() + self._ahead_ms

    def seconds(self) -> float:
        return self() / 1000

    def advance(self, seconds: float) -> None:
        self._ahead_ms += round(seconds * 1000)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module with RETRIEVALS has its tests that start workers run with each of them.

    But for those that name their own.
    """
    names = getattr(metafunc.module, "RETRIEVALS", ())
    own = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if names and {"start", "retrieval"} <= set(metafunc.fixturenames) and "retrieval" not in own:
        metafunc.parametrize("retrieval", names)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture(autouse=True)
def ended_workers() -> Iterator[None]:
    """Fails a test that leaves a worker behind: it would disturb what the process tests next."""
    yield
    eventually(lambda: not any(_OF_A_WORKER.fullmatch(one.name) for one in threading.enumerate()))


@pytest.fixture(scope="session")
def server() -> Iterator[LocalServer]:
    """Its lease tables are its own: a call takes a fifth of moto's time, and none a start."""
    with LocalServer(lease_tables=LeaseTables(), limits=AT_ONCE) as running:
        yield running


@pytest.fixture(scope="session")
def moto() -> Iterator[LocalServer]:
    """In place of `server` where a test looks at what DynamoDB knows beside the rows."""
    with LocalServer(dynamodb=True, limits=AT_ONCE) as running:
        yield running


@pytest.fixture(scope="module")
def clock() -> RunningClock:
    return RunningClock()


@pytest.fixture(scope="module")
def clocked_server(clock: RunningClock) -> Iterator[LocalServer]:
    """A server of a module's own, whose clock its tests move on."""
    with LocalServer(lease_tables=LeaseTables(), clock=clock, limits=AT_ONCE) as running:
        yield running


@pytest.fixture
def kinesis(server: LocalServer) -> Any:
    return server.client("kinesis")


@pytest.fixture
def dynamodb(server: LocalServer) -> Any:
    return server.client("dynamodb")


@pytest.fixture
def stream(kinesis: Any) -> str:
    """A stream of two shards; its name is the application's too."""
    name = f"s-{uuid.uuid4().hex[:8]}"
    kinesis.create_stream(StreamName=name, ShardCount=2)
    return name


@pytest.fixture
def streams(kinesis: Any) -> list[str]:
    """Three streams of one shard each, whose ids are the same; in alphabetical order."""
    return three_streams(kinesis)


@pytest.fixture
def call(server: LocalServer, stream: str) -> Command:
    """Runs a command in this process on the application, which has its stream's name."""
    return lambda name, *options, app=stream: command.call(name, app, *options, *place_of(server))


@pytest.fixture
def run(server: LocalServer, stream: str) -> Command:
    """As `call`, but in a process of its own."""
    return lambda name, *options, app=stream: command.run(name, app, *options, *place_of(server))


@pytest.fixture
def table(application: Callable[..., Application]) -> LeaseTable:
    """The lease table of an application, with a lease of each shard that nobody holds."""
    application().worker()._streams.all()[0].syncer.sync()
    return application().table()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers look at their streams and retry them often."""
    monkeypatch.setattr(several_streams, "ASK_EVERY", 0.2)
    monkeypatch.setattr(several_streams, "_RETRY", (0.2, 0.4))
    monkeypatch.setattr(several_streams, "_SOON", 0.1)


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def tallied() -> Tallied:
    """Metrics that are kept in memory."""
    return Tallied()


@pytest.fixture
def retrieval() -> str:
    return "polling"


@pytest.fixture
def application(
    server: LocalServer, kinesis: Any, stream: str, journal: Journal, retrieval: str
) -> Callable[..., Application]:
    """Makes an application on the stream; its processors write into the journal.

    Its consumer is there already: to register one takes a worker a moment.
    """
    if retrieval == "efo":
        kinesis.register_stream_consumer(StreamARN=arn_of(kinesis, stream), ConsumerName=stream)

    def make(options: dict[str, Any] | None = None, **given: Any) -> Application:
        arguments: dict[str, Any] = {
            "name": stream,
            "stream": stream,
            "processor": lambda: Journaling(journal),
            "region": "us-east-1",
            "endpoint": server.endpoint_url,
            "initial_position": "trim_horizon",
            "options": WorkerOptions(
                **{
                    "failover_time": FAILOVER_TIME,
                    "idle_time": 0.25,
                    "retrieval": retrieval,
                    **(options or {}),
                }
            ),
        }
        return Application(**{**arguments, **given})

    return make


@pytest.fixture
def subscription_clock() -> Callable[[], float]:
    return time.monotonic


@pytest.fixture
def start(subscription_clock: Callable[[], float]) -> Iterator[Callable[[Application], Worker]]:
    """Starts workers; they are shut down when the test is over."""
    workers: list[Worker] = []

    def run(application: Application) -> Worker:
        worker = application.worker(subscription_clock=subscription_clock)
        workers.append(worker)
        return worker.start()

    yield run
    for worker in workers:
        worker.shutdown(0 if worker.wait(0) else 10)


@pytest.fixture
def scene(
    server: LocalServer,
    kinesis: Any,
    stream: str,
    *,
    journal: Journal,
    application: Callable[..., Application],
    start: Callable[[Application], Worker],
    caplog: pytest.LogCaptureFixture,
) -> Iterator[Scene]:
    """The server's faults are those of before when the test is over."""
    before = server.kinesis.faults
    yield Scene(server, kinesis, stream, journal, application, start, caplog)
    server.kinesis.faults = before


@pytest.fixture
def s3() -> Iterator[str]:
    """The address of an S3 with a bucket "lake"."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client("s3", region_name="us-east-1", endpoint_url=endpoint)
    client.create_bucket(Bucket="lake")
    yield endpoint
    client.close()
    server.stop()


def refuse(server: LocalServer, stream: str, operation: str, fault: Fault) -> None:
    """Have the server answer an operation on a stream by a fault."""
    server.kinesis.faults = Failing(operation, then=fault, stream=stream)


@pytest.fixture
def program(server: LocalServer, stream: str, tmp_path: Path) -> Iterator[Program]:
    """A program on a stream of two shards, which is not started yet."""
    made = Program(server.endpoint_url, stream, tmp_path, (str(FAILOVER_TIME),))
    yield made
    for pid in made.left():
        os.kill(pid, signal.SIGKILL)
    if made.supervisor is not None:
        made.supervisor.wait()

"""Workers, commands, queries and writes need the permissions of `deploy.iam`, and no other."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from deploy.iam import POLICIES, WITHOUT_CALL
from sparkinesis import FanOutOptions, LeaseTableOptions
from sparkinesis.application import Application
from sparkinesis.errors import ConsumerLimitError
from sparkinesis.lease.table import requests
from sparkinesis.local import LocalServer
from sparkinesis.local.lease_tables import LeaseTables
from tests.command import call, place_of
from tests.deploy.calls import Used, only
from tests.engine import MODES, query_of
from tests.integration.worker.scene import Scene, checkpoint
from tests.integration.worker.test_exporter_command import Running as Exporting
from tests.integration.worker.test_exporter_command import export  # noqa: F401 - a fixture
from tests.journal import Journal, Journaling
from tests.kcl import create_table, put_lease
from tests.pace import eventually
from tests.properties.test_batch_read import Batch
from tests.sink import write
from tests.streams import arn_of, create_when_permitted, put, split

Make = Callable[..., Application]

ALLOWED = {policy.name: policy.actions - set(WITHOUT_CALL) for policy in POLICIES}
CREATE = LeaseTableOptions(point_in_time_recovery=True, tags=(("team", "flights"),))


@pytest.fixture(scope="module")
def server(moto: LocalServer) -> LocalServer:
    return moto


@pytest.mark.parametrize("retrieval", ["polling", "efo"])
def test_workers_use_their_permissions(scene: Scene, retrieval: str) -> None:
    used = Used(scene.server)
    options: dict[str, Any] = {"table": CREATE}
    name = "worker"
    if retrieval == "efo":
        name = "worker-fan-out"
        options["fan_out"] = FanOutOptions(consumer_name="permitted", deregister=True)
    made = scene.application(options)
    kinesis, stream = scene.server.client("kinesis"), made.name
    put(kinesis, stream, [b"a", b"b"])
    with used.watching():
        worker = made.worker().start()
        scene.journal.wait_for_data(b"a", b"b")
    split(kinesis, stream)
    put(kinesis, stream, [b"c", b"d"])
    with used.watching():
        scene.journal.wait_for_data(b"a", b"b", b"c", b"d")
        worker.shutdown(30)
        table = made.table()
        lease = table.write(requests.evict(table.leases()[0]))  # as `release` of an operator does
        table.get(lease.key)  # as after a refusal that leaves out the row
        assert table.delete(lease)  # as the cleanup of a finished shard does
    allowed = ALLOWED[name] | ALLOWED["create-table"]
    if retrieval == "efo":
        # For a stream that takes no more consumers (the queries' test has one), for
        # `fall_back_to_polling`, and for servers that do not say where a shard ends.
        rare = {"ListStreamConsumers", "GetRecords", "GetShardIterator"}
        allowed -= {f"kinesis:{operation}" for operation in rare}
    assert used.actions == allowed


def run(server: LocalServer, command: str, app: str, *options: str) -> str:
    """Run a command on the application's stream, and return its output."""
    ran = call(command, app, "--stream", app, *options, *place_of(server))
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture
def ran(application: Make, journal: Journal, kinesis: Any) -> str:
    """The name of an application that has run on its stream."""
    made = application(processor=lambda: Journaling(journal, checkpoint))
    put(kinesis, made.name, [b"a", b"b"])
    worker = made.worker().start()
    journal.wait_for_data(b"a", b"b")
    assert worker.shutdown(30)
    return made.name


def test_commands_that_look_need_what_monitor_allows(
    server: LocalServer,
    ran: str,
    export: Callable[..., Exporting],  # noqa: F811 - the fixture
) -> None:
    used = Used(server)
    with only(server, ALLOWED["monitor"]), used.watching():
        assert "shardId-000000000001" in run(server, "leases", ran)
        run(server, "top", ran, "--once")
        exporting = export()
        eventually(lambda: len(exporting.values("shard_lag_seconds")) == 2)
    assert used.actions == ALLOWED["monitor"] - {"kinesis:ListShards"}  # for the map of `ui`


def test_commands_that_move_need_what_operator_allows(server: LocalServer, ran: str) -> None:
    with only(server, ALLOWED["operator"]):
        run(server, "reset", ran, "--to", "latest", "--yes")
        run(server, "convert-leases", ran, "--to", "several", "--yes")


def test_a_replay_needs_what_replay_allows(scene: Scene, application: Make) -> None:
    made = application()
    put(scene.kinesis, made.name, [b"a", b"b"])
    used = Used(scene.server)
    with only(scene.server, ALLOWED["replay"]), used.watching():
        assert made.replay("trim_horizon").records == 2
    assert used.actions <= ALLOWED["replay"]
    assert {"dynamodb:CreateTable", "dynamodb:DeleteTable"} <= used.actions


@pytest.mark.parametrize("policy", ["worker", "worker-fan-out"])
def test_a_doctor_with_the_role_of_a_worker_finds_no_problem(
    server: LocalServer, ran: str, policy: str
) -> None:
    options = ["--efo"] if policy == "worker-fan-out" else []
    with only(server, ALLOWED[policy]):
        found = [
            json.loads(line) for line in run(server, "doctor", ran, "--json", *options).splitlines()
        ]
    assert {one["state"] for one in found} <= {"ok", "note"}


def test_workers_of_many_streams_use_their_permissions(scene: Scene) -> None:
    kinesis = scene.server.client("kinesis")
    names = [f"permitted-{n}-{uuid.uuid4().hex[:6]}" for n in range(10)]
    for name in names:
        create_when_permitted(kinesis, name)
        put(kinesis, name, [name.encode()])
    used = Used(scene.server)
    worker = scene.application(stream=None, streams=names).worker()
    with used.watching():
        worker.start()
        scene.journal.wait_for_data(*(name.encode() for name in names))
        worker.shutdown(30)
    assert "kinesis:ListStreams" in used.actions
    assert used.actions <= ALLOWED["worker-several-streams"] | ALLOWED["create-table"]


@pytest.fixture
def unlimited() -> Iterator[LocalServer]:
    """A server without limits, which has the stream ``s``: queries and writes call it often."""
    with LocalServer(lease_tables=LeaseTables(), limits=False) as running:
        running.client("kinesis").create_stream(StreamName="s", ShardCount=2)
        yield running


@pytest.mark.parametrize(
    ("mode", "name"), [("polling", "spark-read"), ("efo", "spark-read-fan-out")]
)
def test_a_query_uses_its_permissions(unlimited: LocalServer, mode: str, name: str) -> None:
    used, kinesis = Used(unlimited), unlimited.client("kinesis")
    options = {**MODES[mode], "requireConsumerDeregistration": "true"} if mode == "efo" else {}
    put(kinesis, "s", [b"%d" % n for n in range(20)])
    with used.watching():
        running = query_of(unlimited, **options)
        assert running.next_batch() is not None
    split(kinesis, "s")
    put(kinesis, "s", [b"%d" % n for n in range(20, 40)])
    with used.watching():
        running.restart()  # reads on after a pause, and through a reshard
        while running.next_batch() is not None:
            pass
        running.reader.stop()
    if mode == "efo":
        fill_with_consumers(kinesis)
        with used.watching(), pytest.raises(ConsumerLimitError):
            query_of(unlimited, **{**options, "consumerName": "one-more"}).plan()
    assert used.actions == ALLOWED[name]


def fill_with_consumers(kinesis: Any) -> None:
    arn = arn_of(kinesis, "s")
    present = kinesis.list_stream_consumers(StreamARN=arn)["Consumers"]
    for n in range(20 - len(present)):
        kinesis.register_stream_consumer(StreamARN=arn, ConsumerName=f"other-{n}")


def test_a_batch_read_uses_no_other_permission(unlimited: LocalServer) -> None:
    put(unlimited.client("kinesis"), "s", [b"a", b"b"])
    used = Used(unlimited)
    options = {"streamName": "s", "endpoint": unlimited.endpoint_url, "region": "us-east-1"}
    with used.watching():
        assert len(Batch([], {**options, "shardCallsPerSecond": "unlimited"}).rows()) == 2
    assert used.actions <= ALLOWED["spark-read"]


def test_a_write_uses_its_permissions(unlimited: LocalServer) -> None:
    used = Used(unlimited)
    with used.watching():
        write(unlimited.endpoint_url, [[("k", None, b"a")]])
    assert used.actions == {"kinesis:PutRecords"}
    with used.watching():
        write(unlimited.endpoint_url, [[("k", None, b"a")]], aggregation="true")
    assert used.actions == ALLOWED["spark-write"]


def test_a_query_from_an_application_uses_its_permissions(unlimited: LocalServer) -> None:
    kinesis, dynamodb = unlimited.client("kinesis"), unlimited.client("dynamodb")
    kinesis.create_stream(StreamName="t", ShardCount=1)
    create_table(dynamodb, "flights-app")
    put_lease(dynamodb, "flights-app", "shardId-000000000000", "TRIM_HORIZON")
    put(kinesis, "t", [b"a"])
    used = Used(unlimited)
    running = query_of(unlimited, "t", initialPosition="application:flights-app")
    with used.watching():
        while running.next_batch() is not None:
            pass
        running.restart()
        assert running.next_batch() is None
    assert running.rows_read == 1
    assert used.actions == ALLOWED["spark-read-application"]

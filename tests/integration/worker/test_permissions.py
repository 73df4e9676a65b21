"""The calls of workers and commands need the permissions in `deploy.iam`, and no other."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.iam import POLICIES, WITHOUT_CALL
from sparkinesis import FanOutOptions, LeaseTableOptions
from sparkinesis.cli.app import app as cli
from sparkinesis.local import LocalServer
from sparkinesis.worker.application import Application
from tests.deploy.calls import Used
from tests.journal import Journal
from tests.streams import create_when_permitted, put, split

Make = Callable[..., Application]

ALLOWED = {policy.name: policy.actions - set(WITHOUT_CALL) for policy in POLICIES}
CREATE = LeaseTableOptions(point_in_time_recovery=True, tags=(("team", "flights"),))


@pytest.mark.parametrize("retrieval", ["polling", "efo"])
def test_workers_and_commands_use_their_permissions(
    server: LocalServer, application: Make, journal: Journal, retrieval: str
) -> None:
    used = Used(server)
    options: dict[str, Any] = {"table": CREATE}
    name = "worker"
    if retrieval == "efo":
        name = "worker-fan-out"
        options["fan_out"] = FanOutOptions(consumer_name="permitted", deregister=True)
    made = application(options)
    kinesis, stream = server.client("kinesis"), made.name
    put(kinesis, stream, [b"a", b"b"])
    with used.watching():
        worker = made.worker().start()
        journal.wait_for_data(b"a", b"b")
    split(kinesis, stream)
    put(kinesis, stream, [b"c", b"d"])
    with used.watching():
        journal.wait_for_data(b"a", b"b", b"c", b"d")
        worker.shutdown(30)
        table = made.table()
        lease = table.evict(table.leases()[0])  # as `release` of an operator does
        table.get(lease.key)  # as after a refusal that leaves out the row
        assert table.delete(lease)  # as the cleanup of a finished shard does
    allowed = ALLOWED[name] | ALLOWED["create-table"]
    if retrieval == "efo":
        # For a stream that takes no more consumers (the queries' test has one), for
        # `fall_back_to_polling`, and for servers that do not say where a shard ends.
        rare = {"ListStreamConsumers", "GetRecords", "GetShardIterator"}
        allowed -= {f"kinesis:{operation}" for operation in rare}
    assert used.actions == allowed

    commands = Used(server)
    place = ["--region", "us-east-1", "--endpoint", server.endpoint_url]
    with commands.watching():
        for arguments in (
            ["leases", stream, "--stream", stream],
            ["top", stream, "--once", "--stream", stream],
            ["reset", stream, "--stream", stream, "--to", "latest", "--yes"],
            ["convert-leases", stream, "--stream", stream, "--to", "several", "--yes"],
        ):
            ran = CliRunner().invoke(cli, [*arguments, *place])
            assert ran.exit_code == 0, ran.output
    assert commands.actions <= ALLOWED["operator"]


def test_workers_of_many_streams_use_their_permissions(
    server: LocalServer, application: Make, journal: Journal
) -> None:
    kinesis = server.client("kinesis")
    names = [f"permitted-{n}-{uuid.uuid4().hex[:6]}" for n in range(10)]
    for name in names:
        create_when_permitted(kinesis, name)
        put(kinesis, name, [name.encode()])
    used = Used(server)
    worker = application(stream=None, streams=names).worker()
    with used.watching():
        worker.start()
        journal.wait_for_data(*(name.encode() for name in names))
        worker.shutdown(30)
    assert "kinesis:ListStreams" in used.actions
    assert used.actions <= ALLOWED["worker-several-streams"] | ALLOWED["create-table"]

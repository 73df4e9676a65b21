"""The calls of queries and writes need the permissions in `deploy.iam`, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.iam import POLICIES
from sparkinesis.errors import ConsumerLimitError
from sparkinesis.local import LocalServer, ManualClock
from tests.deploy.calls import Used
from tests.engine import query_of
from tests.kcl import create_table, put_lease
from tests.properties.conftest import World
from tests.sink import write
from tests.streams import arn_of, put, split

ALLOWED = {policy.name: policy.actions for policy in POLICIES}
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("mode", "name"), [("polling", "spark-read"), ("efo", "spark-read-fan-out")]
)
def test_a_query_uses_its_permissions(world: World, name: str) -> None:
    used = Used(world.server)
    options = {"requireConsumerDeregistration": "true"} if "fan-out" in name else {}
    put(world.kinesis, "s", [b"%d" % n for n in range(20)])
    running = world.query(**options)
    with used.watching():
        assert running.next_batch() is not None
    split(world.kinesis, "s")
    put(world.kinesis, "s", [b"%d" % n for n in range(20, 40)])
    with used.watching():
        running.restart()  # reads on after a pause, and through a reshard
        while running.next_batch() is not None:
            pass
        running.reader.stop()
    if "fan-out" in name:
        # `query` has registered the consumer: a query whose consumer is missing does it itself.
        fresh = world.query(consumerName="fresh", **options)
        with used.watching():
            assert fresh.next_batch() is not None
            fresh.reader.stop()
        fill_with_consumers(world.kinesis)
        with used.watching(), pytest.raises(ConsumerLimitError):
            world.query(consumerName="one-more").plan()
    assert used.actions == ALLOWED[name]


def fill_with_consumers(kinesis: Any) -> None:
    arn = arn_of(kinesis, "s")
    present = kinesis.list_stream_consumers(StreamARN=arn)["Consumers"]
    for n in range(20 - len(present)):
        kinesis.register_stream_consumer(StreamARN=arn, ConsumerName=f"other-{n}")


def test_a_batch_read_uses_no_other_permission(server: LocalServer, kinesis: Any) -> None:
    from tests.properties.test_batch_read import Batch  # noqa: PLC0415

    put(kinesis, "s", [b"a", b"b"])
    used = Used(server)
    options = {"streamName": "s", "endpoint": server.endpoint_url, "region": "us-east-1"}
    with used.watching():
        assert len(Batch([], {**options, "shardCallsPerSecond": "unlimited"}).rows()) == 2
    assert used.actions <= ALLOWED["spark-read"]


def test_a_write_uses_its_permissions(server: LocalServer, kinesis: Any) -> None:
    used = Used(server)
    with used.watching():
        write(server.endpoint_url, [[("k", None, b"a")]])
    assert used.actions == {"kinesis:PutRecords"}
    with used.watching():
        write(server.endpoint_url, [[("k", None, b"a")]], aggregation="true")
    assert used.actions == ALLOWED["spark-write"]


def test_a_query_from_an_application_uses_its_permissions(clock: ManualClock) -> None:
    with LocalServer(port=0, limits=False, clock=clock, dynamodb=True) as server:
        kinesis, dynamodb = server.client("kinesis"), server.client("dynamodb")
        kinesis.create_stream(StreamName="s", ShardCount=1)
        create_table(dynamodb, "flights-app")
        put_lease(dynamodb, "flights-app", "shardId-000000000000", "TRIM_HORIZON")
        put(kinesis, "s", [b"a"])
        used = Used(server)
        running = query_of(server, initialPosition="application:flights-app")
        with used.watching():
            while running.next_batch() is not None:
                pass
            running.restart()
            assert running.next_batch() is None
        assert running.rows_read == 1
        assert used.actions == ALLOWED["spark-read-application"]

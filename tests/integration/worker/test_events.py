"""``on_event`` gets each change of the lease table, of the consumer and of the set of streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis import FormerStreams
from sparkinesis.application import Application
from sparkinesis.events import (
    ConsumerDeregistered,
    FormerStreamDeleted,
    LeaseCreated,
    LeaseDeleted,
    LeasesMissing,
    ShardStarted,
    TakingFailed,
    TakingRecovered,
    TroubleBegan,
    TroubleEnded,
)
from sparkinesis.local import Fault
from sparkinesis.worker.aws_options import FanOutOptions
from sparkinesis.worker.lifecycle.worker import Worker
from tests.failing import Failing
from tests.heard import Heard
from tests.integration.worker.conftest import refuse
from tests.integration.worker.scene import FIRST, SECOND, Scene, checkpoint
from tests.journal import PATIENCE, Journal, Journaling
from tests.streams import identifier, put

Start = Callable[[Application], Worker]
Make = Callable[..., Application]

DENIED = Fault.error("AccessDeniedException", "not authorized")
LEFT, RIGHT = "shardId-000000000002", "shardId-000000000003"


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def make(application: Make, journal: Journal, heard: Heard) -> Make:
    """Makes applications that checkpoint each batch and tell ``heard``."""

    def make(options: dict[str, Any] | None = None, **given: Any) -> Application:
        return application(
            {"on_event": heard, **(options or {})},
            processor=lambda: Journaling(journal, checkpoint),
            **given,
        )

    return make


def test_leases_that_are_created_missing_and_deleted(
    scene: Scene, make: Make, dynamodb: Any, heard: Heard
) -> None:
    scene.run(make({"audit_interval": 0.2, "cleanup_interval": 0.2, "parent_poll_interval": 0.2}))
    created = heard.wait_for(LeaseCreated, 2)
    assert sorted(one.lease for one in created) == [FIRST, SECOND]
    assert {one.checkpoint for one in created} == {"TRIM_HORIZON"}
    heard.wait_for(ShardStarted, 2)  # A row that goes before is created anew by the start itself.

    dynamodb.delete_item(TableName=scene.stream, Key={"leaseKey": {"S": SECOND}})
    missing = heard.wait_for(LeasesMissing)[0]
    assert scene.stream in missing.table
    assert missing.stream is None
    assert heard.wait_for(LeaseCreated, 3)[2].shard_id == SECOND

    scene.split()
    children = heard.wait_for(LeaseCreated, 5)[3:]
    assert sorted(one.shard_id for one in children) == [LEFT, RIGHT]
    for child in (0, 2**126):
        scene.put(b"x", child)
    assert heard.wait_for(LeaseDeleted) == [LeaseDeleted(FIRST, FIRST)]


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_consumer_that_is_deregistered(
    scene: Scene, make: Make, heard: Heard, *, is_refused: bool
) -> None:
    if is_refused:
        refuse(scene.server, scene.stream, "DeregisterStreamConsumer", DENIED)
    worker = scene.run(make({"retrieval": "efo", "fan_out": FanOutOptions(deregister=True)}))
    heard.wait_for(LeaseCreated, 2)
    assert worker.shutdown(PATIENCE)
    (told,) = heard.wait_for(ConsumerDeregistered)
    assert f"stream/{scene.stream}/consumer/{scene.stream}:" in told.consumer_arn
    assert (told.error is not None) is is_refused
    assert not is_refused or "kinesis:DeregisterStreamConsumer" in told.error


def test_a_table_that_cannot_be_read_for_a_while(scene: Scene, make: Make, heard: Heard) -> None:
    scene.run(make())
    heard.wait_for(LeaseCreated, 2)
    scene.server.kinesis.faults = Failing("Scan", then=DENIED)
    (told,) = heard.wait_for(TakingFailed)[:1]
    assert "not authorized" in told.error
    scene.server.kinesis.faults = None
    (recovered,) = heard.wait_for(TakingRecovered)
    assert recovered.seconds > 0


@pytest.mark.usefixtures("often")
def test_a_stream_that_leaves_and_a_function_that_fails(
    make: Make, start: Start, kinesis: Any, streams: list[str], heard: Heard
) -> None:
    wanted = streams[:2]

    def tracker() -> list[str]:
        if not wanted:
            raise OSError("nobody answers")
        return list(wanted)

    start(make(stream=None, streams=tracker, former_streams=FormerStreams(delete_after=0)))
    heard.wait_for(LeaseCreated, 2)
    put(kinesis, streams[0], [b"1"])
    wanted.remove(streams[1])
    told = heard.wait_for(FormerStreamDeleted)[0]
    assert (told.stream, told.leases) == (streams[1], 1)
    assert told.place == identifier(kinesis, streams[1])

    wanted.clear()
    trouble = heard.wait_for(TroubleBegan)[0]
    assert trouble.error == "OSError: nobody answers"
    wanted.append(streams[0])
    assert heard.wait_for(TroubleEnded) == [TroubleEnded(trouble.what)]

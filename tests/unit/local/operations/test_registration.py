"""Registered consumers: their states and their maximum number."""

from __future__ import annotations

import pytest

from sparkinesis.local import KinesisError, LocalKinesis, ManualClock
from tests.unit.local.calls import Stream
from tests.unit.local.subscribing import Listener, register


@pytest.fixture
def slow(clock: ManualClock) -> Stream:
    """A stream whose consumers stay CREATING and DELETING for 10 seconds."""
    return Stream(LocalKinesis(clock=clock, limits=False, consumer_delay_ms=10_000), shards=1)


def status(stream: Stream, arn: str) -> str:
    described = stream.kinesis.call("DescribeStreamConsumer", ConsumerARN=arn)
    listed = stream.kinesis.call("ListStreamConsumers", StreamARN=arn.partition("/consumer/")[0])
    known: str = described["ConsumerDescription"]["ConsumerStatus"]
    assert [c["ConsumerStatus"] for c in listed["Consumers"] if c["ConsumerARN"] == arn] == [known]
    return known


def test_a_consumer_is_creating_then_active(slow: Stream, clock: ManualClock) -> None:
    app = register(slow)
    clock.advance(9999)
    assert status(slow, app) == "CREATING"
    with pytest.raises(KinesisError, match=r"ResourceInUseException.*instead in state CREATING"):
        Listener(slow.kinesis, app)
    clock.advance(1)
    assert status(slow, app) == "ACTIVE"
    assert Listener(slow.kinesis, app).event()["Records"] == []


def test_a_consumer_is_deleting_then_gone(slow: Stream, clock: ManualClock) -> None:
    app = register(slow)
    clock.advance(10_000)
    listener = Listener(slow.kinesis, app)
    slow.kinesis.call("DeregisterStreamConsumer", ConsumerARN=app)
    assert listener.failure() == "ResourceNotFoundException"
    clock.advance(9999)
    slow.kinesis.call("DeregisterStreamConsumer", ConsumerARN=app)
    assert status(slow, app) == "DELETING"
    with pytest.raises(KinesisError, match=r"ResourceInUseException.*instead in state DELETING"):
        Listener(slow.kinesis, app)
    with pytest.raises(KinesisError, match=r"ResourceInUseException.*already exists"):
        register(slow)
    clock.advance(1)
    with pytest.raises(KinesisError, match=r"ResourceNotFoundException.*Consumer app, stream s"):
        status(slow, app)
    assert register(slow) != app


def test_5_consumers_are_created_at_a_time(slow: Stream, clock: ManualClock) -> None:
    for i in range(5):
        register(slow, f"app-{i}")
    with pytest.raises(KinesisError, match=r"LimitExceededException.*5 consumers in state"):
        register(slow, "app-5")
    clock.advance(10_000)
    register(slow, "app-5")

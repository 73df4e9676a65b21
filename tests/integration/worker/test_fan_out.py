"""Enhanced fan-out: the consumer that an application's workers share, and whose shard is whose."""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.errors import AccessDeniedError, ConsumerLimitError
from sparkinesis.local import Fault, LocalServer
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.worker.aws_options import FanOutOptions
from tests.integration.worker.conftest import refuse
from tests.integration.worker.scene import FIRST, SECOND, UPPER, Gate, Scene, wait_for_look
from tests.journal import PATIENCE, Journaling
from tests.pace import eventually
from tests.streams import arn_of

Make = Callable[..., Application]


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """One that keeps all of Kinesis' limits, and refuses a subscription that comes too soon."""
    with LocalServer(lease_tables=LeaseTables()) as running:
        yield running


@pytest.fixture
def make(application: Make) -> Make:
    """Makes applications whose consumer is still to be registered."""

    def fan_out(fan_out: FanOutOptions | None = None, **given: Any) -> Application:
        options = {"retrieval": "efo", "fan_out": fan_out or FanOutOptions()}
        return application(**{**given, "options": {**options, **given.get("options", {})}})

    return fan_out


def register(scene: Scene, name: str) -> str:
    arn = arn_of(scene.kinesis, scene.stream)
    answer = scene.kinesis.register_stream_consumer(StreamARN=arn, ConsumerName=name)
    return str(answer["Consumer"]["ConsumerARN"])


def consumers(scene: Scene) -> list[str]:
    answer = scene.kinesis.list_stream_consumers(StreamARN=arn_of(scene.kinesis, scene.stream))
    return [consumer["ConsumerName"] for consumer in answer["Consumers"]]


def operations(server: LocalServer, stream: str) -> set[str]:
    return {call.operation for call in server.kinesis.calls.select(stream=stream)}


@pytest.mark.parametrize("name", [None, "my-consumer"])
def test_the_consumer_is_the_applications_or_the_one_named(
    scene: Scene, make: Make, name: str | None
) -> None:
    scene.put(b"x")
    # As its driver sends it to a worker of a fleet.
    fan_out = pickle.loads(pickle.dumps(FanOutOptions(consumer_name=name)))
    scene.run(make(fan_out))
    scene.journal.wait_for_data(b"x")
    assert consumers(scene) == [name or scene.stream]
    assert "GetRecords" not in operations(scene.server, scene.stream)


def test_a_consumer_that_is_there_is_used(scene: Scene, make: Make) -> None:
    register(scene, scene.stream)
    scene.put(b"x")
    scene.run(make())
    scene.journal.wait_for_data(b"x")
    assert scene.server.kinesis.calls.count("RegisterStreamConsumer", stream=scene.stream) == 1


def test_nothing_is_registered_or_described_for_an_arn(scene: Scene, make: Make) -> None:
    arn = register(scene, "somebody")
    before = scene.server.kinesis.calls.count(stream=scene.stream)
    scene.put(b"x")
    scene.run(make(FanOutOptions(consumer_arn=arn)))
    scene.journal.wait_for_data(b"x")
    calls = list(scene.server.kinesis.calls.select(stream=scene.stream))[before:]
    called = {call.operation for call in calls}
    assert "SubscribeToShard" in called
    assert not {name for name in called if "StreamConsumer" in name}


def test_a_shutdown_does_not_wait_for_a_consumer(
    make: Make, server: LocalServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes its time to become active: an hour, here."""
    monkeypatch.setattr(server.kinesis, "consumer_delay_ms", 3_600_000)
    worker = make().worker()
    starting = threading.Thread(target=worker.start)
    starting.start()
    eventually(lambda: server.kinesis.calls.count("RegisterStreamConsumer", stream=stream))
    assert worker.shutdown(PATIENCE)
    starting.join(PATIENCE)
    assert not starting.is_alive()
    assert worker.wait(0)
    assert {row.owner for row in make().table().leases()} == {None}


def fill(scene: Scene) -> None:
    """All the consumers that a stream may have, at a higher rate than the service allows."""
    scene.server.kinesis.limits = None
    for n in range(20):
        register(scene, f"other-{n}")
    scene.server.kinesis.limits = True


def deny_registration(scene: Scene) -> None:
    denied = Fault.error("AccessDeniedException", "not authorized to perform")
    refuse(scene.server, scene.stream, "RegisterStreamConsumer", denied)


@pytest.mark.parametrize(
    ("prevent", "error", "text"),
    [
        (fill, ConsumerLimitError, "other-19"),
        (deny_registration, AccessDeniedError, "kinesis:RegisterStreamConsumer"),
    ],
)
def test_a_consumer_that_cannot_be_registered_is_told_before_a_lease_is_taken(
    scene: Scene, make: Make, prevent: Any, error: type[Exception], text: str
) -> None:
    prevent(scene)
    with pytest.raises(error, match=text):
        scene.run(make())
    assert {row.owner for row in make().table().leases()} == {None}


@pytest.mark.parametrize("why", ["too many", "denied"])
def test_polling_takes_over_if_the_options_say_so(scene: Scene, make: Make, why: str) -> None:
    (fill if why == "too many" else deny_registration)(scene)
    scene.put(b"x")
    scene.run(make(FanOutOptions(fall_back_to_polling=True, deregister=True)))
    scene.journal.wait_for_data(b"x")
    assert "SubscribeToShard" not in operations(scene.server, scene.stream)
    (warning,) = [each for each in scene.caplog.records if "fall_back_to_polling" in each.message]
    assert warning.levelno == logging.WARNING
    assert ("other-19" if why == "too many" else "kinesis:RegisterStream") in warning.message


def test_the_last_worker_deregisters_the_consumer(scene: Scene, make: Make) -> None:
    """The first one leaves the only shard to another, who has none of its own yet."""
    stream = f"{scene.stream}-narrow"
    scene.kinesis.create_stream(StreamName=stream, ShardCount=1)
    options = FanOutOptions(deregister=True)
    narrow = replace(scene, stream=stream)
    a, b = (
        scene.run(make(options, stream=stream, name=stream, worker_id=name)) for name in ("a", "b")
    )
    wait_for_look(b, lambda: bool(b._coordinator.snapshot.leases))
    scene.journal.wait(lambda: scene.journal.calls("initialize") == [(FIRST, "initialize")])
    assert a.shutdown(PATIENCE)
    assert consumers(narrow) == [stream]
    narrow.put(b"x")
    scene.journal.wait_for_data(b"x")
    assert b.shutdown(PATIENCE)
    assert consumers(narrow) == []


@pytest.mark.parametrize("how", ["not asked for", "forced"])
def test_a_consumer_stays(scene: Scene, make: Make, how: str) -> None:
    gate = Gate()
    scene.put(b"x")
    processor = lambda: Journaling(scene.journal, on_records=gate)  # noqa: E731
    worker = scene.run(make(FanOutOptions(deregister=how == "forced"), processor=processor))
    gate.wait_for_work()
    if how == "not asked for":
        gate.go_on.set()
    assert worker.shutdown(0.2 if how == "forced" else PATIENCE) is (how != "forced")
    gate.go_on.set()
    assert consumers(scene) == [scene.stream]


def test_the_wait_for_other_workers_ends_with_the_time_for_the_shutdown(
    scene: Scene, make: Make
) -> None:
    """Two readings of the table, which the last worker waits for, are minutes apart here."""
    options = {"failover_time": 200.0}
    worker = scene.run(make(FanOutOptions(deregister=True), options=options))
    began = time.monotonic()
    assert worker.shutdown(1.0) is False
    assert time.monotonic() - began < PATIENCE
    assert consumers(scene) == [scene.stream]


def test_a_consumer_that_somebody_deregisters_is_registered_again(scene: Scene, make: Make) -> None:
    """Both shards go on where they were: nothing is lost, and nothing comes twice."""
    scene.run(make())
    for turn in range(3):
        scene.put(b"low %d" % turn)
        scene.put(b"high %d" % turn, UPPER)
        scene.journal.wait_for_data(b"low %d" % turn, b"high %d" % turn)
        if turn < 2:
            scene.kinesis.deregister_stream_consumer(
                StreamARN=arn_of(scene.kinesis, scene.stream), ConsumerName=scene.stream
            )
            scene.put(b"between %d" % turn)
    assert sorted(scene.journal.data(SECOND)) == [b"high %d" % n for n in range(3)]
    assert scene.journal.data(FIRST) == [b"low 0", b"between 0", b"low 1", b"between 1", b"low 2"]
    assert consumers(scene) == [scene.stream]


def test_a_given_consumer_that_is_gone_is_told_and_not_made_anew(scene: Scene, make: Make) -> None:
    arn = register(scene, "somebody")
    worker = scene.run(make(FanOutOptions(consumer_arn=arn)))
    scene.put(b"x")
    scene.journal.wait_for_data(b"x")
    scene.kinesis.deregister_stream_consumer(ConsumerARN=arn)
    eventually(worker.failures)
    (failure,) = worker.failures()
    assert failure.error.startswith("ConsumerNotFoundError")
    assert scene.server.kinesis.calls.count("RegisterStreamConsumer", stream=scene.stream) == 1
    assert not worker.wait(0)

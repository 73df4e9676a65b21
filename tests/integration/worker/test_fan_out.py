"""Enhanced fan-out: the consumer that an application's workers share, and whose shard is whose."""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.errors import AccessDeniedError, ConsumerLimitError
from sparkinesis.local import Fault, LocalServer
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.options import FanOutOptions
from tests.integration.worker.conftest import refuse
from tests.journal import PATIENCE, Journal, Journaling
from tests.pace import eventually
from tests.streams import put_at, shard_ids

Start = Callable[[Application], Worker]
Make = Callable[..., Application]

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
UPPER = 2**127


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """One that keeps all of Kinesis' limits, and refuses a subscription that comes too soon."""
    with LocalServer(port=0, dynamodb=True) as running:
        yield running


@pytest.fixture
def make(application: Make) -> Make:
    """Makes applications whose consumer is still to be registered."""

    def fan_out(fan_out: FanOutOptions | None = None, **given: Any) -> Application:
        options = {"retrieval": "efo", "fan_out": fan_out or FanOutOptions()}
        return application(**{**given, "options": {**options, **given.get("options", {})}})

    return fan_out


def stream_arn(kinesis: Any, stream: str) -> str:
    summary = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    return str(summary["StreamARN"])


def register(kinesis: Any, stream: str, name: str) -> str:
    answer = kinesis.register_stream_consumer(
        StreamARN=stream_arn(kinesis, stream), ConsumerName=name
    )
    return str(answer["Consumer"]["ConsumerARN"])


def consumers(kinesis: Any, stream: str) -> list[str]:
    answer = kinesis.list_stream_consumers(StreamARN=stream_arn(kinesis, stream))
    return [consumer["ConsumerName"] for consumer in answer["Consumers"]]


def operations(server: LocalServer, stream: str) -> set[str]:
    return {call.operation for call in server.kinesis.calls.select(stream=stream)}


@pytest.fixture(autouse=True)
def no_faults(server: LocalServer) -> Iterator[None]:
    yield
    server.kinesis.faults = None


@pytest.mark.parametrize("name", [None, "my-consumer"])
def test_the_consumer_is_the_applications_or_the_one_named(
    make: Make,
    start: Start,
    kinesis: Any,
    server: LocalServer,
    stream: str,
    *,
    journal: Journal,
    name: str | None,
) -> None:
    put_at(kinesis, stream, b"x")
    # As its driver sends it to a worker of a fleet.
    fan_out = pickle.loads(pickle.dumps(FanOutOptions(consumer_name=name)))
    start(make(fan_out))
    journal.wait_for_data(b"x")
    assert consumers(kinesis, stream) == [name or stream]
    assert "GetRecords" not in operations(server, stream)


def test_a_consumer_that_is_there_is_used(
    make: Make, start: Start, kinesis: Any, server: LocalServer, stream: str, *, journal: Journal
) -> None:
    register(kinesis, stream, stream)
    put_at(kinesis, stream, b"x")
    start(make())
    journal.wait_for_data(b"x")
    assert server.kinesis.calls.count("RegisterStreamConsumer", stream=stream) == 1


def test_nothing_is_registered_or_described_for_an_arn(
    make: Make, start: Start, kinesis: Any, server: LocalServer, stream: str, *, journal: Journal
) -> None:
    arn = register(kinesis, stream, "somebody")
    before = server.kinesis.calls.count(stream=stream)
    put_at(kinesis, stream, b"x")
    start(make(FanOutOptions(consumer_arn=arn)))
    journal.wait_for_data(b"x")
    called = {call.operation for call in list(server.kinesis.calls.select(stream=stream))[before:]}
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
    deadline = time.monotonic() + PATIENCE
    while not server.kinesis.calls.count("RegisterStreamConsumer", stream=stream):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert worker.shutdown(PATIENCE)
    starting.join(PATIENCE)
    assert not starting.is_alive()
    assert worker.wait(0)
    assert {row.owner for row in make().table().leases()} == {None}


def fill(server: LocalServer, stream: str) -> None:
    """All the consumers that a stream may have, at a higher rate than the service allows."""
    server.kinesis.limits = None
    for n in range(20):
        register(server.client("kinesis"), stream, f"other-{n}")
    server.kinesis.limits = True


def test_too_many_consumers_are_told_before_a_lease_is_taken(
    make: Make, start: Start, server: LocalServer, stream: str
) -> None:
    fill(server, stream)
    with pytest.raises(ConsumerLimitError, match="other-19"):
        start(make())
    assert {row.owner for row in make().table().leases()} == {None}


def test_a_registration_that_is_denied_is_told_before_a_lease_is_taken(
    make: Make, start: Start, server: LocalServer, stream: str
) -> None:
    denied = Fault.error("AccessDeniedException", "not authorized to perform")
    refuse(server, stream, "RegisterStreamConsumer", denied)
    with pytest.raises(AccessDeniedError, match="kinesis:RegisterStreamConsumer"):
        start(make())
    assert {row.owner for row in make().table().leases()} == {None}


@pytest.mark.parametrize("why", ["too many", "denied"])
def test_polling_takes_over_if_the_options_say_so(
    make: Make,
    start: Start,
    kinesis: Any,
    server: LocalServer,
    stream: str,
    *,
    journal: Journal,
    caplog: pytest.LogCaptureFixture,
    why: str,
) -> None:
    if why == "too many":
        fill(server, stream)
    else:
        denied = Fault.error("AccessDeniedException", "not authorized to perform")
        refuse(server, stream, "RegisterStreamConsumer", denied)
    put_at(kinesis, stream, b"x")
    start(make(FanOutOptions(fall_back_to_polling=True, deregister=True)))
    journal.wait_for_data(b"x")
    assert "SubscribeToShard" not in operations(server, stream)
    (warning,) = [each for each in caplog.records if "fall_back_to_polling" in each.message]
    assert warning.levelno == logging.WARNING
    assert ("other-19" if why == "too many" else "kinesis:RegisterStream") in warning.message


def test_the_last_worker_deregisters_the_consumer(
    make: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    """The first one leaves the only shard to another, who has none of its own yet."""
    stream = f"{stream}-narrow"
    kinesis.create_stream(StreamName=stream, ShardCount=1)
    options = FanOutOptions(deregister=True)
    a, b = (start(make(options, stream=stream, name=stream, worker_id=name)) for name in ("a", "b"))
    with b._state.changed:
        assert b._state.changed.wait_for(lambda: bool(b._coordinator.snapshot.leases), PATIENCE)
    journal.wait(lambda: journal.calls("initialize") == [(FIRST, "initialize")])
    assert a.shutdown(PATIENCE)
    assert consumers(kinesis, stream) == [stream]
    put_at(kinesis, stream, b"x")
    journal.wait_for_data(b"x")
    assert b.shutdown(PATIENCE)
    assert consumers(kinesis, stream) == []


@pytest.mark.parametrize("how", ["not asked for", "forced"])
def test_a_consumer_stays(
    make: Make, start: Start, kinesis: Any, stream: str, journal: Journal, *, how: str
) -> None:
    at_work, go_on = threading.Event(), threading.Event()

    def hang(batch: Any, checkpointer: Any) -> None:
        at_work.set()
        assert go_on.wait(PATIENCE)

    put_at(kinesis, stream, b"x")
    processor = lambda: Journaling(journal, on_records=hang)  # noqa: E731
    worker = start(make(FanOutOptions(deregister=how == "forced"), processor=processor))
    assert at_work.wait(PATIENCE)
    if how == "not asked for":
        go_on.set()
    assert worker.shutdown(0.2 if how == "forced" else PATIENCE) is (how != "forced")
    go_on.set()
    assert consumers(kinesis, stream) == [stream]


def test_the_wait_for_other_workers_ends_with_the_time_for_the_shutdown(
    make: Make, start: Start, kinesis: Any, stream: str
) -> None:
    """Two readings of the table, which the last worker waits for, are minutes apart here."""
    options = {"failover_time": 200.0}
    worker = start(make(FanOutOptions(deregister=True), options=options))
    began = time.monotonic()
    assert worker.shutdown(1.0) is False
    assert time.monotonic() - began < PATIENCE
    assert consumers(kinesis, stream) == [stream]


def test_a_service_that_fails_does_not_hold_up_the_end(
    make: Make, start: Start, kinesis: Any, server: LocalServer, stream: str
) -> None:
    worker = start(make(FanOutOptions(deregister=True)))
    refuse(server, stream, "DeregisterStreamConsumer", Fault.error("InternalFailure", status=500))
    assert worker.shutdown(PATIENCE)
    assert consumers(kinesis, stream) == [stream]


def test_a_consumer_that_somebody_deregisters_is_registered_again(
    make: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    """Both shards go on where they were: nothing is lost, and nothing comes twice."""
    start(make())
    for turn in range(3):
        put_at(kinesis, stream, b"low %d" % turn)
        put_at(kinesis, stream, b"high %d" % turn, UPPER)
        journal.wait_for_data(b"low %d" % turn, b"high %d" % turn)
        if turn < 2:
            kinesis.deregister_stream_consumer(
                StreamARN=stream_arn(kinesis, stream), ConsumerName=stream
            )
            put_at(kinesis, stream, b"between %d" % turn)
    assert sorted(journal.data(SECOND)) == [b"high %d" % n for n in range(3)]
    assert journal.data(FIRST) == [b"low 0", b"between 0", b"low 1", b"between 1", b"low 2"]
    assert consumers(kinesis, stream) == [stream]


def test_a_given_consumer_that_is_gone_is_told_and_not_made_anew(
    make: Make,
    start: Start,
    kinesis: Any,
    server: LocalServer,
    stream: str,
    *,
    journal: Journal,
) -> None:
    arn = register(kinesis, stream, "somebody")
    worker = start(make(FanOutOptions(consumer_arn=arn)))
    put_at(kinesis, stream, b"x")
    journal.wait_for_data(b"x")
    kinesis.deregister_stream_consumer(ConsumerARN=arn)
    deadline = time.monotonic() + PATIENCE
    while not worker.failures():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (failure,) = worker.failures()
    assert failure.error.startswith("ConsumerNotFoundError")
    assert server.kinesis.calls.count("RegisterStreamConsumer", stream=stream) == 1
    assert not worker.wait(0)


def test_shards_that_move_between_workers_lose_nothing(
    make: Make, start: Start, kinesis: Any, server: LocalServer, stream: str
) -> None:
    """They move to another worker and back while records come, by shutdown and by loss.

    The service refuses the new owner for five seconds after the subscription of the one before.
    """
    journals: dict[str, Journal] = {}

    def run(name: str) -> Worker:
        own = journals[name] = Journal()
        processor = lambda: Journaling(own, on_records=lambda _, c: c.checkpoint())  # noqa: E731
        return start(make(processor=processor, worker_id=name))

    def delivered() -> list[bytes]:
        return [data for each in journals.values() for data in each.data()]

    a = run("a")
    put_at(kinesis, stream, b"0")
    journals["a"].wait_for_data(b"0")
    assert a.shutdown(PATIENCE)
    put_at(kinesis, stream, b"1")
    b = run("b")
    journals["b"].wait_for_data(b"1")
    # Lost without a word: the one that loses it reads on for no moment.
    lost = b._coordinator.held()[FIRST]
    lost.lose("the test says so")
    journals["b"].wait(lambda: (FIRST, "lease_lost") in journals["b"].calls())
    put_at(kinesis, stream, b"2")
    journals["b"].wait_for_data(b"2")
    assert delivered() == [b"0", b"1", b"2"]
    assert shard_ids(kinesis, stream) == [FIRST, SECOND]


def test_a_lost_shard_is_let_go_of_while_a_record_is_processed(
    make: Make, start: Start, kinesis: Any, stream: str, journal: Journal
) -> None:
    """Or its subscription would stay open until the record is done, and fight the next owner's."""
    at_work, go_on = threading.Event(), threading.Event()

    def hang(batch: Any, checkpointer: Any) -> None:
        at_work.set()
        assert go_on.wait(PATIENCE)

    put_at(kinesis, stream, b"long")
    worker = start(make(processor=lambda: Journaling(journal, on_records=hang)))

    def is_subscribed() -> bool:
        return FIRST in worker._state.consumers and worker._settings.fetchers.unfinished == shards

    shards = len(shard_ids(kinesis, stream))
    assert at_work.wait(PATIENCE)
    eventually(is_subscribed)
    worker._coordinator.held()[FIRST].lose("the test says so")
    eventually(lambda: not is_subscribed())
    assert FIRST in worker._state.consumers
    assert not journal.calls("process_records", "lease_lost")
    go_on.set()
    journal.wait(lambda: (FIRST, "lease_lost") in journal.calls())

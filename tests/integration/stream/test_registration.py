"""Registering a consumer: one for all who ask, and whatever state an earlier one is in."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.errors import (
    AccessDeniedError,
    ConsumerLimitError,
    ServiceError,
    StreamNotFoundError,
)
from sparkinesis.local import Fault, LocalServer, ManualClock
from sparkinesis.local.model import limits
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.fan_out.registered_consumers import (
    RETRY,
    ConsumerFinder,
    deregister_consumer,
    describe_consumer,
    list_consumers,
    register_consumer,
)
from tests.failing import Failing
from tests.integration.stream.conftest import (
    CONSUMER_ARN,
    START_MS,
    STREAM_ARN,
    waited,
)
from tests.planners import Time
from tests.scripted import Script, answer, refusal

Register = Callable[..., str]


@pytest.fixture
def register(client: StreamClient, clock: ManualClock) -> Register:
    """`register_consumer` on the server's clock, which goes on while it waits."""

    def call(name: str = "c", **options: Any) -> str:
        return register_consumer(
            client,
            name,
            replace(
                RETRY,
                clock=lambda: clock() / 1000,
                sleep=lambda seconds: waited(clock, seconds),
                **options,
            ),
        )

    return call


def test_a_new_consumer_is_registered_and_waited_for(
    server: LocalServer, client: StreamClient, register: Register, clock: ManualClock
) -> None:
    server.kinesis.consumer_delay_ms = 30_000
    arn = register("c")
    assert clock() >= START_MS + 30_000
    consumer = describe_consumer(client, ConsumerARN=arn)
    assert consumer is not None
    assert (consumer.name, consumer.arn, consumer.status) == ("c", arn, "ACTIVE")
    assert server.kinesis.calls.count("RegisterStreamConsumer") == 1


def test_a_consumer_that_another_worker_has_just_asked_for(
    server: LocalServer, kinesis: Any, client: StreamClient, register: Register
) -> None:
    server.kinesis.consumer_delay_ms = 30_000
    kinesis.register_stream_consumer(StreamARN=client.stream_arn(), ConsumerName="c")
    server.kinesis.calls.clear()
    arn = register()
    assert server.kinesis.calls.count("RegisterStreamConsumer") == 0
    assert describe_consumer(client, ConsumerARN=arn) is not None


def test_a_consumer_that_is_being_deleted_is_registered_anew(
    server: LocalServer, client: StreamClient, register: Register, clock: ManualClock
) -> None:
    first = register()
    server.kinesis.consumer_delay_ms = 30_000
    clock.advance(1000)
    deregister_consumer(client, first)
    second = register()
    assert second != first
    assert clock() >= START_MS + 60_000
    assert describe_consumer(client, ConsumerARN=first) is None


def test_a_race_gives_all_workers_one_consumer(server: LocalServer, register: Register) -> None:
    workers = 4
    # All of them see that it is not there.
    missing = Fault.error("ResourceNotFoundException")
    server.kinesis.faults = Failing("DescribeStreamConsumer", missing, times=workers)
    with ThreadPoolExecutor(workers) as pool:
        arns = set(pool.map(lambda _: register(), range(workers)))
    assert len(arns) == 1
    answers = [c.error for c in server.kinesis.calls.select("RegisterStreamConsumer")]
    assert answers.count(None) == 1
    assert "ResourceInUseException" in answers


@pytest.mark.parametrize(
    "fault",
    [
        Fault.error("LimitExceededException"),  # too many calls a second
        Fault.error("ThrottlingException"),
        Fault.error("InternalFailure", status=500),
        Fault.dropped("before"),
        Fault.dropped("after"),
    ],
)
def test_a_passing_trouble(server: LocalServer, register: Register, fault: Fault) -> None:
    server.kinesis.faults = Failing("RegisterStreamConsumer", fault, fault)
    assert ":stream/s/consumer/c:" in register()


def test_a_stream_with_as_many_consumers_as_it_may_have(
    server: LocalServer, kinesis: Any, client: StreamClient, register: Register, clock: ManualClock
) -> None:
    for number in range(20):
        register(f"app-{number}")
        clock.advance(1000)
    with pytest.raises(ConsumerLimitError) as told:
        register("one-more")
    text = str(told.value)
    for part in ("'one-more'", "stream 's'", "20 registered", "app-0, app-1, app-10", "Deregister"):
        assert part in text
    assert "/consumer/app-7:" in register("app-7")
    # One that is being deleted makes room.
    server.kinesis.consumer_delay_ms = 5000
    deregister_consumer(client, register("app-3"))
    assert "/consumer/one-more:" in register("one-more")
    assert len(list_consumers(client, client.stream_arn())) == 20


def test_the_last_place_goes_to_all_workers_of_a_name(
    server: LocalServer, register: Register, clock: ManualClock
) -> None:
    """One sees no consumer, and is refused: another worker has registered it meanwhile."""
    for number in range(19):
        register(f"app-{number}")
        clock.advance(1000)
    first = register("c")
    missing = Fault.error("ResourceNotFoundException")
    unseen = Failing("DescribeStreamConsumer", missing, times=2)
    refused = Failing("RegisterStreamConsumer", then=Fault.error("LimitExceededException"))
    server.kinesis.faults = lambda call: unseen(call) or refused(call)
    assert register("c") == first


def test_too_many_calls_are_not_too_many_consumers(
    server: LocalServer, register: Register, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service says the same of both, and a stream that has 20 consumers may have 50."""
    monkeypatch.setattr(limits, "MAX_CONSUMERS", 50)
    for number in range(20):
        register(f"app-{number}")
        clock.advance(1000)
    server.kinesis.faults = Failing(
        "RegisterStreamConsumer", Fault.error("LimitExceededException", "Rate exceeded")
    )
    assert "/consumer/c:" in register()


def test_one_that_can_never_be_registered(server: LocalServer, register: Register) -> None:
    fault = Fault.error("LimitExceededException")
    server.kinesis.faults = Failing("RegisterStreamConsumer", then=fault)
    with pytest.raises(ServiceError, match=r"not registered after .* was LimitExceeded"):
        register()


@pytest.mark.parametrize("operation", ["DescribeStreamConsumer", "RegisterStreamConsumer"])
def test_what_is_not_allowed(server: LocalServer, register: Register, operation: str) -> None:
    server.kinesis.faults = Failing(operation, Fault.error("AccessDeniedException"))
    with pytest.raises(AccessDeniedError, match=f"Grant .* kinesis:{operation} on the stream and"):
        register()


@pytest.mark.parametrize("by_arn", [False, True])
def test_a_stream_that_is_not_there(client: StreamClient, by_arn: bool) -> None:
    arn = "arn:aws:kinesis:us-east-1:123456789012:stream/other"
    address = replace(client.address, name="other", arn=arn if by_arn else None)
    with pytest.raises(StreamNotFoundError, match="'other'"):
        register_consumer(StreamClient(address), "c")


def test_deregistering_what_is_gone_already(
    server: LocalServer, client: StreamClient, register: Register
) -> None:
    arn = register()
    deregister_consumer(client, arn)
    deregister_consumer(client, arn)
    assert list_consumers(client, client.stream_arn()) == []
    server.kinesis.faults = Failing(
        "DeregisterStreamConsumer", Fault.error("AccessDeniedException")
    )
    with pytest.raises(AccessDeniedError, match="kinesis:DeregisterStreamConsumer"):
        deregister_consumer(client, arn)


def test_many_who_look_at_a_moment_ask_once(
    server: LocalServer, client: StreamClient, register: Register, clock: ManualClock
) -> None:
    arn, other = register(), register("other")
    find = ConsumerFinder(client, lambda: clock() / 1000)
    found = find(arn)
    assert found is not None
    assert found.is_active
    deregister_consumer(client, arn)
    clock.advance(1999)
    assert find(arn) == found, "which is new enough"
    clock.advance(1)
    asked = server.kinesis.calls.count("DescribeStreamSummary")
    with ThreadPoolExecutor(30) as threads:
        assert set(threads.map(find, [arn] * 30)) == {None}
    assert server.kinesis.calls.count("DescribeStreamSummary") == asked + 1
    assert find(other) is not None
    assert find(arn) is None


def consumer_of(name: str, status: str) -> dict[str, str]:
    return {
        "ConsumerName": name,
        "ConsumerARN": f"{STREAM_ARN}/consumer/{name}:1790000000",
        "ConsumerStatus": status,
    }


@pytest.fixture
def scripted(script: Script) -> StreamClient:
    """A client of a service that says what a test wrote."""
    return StreamClient(StreamAddress("s", STREAM_ARN, "us-east-1", script.endpoint))


def test_all_workers_look_less_and_less_often_each_call_at_its_pace(
    script: Script, scripted: StreamClient
) -> None:
    answers = [answer({"ConsumerDescription": consumer_of("c", "CREATING")})] * 5
    active = answer({"ConsumerDescription": consumer_of("c", "ACTIVE")})
    missing = refusal("ResourceNotFoundException")
    script.on("DescribeStreamConsumer", missing, *answers, active)
    script.on("RegisterStreamConsumer", answer({"Consumer": consumer_of("c", "CREATING")}))
    time, waits, paced = Time(), list[float](), list[str]()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        time.sleep(seconds)

    retry = replace(RETRY, clock=time, sleep=sleep, uniform=lambda _, most: most)
    assert register_consumer(scripted, "c", retry, paced.append) == CONSUMER_ARN
    assert waits == [1.5, 2.5, 4.5, 8.5, 10.5, 10.5]
    look = "DescribeStreamConsumer"
    assert paced == [look, "RegisterStreamConsumer", *[look] * 6]


def test_a_consumer_may_become_active_at_the_very_end(
    script: Script, scripted: StreamClient
) -> None:
    creating = answer({"ConsumerDescription": consumer_of("c", "CREATING")})
    script.on("DescribeStreamConsumer", *[creating] * 9)
    time = Time()
    retry = replace(
        RETRY, clock=time, sleep=time.sleep, uniform=lambda _, most: most, give_up_after=4.0
    )
    with pytest.raises(ServiceError, match="is CREATING after 4 seconds"):
        register_consumer(scripted, "c", retry)
    assert time.now == 4.0
    assert len(script.of("DescribeStreamConsumer")) == 3


def test_all_pages_of_consumers_are_listed(script: Script, scripted: StreamClient) -> None:
    first = answer({"Consumers": [consumer_of("a", "ACTIVE")], "NextToken": "t"})
    script.on("ListStreamConsumers", first, answer({"Consumers": [consumer_of("b", "DELETING")]}))
    found = list_consumers(scripted, STREAM_ARN)
    assert [(one.name, one.is_active) for one in found] == [("a", True), ("b", False)]
    assert script.of("ListStreamConsumers") == [
        {"StreamARN": STREAM_ARN},
        {"StreamARN": STREAM_ARN, "NextToken": "t"},
    ]

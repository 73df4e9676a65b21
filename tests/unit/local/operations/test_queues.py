"""Queues: their states, starts, attributes, limits, and what they forbid to their stream."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from botocore.utils import is_valid_endpoint_url

from sparkinesis.local import KinesisError, Limits, LocalKinesis, ManualClock
from tests.unit.local.calls import ARN, DAY, HOUR, ON_DEMAND, Stream
from tests.unit.local.queueing import COMMITTED, Queue, Record, create, letters, on_demand
from tests.unit.local.subscribing import register


@pytest.fixture
def slow(clock: ManualClock) -> Stream:
    """A stream whose queues stay in each state for a second."""
    kinesis = LocalKinesis(clock=clock, limits=False)
    stream = on_demand(kinesis)
    kinesis.stream_delay_ms = 1000
    return stream


@pytest.fixture
def stream(kinesis: LocalKinesis) -> Stream:
    return on_demand(kinesis)


def refused(code: str) -> Any:
    return pytest.raises(KinesisError, match=code)


def moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, tz=timezone.utc)


def names(kinesis: LocalKinesis, **request: Any) -> list[str]:
    return [queue["QueueName"] for queue in kinesis.call("ListQueues", **request)["QueueSummaries"]]


# States


def test_a_queue_is_creating_then_active(slow: Stream, clock: ManualClock) -> None:
    made = create(slow.kinesis)
    assert made["QueueStatus"] == "CREATING"
    queue = {"QueueARN": made["QueueARN"]}
    clock.advance(999)
    with refused(r"ResourceNotFoundException: Queue q .* state CREATING"):
        slow.kinesis.call("ReceiveQueueRecords", **queue)
    for operation, request in (
        ("UpdateQueue", {**queue, "QueueAttributes": {}}),
        ("TagResource", {"ResourceARN": made["QueueARN"], "Tags": {"a": "1"}}),
    ):
        with refused(r"ResourceInUseException: Queue q .* state CREATING"):
            slow.kinesis.call(operation, **request)
    clock.advance(1)
    assert (
        slow.kinesis.call("DescribeQueue", **queue)["QueueDescription"]["QueueStatus"] == "ACTIVE"
    )
    assert slow.kinesis.call("ReceiveQueueRecords", **queue) == {"QueueRecords": []}


def test_a_queue_that_is_updated_serves_with_its_old_attributes(
    slow: Stream, clock: ManualClock
) -> None:
    queue = Queue(slow.kinesis)
    clock.advance(1000)
    change = {"VisibilityTimeoutSeconds": 90}
    answer = queue("UpdateQueue", QueueAttributes=change)["QueueDescription"]
    assert answer["QueueStatus"] == "UPDATING"
    assert answer["QueueAttributes"]["VisibilityTimeoutSeconds"] == 90
    assert queue.described()["QueueAttributes"]["VisibilityTimeoutSeconds"] == 30
    assert queue.receive() == []
    with refused("ResourceInUseException.*UPDATING"):
        queue("UpdateQueue", QueueAttributes=change)
    clock.advance(1000)
    described = queue.described()
    assert described["QueueStatus"] == "ACTIVE"
    assert described["QueueAttributes"]["VisibilityTimeoutSeconds"] == 90


def test_a_queue_is_deleting_then_gone(slow: Stream, clock: ManualClock) -> None:
    queue = Queue(slow.kinesis)
    clock.advance(1000)
    slow.put("a")
    held = queue.one()
    assert queue("DeleteQueue") == {}
    clock.advance(999)
    assert queue("DeleteQueue") == {}, "again"
    assert queue.described()["QueueStatus"] == "DELETING"
    for call in (queue.receive, lambda: queue.acknowledge(held), lambda: queue.hold(5, held)):
        with refused("ResourceNotFoundException.*DELETING"):
            call()
    with refused("ResourceInUseException: Queue q .* already exists"):
        create(slow.kinesis)
    clock.advance(1)
    with refused(rf"ResourceNotFoundException: Queue {queue.arn} .* not found"):
        queue.described()
    assert names(slow.kinesis) == []
    assert slow.kinesis._regions["us-east-1"].queues == {}


def test_an_id_is_new_and_a_host_label(stream: Stream, kinesis: LocalKinesis) -> None:
    ids = []
    for _ in range(3):
        queue = Queue(kinesis, "orders_EU.1")
        ids.append(queue.arn.partition(":queue/")[2])
        assert queue.arn == f"arn:aws:kinesis:us-east-1:123456789012:queue/{ids[-1]}"
        queue("DeleteQueue")
    assert len({*ids}) == 3, "of one name, in one millisecond"
    for one in ids:
        assert re.fullmatch("[a-z0-9]{1,63}", one)
        assert is_valid_endpoint_url(f"https://{one}.data-kinesis-queues.us-east-1.amazonaws.com")


def test_names_are_unique_in_a_region(stream: Stream, kinesis: LocalKinesis) -> None:
    on_demand(kinesis, "t")
    create(kinesis)
    with refused("ResourceInUseException: Queue q under account 123456789012 already exists"):
        create(kinesis, stream=ARN.replace("/s", "/t"))
    kinesis.call("CreateStream", region="eu-west-1", StreamName="s", **ON_DEMAND)
    arn = ARN.replace("us-east-1", "eu-west-1")
    made = create(kinesis, stream=arn, region="eu-west-1")
    assert made["QueueARN"].startswith("arn:aws:kinesis:eu-west-1:")
    elsewhere = made["QueueARN"].replace("eu-west-1", "us-east-1")
    for region, other in (("us-east-1", made["QueueARN"]), ("eu-west-1", elsewhere)):
        with refused("ResourceNotFoundException"):
            kinesis.call("DescribeQueue", region=region, QueueARN=other)
    with refused("ResourceNotFoundException: Stream s"):
        create(kinesis, "other", stream=arn)


# Its stream


def test_a_stream_with_queues_is_not_deleted_and_stays_on_demand(
    stream: Stream, kinesis: LocalKinesis
) -> None:
    queue = Queue(kinesis)
    with refused("ResourceInUseException.*has queues: q. Delete them"):
        stream("DeleteStream", EnforceConsumerDeletion=True)
    mode: Record = {"StreamARN": ARN, "StreamModeDetails": {"StreamMode": "PROVISIONED"}}
    with refused("ResourceInUseException.*has queues: q. Delete them"):
        kinesis.call("UpdateStreamMode", **mode)
    kinesis.call("UpdateStreamMode", **mode | ON_DEMAND)
    other = on_demand(kinesis, "t")
    assert (stream.summary()["QueueCount"], other.summary()["QueueCount"]) == (1, 0)
    other("DeleteStream")
    queue("DeleteQueue")
    kinesis.call("UpdateStreamMode", **mode)
    stream("DeleteStream")


def test_a_queue_that_is_deleted_keeps_its_stream_until_it_is_gone(
    slow: Stream, clock: ManualClock
) -> None:
    queue = Queue(slow.kinesis)
    queue("DeleteQueue")
    assert slow.summary()["QueueCount"] == 1
    with refused("ResourceInUseException"):
        slow("DeleteStream")
    clock.advance(1000)
    assert slow.summary()["QueueCount"] == 0
    slow("DeleteStream")


def test_only_on_demand_streams_have_queues(kinesis: LocalKinesis) -> None:
    Stream(kinesis, shards=1)
    with refused("ValidationException.*Stream s .* is in Provisioned mode"):
        create(kinesis)
    with refused("ResourceNotFoundException: Stream none"):
        create(kinesis, stream=ARN.replace("/s", "/none"))


def test_a_stream_that_is_creating_has_no_queue(clock: ManualClock) -> None:
    kinesis = LocalKinesis(clock=clock, stream_delay_ms=1000)
    on_demand(kinesis)
    with refused("ResourceInUseException.*CREATING"):
        create(kinesis)


@pytest.mark.parametrize("count", [0, 2])
def test_a_queue_has_one_stream(stream: Stream, kinesis: LocalKinesis, count: int) -> None:
    streams = [{"StreamARN": ARN}] * count
    with refused("ValidationException.*'streamConfigurationList' failed"):
        kinesis.call("CreateQueue", QueueName="q", StreamConfigurationList=streams)
    assert names(kinesis) == []


# Limits


def test_queues_and_consumers_share_a_limit(stream: Stream, kinesis: LocalKinesis) -> None:
    for number in range(12):
        create(kinesis, f"q{number}")
    for number in range(8):
        register(stream, f"c{number}")
    counts = stream.summary()
    assert (counts["QueueCount"], counts["ConsumerCount"]) == (12, 8)
    assert len(kinesis.call("ListStreamConsumers", StreamARN=ARN)["Consumers"]) == 8
    full = "LimitExceededException.*has 20 registered consumers, queues included"
    with refused(full):
        create(kinesis, "more")
    with refused(full):
        register(stream, "more")
    kinesis.call("UpdateAccountSettings", **COMMITTED)
    for number in range(30):
        create(kinesis, f"more{number}")
    with refused("LimitExceededException.*has 50 registered"):
        create(kinesis, "too-many")


def test_five_queues_are_created_or_deleted_at_a_time(clock: ManualClock) -> None:
    kinesis = LocalKinesis(clock=clock)
    on_demand(kinesis)
    kinesis.stream_delay_ms = 1000
    queues = [Queue(kinesis, f"q{number}") for number in range(5)]
    full = "LimitExceededException: Account 123456789012 has 5 queues in state CREATING or DELETING"
    with refused(full):
        create(kinesis, "more")
    queues[0]("DeleteQueue")  # it is one of the five
    clock.advance(1000)
    queues += [Queue(kinesis, f"r{number}") for number in range(4)]
    queues[1]("DeleteQueue")
    with refused(full):
        queues[2]("DeleteQueue")
    with refused(full):
        create(kinesis, "more")
    kinesis.limits = Limits(changing_queues=6)
    queues[2]("DeleteQueue")
    kinesis.limits = None
    create(kinesis, "more")


# Starts


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        (None, []),
        ({"Type": "LATEST"}, []),
        ({"Type": "TRIM_HORIZON"}, ["1", "2", "3"]),
        ({"Type": "AT_TIMESTAMP", "Timestamp": 1_800_000_000 + 1}, ["2", "3"]),
    ],
)
def test_a_queue_starts_where_it_was_told(
    slow: Stream, clock: ManualClock, start: dict[str, Any] | None, wanted: list[str]
) -> None:
    for number in "123":
        slow.put(number, key=number)
        clock.advance(1000)
    queue = Queue(slow.kinesis, start=start)
    slow.put("while CREATING")
    clock.advance(1000)
    slow.put("z")
    assert queue.data() == sorted([*wanted, "while CREATING", "z"])


def test_the_start_is_told_as_asked_then_as_it_was(slow: Stream, clock: ManualClock) -> None:
    began = clock()
    clock.advance(5000)
    kinds: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
        # asked for; told while CREATING; told from ACTIVE on
        "l": ({"Type": "LATEST"}, {"Type": "LATEST"}, began + 5000),
        "h": ({"Type": "TRIM_HORIZON"}, {"Type": "TRIM_HORIZON"}, began),
        "t": (
            {"Type": "AT_TIMESTAMP", "Timestamp": moment(began + 2500)},
            {"Type": "AT_TIMESTAMP", "Timestamp": began / 1000 + 2.5},
            began + 2500,
        ),
        "e": (
            {"Type": "AT_TIMESTAMP", "Timestamp": moment(began - HOUR)},
            {"Type": "AT_TIMESTAMP", "Timestamp": (began - HOUR) / 1000},
            began,
        ),
    }
    queues = {name: Queue(slow.kinesis, name, start=asked) for name, (asked, _, _) in kinds.items()}

    def told(name: str) -> dict[str, Any]:
        (configuration,) = queues[name].described()["StreamConfigurationList"]
        assert configuration["StreamARN"] == ARN
        return dict(configuration["StartingPosition"])

    assert {name: told(name) for name in kinds} == {n: early for n, (_, early, _) in kinds.items()}
    clock.advance(1000)
    for name, (asked, _, late) in kinds.items():
        assert told(name) == {"Type": asked["Type"], "Timestamp": late / 1000}


def test_a_start_is_not_before_the_oldest_record(
    stream: Stream, kinesis: LocalKinesis, clock: ManualClock
) -> None:
    clock.advance(3 * DAY)
    starts: list[Record] = [
        {"Type": "TRIM_HORIZON"},
        {"Type": "AT_TIMESTAMP", "Timestamp": 1_800_000_000},
    ]
    for start in starts:
        made = create(kinesis, start["Type"], start=start)
        (told,) = made["StreamConfigurationList"]
        assert told["StartingPosition"]["Timestamp"] == (clock() - DAY) / 1000


@pytest.mark.parametrize(
    ("start", "code"),
    [
        ({"Type": "AT_TIMESTAMP"}, "ValidationException"),
        ({"Type": "LATEST", "Timestamp": 1_800_000_000}, "ValidationException"),
        ({"Type": "TRIM_HORIZON", "Timestamp": 1_800_000_000}, "ValidationException"),
        ({"Type": "AT_SEQUENCE_NUMBER"}, "ValidationException.*enum"),
        ({"Type": "AT_TIMESTAMP", "Timestamp": 1_800_000_001}, "InvalidArgumentException.*future"),
    ],
)
def test_starts_that_are_none(
    stream: Stream, kinesis: LocalKinesis, start: dict[str, Any], code: str
) -> None:
    with refused(code):
        create(kinesis, start=start)


# Attributes


def test_attributes_have_defaults_and_change_one_by_one(
    stream: Stream, kinesis: LocalKinesis
) -> None:
    queue = Queue(kinesis)

    def told() -> tuple[int, dict[str, Any]]:
        attributes = queue.described()["QueueAttributes"]
        return attributes["VisibilityTimeoutSeconds"], attributes["DeadLetterConfiguration"]

    assert told() == (30, {"TargetType": "BUILT_IN", "MaxReceiveCount": 6})
    queue("UpdateQueue", QueueAttributes=letters(None))
    assert told() == (30, {"TargetType": "NONE"})
    queue("UpdateQueue", QueueAttributes={"VisibilityTimeoutSeconds": 0})
    assert told() == (0, {"TargetType": "NONE"})
    queue("UpdateQueue", QueueAttributes=letters(2))
    assert told() == (0, {"TargetType": "BUILT_IN", "MaxReceiveCount": 2})
    queue("UpdateQueue", QueueAttributes={})
    assert told() == (0, {"TargetType": "BUILT_IN", "MaxReceiveCount": 2})


@pytest.mark.parametrize(
    "attributes",
    [
        {"DeadLetterConfiguration": {"TargetType": "BUILT_IN"}},
        letters(0),
        letters(1001),
        {"DeadLetterConfiguration": {"MaxReceiveCount": 3}},
        {"VisibilityTimeoutSeconds": 43_201},
    ],
)
def test_attributes_that_no_queue_has(
    stream: Stream, kinesis: LocalKinesis, attributes: dict[str, Any]
) -> None:
    queue = Queue(kinesis)
    with refused("ValidationException"):
        queue("UpdateQueue", QueueAttributes=attributes)
    with refused("ValidationException"):
        create(kinesis, "other", QueueAttributes=attributes)


# Tags and policies


def test_a_queue_has_tags_and_a_policy_by_its_arn(stream: Stream, kinesis: LocalKinesis) -> None:
    queue = Queue(kinesis, Tags={"a": "1"})
    named = {"ResourceARN": queue.arn}
    assert kinesis.call("ListTagsForResource", **named)["Tags"] == [{"Key": "a", "Value": "1"}]
    kinesis.call("TagResource", **named, Tags={"b": "2"})
    kinesis.call("UntagResource", **named, TagKeys=["a"])
    assert kinesis.call("ListTagsForResource", **named)["Tags"] == [{"Key": "b", "Value": "2"}]
    assert kinesis.call("ListTagsForResource", ResourceARN=ARN)["Tags"] == []
    kinesis.call("PutResourcePolicy", **named, Policy='{"a": 1}')
    assert kinesis.call("GetResourcePolicy", **named) == {"Policy": '{"a": 1}'}
    kinesis.call("DeleteResourcePolicy", **named)
    assert kinesis.call("GetResourcePolicy", **named) == {"Policy": "{}"}
    many = {f"{number}": "" for number in range(50)}
    with refused("InvalidArgumentException.*to queue q .* a given queue cannot have more than 50"):
        kinesis.call("TagResource", **named, Tags=many)
    with refused("InvalidArgumentException.*more than 50"):
        create(kinesis, "other", Tags=many | {"b": ""})


# Lists


def test_lists_come_in_pages_and_for_a_stream(
    stream: Stream, kinesis: LocalKinesis, clock: ManualClock
) -> None:
    on_demand(kinesis, "t")
    arns = {"s": ARN, "t": ARN.replace("/s", "/t")}
    for number in range(6):
        create(kinesis, f"q{number}", stream=arns["st"[number % 2]])
    first = kinesis.call("ListQueues", MaxResults=4)
    assert [queue["QueueName"] for queue in first["QueueSummaries"]] == ["q0", "q1", "q2", "q3"]
    second = kinesis.call("ListQueues", NextToken=first["NextToken"])
    assert [queue["QueueName"] for queue in second["QueueSummaries"]] == ["q4", "q5"]
    assert "NextToken" not in second
    assert set(first["QueueSummaries"][0]) == {
        "QueueName",
        "QueueARN",
        "QueueStatus",
        "QueueCreationTimestamp",
        "Streams",
    }
    created = clock() / 1000
    assert second["QueueSummaries"][1]["Streams"] == [
        {"StreamARN": arns["t"], "StreamCreationTimestamp": created}
    ]
    only = [{"StreamARN": arns["t"]}]
    assert names(kinesis, StreamFilter=only) == ["q1", "q3", "q5"]
    assert names(kinesis, StreamFilter=[*only, {"StreamARN": ARN}], MaxResults=6) == [
        f"q{number}" for number in range(6)
    ]
    page = kinesis.call("ListQueues", StreamFilter=only, MaxResults=2)
    assert names(kinesis, StreamFilter=only, NextToken=page["NextToken"]) == ["q5"]
    for at, wanted in ((created, 3), (created - 1, 0)):
        timed = [{"StreamARN": arns["t"], "StreamCreationTimestamp": at}]
        assert len(names(kinesis, StreamFilter=timed)) == wanted
    assert names(kinesis, StreamFilter=[{"StreamARN": ARN.replace("/s", "/none")}]) == []


def test_a_time_in_whole_seconds_names_a_stream(kinesis: LocalKinesis, clock: ManualClock) -> None:
    clock.advance(999)
    on_demand(kinesis)
    create(kinesis)
    for at, wanted in ((1_800_000_000, ["q"]), (1_800_000_000.999, ["q"]), (1_800_000_001, [])):
        only = [{"StreamARN": ARN, "StreamCreationTimestamp": at}]
        assert names(kinesis, StreamFilter=only) == wanted


def test_a_token_is_of_a_list_of_queues_and_expires(
    stream: Stream, kinesis: LocalKinesis, clock: ManualClock
) -> None:
    for name in "ab":
        create(kinesis, name)
    token = kinesis.call("ListQueues", MaxResults=1)["NextToken"]
    on_demand(kinesis, "t")
    other = kinesis.call("ListStreams", Limit=1)["NextToken"]
    with refused("InvalidArgumentException"):
        kinesis.call("ListQueues", NextToken=other)
    clock.advance(300_001)
    with refused("ExpiredNextTokenException"):
        kinesis.call("ListQueues", NextToken=token)


@pytest.mark.parametrize(
    "call",
    [
        lambda queue: queue.described(),
        lambda queue: queue("UpdateQueue", QueueAttributes={}),
        lambda queue: queue("DeleteQueue"),
        lambda queue: queue.receive(),
        lambda queue: queue.acknowledge({"ReceiptHandle": "x"}),
    ],
)
def test_a_queue_that_was_made_again_has_another_arn(
    stream: Stream, kinesis: LocalKinesis, call: Callable[[Queue], object]
) -> None:
    gone = Queue(kinesis)
    gone("DeleteQueue")
    Queue(kinesis)
    with refused(rf"ResourceNotFoundException: Queue {gone.arn} under account"):
        call(gone)

"""A queue is found by its name or ARN, or made; what stands in the way has a message of its own."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from sparkinesis.errors import (
    AccessDeniedError,
    ConsumerLimitError,
    OptionError,
    QueueNotFoundError,
    ServiceError,
    StreamNotFoundError,
)
from sparkinesis.queue.address import QueueAddress
from sparkinesis.queue.client import QueueDescription
from sparkinesis.queue.finding import NewQueue, Queues
from sparkinesis.stream.calls.retry import Backoff
from tests.scripted import Answer, Script, answer, refusal

STREAM = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
ARN = "arn:aws:kinesis:us-east-1:123456789012:queue/4rx"
OTHER = "arn:aws:kinesis:us-east-1:123456789012:queue/5sy"
REGION = "us-east-1"


class Waiting:
    """A clock that only waits move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def backoff(self) -> Backoff:
        return Backoff(clock=lambda: self.now, sleep=self.sleep, uniform=lambda _, high: high)


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def description(status: str = "ACTIVE", arn: str = ARN, **others: Any) -> Answer:
    return answer(
        {
            "QueueDescription": {
                "QueueName": "orders",
                "QueueARN": arn,
                "QueueStatus": status,
                "QueueCreationTimestamp": 1.5,
                "StreamConfigurationList": [{"StreamARN": STREAM}],
                "QueueAttributes": {
                    "VisibilityTimeoutSeconds": 30,
                    "DeadLetterConfiguration": {"TargetType": "BUILT_IN", "MaxReceiveCount": 6},
                },
                **others,
            }
        }
    )


def summary(name: str, arn: str = ARN, status: str = "ACTIVE") -> dict[str, Any]:
    return {
        "QueueName": name,
        "QueueARN": arn,
        "QueueStatus": status,
        "QueueCreationTimestamp": 1.5,
        "Streams": [{"StreamARN": STREAM, "StreamCreationTimestamp": 1.25}],
    }


def page(*summaries: dict[str, Any], token: str | None = None) -> Answer:
    return answer({"QueueSummaries": summaries, **({"NextToken": token} if token else {})})


def stream(mode: str = "ON_DEMAND", **others: Any) -> Answer:
    return answer(
        {
            "StreamDescriptionSummary": {
                "StreamName": "s",
                "StreamARN": STREAM,
                "StreamStatus": "ACTIVE",
                "RetentionPeriodHours": 24,
                "StreamModeDetails": {"StreamMode": mode},
                **others,
            }
        }
    )


def find(
    script: Script, waiting: Waiting, queue: str = "orders", **options: Any
) -> tuple[QueueAddress, QueueDescription]:
    return Queues(REGION, script.endpoint, retry=waiting.backoff()).find(queue, **options)


def test_a_queue_of_an_arn_is_described_and_not_looked_up(script: Script, waiting: Waiting) -> None:
    script.on("DescribeQueue", description())
    address, found = find(script, waiting, ARN)
    assert address == QueueAddress(ARN, "orders", REGION, script.endpoint)
    assert found.stream_arn == STREAM
    assert script.calls == [("DescribeQueue", {"QueueARN": ARN})]


def test_a_queue_of_a_name_is_looked_up_on_all_pages(script: Script, waiting: Waiting) -> None:
    """A page may be empty, and still not be the last one."""
    script.on("ListQueues", page(token="1"), page(summary("order", OTHER), token="2"))
    script.on("ListQueues", page(summary("orders")))
    script.on("DescribeQueue", description())
    address, _ = find(script, waiting)
    assert (address.arn, address.name) == (ARN, "orders")
    assert [call.get("NextToken") for call in script.of("ListQueues")] == [None, "1", "2"]


def test_of_two_queues_of_a_name_the_one_that_stays_is_taken(
    script: Script, waiting: Waiting
) -> None:
    both = summary("orders", OTHER, "DELETING"), summary("orders")
    script.on("ListQueues", page(*both))
    script.on("DescribeQueue", description())
    assert find(script, waiting)[0].arn == ARN


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["orders-eu", "oders", "x"], "Did you mean 'oders' or 'orders-eu'?"),
        (["a", "c", "b"], "There are a, b, c."),
        ([], "There are none."),
    ],
)
def test_a_name_that_no_queue_has_is_told_with_those_that_there_are(
    script: Script, waiting: Waiting, names: list[str], words: str
) -> None:
    script.on("ListQueues", page(*map(summary, names)))
    with pytest.raises(QueueNotFoundError) as raised:
        find(script, waiting)
    said = str(raised.value)
    place = f"among the queues in us-east-1 at {script.endpoint}"
    assert f"There is no queue 'orders' {place}. {words} " in said
    assert "NewQueue(stream=...)" in said


def test_a_queue_of_no_arn_is_told(script: Script, waiting: Waiting) -> None:
    script.on("DescribeQueue", refusal("ResourceNotFoundException"))
    with pytest.raises(QueueNotFoundError, match="There is no queue 4rx in us-east-1"):
        find(script, waiting, ARN)


def test_the_creation_is_waited_for(
    script: Script, waiting: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    creating = [description("CREATING") for _ in range(40)]
    script.on("DescribeQueue", *creating, description("UPDATING"))
    _, found = find(script, waiting, ARN)
    assert found.status == "UPDATING", "which receives as well"
    assert waiting.now == 40
    told = [record.getMessage() for record in caplog.records]
    assert ["is being created (CREATING)" in text for text in told] == [True, True, False]
    assert "is UPDATING after 40 s" in told[-1]


def test_a_creation_without_end_is_given_up(script: Script, waiting: Waiting) -> None:
    script.on("DescribeQueue", *[description("CREATING") for _ in range(302)])
    with pytest.raises(ServiceError, match=r"queue 4rx .*still being created .* after 300 s"):
        find(script, waiting, ARN)


@pytest.mark.parametrize("create", [None, NewQueue("s")])
def test_a_queue_that_is_being_deleted_is_none(
    script: Script, waiting: Waiting, create: NewQueue | None
) -> None:
    script.on("ListQueues", page(summary("orders", status="DELETING")))
    script.on("DescribeQueue", description("DELETING"))
    with pytest.raises(QueueNotFoundError, match=r"'orders' .*is being deleted .*another queue"):
        find(script, waiting, create=create)


FULL = NewQueue(
    "s",
    starting_position="2026-11-21T08:30:00.250Z",
    visibility_timeout=60,
    max_receive_count=None,
    tags={"team": "a"},
)


def test_a_queue_that_is_not_there_is_made(script: Script, waiting: Waiting) -> None:
    script.on("ListQueues", page(summary("other", OTHER)))
    script.on("DescribeStreamSummary", stream())
    script.on("CreateQueue", description("CREATING"))
    attributes = {
        "VisibilityTimeoutSeconds": 60,
        "DeadLetterConfiguration": {"TargetType": "NONE"},
    }
    script.on("DescribeQueue", description("CREATING"), description(QueueAttributes=attributes))
    address, found = find(script, waiting, create=FULL)
    assert address == QueueAddress(ARN, "orders", REGION, script.endpoint)
    assert (found.visibility_timeout, found.max_receive_count) == (60, None)
    start = {"Type": "AT_TIMESTAMP", "Timestamp": 1795249800.25}
    assert script.of("CreateQueue") == [
        {
            "QueueName": "orders",
            "StreamConfigurationList": [{"StreamARN": STREAM, "StartingPosition": start}],
            "QueueAttributes": attributes,
            "Tags": {"team": "a"},
        }
    ]


def test_what_is_not_said_of_a_new_queue_is_the_services_default(
    script: Script, waiting: Waiting
) -> None:
    script.on("ListQueues", page())
    script.on("CreateQueue", description("CREATING"))
    script.on("DescribeStreamSummary", stream())
    script.on("DescribeQueue", description())
    find(script, waiting, create=NewQueue(STREAM))
    (made,) = script.of("CreateQueue")
    assert made["StreamConfigurationList"][0]["StartingPosition"] == {"Type": "LATEST"}
    assert made["QueueAttributes"] == {
        "VisibilityTimeoutSeconds": 30,
        "DeadLetterConfiguration": {"TargetType": "BUILT_IN", "MaxReceiveCount": 6},
    }
    assert "Tags" not in made


@pytest.mark.parametrize("said", [refusal("AccessDeniedException"), refusal("Odd", status=503)])
def test_a_stream_of_an_arn_need_not_be_described(
    script: Script, waiting: Waiting, said: Answer
) -> None:
    """The endpoint may be that of queues, and a permission may be missing."""
    script.on("ListQueues", page())
    script.on("DescribeStreamSummary", said)
    script.on("CreateQueue", description("CREATING"))
    script.on("DescribeQueue", description())
    find(script, waiting, create=NewQueue(STREAM))
    (made,) = script.of("CreateQueue")
    assert made["StreamConfigurationList"][0]["StreamARN"] == STREAM
    assert waiting.waits == []


def test_the_stream_may_have_another_endpoint(script: Script, waiting: Waiting) -> None:
    script.on("ListQueues", page())
    create = NewQueue("s", stream_endpoint="http://127.0.0.1:9")
    with pytest.raises(ServiceError, match=r"stream 's' .*127\.0\.0\.1:9 does not answer"):
        find(script, waiting, create=create)
    assert [name for name, _ in script.calls] == ["ListQueues"]


@pytest.mark.parametrize("name", ["s", STREAM])
def test_a_provisioned_stream_has_no_queues(script: Script, waiting: Waiting, name: str) -> None:
    script.on("ListQueues", page())
    script.on("DescribeStreamSummary", stream("PROVISIONED"))
    with pytest.raises(OptionError, match=r"'s' .*is PROVISIONED, and only on-demand streams"):
        find(script, waiting, create=NewQueue(name))
    assert script.of("CreateQueue") == []


def test_a_queue_that_another_process_has_just_made_is_taken(
    script: Script, waiting: Waiting
) -> None:
    """Although it is not listed at once."""
    script.on("ListQueues", page(), page(), page(summary("orders", status="CREATING")))
    script.on("DescribeStreamSummary", stream())
    script.on("CreateQueue", *[refusal("ResourceInUseException")] * 2)
    script.on("DescribeQueue", description())
    assert find(script, waiting, create=NewQueue("s"))[0].arn == ARN
    assert len(waiting.waits) == 1


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_queue_of_another_stream_is_not_taken(
    script: Script, waiting: Waiting, *, is_listed: bool
) -> None:
    there = summary("orders")
    script.on("ListQueues", page(*[there] * is_listed), page(there))
    script.on("DescribeStreamSummary", stream())
    script.on("CreateQueue", refusal("ResourceInUseException"))
    script.on("DescribeQueue", description(StreamConfigurationList=[{"StreamARN": f"{STREAM}-2"}]))
    with pytest.raises(OptionError, match=r"'orders' .* queue of \S+:stream/s-2, not of s\."):
        find(script, waiting, create=NewQueue("s"))


@pytest.mark.parametrize("name", ["s", STREAM])
def test_a_queue_that_is_there_stays_as_it_is(
    script: Script, waiting: Waiting, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        script.on("ListQueues", page(summary("orders")))
        script.on("DescribeQueue", description())
    find(script, waiting, create=NewQueue(name))
    assert caplog.records == []
    with caplog.at_level(logging.WARNING):
        find(script, waiting, create=NewQueue(name, visibility_timeout=60, max_receive_count=None))
    visibility, count = (record.getMessage() for record in caplog.records)
    assert "its visibility_timeout is 30, and stays so. 60 was given" in visibility
    assert "its max_receive_count is 6, and stays so. None was given" in count
    assert {operation for operation, _ in script.calls} == {"ListQueues", "DescribeQueue"}


def full(script: Script, consumers: int, queues: int, *others: dict[str, Any]) -> None:
    script.on("ListQueues", page(), *[page(*others) for _ in range(200)])
    answers = [stream(ConsumerCount=consumers, QueueCount=queues) for _ in range(200)]
    script.on("DescribeStreamSummary", stream(), *answers)
    script.on("CreateQueue", *[refusal("LimitExceededException") for _ in range(200)])


def test_a_stream_without_room_is_told_at_once(script: Script, waiting: Waiting) -> None:
    """At the second refusal: the first one may be throttling."""
    full(script, 15, 5)
    with pytest.raises(ConsumerLimitError, match=r"'orders': stream 's' .* has 20 queues and"):
        find(script, waiting, create=NewQueue("s"))
    assert len(script.of("CreateQueue")) == 2
    assert waiting.now < 2


@pytest.mark.parametrize(
    ("consumers", "others"),
    [
        (14, []),
        (15, [summary(f"q{n}", status="CREATING") for n in range(3)]
             + [summary(f"p{n}", status="DELETING") for n in range(2)]),
    ],
)  # fmt: skip
def test_another_limit_passes_or_is_told_at_the_end(
    script: Script, waiting: Waiting, consumers: int, others: list[dict[str, Any]]
) -> None:
    full(script, consumers, 5, *others)
    with pytest.raises(ServiceError, match="five queues may be CREATING or DELETING"):
        find(script, waiting, create=NewQueue("s"))
    assert math.isclose(waiting.now, 300, abs_tol=12)


def test_a_limit_that_passes_is_outlasted(script: Script, waiting: Waiting) -> None:
    script.on("ListQueues", page(), page())
    script.on("DescribeStreamSummary", stream(), stream())
    script.on("CreateQueue", *[refusal("LimitExceededException")] * 2, description("CREATING"))
    script.on("DescribeQueue", description())
    assert find(script, waiting, create=NewQueue("s"))[0].arn == ARN


def test_a_server_without_queues_is_told_at_once(script: Script, waiting: Waiting) -> None:
    """As an emulator is, which answers as after an internal failure otherwise."""
    script.on("ListQueues", refusal("InternalFailure", status=501))
    with pytest.raises(ServiceError, match=r"does not know ListQueues.*emulator may not have"):
        find(script, waiting)
    assert waiting.waits == []


def test_what_may_not_be_asked_about_a_limit_does_not_end_the_wait(
    script: Script, waiting: Waiting
) -> None:
    script.on("ListQueues", page(), page())
    script.on("DescribeStreamSummary", stream(), refusal("AccessDeniedException"))
    script.on("CreateQueue", *[refusal("LimitExceededException")] * 2, description("CREATING"))
    script.on("DescribeQueue", description())
    assert find(script, waiting, create=NewQueue("s"))[0].arn == ARN
    assert len(script.of("DescribeStreamSummary")) == 2


@pytest.mark.parametrize(
    ("refused", "kind", "words"),
    [
        (("ListQueues", "AccessDeniedException"), AccessDeniedError, "kinesis:ListQueues, or name"),
        (("CreateQueue", "AccessDeniedException"), AccessDeniedError, "AssociateStreamsWithQueue"),
        (("CreateQueue", "ResourceNotFoundException"), StreamNotFoundError, "stream 's'"),
        (("CreateQueue", "ValidationException"), ServiceError, "A retry would not help.*Said so"),
        (("DescribeStreamSummary", "ResourceNotFoundException"), StreamNotFoundError, "no stream"),
        (
            ("ListQueues", "UnknownOperationException"),
            ServiceError,
            "endpoint service of their own",
        ),
    ],
)
def test_each_refusal_has_its_own_message(
    script: Script, waiting: Waiting, refused: tuple[str, str], kind: type[Exception], words: str
) -> None:
    operation, code = refused
    others = {"ListQueues": page(), "DescribeStreamSummary": stream()}
    for name, fine in others.items():
        script.on(name, refusal(code) if name == operation else fine)
    script.on("CreateQueue", refusal(code))
    with pytest.raises(kind, match=words):
        find(script, waiting, create=NewQueue("s"))
    assert script.calls[-1][0] == operation
    assert waiting.waits == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (NewQueue("a b"), "stream is 'a b'"),
        (NewQueue("s", starting_position="first"), "starting_position is 'first', which is not a"),
        (NewQueue("s", starting_position="49590"), "starting_position is '49590'"),
        (NewQueue("s", max_receive_count=0), "max_receive_count is 0; .* from 1 to 1,000, or None"),
        (NewQueue("s", max_receive_count=1001), "max_receive_count is 1001"),
        (NewQueue("s", max_receive_count=True), "max_receive_count is True"),
        (NewQueue("s", visibility_timeout=-1), "visibility_timeout is -1; .* from 0 to 43,200"),
        (NewQueue("s", visibility_timeout=43_201), "visibility_timeout is 43201"),
        (
            NewQueue("s", visibility_timeout=-1, max_receive_count=0),
            "2 errors:\n- visibility_timeout .*\n- max_receive_count",
        ),
    ],
)
def test_a_new_queue_that_cannot_be_is_refused_before_a_call(
    script: Script, waiting: Waiting, wrong: NewQueue, words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        find(script, waiting, create=wrong)
    assert script.calls == []


def test_an_arn_cannot_be_chosen(script: Script, waiting: Waiting) -> None:
    with pytest.raises(OptionError, match="a queue is made by its name"):
        find(script, waiting, ARN, create=NewQueue("s"))
    with pytest.raises(OptionError, match="a queue's name has"):
        find(script, waiting, "a b")
    for queue in ("orders", ARN):
        with pytest.raises(OptionError, match="region is 'there'"):
            Queues("there", script.endpoint).find(queue)
    assert script.calls == []

"""What the facts of a queue mean for those that receive from it."""

from __future__ import annotations

import pytest

from sparkinesis.monitor.doctor.judge import Finding, State
from sparkinesis.monitor.doctor.queue_checks import (
    dead_letters,
    holding,
    of_streams,
    of_summary,
    state,
)
from sparkinesis.queue.client import (
    DeadLetterConfiguration,
    QueueAttributes,
    QueueDescription,
    QueueStream,
)
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamSummary

STREAM = "arn:aws:kinesis:eu-west-1:123456789012:stream/shop"
HOUR = 3600


def described(
    status: str = "ACTIVE", visibility: int = 30, most: int | None = 6
) -> QueueDescription:
    letters = DeadLetterConfiguration("NONE" if most is None else "BUILT_IN", most)
    return QueueDescription(
        "orders",
        "arn:aws:kinesis:eu-west-1:123456789012:queue/abc",
        status,
        0.0,
        [QueueStream(STREAM)],
        QueueAttributes(visibility, letters),
    )


def found(visibility: int = 30, most: int | None = 6, takes: float | None = None) -> list[Finding]:
    return list(holding(described("ACTIVE", visibility, most), takes))


@pytest.mark.parametrize(
    ("host", "is_of_streams"),
    [
        ("kinesis.us-east-1.amazonaws.com", True),
        ("kinesis-fips.us-gov-west-1.amazonaws.com", True),
        ("123456789012.data-kinesis.us-east-1.amazonaws.com", True),
        ("kinesis.us-east-1.api.aws", True),
        ("kinesis.cn-north-1.amazonaws.com.cn", True),
        ("vpce-0a1b-2c3d.kinesis.us-east-1.vpce.amazonaws.com", True),
        ("kinesis-queues.us-east-1.amazonaws.com", False),
        ("abc.data-kinesis-queues.us-east-1.amazonaws.com", False),
        ("localhost", False),
        ("kinesis.us-east-1.amazonaws.com.evil.example", False),
    ],
)
def test_an_endpoint_of_streams_is_told_by_its_host(host: str, is_of_streams: bool) -> None:
    judged = of_streams(host)
    assert (judged is not None) == is_of_streams
    assert judged is None or (judged.state is State.PROBLEM and host in judged.what)


@pytest.mark.parametrize(
    ("status", "weight"),
    [
        ("ACTIVE", State.OK),
        ("UPDATING", State.OK),
        ("CREATING", State.NOTE),
        ("DELETING", State.PROBLEM),
    ],
)
def test_the_state_of_a_queue(status: str, weight: State) -> None:
    judged = state("queue orders", described(status), None)
    assert (judged.state, status in judged.what) == (weight, True)


@pytest.mark.parametrize(
    ("wanted", "is_its"),
    [
        (StreamAddress("shop"), True),
        (StreamAddress("shop", STREAM, "eu-west-1"), True),
        (StreamAddress("other"), False),
        (StreamAddress("shop", STREAM.replace("eu-west", "us-east"), "us-east-1"), False),
    ],
)
def test_a_queue_is_of_the_stream_that_was_given(wanted: StreamAddress, is_its: bool) -> None:
    judged = state("queue orders", described(), wanted)
    assert (judged.state is State.OK) == is_its
    assert is_its or f"it is a queue of {STREAM}, not of" in judged.what


@pytest.mark.parametrize(
    ("visibility", "takes", "weight", "words"),
    [
        (30, None, State.OK, "held for 30 s"),
        (30, 30.0, State.OK, "and a handler takes 30 s"),
        (30, 31.0, State.NOTE, "extended meanwhile"),
        (30, 3600.0, State.NOTE, "extended meanwhile"),
        (30, 3601.0, State.PROBLEM, "time_limit"),
        (40_000, 3601.0, State.PROBLEM, "time_limit"),
        (1, None, State.PROBLEM, "queues update orders --visibility-timeout 30"),
        (0, 9_000.0, State.PROBLEM, "none can be handled"),
        (2, None, State.OK, ""),
    ],
)
def test_a_hold_has_to_last_for_a_handler(
    visibility: int, takes: float | None, weight: State, words: str
) -> None:
    (judged,) = found(visibility, takes=takes)
    assert (judged.check, judged.state) == ("visibility", weight)
    assert words in judged.what + judged.mend


@pytest.mark.parametrize(
    ("most", "words"),
    [(None, "no record becomes a dead letter"), (1, "after 1 receive;"), (2, "after 2 receives;")],
)
def test_deliveries_without_end_and_few_of_them_are_notes(most: int | None, words: str) -> None:
    _, judged = found(most=most)
    assert (judged.check, judged.state) == ("deliveries", State.NOTE)
    assert words in judged.what
    assert "--max-receive-count" in judged.mend
    assert len(found(most=3)) == 1


def test_a_provisioned_stream_has_no_queues() -> None:
    summary = StreamSummary(86_400_000, 0, mode="PROVISIONED")
    (judged,) = of_summary("stream shop", summary, is_new=False)
    assert judged.state is State.PROBLEM
    assert "only on-demand streams have queues" in judged.what


def test_a_full_stream_matters_to_a_queue_that_is_not_there_yet() -> None:
    def judged(consumers: int, *, is_new: bool) -> list[str]:
        summary = StreamSummary(86_400_000, 0, mode="ON_DEMAND", consumers=consumers)
        return [one.check for one in of_summary("stream shop", summary, is_new=is_new)]

    assert judged(20, is_new=True) == ["stream shop", "limits"]
    assert judged(19, is_new=True) == judged(20, is_new=False) == ["stream shop"]


@pytest.mark.parametrize(
    ("arrived", "keeps", "weight", "words"),
    [
        ([], 24.0, State.OK, "none was received"),
        ([0.0], None, State.NOTE, "1 dead letter, received"),
        ([7.0 * HOUR], 24.0, State.NOTE, "expires at 1970-01-02T07:00:00Z"),
        ([7.0 * HOUR, 5.9 * HOUR], 24.0, State.PROBLEM, "expires at 1970-01-02T05:54:00Z"),
        ([5.9 * HOUR], 168.0, State.NOTE, "1970-01-08"),
        ([23.0 * HOUR] * 10, 24.0, State.NOTE, "at least 10 dead letters"),
    ],
)
def test_dead_letters_that_expire_soon_are_a_problem(
    arrived: list[float], keeps: float | None, weight: State, words: str
) -> None:
    """At the end of the first day."""
    judged = dead_letters(arrived, keeps, 24.0 * HOUR)
    assert judged.state is weight
    assert words in judged.what
    assert ("increase-stream-retention-period" in judged.mend) == (weight is State.PROBLEM)

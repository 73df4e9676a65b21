"""`sparkinesis doctor --queue` on a real server, and with each real fault."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import botocore
import pytest

from deploy.iam import POLICIES
from sparkinesis.local import Call, Fault, LocalServer
from tests.command import call, failure
from tests.deploy.calls import Used, only
from tests.integration.queue.scene import REGION
from tests.integration.worker.test_doctor_command import Report
from tests.streams import create_queue, put

HOUR = 3_600_000
RECEIVES = {"kinesis:ReceiveQueueRecords", "kinesis:ReceiveDeadLetterQueueRecords"}


class Clinic:
    """A server with an on-demand stream `shop`, and its queue `orders`."""

    kinesis: Any

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        """Codes of errors by operation."""
        self.ahead_ms = 0
        """By how much the server's clock is ahead of this machine's."""
        self.queues: list[str] = []
        self.server = LocalServer(limits=None, clock=self._now_ms, faults=self._fault)

    def _now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def _fault(self, made: Call) -> Fault | None:
        code = self.refused.get(made.operation)
        return Fault.error(code, "not for you") if code else None

    def make(self, name: str, **attributes: Any) -> str:
        given = {"VisibilityTimeoutSeconds": 30, **attributes}
        self.queues.append(create_queue(self.kinesis, "shop", name, **given))
        return self.queues[-1]

    def examine(self, *options: str, queue: str = "orders") -> Report:
        place = ("--region", REGION, "--endpoint", self.server.endpoint_url)
        result = call("doctor", "--queue", queue, "--json", *place, *options)
        assert result.stderr == ""
        return Report(result)

    def dead_letters(self, arn: str) -> list[dict[str, Any]]:
        answer = self.kinesis.receive_dead_letter_queue_records(
            QueueARN=arn, WaitTimeSeconds=1, VisibilityTimeoutSeconds=0
        )
        return list(answer["QueueRecords"])


@pytest.fixture(scope="module")
def running() -> Iterator[Clinic]:
    clinic = Clinic()
    with clinic.server as server:
        clinic.kinesis = server.client("kinesis", region=REGION)
        clinic.kinesis.create_stream(StreamName="fixed", ShardCount=1)
        yield clinic


@pytest.fixture
def clinic(running: Clinic) -> Iterator[Clinic]:
    running.make("orders")
    yield running
    running.refused.clear()
    running.ahead_ms = 0
    for arn in running.queues:
        running.kinesis.delete_queue(QueueARN=arn)
    running.queues.clear()


def test_a_healthy_queue_is_well_and_nothing_is_received(clinic: Clinic) -> None:
    put(clinic.kinesis, "shop", [b"one"], "k")
    used = Used(clinic.server)
    with used.watching():
        report = clinic.examine("--handler-time", "20")
    assert (report.exit_code, report.problems()) == (0, {})
    assert not used.actions & RECEIVES
    assert "ACTIVE, of the stream shop " in report.of("queue orders", "ok")
    assert report.of("stream shop", "ok") == ["ON_DEMAND, keeps records for 24 h "]
    acknowledges, not_checked = report.of("permissions", "ok") + report.of("permissions", "note")
    words = "AcknowledgeQueueRecords, UpdateQueueRecordsVisibility may be called "
    assert acknowledges == words
    assert "ReceiveQueueRecords was not checked, nor kms:Decrypt" in not_checked
    assert "a handler takes 20 s" in report.of("visibility", "ok")[0]
    assert len(report.of("Kinesis", "ok")) == 1, "its hosts are one endpoint here"
    assert report.of("clock", "ok")
    assert report.of("region", "ok") == [f"{REGION}, as given by --region "]
    by_arn = clinic.examine(queue=clinic.queues[0])
    assert by_arn.exit_code == 0
    assert by_arn.of("region", "ok") == [f"{REGION}, of the queue's ARN "]


def test_what_is_received_is_said_and_visible_again(clinic: Clinic) -> None:
    put(clinic.kinesis, "shop", [b"one"], "k")
    report = clinic.examine("--receive")
    assert report.exit_code == 0
    answer = clinic.kinesis.receive_queue_records(QueueARN=clinic.queues[0], WaitTimeSeconds=1)
    (again,) = (one for one in answer["QueueRecords"] if one["ReceiveCount"] == 2)
    told = report.of("permissions", "ok")[1]
    assert f"record {again['RecordId']} was received and released: receive 1 " in told
    assert report.of("dead letters", "ok") == ["none was received "]
    assert not report.of("permissions", "note")


def test_dead_letters_are_told_and_that_they_expire_soon(clinic: Clinic) -> None:
    """By the service's clock, from which this machine's differs."""
    letters = {"TargetType": "BUILT_IN", "MaxReceiveCount": 1}
    arn = clinic.make("bad", DeadLetterConfiguration=letters)
    put(clinic.kinesis, "shop", [b"1", b"2", b"3", b"4"], "k")
    clinic.kinesis.receive_queue_records(
        QueueARN=arn, Limit=1, WaitTimeSeconds=1, VisibilityTimeoutSeconds=0
    )
    report = clinic.examine("--receive", queue="bad")
    assert report.exit_code == 0
    (told,) = report.of("dead letters", "note")
    assert "received and released; the oldest of these expires at" in told
    assert "after 1 receive" in report.of("deliveries", "note")[0]
    assert clinic.dead_letters(arn), "they are visible again"
    clinic.ahead_ms = 20 * HOUR
    problems = clinic.examine("--receive", queue="bad").problems()
    assert "increase-stream-retention-period" in problems["dead letters"]
    clinic.refused["DescribeStreamSummary"] = "AccessDeniedException"
    unknown = clinic.examine("--receive", queue="bad")
    assert "expires" not in unknown.of("dead letters", "note")[0]
    assert "DescribeStreamSummary" in unknown.of("stream shop", "note")[0]


@pytest.mark.parametrize(
    ("operation", "code", "check", "words"),
    [
        ("ListQueues", "AccessDeniedException", "queue orders", "kinesis:ListQueues"),
        ("DescribeQueue", "AccessDeniedException", "queue orders", "kinesis:DescribeQueue"),
        (
            "AcknowledgeQueueRecords",
            "AccessDeniedException",
            "permissions",
            "kinesis:AcknowledgeQueueRecords",
        ),
        (
            "UpdateQueueRecordsVisibility",
            "AccessDeniedException",
            "permissions",
            "kinesis:UpdateQueueRecordsVisibility",
        ),
        (
            "ReceiveQueueRecords",
            "AccessDeniedException",
            "permissions",
            "kinesis:ReceiveQueueRecords",
        ),
        ("ReceiveQueueRecords", "KMSAccessDeniedException", "permissions", "kms:Decrypt"),
        ("ListQueues", "UnknownOperationException", "queue orders", "VPC endpoint service"),
    ],
)
def test_a_call_that_is_refused_is_told(
    clinic: Clinic, operation: str, code: str, check: str, words: str
) -> None:
    clinic.refused[operation] = code
    report = clinic.examine(*(["--receive"] if operation == "ReceiveQueueRecords" else []))
    assert report.exit_code == 1
    problems = report.problems()
    assert list(problems) == [check]
    assert words in problems[check]
    assert "not for you" in problems[check]


def test_the_role_of_a_receiver_is_enough(clinic: Clinic) -> None:
    put(clinic.kinesis, "shop", [b"one"], "k")
    (policy,) = (policy for policy in POLICIES if policy.name == "queue")
    with only(clinic.server, policy.actions):
        report = clinic.examine("--receive")
    assert (report.exit_code, report.problems()) == (0, {})
    assert report.of("stream shop", "note")
    assert report.of("dead letters", "note")


def test_what_a_receiver_does_not_need_is_a_note(clinic: Clinic) -> None:
    put(clinic.kinesis, "shop", [b"one"], "k")
    clinic.refused["ReceiveDeadLetterQueueRecords"] = "AccessDeniedException"
    clinic.refused["AcknowledgeQueueRecords"] = "ThrottlingException"
    report = clinic.examine("--receive")
    assert report.exit_code == 0
    assert "ReceiveDeadLetterQueueRecords" in report.of("dead letters", "note")[0]


def test_a_missing_queue_is_told_unless_the_application_makes_it(clinic: Clinic) -> None:
    report = clinic.examine(queue="oders")
    assert "Did you mean 'orders'?" in report.problems()["queue oders"]
    assert clinic.examine("--stream", "shop", queue="oders").problems()
    new = clinic.examine("--new", "--stream", "shop", queue="oders")
    assert (new.exit_code, new.problems()) == (0, {})
    assert "create=NewQueue(...) makes it" in new.of("queue oders", "ok")[0]
    (told,) = new.of("permissions", "ok")
    assert told.startswith("CreateQueue was tried with a request that makes no queue")
    queues = clinic.kinesis.list_queues()["QueueSummaries"]
    assert [one["QueueName"] for one in queues] == ["orders"]
    clinic.refused["CreateQueue"] = "AccessDeniedException"
    denied = clinic.examine("--new", "--stream", "shop", queue="oders").problems()
    assert "kinesis:AssociateStreamsWithQueue on the stream" in denied["permissions"]


@pytest.mark.parametrize(
    ("stream", "words"),
    [("fixed", "only on-demand streams have queues"), ("shep", "There is no stream 'shep'")],
)
def test_a_stream_that_can_have_no_queue_is_told(clinic: Clinic, stream: str, words: str) -> None:
    report = clinic.examine("--new", "--stream", stream, queue="new")
    assert words in report.problems()[f"stream {stream}"]


def test_a_queue_of_another_stream_is_told(clinic: Clinic) -> None:
    report = clinic.examine("--stream", "fixed")
    assert "stream/shop, not of stream 'fixed'" in report.problems()["queue orders"]
    assert report.findings[-1]["check"] == "queue orders", "what rests on it is left out"


def test_an_old_boto3_is_told_before_any_call(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(botocore, "__version__", "1.44.4")
    used = Used(clinic.server)
    with used.watching():
        report = clinic.examine()
    assert "boto3>=1.44.5" in report.problems()["versions"]
    assert not used.actions


def test_the_endpoint_of_streams_is_told_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "https://vpce-1.kinesis.eu-west-1.vpce.amazonaws.com"
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", url)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9")
    for queue in ("orders", f"arn:aws:kinesis:{REGION}:123456789012:queue/abc"):
        report = Report(call("doctor", "--queue", queue, "--region", REGION, "--json"))
        assert "is an endpoint of streams" in report.problems()["Kinesis"]
        assert "VPC endpoint service, of their own" in report.problems()["Kinesis"]


def test_an_arn_that_makes_no_host_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9")
    arn = f"arn:aws:kinesis:{REGION}:123456789012:queue/a_b"
    report = Report(call("doctor", "--queue", arn, "--json"))
    assert report.of("region", "ok") == [f"{REGION}, of the queue's ARN "]
    assert "Invalid queue id" in report.problems()["queue a_b"]


def test_a_closed_port_is_told(clinic: Clinic) -> None:
    with LocalServer(port=0) as other:
        gone = other.endpoint_url
    report = Report(
        call("doctor", "--queue", "q", "--region", REGION, "--endpoint", gone, "--json")
    )
    assert list(report.problems()) == ["Kinesis"]
    assert "nothing answers" in report.problems()["Kinesis"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "Give APP and its --stream, or --queue"),
        (("app",), "Give APP and its --stream, or --queue"),
        (("app", "--queue", "q"), "APP is of an application with leases"),
        (
            ("--queue", "q", "--efo", "--worker", "http://h"),
            "--efo, --worker are of an application",
        ),
        (("app", "--stream", "s", "--receive"), "--receive is of an application that consumes"),
        (("--queue", "q", "--new"), "--new needs the queue's name, and the --stream"),
        (("--queue", "q", "--stream", "s", "--stream", "t"), "A queue is of one stream"),
        (("--queue", "a queue"), "a queue's name has 1 to 128"),
        (("--queue", "arn:aws:kinesis:eu-west-1:1:stream/s"), "a queue's ARN looks like"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: tuple[str, ...], words: str) -> None:
    assert words in failure(call("doctor", *options))

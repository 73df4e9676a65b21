"""Uses the local server's queues by programs that others wrote: ``make interop-queues``.

They are boto3 and the AWS SDK for JavaScript. The latter makes each command that its release does
not have from botocore's service model. Needs Node.js. Exits with 1 if an answer is not as it should
be, with 2 if Node.js is missing.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import boto3
import botocore
from botocore import xform_name
from botocore.exceptions import ClientError, EndpointResolutionError

from sparkinesis.local import Call, Fault, LocalServer
from tests.interop.report import print_table
from tests.interop.servers import CACHE, HERE, REGION, MissingToolError, install, require
from tests.pace import eventually

ACCOUNT = "123456789012"
ARN = f"arn:aws:kinesis:{REGION}:{ACCOUNT}:queue/qabc"
_MODEL = Path(botocore.__file__).parent / "data" / "kinesis" / "2013-12-02"
_HEADING = ("client", "its release has", "queue operations", "calls", "hosts", "seconds")

Json = dict[str, Any]


class RefusedError(Exception):
    """An error of the service, by its code."""


class Client(Protocol):
    """A program's calls, with boto3's names and values."""

    name: str
    has: int
    """The queue operations of its release."""

    def call(self, operation: str, **given: Any) -> Json:
        """Make a call on the local server. Raises `RefusedError`."""

    def host(self, operation: str, given: Json, account: str | None, endpoint: str | None) -> str:
        """Return the host that a call would be sent to, or the message that says why to none."""


# boto3


class Boto3:
    """Unmodified boto3."""

    name = f"boto3 {boto3.__version__}"
    has = 12

    def __init__(self, endpoint: str) -> None:
        self._kinesis = boto3.client("kinesis", region_name=REGION, endpoint_url=endpoint)

    def call(self, operation: str, **given: Any) -> Json:
        try:
            answer: Json = getattr(self._kinesis, xform_name(operation))(**given)
        except ClientError as error:
            raise RefusedError(error.response["Error"]["Code"]) from None
        return answer

    def host(self, operation: str, given: Json, account: str | None, endpoint: str | None) -> str:
        session = boto3.Session("test", "test", region_name=REGION, aws_account_id=account)
        kinesis = session.client("kinesis", endpoint_url=endpoint)
        found: list[str] = []

        def note(request: Any, **_: Any) -> None:
            found.append(request.url.split("/")[2].partition(":")[0])
            raise RefusedError

        kinesis.meta.events.register("before-send.kinesis", note)
        try:
            getattr(kinesis, xform_name(operation))(**given)
        except RefusedError:
            return found[0]
        except EndpointResolutionError as error:
            return str(error)
        raise AssertionError(operation)


# The SDK for JavaScript


class JavaScript:
    """The runtime of the AWS SDK for JavaScript, in a process of its own."""

    def __init__(self, endpoint: str, process: subprocess.Popen[str], has: set[str]) -> None:
        version = json.loads((HERE / "package.json").read_text())["dependencies"]
        self.name = f"AWS SDK for JavaScript {version['@aws-sdk/client-kinesis']}"
        self.has = len({name for name in has if "Queue" in name})
        self._endpoint = endpoint
        self._process = process

    def call(self, operation: str, **given: Any) -> Json:
        answer = self._ask(operation=operation, input=given, endpoint=self._endpoint)
        if "error" in answer:
            raise RefusedError(answer["error"])
        output: Json = answer["output"]
        return output

    def host(self, operation: str, given: Json, account: str | None, endpoint: str | None) -> str:
        asked = {"account": account, "endpoint": endpoint, "onlyHost": True}
        message: str = self._ask(operation=operation, input=given, **asked)["message"]
        return message

    def _ask(self, **asked: Any) -> Json:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps(asked, default=lambda data: base64.b64encode(data).decode())
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return answer_of(self._process.stdout.readline())


def answer_of(line: str) -> Json:
    def opened(pairs: list[tuple[str, Any]]) -> Json:
        return {name: base64.b64decode(value) if name == "Data" else value for name, value in pairs}

    answer: Json = json.loads(line, object_pairs_hook=opened)
    return answer


@contextmanager
def javascript(endpoint: str) -> Iterator[JavaScript]:
    for path in _MODEL.glob("*.gz"):
        (CACHE / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    command = ["node", "--no-warnings", str(HERE / "sdk_for_javascript.cjs"), str(CACHE)]
    environment = {**os.environ, "NODE_PATH": str(CACHE / "node_modules")}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        has = json.loads(process.stdout.readline())["has"]
        yield JavaScript(endpoint, process, set(has))
        process.stdin.close()


# The life of a queue


class Life:
    """A stream, and a queue from its creation to its end, as one client sees them."""

    def __init__(self, client: Client, server: LocalServer, name: str) -> None:
        self.name = name
        self.server = server
        self.calls: list[str] = []
        self._client = client
        self.arn = ""
        """The queue's, once it is made."""

    def call(self, operation: str, **given: Any) -> Json:
        self.calls.append(operation)
        return self._client.call(operation, **given)

    def on_queue(self, operation: str, **given: Any) -> Json:
        return self.call(operation, QueueARN=self.arn, **given)

    def refused(self, operation: str, **given: Any) -> str:
        try:
            self.call(operation, **given)
        except RefusedError as error:
            return str(error)
        raise AssertionError(f"{operation} succeeds: {given}")

    def receive(self, count: int, dead: str = "", **given: Any) -> dict[bytes, Json]:
        """Receive until that many records have come, by their data."""
        found: dict[bytes, Json] = {}
        while len(found) < count:
            operation = f"Receive{dead}QueueRecords"
            answer = self.on_queue(operation, Limit=10, WaitTimeSeconds=20, **given)
            found |= {record["Data"]: record for record in answer["QueueRecords"]}
        assert len(found) == count, found
        return found

    def has_none(self, dead: str = "") -> bool:
        answer = self.on_queue(f"Receive{dead}QueueRecords", WaitTimeSeconds=1)
        return bool(answer["QueueRecords"] == [])

    def tell(self, operation: str, *entries: Json | str) -> list[str | None]:
        """Return the code of each entry of a call on receipt handles; None: it succeeded."""
        sent = [one if isinstance(one, dict) else {"ReceiptHandle": one} for one in entries]
        answer = self.on_queue(operation, Entries=sent)
        codes: dict[str, str | None] = dict.fromkeys(
            one["ReceiptHandle"] for one in answer["Successful"]
        )
        codes |= {one["ReceiptHandle"]: one["ErrorCode"] for one in answer["Failed"]}
        return [codes[one["ReceiptHandle"]] for one in sent]

    def status(self) -> str:
        described = self.on_queue("DescribeQueue")["QueueDescription"]
        return str(described["QueueStatus"])

    def play(self) -> None:
        """Play it. Raises AssertionError, and `RefusedError` for a call that should succeed."""
        self.begins()
        self.delivers()
        self.has_dead_letters()
        self.ends()

    def begins(self) -> None:
        mode = {"StreamMode": "ON_DEMAND"}
        self.call("CreateStream", StreamName=self.name, StreamModeDetails=mode)
        summary = {"StreamStatus": "CREATING"}
        while summary["StreamStatus"] == "CREATING":
            answer = self.call("DescribeStreamSummary", StreamName=self.name)
            summary = answer["StreamDescriptionSummary"]
        start = {"Type": "AT_TIMESTAMP", "Timestamp": time.time() - 60}
        stream = {"StreamARN": summary["StreamARN"], "StartingPosition": start}
        new = {
            "QueueName": f"{self.name}-queue",
            "StreamConfigurationList": [stream],
            "QueueAttributes": {
                "DeadLetterConfiguration": {"TargetType": "BUILT_IN", "MaxReceiveCount": 2}
            },
            "Tags": {"team": "orders"},
        }
        made = self.call("CreateQueue", **new)["QueueDescription"]
        self.arn = made["QueueARN"]
        assert made["QueueStatus"] == "CREATING"
        assert self.refused("ReceiveQueueRecords", QueueARN=self.arn) == "ResourceNotFoundException"
        while self.status() != "ACTIVE":
            time.sleep(0.02)
        assert self.refused("CreateQueue", **new) == "ResourceInUseException"
        self.on_queue("UpdateQueue", QueueAttributes={"VisibilityTimeoutSeconds": 60})
        while self.status() != "ACTIVE":
            time.sleep(0.02)
        attributes = self.on_queue("DescribeQueue")["QueueDescription"]["QueueAttributes"]
        assert attributes["VisibilityTimeoutSeconds"] == 60
        assert attributes["DeadLetterConfiguration"]["MaxReceiveCount"] == 2
        tags = self.call("ListTagsForResource", ResourceARN=self.arn)["Tags"]
        assert tags == [{"Key": "team", "Value": "orders"}]

        other = self.call("CreateQueue", **{**new, "QueueName": f"{self.name}-other"})
        other_arn = other["QueueDescription"]["QueueARN"]
        listed: list[str] = []
        token = None
        while token is not None or not listed:
            page = self.call("ListQueues", MaxResults=1, **({"NextToken": token} if token else {}))
            token = page.get("NextToken")
            listed += [one["QueueARN"] for one in page["QueueSummaries"]]
        assert {self.arn, other_arn} <= set(listed)
        self.call("DeleteQueue", QueueARN=other_arn)

    def delivers(self) -> None:
        # A receive waits before there is a record, and ends with the first.
        put = threading.Thread(target=self._put_once_polled)
        put.start()
        began = time.monotonic()
        first = self.receive(1)[b"\x00early"]
        assert time.monotonic() - began < 15, "of 20 seconds"
        put.join()
        assert (first["PartitionKey"], first["ReceiveCount"]) == ("k", 1)
        assert self.tell("AcknowledgeQueueRecords", first["ReceiptHandle"]) == [None]

        records = [{"Data": data, "PartitionKey": "k"} for data in (b"a", b"b", b"c")]
        assert not self.call("PutRecords", StreamName=self.name, Records=records)[
            "FailedRecordCount"
        ]
        came = self.receive(3)
        handles = [came[data]["ReceiptHandle"] for data in (b"a", b"b", b"c")]
        for_120, at_once = [
            {"ReceiptHandle": handle, "VisibilityTimeoutSeconds": seconds}
            for handle, seconds in zip(handles, (120, 0), strict=False)
        ]
        void = {"ReceiptHandle": "none", "VisibilityTimeoutSeconds": 0}
        told = self.tell("UpdateQueueRecordsVisibility", for_120, at_once, void)
        assert told == [None, None, "InvalidArgumentException"]
        again = self.receive(1)[b"b"]
        assert (again["RecordId"], again["ReceiveCount"]) == (came[b"b"]["RecordId"], 2)
        assert again["ReceiptHandle"] != came[b"b"]["ReceiptHandle"]
        with self._third_is_throttled():
            told = self.tell("AcknowledgeQueueRecords", *handles)
        assert told == [None, "ResourceNotFoundException", "ThrottlingException"]
        assert self.tell("AcknowledgeQueueRecords", handles[2]) == [None]
        # This was its last delivery.
        release = {"ReceiptHandle": again["ReceiptHandle"], "VisibilityTimeoutSeconds": 0}
        assert self.tell("UpdateQueueRecordsVisibility", release) == [None]
        assert self.has_none()

    def has_dead_letters(self) -> None:
        dead = "DeadLetter"
        letter = self.receive(1, dead, VisibilityTimeoutSeconds=30)[b"b"]
        release = {"ReceiptHandle": letter["ReceiptHandle"], "VisibilityTimeoutSeconds": 0}
        assert self.tell("UpdateDeadLetterQueueRecordsVisibility", release) == [None]
        again = self.receive(1, dead)[b"b"]["ReceiptHandle"]
        told = self.tell("RestoreDeadLetterQueueRecords", letter["ReceiptHandle"], again)
        assert told == ["ResourceNotFoundException", None]
        for count in (1, 2):
            record = self.receive(1)[b"b"]
            assert record["ReceiveCount"] == count
            release = {"ReceiptHandle": record["ReceiptHandle"], "VisibilityTimeoutSeconds": 0}
            assert self.tell("UpdateQueueRecordsVisibility", release) == [None]
        letter = self.receive(1, dead)[b"b"]
        assert self.tell("AcknowledgeDeadLetterQueueRecords", letter["ReceiptHandle"]) == [None]
        assert self.has_none(dead)

    def ends(self) -> None:
        assert self.refused("DeleteStream", StreamName=self.name) == "ResourceInUseException"
        self.on_queue("DeleteQueue")
        assert self.status() == "DELETING"
        eventually(self._is_gone)
        self.call("DeleteStream", StreamName=self.name)

    def _is_gone(self) -> bool:
        try:
            self.status()
        except RefusedError as error:
            return str(error) == "ResourceNotFoundException"
        return False

    def _put_once_polled(self) -> None:
        queues = self.server.kinesis._regions[REGION].queues
        eventually(lambda: any(queue.polls for queue in queues.values()))
        put = {"StreamName": self.name, "Data": b"\x00early", "PartitionKey": "k"}
        self.server.kinesis.call("PutRecord", region=REGION, **put)

    @contextmanager
    def _third_is_throttled(self) -> Iterator[None]:
        def fault(call: Call) -> Fault | None:
            is_acknowledgement = call.operation == "AcknowledgeQueueRecords"
            entry = frozenset({2})
            return Fault("ThrottlingException", entries=entry) if is_acknowledgement else None

        self.server.kinesis.faults = fault
        yield
        self.server.kinesis.faults = None


# Hosts

_FAR = ARN.replace(REGION, "eu-west-1")
_HOSTS: tuple[tuple[str, Json, str | None, str | None, str], ...] = (
    ("ReceiveQueueRecords", {"QueueARN": ARN}, None, None, "qabc.data-kinesis-queues.{aws}"),
    ("DescribeQueue", {"QueueARN": ARN}, None, None, "qabc.control-kinesis-queues.{aws}"),
    ("DescribeQueue", {"QueueARN": ARN}, ACCOUNT, None, "qabc.control-kinesis-queues.{aws}"),
    ("ListTagsForResource", {"ResourceARN": ARN}, None, None, "qabc.control-kinesis-queues.{aws}"),
    ("ListQueues", {}, None, None, "kinesis-queues.{aws}"),
    ("ListQueues", {}, ACCOUNT, None, f"{ACCOUNT}.control-kinesis-queues.{{aws}}"),
    # The region is that of the client, whatever the ARN says.
    ("ReceiveQueueRecords", {"QueueARN": _FAR}, None, None, "qabc.data-kinesis-queues.{aws}"),
    ("ReceiveQueueRecords", {"QueueARN": ARN}, ACCOUNT, "http://127.0.0.1:9", "127.0.0.1"),
    ("ListQueues", {}, ACCOUNT, "http://127.0.0.1:9", "127.0.0.1"),
    # An id that is no label of a host is refused without an endpoint only.
    ("DescribeQueue", {"QueueARN": f"{ARN}_x"}, None, None, "Invalid ARN: Invalid queue id."),
    ("DescribeQueue", {"QueueARN": f"{ARN}_x"}, None, "http://127.0.0.1:9", "127.0.0.1"),
)


def wrong_hosts(client: Client) -> list[str]:
    """Return what is not as the rules of botocore's model say."""
    wrong = []
    for operation, given, account, endpoint, expected in _HOSTS:
        host = client.host(operation, given, account, endpoint)
        if host != expected.format(aws=f"{REGION}.amazonaws.com"):
            wrong.append(f"{operation} {given}, {account}, {endpoint}: {host}")
    return wrong


def main() -> int:
    try:
        require("Node.js 18 or newer is needed here: install it", "node", "npm")
        install(())
    except MissingToolError as error:
        print(f"Nothing was tried: {error}", file=sys.stderr)
        return 2
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test")
    rows = [_HEADING]
    is_good = True
    with LocalServer(stream_delay_ms=500) as server, ExitStack() as stack:
        makers: list[Callable[[str], Client]] = [
            Boto3,
            lambda endpoint: stack.enter_context(javascript(endpoint)),
        ]
        for number, make in enumerate(makers):
            client = make(server.endpoint_url)
            began = time.monotonic()
            life = Life(client, server, f"s{number}")
            life.play()
            wrong = wrong_hosts(client)
            is_good = is_good and not wrong
            print(*wrong, sep="\n", end="\n" if wrong else "")
            used = {name for name in life.calls if "Queue" in name}
            good = f"{len(_HOSTS) - len(wrong)} of {len(_HOSTS)}"
            seconds = f"{time.monotonic() - began:.0f}"
            row = (client.name, f"{client.has} of 12", f"{len(used)} of 12", str(len(life.calls)))
            rows.append((*row, good, seconds))
    print_table(rows, texts=1)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())

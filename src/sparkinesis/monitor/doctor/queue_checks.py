"""A queue: its host, its state, its stream, its dead letters, and the permissions of a receiver.

Nothing is changed. No call of the service shows a record without receiving it, which counts as a
delivery: so none is received unless the user asks for it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError
from msgspec.structs import replace

from sparkinesis.errors import QueueNotFoundError, ServiceError, SparkinesisError
from sparkinesis.monitor.doctor import judge
from sparkinesis.monitor.doctor.examination import credentials, region, software
from sparkinesis.monitor.doctor.judge import Finding, State, note, ok, problem, problem_of
from sparkinesis.monitor.doctor.service import (
    RETRY,
    FailedCallError,
    Service,
    permissions,
    reach,
    with_refusals,
)
from sparkinesis.queue.client import MOST_ENTRIES, QueueClient, QueueDescription, explain_queue
from sparkinesis.queue.finding import Queues
from sparkinesis.queue.options import DEFAULT_QUEUE_OPTIONS
from sparkinesis.stream.address import (
    FOUND_BY_BOTO,
    CredentialSource,
    StreamAddress,
    stream_address,
)
from sparkinesis.stream.calls.client import StreamClient, StreamSummary
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.calls.session import open_client
from sparkinesis.stream.fan_out.registered_consumers import MOST_CONSUMERS

_ONCE = Backoff(give_up_after=0.0)
_PERMITTED = {"InvalidArgumentException", "ThrottlingException"}
"""Codes that a call gets which is permitted."""
_REFUSED_REQUEST = {"ValidationException", "InvalidArgumentException", "LimitExceededException"}
_NOBODY = "sparkinesis doctor: no record has this receipt handle"
_AT_ONCE = {"WaitTimeSeconds": 1, "VisibilityTimeoutSeconds": 0}
"""What is received so is released by the same call."""

SOON = 6.0
"""Hours: dead letters that expire sooner are a problem."""
FEW_DELIVERIES = 2
_OF_STREAMS = re.compile(
    r"(?:.+\.)?(?:(?:data|control)-)?kinesis(?:-fips)?\.[a-z0-9-]+\."
    r"(?:vpce\.)?(?:amazonaws\.com(?:\.cn)?|api\.aws)"
)
"""The hosts of AWS that answer for streams. Those of queues have kinesis-queues in their names."""


@dataclass(frozen=True)
class QueuePatient:
    """The queue to examine."""

    queue: str
    """Its name or ARN."""
    region: str | None = None
    endpoint: str | None = None
    """The URL of queues, and of streams; None: AWS's."""
    credentials: CredentialSource = FOUND_BY_BOTO
    stream: StreamAddress | None = None
    """The stream that it has to be of; None: any."""
    handler_time: float | None = None
    """The seconds that the slowest handler takes; None: not known."""
    receives: bool = False
    """A record and some dead letters may be received."""
    is_new: bool = False
    """A missing queue is no problem: the application makes it, of the stream."""


def examine_queue(patient: QueuePatient) -> Iterator[Finding]:
    """Yield the findings, as they are made. Raises `OptionError` for an ARN that is none."""
    try:
        queues = Queues(patient.region, patient.endpoint, patient.credentials, RETRY)
    except ServiceError as error:  # boto3 is older than queues
        yield from (software(), problem_of("versions", error))
        return
    given = queues.locate(patient.queue) if patient.queue.startswith("arn:") else None
    place = given or queues
    yield software()
    where = region(place, None if given is None else "queue")
    yield where
    if where.state is State.PROBLEM:
        return
    found = credentials(place)
    yield from found
    if not judge.is_well(found):
        return
    try:
        client = open_client(
            "kinesis", place.credentials, place.region, place.endpoint, read_timeout=10
        )
    except BotoCoreError as error:
        yield problem_of("Kinesis", explain_queue(error, "Kinesis", f"{place}", place))
        return
    yield from _Examination(patient, queues, client).findings()


class _Examination:
    """The checks that call the service, in their order."""

    def __init__(self, patient: QueuePatient, queues: Queues, client: Any) -> None:
        self._patient = patient
        self._queues = queues
        self._client = client
        self._check = f"queue {patient.queue.rpartition('queue/')[2]}"
        self._reached: set[str] = set()
        """The hosts that were looked at."""

    def findings(self) -> Iterator[Finding]:
        patient = self._patient
        try:
            if not patient.queue.startswith("arn:") and not (
                yield from self._can_reach("list_queues")
            ):
                return
            address = self._queues.locate(patient.queue)
            if not (yield from self._can_reach("receive_queue_records", QueueARN=address.arn)):
                return
            queue = QueueClient(address, RETRY).describe()
        except QueueNotFoundError as error:
            if patient.is_new and patient.stream is not None:
                yield ok(self._check, "there is no such queue yet: create=NewQueue(...) makes it")
                yield from self._making(StreamClient(patient.stream, RETRY))
            else:
                yield problem_of(self._check, error)
            return
        except SparkinesisError as error:
            yield problem_of(self._check, error)
            return
        except BotoCoreError as error:  # no host can be made of the ARN
            explained = explain_queue(error, "a call", self._check, self._queues)
            yield problem_of(self._check, explained)
            return
        found = state(self._check, queue, patient.stream)
        yield found
        if found.state is State.PROBLEM:
            return
        yield from holding(queue, patient.handler_time)
        stream = stream_address(queue.stream_arn, None, patient.endpoint, patient.credentials)
        summary = yield from self._stream(StreamClient(stream, RETRY))
        service = self._service(str(address))
        yield from self._permissions(service, queue)
        if patient.receives:
            yield from self._dead_letters(service, queue, summary)
        if service.ahead is not None:
            yield judge.clock(service.ahead)

    def _can_reach(self, method: str, **request: Any) -> Generator[Finding, None, bool]:
        """Yield whether the host of a call can be reached, once for each host; return it, too."""
        # botocore has the rules that make a host of a queue's ARN: it signs a URL without a call.
        url = urlsplit(self._client.generate_presigned_url(method, Params=request))
        base = f"{url.scheme}://{url.netloc}"
        if base in self._reached:
            return True
        self._reached.add(base)
        found = of_streams(url.hostname or "") or reach("Kinesis", base)
        yield found
        return found.state is not State.PROBLEM

    def _service(self, subject: str) -> Service:
        return Service(
            self._client,
            lambda error, operation: explain_queue(error, operation, subject, self._queues),
            _ONCE,  # a receive that is made again takes records twice
        )

    def _stream(self, client: StreamClient) -> Generator[Finding, None, StreamSummary | None]:
        check, is_new = f"stream {client.address.name}", self._patient.is_new
        try:
            summary = client.describe()
        except SparkinesisError as error:
            found = problem_of(check, error)
            # Only those that make a queue ask for its stream.
            yield found if is_new else replace(found, state=State.NOTE)
            return None
        yield from of_summary(check, summary, is_new=is_new)
        return summary

    def _making(self, stream: StreamClient) -> Iterator[Finding]:
        """Ask for permissions by a request that is not valid, so that no queue is made."""
        if (yield from self._stream(stream)) is None:
            return
        service = self._service(f"queue {self._patient.queue!r} of {stream.address}")
        start = {"Type": "AT_TIMESTAMP"}  # which needs an instant
        request = {
            "QueueName": self._patient.queue,
            "StreamConfigurationList": [
                {"StreamARN": stream.stream_arn(), "StartingPosition": start}
            ],
        }
        found = permissions("permissions", service, {"CreateQueue": request}, _REFUSED_REQUEST)
        if judge.is_well(found):
            what = "CreateQueue was tried with a request that makes no queue: none is missing"
            found = [ok("permissions", what)]
        yield from found

    def _permissions(self, service: Service, queue: QueueDescription) -> Iterator[Finding]:
        held = {"ReceiptHandle": _NOBODY}
        longer = {**held, "VisibilityTimeoutSeconds": 0}
        calls = {
            "AcknowledgeQueueRecords": {"QueueARN": queue.arn, "Entries": [held]},
            "UpdateQueueRecordsVisibility": {"QueueARN": queue.arn, "Entries": [longer]},
        }
        yield from permissions("permissions", service, calls, _PERMITTED)
        if self._patient.receives:
            yield from with_refusals("permissions", _received(service, queue))
        else:
            yield note(
                "permissions",
                "ReceiveQueueRecords was not checked, nor kms:Decrypt, and no dead letters were "
                "looked for: each takes a receive, which counts as a delivery",
                "--receive receives a record and up to ten dead letters, and releases them.",
            )

    def _dead_letters(
        self, service: Service, queue: QueueDescription, summary: StreamSummary | None
    ) -> Iterator[Finding]:
        request = {"QueueARN": queue.arn, "Limit": MOST_ENTRIES, **_AT_ONCE}
        try:
            found = service.call("ReceiveDeadLetterQueueRecords", **request)["QueueRecords"]
        except FailedCallError as refused:  # those that receive records need no such permission
            yield replace(problem_of("dead letters", refused.explained), state=State.NOTE)
            return
        arrived = [one["ApproximateArrivalTimestamp"].timestamp() for one in found]
        hours = None if summary is None else summary.retention_ms / 3_600_000
        yield dead_letters(arrived, hours, time.time() - (service.ahead or 0.0))


def _received(service: Service, queue: QueueDescription) -> Iterator[Finding]:
    answer = service.call("ReceiveQueueRecords", QueueARN=queue.arn, Limit=1, **_AT_ONCE)
    what = "; no record was there"
    for one in answer["QueueRecords"]:
        what = (
            f"; record {one['RecordId']} was received and released: receive {one['ReceiveCount']}"
        )
    yield ok("permissions", f"ReceiveQueueRecords may be called{what}")


# What the facts mean. Pure.


def of_streams(host: str) -> Finding | None:
    """Judge the host of calls on queues; None: it may be one that answers for queues."""
    if not _OF_STREAMS.fullmatch(host):
        return None
    return problem(
        "Kinesis",
        f"{host} is an endpoint of streams, and calls on queues go to it",
        "Queues have hosts, and a VPC endpoint service, of their own. Leave --endpoint and the "
        "variable AWS_ENDPOINT_URL_KINESIS out, or name the endpoint of queues.",
    )


def state(check: str, queue: QueueDescription, wanted: StreamAddress | None) -> Finding:
    """Judge the state of a queue, and whose it is."""
    name = queue.stream_arn.rpartition(":stream/")[2]
    if wanted is not None and (wanted.arn or wanted.name) not in {queue.stream_arn, name}:
        return problem(
            check,
            f"it is a queue of {queue.stream_arn}, not of {wanted}",
            "Name another queue: a name is unique in an account and region.",
        )
    what = f"{queue.status}, of the stream {name}"
    if queue.status == "DELETING":
        return problem(check, what, "Name another queue, or make it anew once it is gone.")
    if queue.status == "CREATING":
        return note(check, what, "A process that starts waits until it is ACTIVE.")
    return ok(check, what)


def holding(queue: QueueDescription, handler_time: float | None) -> Iterator[Finding]:
    """Judge how long records are held, and how often they are delivered."""
    seconds, limit = queue.visibility_timeout, DEFAULT_QUEUE_OPTIONS.time_limit
    what = f"a record is held for {seconds} s"
    longer = "" if handler_time is None else f", and a handler takes {handler_time:g} s"
    if seconds < 2:
        yield problem(
            "visibility",
            f"{what}, in which none can be handled",
            "Give QueueOptions(visibility_timeout=30), or run: sparkinesis queues update "
            f"{queue.name} --visibility-timeout 30.",
        )
    elif handler_time is not None and handler_time > limit:
        yield problem(
            "visibility",
            f"holds end after {limit:,.0f} s, extensions included{longer}",
            "Give QueueOptions(time_limit=...) more than that.",
        )
    elif handler_time is not None and handler_time > seconds:
        yield note(
            "visibility",
            f"{what}{longer}: it is extended meanwhile",
            "Leave QueueOptions(extend=True), the default; without it, the record is delivered "
            "again while its handler runs.",
        )
    else:
        yield ok("visibility", f"{what}{longer}")
    most = queue.max_receive_count
    if most is None:
        yield note(
            "deliveries",
            "no record becomes a dead letter: one that fails comes again until it expires",
            f"sparkinesis queues update {queue.name} --max-receive-count 6 limits that.",
        )
    elif most <= FEW_DELIVERIES:
        yield note(
            "deliveries",
            f"a record becomes a dead letter after {judge.counted(most, 'receive')}; a process "
            "that is killed, a shutdown and a failed handler each cost one",
            f"sparkinesis queues update {queue.name} --max-receive-count 6 permits more.",
        )


def of_summary(check: str, summary: StreamSummary, *, is_new: bool) -> Iterator[Finding]:
    """Judge the stream of a queue, which may be there or, ``is_new``, not yet."""
    hours = summary.retention_ms / 3_600_000
    if summary.mode == "PROVISIONED":
        yield problem(
            check,
            "the stream is PROVISIONED, and only on-demand streams have queues",
            "Switch it (aws kinesis update-stream-mode), or name another stream.",
        )
    else:
        yield ok(check, f"{summary.mode or 'of an unknown mode'}, keeps records for {hours:g} h")
    if is_new and summary.consumers >= MOST_CONSUMERS:
        yield note(
            "limits",
            f"the stream has {summary.consumers} queues and registered consumers; it may have "
            f"{MOST_CONSUMERS}, some 50",
            "If the queue cannot be made, delete one that is not used (sparkinesis queues delete), "
            "or deregister a consumer.",
        )


def dead_letters(arrived: Sequence[float], keeps_hours: float | None, now: float) -> Finding:
    """Judge the dead letters that a receive has brought.

    arrived: their arrivals in the stream, in epoch seconds. keeps_hours: the retention of the
    stream; None: not known. now: epoch seconds of the service.
    """
    if not arrived:
        return ok("dead letters", "none was received")
    at_least = "at least " if len(arrived) == MOST_ENTRIES else ""
    what = f"{at_least}{judge.counted(len(arrived), 'dead letter')}, received and released"
    mend = (
        "Mend what failed, then run `sparkinesis queues dead-letters`, which restores, exports and "
        "discards them."
    )
    if keeps_hours is None:
        return note("dead letters", what, mend)
    ends = min(arrived) + 3600 * keeps_hours
    shown = datetime.fromtimestamp(ends, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    what += f"; the oldest of these expires at {shown}, with the stream's retention"
    if ends - now > 3600 * SOON:
        return note("dead letters", what, mend)
    return problem(
        "dead letters",
        what,
        f"{mend} A longer retention gives more time: aws kinesis increase-stream-retention-period.",
    )

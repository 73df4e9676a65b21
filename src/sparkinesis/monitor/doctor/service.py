"""One service, whether it can be reached, and the doctor's calls of it; and the checks of a stream.

Each call is made once or twice, and its errors are explained. The checks of a stream are those of
the permissions to read it, of its consumer, and of the limits of its account.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies

from sparkinesis.errors import SparkinesisError
from sparkinesis.monitor.doctor import judge
from sparkinesis.monitor.doctor.judge import Finding, State, note, ok, problem, problem_of
from sparkinesis.stream.address import StreamAddress, StreamMark
from sparkinesis.stream.calls.explain import explain
from sparkinesis.stream.calls.retry import Backoff, error_code
from sparkinesis.stream.calls.session import open_client
from sparkinesis.stream.timing import second_of

_TIMEOUT = 5.0
"""Seconds for each step."""


def reach(check: str, url: str, timeout: float = _TIMEOUT) -> Finding:
    """Connect to an endpoint, or to the proxy that requests to it go through."""
    proxy = get_environ_proxies(url).get(urlsplit(url).scheme)
    target = urlsplit(proxy if proxy and "://" in proxy else f"http://{proxy}" if proxy else url)
    host = target.hostname or ""
    port = target.port or (443 if target.scheme == "https" else 80)
    where = f"the proxy {host}:{port}" if proxy else f"{host}:{port}"
    unset = (
        " The proxy is from the environment (HTTPS_PROXY, HTTP_PROXY); NO_PROXY names the hosts "
        "that are called without one."
        if proxy
        else ""
    )
    try:
        with socket.create_connection((host, port), timeout) as connection:
            if target.scheme == "https":
                _shake_hands(connection, host)
    except socket.gaierror as error:
        return problem(
            check,
            f"the name {host!r} has no address: {error.strerror or error}",
            "Check the region and the endpoint for a typing error, and this machine's DNS; in a "
            f"private network, the service's VPC endpoint.{unset}",
        )
    except ssl.SSLError as error:
        return problem(
            check,
            f"{where} does not pass for {host!r}: {error}",
            "If a proxy or a private endpoint has a certificate of its own, name its authority "
            "by the environment variable AWS_CA_BUNDLE.",
        )
    except OSError as error:
        return problem(
            check,
            f"nothing answers at {where}: {error}",
            "Check the endpoint and its port, and that routes, security groups and firewalls let "
            f"this machine through.{unset}",
        )
    return ok(check, f"{where} can be reached" + (f", for {url}" if proxy else ""))


def _shake_hands(connection: socket.socket, host: str) -> None:
    authorities = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE")
    trusted = ssl.create_default_context(cafile=authorities or get_cert_path(verify=True))
    with trusted.wrap_socket(connection, server_hostname=host):
        pass


RETRY = Backoff(base=0.1, cap=1.0, give_up_after=5.0)

Explain: TypeAlias = Callable[[ClientError | BotoCoreError, str], SparkinesisError]
"""Returns what to raise for the error of an operation."""


class FailedCallError(Exception):
    """A call that failed: the service's code, and the error that explains it."""

    def __init__(self, code: str, explained: SparkinesisError) -> None:
        super().__init__(str(explained))
        self.code = code
        self.explained = explained


class NotKnownError(Exception):
    """The installed botocore does not know a parameter of a call."""


class Service:
    """Calls of one service. For one thread."""

    def __init__(
        self,
        client: Any,
        explain: Explain,
        retry: Backoff = RETRY,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.url = str(client.meta.endpoint_url)
        self.ahead: float | None = None
        """The seconds that this machine's clock is ahead of the service's, by the latest answer;
        None: there was no answer."""
        self._client = client
        self._explain = explain
        self._retry = retry
        self._wall_clock = wall_clock

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """Make a call. Raises `FailedCallError` or `NotKnownError`."""
        method = getattr(self._client, xform_name(operation))
        try:
            answer: dict[str, Any] = self._retry.call(lambda: method(**request))
        except ParamValidationError as error:
            raise NotKnownError(str(error)) from error
        except ClientError as error:
            self._note_clock(error.response)
            raise FailedCallError(error_code(error), self._explain(error, operation)) from error
        except BotoCoreError as error:
            raise FailedCallError(error_code(error), self._explain(error, operation)) from error
        self._note_clock(answer)
        return answer

    def _note_clock(self, answer: Mapping[str, Any]) -> None:
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        self.ahead = clock_ahead(headers.get("date"), self._wall_clock())


def clock_ahead(date: str | None, now: float) -> float | None:
    """Return the seconds that a clock is ahead of an answer's ``Date`` header. Pure.

    ``now``: the epoch seconds at the answer. A header has whole seconds: it stands for their
    middle. None without a valid header.
    """
    there = second_of(date)
    return None if there is None else now - (there + 0.5)


def with_refusals(check: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield findings; a call that is refused is a problem, and ends them."""
    try:
        yield from findings
    except FailedCallError as refused:
        yield problem_of(check, refused.explained)


def permissions(
    check: str,
    service: Service,
    calls: Mapping[str, Mapping[str, Any]],
    expected: Collection[str],
) -> list[Finding]:
    """Make calls without effect, and return which of them are permitted.

    calls: the arguments by operation. expected: the codes of errors that a permitted call gives.
    """
    permitted: list[str] = []
    found: list[Finding] = []
    for operation, request in calls.items():
        try:
            service.call(operation, **request)
        except NotKnownError:
            found.append(
                note(check, f"{operation} was not checked: the installed boto3 is too old")
            )
            continue
        except FailedCallError as refused:
            if refused.code not in expected:
                found.append(problem_of(check, refused.explained))
                continue
        permitted.append(operation)
    if permitted:
        found.insert(0, ok(check, f"{', '.join(permitted)} may be called"))
    return found


DRY = "DryRunOperationException"
"""The answer to a call with ``DryRun`` that would succeed."""
_THROTTLED = "ProvisionedThroughputExceededException"
"""A call that is throttled is permitted: other readers use the shard."""
_MOST_PAGES = 20


def kinesis(address: StreamAddress) -> Service:
    """Return the Kinesis of a stream. Raises botocore's errors for a missing region or profile."""
    client = open_client(
        "kinesis", address.credentials, address.region, address.endpoint, read_timeout=10
    )
    return Service(client, lambda error, operation: explain(error, operation, address, None, None))


class StreamChecks:
    """The checks of one stream, in their order."""

    def __init__(self, service: Service, address: StreamAddress) -> None:
        self.shard_ids: tuple[str, ...] = ()
        """The stream's shards; known after `checks`."""
        self.mark: StreamMark | None = None
        """The stream, as rows of its application name it; known after `checks`."""
        self._service = service
        self._address = address
        self._id: dict[str, Any] = (
            {"StreamARN": address.arn} if address.arn else {"StreamName": address.name}
        )
        self._arn = ""
        self._honours_dry_run = False
        """The server has said that it does not do what ``DryRun`` asks it not to do."""

    def checks(self, consumer: str, *, efo: bool, writes: bool) -> Iterator[Finding]:
        """Yield the findings. Nothing is written, and no record is taken from another reader.

        consumer: the name of the registered consumer, which matters only with enhanced fan-out.
        """
        check = f"stream {self._address.name}"
        try:
            answer = self._service.call("DescribeStreamSummary", **self._id)
        except FailedCallError as refused:
            yield problem_of(check, refused.explained)
            return
        summary = answer["StreamDescriptionSummary"]
        self._arn = summary["StreamARN"]
        created: datetime | None = summary.get("StreamCreationTimestamp")
        created_ms = 0 if created is None else round(created.timestamp() * 1000)
        self.mark = StreamMark.of(self._arn, created_ms)
        yield _summary(check, summary)
        yield from with_refusals(check, self._reading(check))
        if writes:
            yield self._writing(check)
        for found in with_refusals("consumer", self._consumer(consumer)):
            is_minor = found.state is State.PROBLEM and not efo
            yield msgspec.structs.replace(found, state=State.NOTE) if is_minor else found

    def _reading(self, check: str) -> Iterator[Finding]:
        self.shard_ids = tuple(self._list_shards())
        shard = self.shard_ids[-1]
        request = {**self._id, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
        iterator = self._service.call("GetShardIterator", **request)["ShardIterator"]
        read: dict[str, Any] = {"ShardIterator": iterator, "Limit": 1, "DryRun": True}
        if self._address.arn:
            read["StreamARN"] = self._address.arn
        try:
            self._service.call("GetRecords", **read)
        except NotKnownError:
            yield note(check, "GetRecords was not checked: the installed boto3 is too old")
            return
        except FailedCallError as refused:
            if refused.code not in {DRY, _THROTTLED}:
                raise
            self._honours_dry_run = refused.code == DRY
        yield ok(check, "ListShards, GetShardIterator and GetRecords may be called")

    def _list_shards(self) -> list[str]:
        request, found = self._id, list[str]()
        for _ in range(_MOST_PAGES):
            answer = self._service.call("ListShards", **request)
            found += [shard["ShardId"] for shard in answer["Shards"]]
            token = answer.get("NextToken")
            if not token:
                break
            request = {"NextToken": token}
        return found

    def _writing(self, check: str) -> Finding:
        if not self._honours_dry_run:
            return note(check, "PutRecord was not checked: this server may store the record")
        request = {**self._id, "Data": b"-", "PartitionKey": "-", "DryRun": True}
        (found,) = permissions(check, self._service, {"PutRecord": request}, {DRY, _THROTTLED})
        return found

    def _consumer(self, name: str) -> Iterator[Finding]:
        try:
            answer = self._service.call(
                "DescribeStreamConsumer", StreamARN=self._arn, ConsumerName=name
            )
        except FailedCallError as refused:
            if refused.code != "ResourceNotFoundException":
                raise
            others = self._service.call("ListStreamConsumers", StreamARN=self._arn).get(
                "Consumers", ()
            )
            yield judge.consumers(f"{name!r} of {self._address.name}", len(others))
            return
        consumer = answer["ConsumerDescription"]
        status, arn = consumer["ConsumerStatus"], consumer["ConsumerARN"]
        if status != "ACTIVE":
            yield problem(
                "consumer", f"the consumer {name!r} is {status}", "Wait until it is ACTIVE."
            )
            return
        yield ok("consumer", f"{name!r} of {self._address.name} is ACTIVE")
        if not self._honours_dry_run or not self.shard_ids:
            return
        request = {
            "ConsumerARN": arn,
            "ShardId": self.shard_ids[-1],
            "StartingPosition": {"Type": "LATEST"},
            "DryRun": True,
        }
        in_use = "ResourceInUseException"  # a worker has subscribed a moment ago
        yield from permissions(
            "consumer", self._service, {"SubscribeToShard": request}, {DRY, _THROTTLED, in_use}
        )

    def limits(self) -> Iterator[Finding]:
        """Yield the findings about the account of the stream."""
        try:
            answer = self._service.call("DescribeLimits")
        except FailedCallError:
            return  # workers do not need this permission
        yield judge.limit(
            "shards of the account are open", answer["OpenShardCount"], answer["ShardLimit"]
        )


def _summary(check: str, summary: dict[str, Any]) -> Finding:
    status = summary["StreamStatus"]
    if status not in {"ACTIVE", "UPDATING"}:
        return problem(check, f"the stream is {status}", "Wait until it is ACTIVE.")
    created: datetime | None = summary.get("StreamCreationTimestamp")
    since = f", made {created.astimezone(timezone.utc):%Y-%m-%d}" if created else ""
    count = summary.get("OpenShardCount")  # not all servers have it
    shards = "? open shards" if count is None else judge.counted(count, "open shard")
    return ok(
        check,
        f"{status}, {shards}, keeps records for {summary['RetentionPeriodHours']} h{since}",
    )

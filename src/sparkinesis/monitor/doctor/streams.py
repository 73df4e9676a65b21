"""A stream, the permissions to read it, its consumer, and the limits of its account."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import msgspec

from sparkinesis.monitor.doctor import judge
from sparkinesis.monitor.doctor.judge import Finding, State, note, ok, problem, problem_of
from sparkinesis.monitor.doctor.service import (
    FailedCallError,
    NotKnownError,
    Service,
    permissions,
    refusals_told,
)
from sparkinesis.stream.address import StreamAddress, StreamMark
from sparkinesis.stream.calls.explain import explain
from sparkinesis.stream.calls.session import open_client

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
        yield from refusals_told(check, self._reading(check))
        if writes:
            yield self._writing(check)
        for found in refusals_told("consumer", self._consumer(consumer)):
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
    count = summary.get("OpenShardCount")  # not all servers tell it
    shards = "? open shards" if count is None else judge.counted(count, "open shard")
    return ok(
        check,
        f"{status}, {shards}, keeps records for {summary['RetentionPeriodHours']} h{since}",
    )

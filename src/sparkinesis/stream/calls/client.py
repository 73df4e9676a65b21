"""The calls that read and write a stream: their requests, and the values of their answers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import msgspec
from botocore.exceptions import BotoCoreError

from sparkinesis.errors import ServiceError, ShardNotFoundError, StreamNotFoundError
from sparkinesis.metrics.catalogue import (
    BYTES_FETCHED,
    RECORDS_FETCHED,
)
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.answers.decoding import warn_if_mended
from sparkinesis.stream.calls.answers.guards import pages, text
from sparkinesis.stream.calls.caller import SentCall, StreamCaller, call_client
from sparkinesis.stream.calls.operations import pays_in_cbor
from sparkinesis.stream.calls.retry import Backoff, Retries
from sparkinesis.stream.calls.subscription import Subscription, subscribe
from sparkinesis.stream.page import Fetched
from sparkinesis.stream.position import (
    LATEST,
    TRIM_HORIZON,
    AtTimestamp,
    Position,
    iterator_type,
    starting_position,
)
from sparkinesis.stream.put_entry import PutEntry, PutResult
from sparkinesis.stream.shard import Shard, ShardMap
from sparkinesis.stream.timing import service_time

_SHARD_ID = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
"""The shard ids that the service accepts. An offset that a user edited may hold any text."""


class StreamSummary(msgspec.Struct, frozen=True):
    """The part of DescribeStreamSummary's answer that readers need."""

    retention_ms: int
    service_time_ms: int
    distributes_records: bool = False
    """The service puts records into any shard, regardless of hash keys, and accepts records without
    a partition key (RecordDistributionStrategy AUTO)."""
    created_ms: int = 0
    """The stream's creation time in epoch ms; 0 if the service does not return it."""
    status: str = ""
    """``CREATING``, ``ACTIVE``, ``UPDATING`` or ``DELETING``; empty if it is not returned."""
    mode: str = ""
    """``ON_DEMAND`` or ``PROVISIONED``; empty if it is not returned."""
    consumers: int = 0
    """The registered consumers and the queues, which share a limit."""


class StreamClient(StreamCaller):
    """The calls on one stream. Threads may share a client; it holds no position.

    Raises the errors of `StreamCaller`.
    """

    def __init__(
        self,
        address: StreamAddress,
        retry: Backoff | None = None,
        wall_clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        metrics: Metrics = OFF,
    ) -> None:
        super().__init__(address, retry or Backoff(), metrics)
        self.wall_clock_ms = wall_clock_ms
        self._arn = address.arn or ""
        """Empty until DescribeStreamSummary returns the ARN, which never changes for a name."""
        self._in_cbor: set[str] = set()
        """The shards whose last page was such that CBOR pays."""

    def describe(self, retry: Backoff | None = None) -> StreamSummary:
        """Call DescribeStreamSummary. Raises `StreamNotFoundError` if the stream does not exist."""
        sent_ms = self.wall_clock_ms()

        def describe(client: Any) -> StreamSummary:
            answer = client.describe_stream_summary(**self._id())
            summary = answer["StreamDescriptionSummary"]
            self._arn = text(summary["StreamARN"])
            return StreamSummary(
                int(summary["RetentionPeriodHours"]) * 3_600_000,
                self.service_time(answer, sent_ms),
                summary.get("RecordDistributionStrategy") == "AUTO",
                created_ms(summary),
                text(summary.get("StreamStatus", "")),
                text(summary.get("StreamModeDetails", {}).get("StreamMode", "")),
                int(summary.get("ConsumerCount", 0)) + int(summary.get("QueueCount", 0)),
            )

        return self.call("DescribeStreamSummary", describe, retry=retry)

    def describe_created(self) -> StreamSummary:
        """Return the stream's summary, once it is no longer CREATING: wait for up to `CREATION`.

        Raises as `describe`, `StreamNotFoundError` if the stream is being deleted, and
        `ServiceError` if its creation does not end in time.
        """
        return self.when_created(self.describe, "stream", StreamNotFoundError)

    def list_shards(
        self,
        retry: Retries | None = None,
        *,
        at: Position | None = None,
        since: AtTimestamp | None = None,
    ) -> tuple[list[Shard], int]:
        """Call ListShards for all pages; return the shards, and the service's clock in epoch ms.

        at: lists only shards that were open at LATEST, TRIM_HORIZON or an instant (ShardFilter).
        since: lists only shards that did not end before this instant.
        """
        first: dict[str, Any] = self._id()
        if at is not None:
            first["ShardFilter"] = _shard_filter(at)
        elif since is not None:
            first["ShardFilter"] = {"Type": "FROM_TIMESTAMP", "Timestamp": since.instant}

        def ask(token: str | None) -> Mapping[str, Any]:
            # The service refuses a stream name together with a token.
            request = {"NextToken": token} if token else first

            def listed(client: Any) -> Mapping[str, Any]:
                answer = client.list_shards(**request)
                return {**answer, "Shards": list(map(_shard, answer["Shards"]))}

            return self.call("ListShards", listed, retry=retry)

        shards: list[Shard] = []
        first_time: int | None = None
        sent_ms = self.wall_clock_ms()
        for answer in pages(f"ListShards of {self.address}", "NextToken", ask):
            if first_time is None:
                first_time = self.service_time(answer, sent_ms)
            shards += answer["Shards"]
        assert first_time is not None
        return shards, first_time

    def list_shards_created(
        self,
        retry: Retries | None = None,
        *,
        at: Position | None = None,
        since: AtTimestamp | None = None,
    ) -> tuple[list[Shard], int]:
        """Return what `list_shards` returns; wait as `describe_created` if the stream is new."""
        try:
            return self.list_shards(retry, at=at, since=since)
        except ServiceError as error:
            if "ResourceInUseException" not in str(error):
                raise
        self.describe_created()
        return self.list_shards(retry, at=at, since=since)

    def shard_map(self) -> ShardMap:
        """Call ListShards; return the shards by their hash keys."""
        shards, _ = self.list_shards()
        return ShardMap.of(shards)

    def shard_iterator(
        self,
        shard_id: str,
        position: Position,
        *,
        inclusive: bool = False,
        budget: AbstractContextManager[object] | None = None,
        retry: Retries | None = None,
    ) -> str:
        """Return a shard iterator for the records after ``position`` (GetShardIterator).

        With ``inclusive`` the iterator starts AT the record of an `AfterRecord` position, so that
        the caller sees whether the stream still keeps that record. Each attempt enters ``budget``.
        """
        request = {**self._id(), "ShardId": shard_id, **iterator_type(position, inclusive)}
        iterator = self.call(
            "GetShardIterator",
            lambda c: text(c.get_shard_iterator(**request).get("ShardIterator") or ""),
            shard_id=shard_id,
            position=position,
            budget=budget,
            retry=retry,
        )
        if not iterator:
            raise ServiceError(
                f"GetShardIterator returned no iterator for shard {shard_id} of {self.address} at "
                f"position {position}. Try again; if the error persists, the shard no longer "
                "exists."
            )
        return iterator

    def has_shard(self, shard_id: str) -> bool:
        """Return True if the shard still exists, by GetShardIterator: ListShards may be stale."""
        if not _SHARD_ID.fullmatch(shard_id):
            return False
        try:
            self.shard_iterator(shard_id, TRIM_HORIZON)
        except ShardNotFoundError:
            return False
        return True

    def send_get_records(self, shard_id: str, iterator: str, limit: int) -> SentCall | None:
        """Send the request of `get_records`, to which the answer is given as ``sent``.

        One thread then asks thousands of shards, with many requests in flight, at less CPU than by
        many threads. None if the request cannot be sent ahead: make the call as usual.
        """
        client = call_client(self.address)
        send_ahead = getattr(client, "send_ahead", None)
        if send_ahead is None or shard_id in self._in_cbor:
            return None
        sent_ms, sent_at = self.wall_clock_ms(), self._retry.clock()
        try:
            answer = send_ahead("GetRecords", self._records_request(iterator, limit))
        except BotoCoreError:
            return None
        if answer is None:
            return None
        return SentCall(answer, sent_ms, sent_at, self._retry.clock, self.wall_clock_ms)

    def get_records(
        self,
        shard_id: str,
        iterator: str,
        limit: int,
        budget: AbstractContextManager[object] | None = None,
        retry: Retries | None = None,
        *,
        sent: SentCall | None = None,
    ) -> Fetched:
        """Fetch the page at ``iterator`` (GetRecords): at most ``limit`` records, and 10 MB.

        ``limit`` is 1 to 10,000. Each attempt enters ``budget``. sent: the first attempt, as of
        `send_get_records`.
        """
        request = self._records_request(iterator, limit)
        sent_ms = got_ms = answered_ms = 0

        def get(client: Any) -> Any:
            nonlocal sent, sent_ms, got_ms, answered_ms  # of this attempt
            first, sent = sent, None
            if first is not None:
                answer = first.take()
                sent_ms, got_ms = first.sent_ms, first.got_ms
                answered_ms = sent_ms  # or later: the answer may have lain there for long
            else:
                sent_ms = self.wall_clock_ms()
                ask = client.get_records
                if shard_id in self._in_cbor:
                    ask = getattr(client, "get_records_in_cbor", ask)
                answer = ask(**request)
                answered_ms = got_ms = self.wall_clock_ms()
            page = answer["Page"]
            if page.records:
                warn_if_mended(page, shard_id, self.address)
                self._tracing.fetched(self.address.name, shard_id, page.records)
            return answer

        answer = self.call(
            "GetRecords", get, shard_id=shard_id, budget=budget, retry=retry, sent=sent
        )
        took_ms = max(0, got_ms - sent_ms)
        now_ms = service_time(_headers(answer), answered_ms, sent_ms)
        # If the clocks differ, the service's clock is known to the second only.
        asked_ms = now_ms - took_ms // 1000 * 1000 if now_ms % 1000 == 0 else min(now_ms, sent_ms)
        fetched = Fetched(answer["Page"], answer["Size"], now_ms, asked_ms)
        if not fetched.page.records:
            self._in_cbor.discard(shard_id)
            return fetched
        note = self._in_cbor.add if pays_in_cbor(fetched) else self._in_cbor.discard
        note(shard_id)
        self.count_fetched(shard_id, fetched)
        return fetched

    def _records_request(self, iterator: str, limit: int) -> dict[str, Any]:
        request: dict[str, Any] = {"ShardIterator": iterator, "Limit": limit}
        if self.address.arn:
            request["StreamARN"] = self.address.arn
        return request

    def count_fetched(self, shard_id: str, fetched: Fetched) -> None:
        """Measure that a page or an event has arrived."""
        metrics = self.metrics
        if metrics is OFF or not fetched.page.records:
            return
        labels = (self.address.name, shard_id)
        metrics.add(RECORDS_FETCHED, labels, len(fetched.page.records))
        metrics.add(BYTES_FETCHED, labels, fetched.size)

    def subscribe(
        self, consumer_arn: str, shard_id: str, position: Position, *, inclusive: bool = False
    ) -> Subscription:
        """Subscribe to the records after ``position`` (SubscribeToShard), in one attempt.

        ``inclusive`` as in `shard_iterator`. Raises botocore's errors: `FanOutCursor` decides when
        to retry, by the previous subscription.
        """
        start = starting_position(position, inclusive)
        return self.call_once(
            "SubscribeToShard",
            lambda c: subscribe(
                c,
                consumer_arn,
                shard_id,
                start,
                self.service_time,
                on_event=lambda event: warn_if_mended(event, shard_id, self.address),
            ),
            shard_id,
        )

    def stream_arn(self) -> str:
        """Return the stream's ARN, from its address or else from one DescribeStreamSummary call."""
        if not self._arn:
            self.describe()
        return self._arn

    def learn_arn(self, arn: str) -> None:
        """Take over the stream's ARN, so that `stream_arn` calls nothing."""
        self._arn = arn

    def put_records(self, entries: Sequence[PutEntry]) -> list[PutResult]:
        """Put 1 to 500 entries (PutRecords); return the result of each, in order.

        A call whose answer is lost is retried, so that an entry may be stored more than once.
        """
        request = {**self._id(), "Records": [_put_entry(entry) for entry in entries]}

        def put(client: Any) -> list[PutResult]:
            results = client.put_records(**request)["Records"]
            if len(results) != len(entries):
                raise ValueError(f"{len(results)} results came for {len(entries)} records")
            return [
                PutResult(
                    result.get("ShardId"), result.get("ErrorCode"), result.get("ErrorMessage", "")
                )
                for result in results
            ]

        return self.call("PutRecords", put)

    def _id(self) -> dict[str, Any]:
        if self.address.arn:
            return {"StreamARN": self.address.arn}
        return {"StreamName": self.address.name}

    def service_time(self, answer: Mapping[str, Any], sent_ms: int | None = None) -> int:
        """Return the service's clock (epoch ms) at an answer to a call sent at ``sent_ms``."""
        return service_time(_headers(answer), self.wall_clock_ms(), sent_ms)


def _headers(answer: Mapping[str, Any]) -> Mapping[str, str]:
    headers: Mapping[str, str] = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return headers


def created_ms(summary: Mapping[str, Any]) -> int:
    """Return a stream's creation time in epoch ms; 0 if the service does not return it."""
    created: datetime | None = summary.get("StreamCreationTimestamp")
    return 0 if created is None else round(created.timestamp() * 1000)


def _shard(answer: Mapping[str, Any]) -> Shard:
    parents = (answer.get("ParentShardId"), answer.get("AdjacentParentShardId"))
    hash_keys, sequence_numbers = answer["HashKeyRange"], answer["SequenceNumberRange"]
    ending = sequence_numbers.get("EndingSequenceNumber")
    return Shard(
        text(answer["ShardId"]),
        tuple(text(parent) for parent in parents if parent),
        "EndingSequenceNumber" not in sequence_numbers,
        (int(hash_keys["StartingHashKey"]), int(hash_keys["EndingHashKey"])),
        text(sequence_numbers["StartingSequenceNumber"]),
        None if ending is None else text(ending),
    )


def _put_entry(entry: PutEntry) -> dict[str, Any]:
    request: dict[str, Any] = {"Data": entry.data}
    if entry.partition_key:
        request["PartitionKey"] = entry.partition_key
    if entry.explicit_hash_key is not None:
        request["ExplicitHashKey"] = entry.explicit_hash_key
    return request


def _shard_filter(position: Position) -> dict[str, Any]:
    if isinstance(position, AtTimestamp):
        return {"Type": "AT_TIMESTAMP", "Timestamp": position.instant}
    if position in {TRIM_HORIZON, LATEST}:
        return {"Type": f"AT_{position}"}
    raise ValueError(f"ListShards has no filter for position {position}")

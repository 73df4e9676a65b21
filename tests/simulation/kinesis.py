"""boto3's Kinesis client, as far as workers use it, on a local Kinesis in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from email.utils import formatdate
from functools import partial
from typing import Any

import msgspec

from sparkinesis.local import LocalKinesis
from sparkinesis.local.kinesis import CallResult
from sparkinesis.local.model.stream import Stream
from sparkinesis.local.model.tokens import ListShardsToken, ShardIterator, unseal
from sparkinesis.stream.calls.answers.decoding import data_size, decode_page
from tests.simulation.network import Network, client_error, operation_of
from tests.simulation.scheduler import Process

REGION = "us-east-1"
READ_TIMEOUT = 30.0
"""The timeout in seconds of the clients of `sparkinesis.stream.calls.session`."""


class KinesisClient:
    """A client whose answers and errors are boto3's, with the hooks of the package."""

    def __init__(
        self, network: Network, kinesis: LocalKinesis, list_lag_ms: int = 0, list_page: int = 1000
    ) -> None:
        self._network = network
        self._kinesis = kinesis
        self.list_lag_ms = list_lag_ms
        """The time for which ListShards still answers with the state before a reshard."""
        self.date_ahead_ms = 0
        """The milliseconds by which answers' dates are ahead of the clock that stamps records."""
        self.fetches: dict[tuple[str, str], list[float]] = {}
        """The times at which GetRecords was sent (virtual seconds), by process and shard."""
        self.names_streams = False
        """True if ``fetches`` names the stream before each shard."""
        self._list_page = list_page
        self.subscribe_to_shard: Callable[..., Any] | None = None
        """The call SubscribeToShard, which is that of a `SubscriptionClient`; None: never made."""

    def describe_stream_summary(self, **request: Any) -> Any:
        answer = self._call("DescribeStreamSummary", **request)
        summary = answer["StreamDescriptionSummary"]
        created = summary["StreamCreationTimestamp"]
        summary["StreamCreationTimestamp"] = datetime.fromtimestamp(created, timezone.utc)
        return answer

    def get_records(self, **request: Any) -> Any:
        token = unseal(request["ShardIterator"], ShardIterator)
        assert token is not None
        about = f"{token.stream}/{token.shard}" if self.names_streams else token.shard
        self._network.note(self.fetches, about)
        return self._call("GetRecords", **request)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Any other call."""
        return partial(self._call, operation_of(name))

    def _call(self, operation: str, **request: Any) -> Any:
        def serve(process: Process) -> Any:
            return self.serve(operation, request)

        stream = stream_of(request)
        return self._network.call("kinesis", operation, serve, timeout=READ_TIMEOUT, stream=stream)

    def serve(self, operation: str, request: Mapping[str, Any]) -> Any:
        """One call, at once. Raises ClientError."""
        if operation == "ListShards":
            request = {**request, "MaxResults": self._list_page}
        outcome = self._kinesis.serve(operation, request_body(request), region=REGION)
        refuse(operation, outcome)
        now_ms = self._kinesis.clock()
        answer = metadata(now_ms + self.date_ahead_ms)
        if operation == "GetRecords":
            page = decode_page(outcome.body)
            answer["Page"], answer["Size"] = page, data_size(len(outcome.body), page)
            return answer
        if outcome.body:
            answer.update(msgspec.json.decode(outcome.body))
        if operation == "ListShards" and self.list_lag_ms and "ShardFilter" not in request:
            then_ms = now_ms - self.list_lag_ms
            answer["Shards"] = self._as_before(request, answer["Shards"], then_ms)
        return answer

    def _as_before(
        self, request: Mapping[str, Any], shards: list[dict[str, Any]], then_ms: int
    ) -> list[dict[str, Any]]:
        """The shards as they were listed at an instant that has passed; at least the first ones."""
        known = {shard.id: shard for shard in self._listed_stream(request).shards}
        listed = []
        for shard in shards:
            real = known[shard["ShardId"]]
            if real.created_ms > then_ms and real.parents:
                continue
            if real.closed_ms is not None and real.closed_ms > then_ms:
                first = shard["SequenceNumberRange"]["StartingSequenceNumber"]
                numbers = {"StartingSequenceNumber": first}
                listed.append({**shard, "SequenceNumberRange": numbers})
            else:
                listed.append(shard)
        return listed

    def _listed_stream(self, request: Mapping[str, Any]) -> Stream:
        """The stream of a ListShards request. Shards of several streams have the same ids."""
        token = unseal(request.get("NextToken", ""), ListShardsToken)
        name = request["StreamName"] if token is None else token.stream
        return self._kinesis._regions[REGION].streams[name]


def stream_of(request: Mapping[str, Any]) -> str:
    """The name of the stream that a request is about; empty for one that names none."""
    if "StreamName" in request:
        return str(request["StreamName"])
    if "ShardIterator" in request:
        iterator = unseal(request["ShardIterator"], ShardIterator)
        return "" if iterator is None else iterator.stream
    if "NextToken" in request:
        token = unseal(request["NextToken"], ListShardsToken)
        return "" if token is None else token.stream
    arn = str(request.get("StreamARN", request.get("ConsumerARN", "")))
    return arn.partition(":stream/")[2].partition("/")[0]


def request_body(request: Mapping[str, Any]) -> bytes:
    """A request as boto3 sends it: instants are in epoch seconds."""
    return msgspec.json.encode(_wire(request))


def _wire(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _wire(item) for name, item in value.items()}
    return value.timestamp() if isinstance(value, datetime) else value


def refuse(operation: str, outcome: CallResult) -> None:
    """Raise a ClientError for an outcome that is an error."""
    if outcome.error is not None:
        message = msgspec.json.decode(outcome.body)["message"]
        raise client_error(operation, outcome.error, message, outcome.status)


def metadata(now_ms: int) -> dict[str, Any]:
    """The metadata of a successful answer, with the service's clock."""
    headers = {"date": formatdate(now_ms // 1000, usegmt=True)}
    return {"ResponseMetadata": {"HTTPStatusCode": 200, "HTTPHeaders": headers}}

"""boto3's Kinesis client, as far as workers use it, on a local Kinesis in this process."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from email.utils import formatdate
from typing import Any

import msgspec

from sparkinesis.local import LocalKinesis
from sparkinesis.stream.page import decode_page
from sparkinesis.stream.transport import data_size
from tests.simulation.network import Network, client_error
from tests.simulation.scheduler import Process

REGION = "us-east-1"
_TIMEOUT = 30.0
"""Seconds: that of the clients of `sparkinesis.stream.session`."""


class KinesisClient:
    """Its methods' answers and errors are those of boto3's, with the hooks of the package."""

    def __init__(self, network: Network, kinesis: LocalKinesis, list_lag_ms: int = 0) -> None:
        self._network = network
        self._kinesis = kinesis
        self.list_lag_ms = list_lag_ms
        """How long ListShards goes on to answer as if a reshard had not happened."""

    def describe_stream_summary(self, **request: Any) -> Any:
        return self._call("DescribeStreamSummary", request)

    def list_shards(self, **request: Any) -> Any:
        return self._call("ListShards", request)

    def get_shard_iterator(self, **request: Any) -> Any:
        return self._call("GetShardIterator", request)

    def get_records(self, **request: Any) -> Any:
        return self._call("GetRecords", request)

    def _call(self, operation: str, request: Mapping[str, Any]) -> Any:
        def serve(process: Process) -> Any:
            return self.serve(operation, request)

        return self._network.call("kinesis", operation, serve, timeout=_TIMEOUT)

    def serve(self, operation: str, request: Mapping[str, Any]) -> Any:
        """One call, at once. Raises ClientError."""
        body = msgspec.json.encode(
            {
                name: value.timestamp() if isinstance(value, datetime) else value
                for name, value in request.items()
            }
            if operation != "ListShards"
            else _list_request(request)
        )
        outcome = self._kinesis.serve(operation, body, region=REGION)
        if outcome.error is not None:
            message = msgspec.json.decode(outcome.body)["message"]
            raise client_error(operation, outcome.error, message, outcome.status)
        now_ms = self._kinesis.clock()
        answer: dict[str, Any] = {
            "ResponseMetadata": {
                "HTTPStatusCode": 200,
                "HTTPHeaders": {"date": formatdate(now_ms // 1000, usegmt=True)},
            }
        }
        if operation == "GetRecords":
            page = decode_page(outcome.body)
            answer["Page"], answer["Size"] = page, data_size(len(outcome.body), page)
            return answer
        answer.update(msgspec.json.decode(outcome.body))
        if operation == "ListShards" and self.list_lag_ms and "ShardFilter" not in request:
            answer["Shards"] = self._as_before(answer["Shards"], now_ms - self.list_lag_ms)
        return answer

    def _as_before(self, shards: list[dict[str, Any]], then_ms: int) -> list[dict[str, Any]]:
        """The shards as they were listed at an instant that has passed; at least the first ones."""
        known = {
            shard.id: shard
            for region in self._kinesis._regions.values()
            for stream in region.streams.values()
            for shard in stream.shards
        }
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


def _list_request(request: Mapping[str, Any]) -> dict[str, Any]:
    wanted = dict(request)
    found = wanted.get("ShardFilter")
    if found is not None and "Timestamp" in found:
        wanted["ShardFilter"] = {**found, "Timestamp": found["Timestamp"].timestamp()}
    return wanted

"""AWS event stream messages as a service writes them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sparkinesis.local.wire import push

_JSON = "application/json"


def event(payload: Mapping[str, Any], name: str = "SubscribeToShardEvent") -> bytes:
    return push.event(name, _JSON, json.dumps(payload).encode())


def exception(code: str, text: str = "Said so.") -> bytes:
    return push.exception(code, _JSON, json.dumps({"message": text}).encode())


INITIAL_RESPONSE = event({}, "initial-response")


def records_event(
    numbers: Sequence[int], continuation: int | None, children: Sequence[str] = ()
) -> bytes:
    """An event of one record for each sequence number, whose data is that number."""
    payload: dict[str, Any] = {
        "Records": [
            {
                "Data": base64.b64encode(str(number).encode()).decode(),
                "PartitionKey": "k",
                "SequenceNumber": str(number),
                "ApproximateArrivalTimestamp": 1.79e9,
            }
            for number in numbers
        ],
        "MillisBehindLatest": 0,
    }
    if continuation is not None:
        payload["ContinuationSequenceNumber"] = str(continuation)
    if children:
        payload["ChildShards"] = [
            {
                "ShardId": child,
                "ParentShards": ["shardId-000000000000"],
                "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "1"},
            }
            for child in children
        ]
    return event(payload)

"""AWS event stream messages as a service writes them."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any


def message(payload: bytes, headers: Mapping[str, str]) -> bytes:
    packed = b"".join(
        bytes([len(name)])
        + name.encode()
        + b"\x07"
        + struct.pack("!H", len(value))
        + value.encode()
        for name, value in headers.items()
    )
    return framed(packed, payload)


def framed(headers: bytes, payload: bytes) -> bytes:
    """A message of packed headers."""
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    body = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + payload
    return body + struct.pack("!I", zlib.crc32(body))


INITIAL_RESPONSE = message(b"{}", {":message-type": "event", ":event-type": "initial-response"})


def event(payload: Mapping[str, Any], name: str = "SubscribeToShardEvent") -> bytes:
    headers = {
        ":message-type": "event",
        ":event-type": name,
        ":content-type": "application/json",
    }
    return message(json.dumps(payload).encode(), headers)


def exception(code: str, text: str = "Said so.") -> bytes:
    headers = {":message-type": "exception", ":exception-type": code}
    return message(json.dumps({"message": text}).encode(), headers)


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

"""boto3's clients of the service, with our own decoding where records come in.

botocore's parser would spend most of a reader's time on a page, and reads the events of a
subscription through a decoder that is slower still. ``before-parse`` is botocore's own hook for
custom parsing: it takes the answer's body and leaves the parser something small.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.session import open_client
from sparkinesis.stream.credentials import CredentialSource
from sparkinesis.stream.page import Page, decode_page

MOST_SUBSCRIPTIONS = 256
"""Connections of ended subscriptions that are kept for the next ones, at most."""


def call_client(address: StreamAddress) -> Any:
    """For all calls but SubscribeToShard.

    One client, and so one pool of connections, per process, region, endpoint and role.
    """
    return _call_client(address.region, address.endpoint, address.credentials)


def subscription_client(address: StreamAddress) -> Any:
    """For SubscribeToShard, whose connections are taken for minutes: a pool of their own."""
    return _subscription_client(address.region, address.endpoint, address.credentials)


@functools.lru_cache(maxsize=64)
def _call_client(region: str | None, endpoint: str | None, credentials: CredentialSource) -> Any:
    client = open_client("kinesis", credentials, region, endpoint)
    client.meta.events.register("before-parse.kinesis.GetRecords", _decode_get_records)
    return client


@functools.lru_cache(maxsize=64)
def _subscription_client(
    region: str | None, endpoint: str | None, credentials: CredentialSource
) -> Any:
    client = open_client(
        "kinesis", credentials, region, endpoint, max_pool_connections=MOST_SUBSCRIPTIONS
    )
    client.meta.events.register("before-parse.kinesis.SubscribeToShard", _take_event_stream)
    return client


def _decode_get_records(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Decode a page ourselves and leave botocore's parser an empty document."""
    if response_dict["status_code"] < 300:
        body = response_dict["body"]
        page = decode_page(body)
        customized_response_dict["Size"] = data_size(len(body), page)
        customized_response_dict["Page"] = page
        response_dict["body"] = b"{}"


def _take_event_stream(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Take the body, unread, and leave botocore's parser the first message that it asks for."""
    if response_dict["status_code"] < 300:
        customized_response_dict["Body"] = response_dict["body"]
        response_dict["body"] = _InitialResponse()


def _message(payload: bytes, **headers: str) -> bytes:
    packed = b"".join(
        struct.pack(f"!B{len(name) + 1}sBH", len(name) + 1, f":{name}".encode(), 7, len(value))
        + value.encode()
        for name, value in ((name.replace("_", "-"), value) for name, value in headers.items())
    )
    prelude = struct.pack("!II", 16 + len(packed) + len(payload), len(packed))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + packed + payload
    return message + struct.pack("!I", zlib.crc32(message))


class _InitialResponse:
    """An event stream of the one message that botocore reads before it hands a stream on."""

    _MESSAGE = _message(b"{}", message_type="event", event_type="initial-response")

    def stream(self) -> Iterator[bytes]:
        yield self._MESSAGE

    def close(self) -> None:
        """There is nothing to close."""


_RECORD_FRAME = len(
    '{"SequenceNumber":"","ApproximateArrivalTimestamp":1.790000000123E9,"Data":"",'
    '"PartitionKey":""},'
)


def data_size(size: int, page: Page) -> int:
    """Bytes of the records in JSON of ``size`` bytes, nearly, without a walk over them.

    What surrounds the data is much the same for each; the data is in base64, four bytes for three.
    """
    if not page.records:
        return 0
    first = page.records[0]
    key = len(first.partition_key or "")
    frame = _RECORD_FRAME + len(first.sequence_number) + key
    data = max(size - len(page.records) * frame, 0) * 3 // 4
    return data + len(page.records) * key

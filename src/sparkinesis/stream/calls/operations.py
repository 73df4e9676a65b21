"""What is known of the operations that are called directly: their bounds, and their decoders.

Where botocore makes a call, its parser would take most of a reader's time per page. botocore's hook
``before-parse`` permits custom parsing: our handlers take the answer's body and leave a small
document to the parser.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from sparkinesis.stream.calls.answers.decoding import data_size, decode_cbor_page, decode_page
from sparkinesis.stream.calls.answers.guards import MIB, Bound
from sparkinesis.stream.calls.direct.direct_client import Decoder, decode_answer
from sparkinesis.stream.calls.direct.http_answer import HttpAnswer
from sparkinesis.stream.page import Fetched

_RECEIVING = ("ReceiveQueueRecords", "ReceiveDeadLetterQueueRecords")
_ANSWERING = (
    "AcknowledgeQueueRecords",
    "AcknowledgeDeadLetterQueueRecords",
    "RestoreDeadLetterQueueRecords",
    "UpdateQueueRecordsVisibility",
    "UpdateDeadLetterQueueRecordsVisibility",
)
ON_QUEUES = (
    *("CreateQueue", "DeleteQueue", "DescribeQueue", "ListQueues", "UpdateQueue"),
    *_RECEIVING,
    *_ANSWERING,
)
"""The operations on queues. Their answers are the bodies, which `sparkinesis.queue` decodes."""

BOUNDS: Mapping[str, Bound] = {
    # 10 MiB in base64, and for each of 10,000 records a frame and a key, each character escaped.
    # An iterator is valid for 300 seconds.
    "GetRecords": Bound(240.0, 32 * MIB),
    # 10,000 shards at most, of some 500 bytes each.
    "ListShards": Bound(120.0, 16 * MIB),
    # The request has 10 MiB at most, its answer 500 results.
    "PutRecords": Bound(120.0, 4 * MIB),
    # 20 seconds of waiting, and 10 records of 10 MiB in base64: over a line of 4 Mbit/s. What takes
    # longer has mostly become visible again.
    **dict.fromkeys(_RECEIVING, Bound(320.0, 144 * MIB)),
    # A hold lasts for 30 seconds by default: a call without an answer has to be made again in time.
    **dict.fromkeys(_ANSWERING, Bound(10.0, MIB)),
}
"""Generous: what the service's limits permit (API reference), over a line of half a Mbit/s."""


def _decode_answer_page(answer: HttpAnswer) -> dict[str, Any]:
    page = decode_page(answer.body)
    return {"Page": page, "Size": data_size(len(answer.body), page)}


def _decode_cbor_page(answer: HttpAnswer) -> dict[str, Any]:
    page = decode_cbor_page(answer.body)
    return {"Page": page, "Size": data_size(len(answer.body), page, is_cbor=True)}


def _decode_summary(answer: HttpAnswer) -> dict[str, Any]:
    found = decode_answer(answer)
    summary: dict[str, Any] = found.get("StreamDescriptionSummary", {})
    created = summary.get("StreamCreationTimestamp")
    if created is not None:
        summary["StreamCreationTimestamp"] = datetime.fromtimestamp(created, timezone.utc)
    return found


DECODERS: Mapping[str, Decoder] = {
    "DescribeStreamConsumer": decode_answer,
    "DescribeStreamSummary": _decode_summary,
    "GetRecords": _decode_answer_page,
    "GetShardIterator": decode_answer,
    "ListShards": decode_answer,
    "PutRecords": decode_answer,
    "RegisterStreamConsumer": decode_answer,
    "SubscribeToShard": lambda answer: {"Body": answer.stream},
    **dict.fromkeys(ON_QUEUES, lambda answer: {"Body": answer.body}),
}

IN_CBOR: Mapping[str, Decoder] = {"GetRecords": _decode_cbor_page}
"""Of the operations that may be asked for CBOR, which pays for long answers."""


_LEAST_PAGE, _LEAST_RECORD = 64 * 1024, 10_000
"""Bytes from which a page takes less CPU in CBOR, and from which its records do, on average
(`benchmarks/call.py`). Without TLS, records of 10 KB take as much in both."""


def pays_in_cbor(fetched: Fetched) -> bool:
    """Return True if the next page is to be asked for in CBOR, as this one shows."""
    return fetched.size >= max(_LEAST_PAGE, _LEAST_RECORD * len(fetched.page.records))


def take_from_parser(client: Any) -> None:
    """Take the answers of a botocore client before its parser does, where that takes long."""
    register = client.meta.events.register
    register("before-parse.kinesis.GetRecords", _decode_get_records)
    register("before-parse.kinesis.SubscribeToShard", _take_event_stream)
    for operation in ON_QUEUES:
        register(f"before-parse.kinesis.{operation}", _take_body)


def _decode_get_records(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Decode a page, and leave an empty document to botocore's parser."""
    if response_dict["status_code"] < 300:
        body = response_dict["body"]
        page = decode_page(body)
        customized_response_dict["Size"] = data_size(len(body), page)
        customized_response_dict["Page"] = page
        response_dict["body"] = b"{}"


def _take_body(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Take the body, and leave an empty document to botocore's parser."""
    if response_dict["status_code"] < 300:
        customized_response_dict["Body"] = response_dict["body"]
        response_dict["body"] = b"{}"


def _take_event_stream(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Take the unread body, and leave the first message that botocore expects to its parser."""
    if response_dict["status_code"] < 300:
        from sparkinesis.stream.calls.direct.by_botocore import pumped  # noqa: PLC0415 - with urllib3

        customized_response_dict["Body"] = pumped(response_dict["body"])
        response_dict["body"] = _InitialResponse()


class _InitialResponse:
    """An event stream of the one message that botocore reads before it returns a stream."""

    _MESSAGE = (
        b"\0\0\0G\0\0\0005\xd9B\x9f\x13"
        b"\r:message-type\7\0\5event\13:event-type\7\0\20initial-response"
        b"{}\x8d\xe0\xc8\xa3"
    )

    def stream(self) -> Iterator[bytes]:
        yield self._MESSAGE

    def close(self) -> None:
        """Does nothing: no resource is open."""

"""botocore's errors for answers in the services' own form, made without botocore.

botocore's parser makes the others: those of another form, and those with another code.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeAlias, TypedDict

import msgspec
from botocore.exceptions import ClientError

from sparkinesis.stream.calls.direct.http_answer import HttpAnswer

_LEAST_STATUS = 301
"""botocore's parser takes a lower one for that of an answer."""

_OF_KINESIS = (
    *("AccessDeniedException", "DryRunOperationException", "ExpiredIteratorException"),
    *("ExpiredNextTokenException", "InternalFailureException", "InvalidArgumentException"),
    *("KMSAccessDeniedException", "KMSDisabledException", "KMSInvalidStateException"),
    *("KMSNotFoundException", "KMSOptInRequired", "KMSThrottlingException"),
    *("LimitExceededException", "ProvisionedThroughputExceededException"),
    *("ResourceInUseException", "ResourceNotFoundException", "ThrottlingException"),
    "ValidationException",
)
_OF_DYNAMODB = (
    *("InternalServerError", "ItemCollectionSizeLimitExceededException", "LimitExceededException"),
    *("ReplicatedWriteConflictException", "ResourceInUseException"),
    *("ResourceNotFoundException", "TransactionConflictException"),
)
FIELDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "kinesis": dict.fromkeys(_OF_KINESIS, ("message",)),
    "dynamodb": {
        **dict.fromkeys(_OF_DYNAMODB, ("message",)),
        "ConditionalCheckFailedException": ("message", "Item"),
        "IdempotentParameterMismatchException": ("Message",),
        "ProvisionedThroughputExceededException": ("message", "ThrottlingReasons"),
        "RequestLimitExceeded": ("message", "ThrottlingReasons"),
        "ThrottlingException": ("message", "throttlingReasons"),
        "TransactionCanceledException": ("Message", "CancellationReasons"),
        "TransactionInProgressException": ("Message",),
    },
}
"""The errors that the services' models name for the operations that are called directly, and for
transactions: for each, botocore has an exception, whose response has the fields of the model."""


class _Value(TypedDict, total=False):
    """An attribute of an item. Bytes come in base64."""

    S: str
    N: str
    B: bytes
    SS: list[str]
    NS: list[str]
    BS: list[bytes]
    M: dict[str, _Value]
    L: list[_Value]
    NULL: bool
    BOOL: bool


_Item: TypeAlias = dict[str, _Value]


class _CancellationReason(TypedDict, total=False):
    Item: _Item
    Code: str
    Message: str


class _ThrottlingReason(TypedDict, total=False):
    reason: str
    resource: str


_TYPES: Mapping[str, Any] = {
    "message": str,
    "Message": str,
    "Item": _Item,
    "CancellationReasons": list[_CancellationReason],
    "ThrottlingReasons": list[_ThrottlingReason],
    "throttlingReasons": list[_ThrottlingReason],
}


def usual_error(service: str, operation: str, answer: HttpAnswer) -> ClientError | None:
    """Return botocore's error for an answer in its usual form; None if botocore has to make it."""
    if answer.status < _LEAST_STATUS or "x-amzn-query-error" in answer.headers:
        return None
    try:
        said = _DECODER.decode(answer.body)
        code = msgspec.convert(said.get("__type"), str).partition(":")[0].rpartition("#")[2]
        names = FIELDS.get(service, {}).get(code)
        if names is None:
            return None
        fields = {name: _field(name, said[name]) for name in names if name in said}
        message = _field("message", said.get("message", said.get("Message", "")))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    metadata = {
        "HTTPStatusCode": answer.status,
        "HTTPHeaders": dict(answer.headers),
        "RetryAttempts": 0,
    }
    if "x-amzn-requestid" in answer.headers:
        metadata["RequestId"] = answer.headers["x-amzn-requestid"]
    error = {"Message": message, "Code": code}
    return _kind(code)({"Error": error, "ResponseMetadata": metadata, **fields}, operation)


_DECODER = msgspec.json.Decoder(dict[str, Any])


def _field(name: str, value: Any) -> Any:
    return msgspec.convert(value, _TYPES[name])


@functools.cache
def _kind(code: str) -> type[ClientError]:
    return type(code, (ClientError,), {})
